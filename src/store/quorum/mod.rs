//! The store on several independent servers (Redlock): a majority of the nodes decides.
//!
//! Each node has the keys of a single server, and their meaning. A change goes through two phases
//! ([`transact`]):
//!
//! | module | contains |
//! | --- | --- |
//! | [`request`], [`proposer`] | a request; the nodes, and what this process remembers of them |
//! | [`nodes`], [`turns`] | asks many nodes at once; lets the requests of one lock take turns |
//! | [`prepare`] | phase 1: the vote of one node, the promises of the others |
//! | `merge`, `blocks`, `clock`, `history` | what the replies of several nodes mean together |
//! | `apply`, `decide`, `proposal` | the rules of [`protocol`], and what follows |
//! | [`accept`], [`trust`] | phase 2: the proposal, and which nodes count |
//! | [`backfill`], [`reassert`], [`repair`] | bring a node up to date that was away or lost its data |
//!
//! Renewals go to all nodes at once ([`renew`]), because they change no ledger.

mod accept;
mod apply;
mod backfill;
mod blocks;
mod clock;
mod condition;
mod daemon_request;
mod decide;
mod history;
mod hosts;
mod longest_ttl;
mod manual;
mod merge;
mod nodes;
mod outage;
mod prepare;
mod proposal;
mod proposer;
mod reads;
mod reassert;
mod registry;
mod relocate;
mod renew;
mod repair;
mod request;
mod transact;
mod trust;
mod turns;

pub use self::decide::{Decision, Requester, decide};
pub use self::history::{covers, is_overtaken};
pub use self::merge::{
    Doubt, MergedState, QuorumCheck, check_quorum, check_quorum_for_holder, is_preempted, merge,
    quorum,
};
pub use self::request::Transition;
pub use self::trust::Trust;
pub use super::redis::node::{
    AcceptReply, AcceptStatus, Ballot, ExtendReply, HistoryEntry, JobView, KeyHolder, LockView,
    LongestTtl, PrepareMode, PrepareReply, PrepareStatus, Proposal, ProposedLease, ProposedRecord,
    QuorumNode, RequestTarget, StreamId, finished_text,
};

#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;

use self::proposer::Proposer;
use self::repair::RepairLoop;
use self::request::{QuorumReply, QuorumRequest, QuorumWait};
use super::protocol;
use super::{
    Attempt, Beginning, Claim, ClaimReply, Condition, DaemonRequest, Entry, Filed, FiledRequest,
    Fingerprint, Finish, FinishReply, Forget, Forgotten, History, HostInfo, HostJobs, HostReport,
    JobReport, JobsRevision, Keeping, ListedJobs, Listing, Lock, ManualNote, ManualRun,
    OutputChunk, PauseReply, PauseRequest, RedlockSettings, Registered, Registration, RenewReply,
    Renewal, Replaced, Replacement, RequestReply, Returned, Seen, Settle, Store, StoreError,
    StoreNodes, relocate::follow,
};
use crate::ground::tasks::SpawnBoxed as _;
use crate::names::{HostName, JobName, RunId};
use crate::time::{BootInstant, Timestamp};

/// The store on a majority of nodes.
#[derive(Debug)]
pub(super) struct QuorumStore {
    proposer: Arc<Proposer>,
    repair: Arc<RepairLoop>,
    /// The node on which this host listens for returned occurrences.
    listens_to: AtomicUsize,
}

impl QuorumStore {
    /// A store that connects when it is first asked.
    pub(super) fn new(settings: &RedlockSettings) -> Result<Self, StoreError> {
        let proposer = Arc::new(Proposer::new(settings)?);
        Ok(Self {
            repair: RepairLoop::new(Arc::clone(&proposer)),
            proposer,
            listens_to: AtomicUsize::new(0),
        })
    }
}

impl QuorumStore {
    async fn finish_here(&self, finish: &Finish) -> Result<FinishReply, StoreError> {
        let recorded = finish.record.as_ref().map(|record| &record.job);
        let request = QuorumRequest {
            lock: &finish.lock,
            job: finish.job.as_ref().or(recorded),
            me: Some(&finish.token),
            reports: true,
            ttl: Duration::ZERO,
            wait: QuorumWait::Enough,
        };
        let done = self
            .proposer
            .transact(&request, |lock, job, clock| {
                let (reply, effects) = protocol::finish(lock, job, clock, finish);
                Transition::of(reply, effects)
            })
            .await?;
        done.or_recovering()
    }
}

#[async_trait]
impl Store for QuorumStore {
    async fn claim(&self, claim: &Claim) -> Result<ClaimReply, StoreError> {
        let request = QuorumRequest {
            lock: &claim.lock,
            job: claim.what.job(),
            me: Some(&claim.token),
            reports: false,
            ttl: claim.ttl,
            wait: QuorumWait::Enough,
        };
        let done = self
            .proposer
            .transact(&request, |lock, job, clock| {
                // The nodes read their clocks before this. A claim ahead of its instant need not wait
                // again for the time that the nodes take to accept it.
                let read = BootInstant::now();
                let (reply, effects) = protocol::claim(lock, job, clock, claim);
                let taken = matches!(reply, ClaimReply::Granted { .. });
                Transition {
                    reply: (reply, read),
                    effects,
                    taken,
                }
            })
            .await?;
        Ok(match done {
            QuorumReply::Reply((reply, read)) => reply.after(BootInstant::now().since(read)),
            QuorumReply::Recovering(remaining) => ClaimReply::Recovering { remaining },
        })
    }

    async fn renew(&self, renewals: &[Renewal]) -> Result<Vec<RenewReply>, StoreError> {
        self.proposer.renew(renewals).await
    }

    async fn finish(&self, finish: &Finish) -> Result<FinishReply, StoreError> {
        follow(
            finish,
            |finish| async move { self.finish_here(&finish).await },
        )
        .await
    }

    async fn settle(&self, settle: &Settle) -> Result<bool, StoreError> {
        let request = QuorumRequest::of_job(&settle.job, &settle.lock);
        let done = self
            .proposer
            .transact_lazily(&request, |lock, job, clock| {
                let (reply, effects) = protocol::settle(lock, job, clock, settle);
                Transition::of(reply, effects)
            })
            .await?;
        Ok(match done {
            QuorumReply::Reply(settled) => settled,
            // Its holder may take it back.
            QuorumReply::Recovering(_) => false,
        })
    }

    async fn pause(&self, pause: &PauseRequest) -> Result<PauseReply, StoreError> {
        let request = QuorumRequest::of_job(&pause.job, &pause.lock);
        let done = self
            .proposer
            .transact(&request, |_, job, clock| {
                Transition::of(protocol::pause(job, clock, pause), Vec::new())
            })
            .await?;
        Ok(match done {
            QuorumReply::Reply(reply) => reply,
            QuorumReply::Recovering(remaining) => PauseReply::Recovering { remaining },
        })
    }

    async fn note_attempt(&self, attempt: &Attempt) -> Result<bool, StoreError> {
        let request = QuorumRequest {
            me: Some(&attempt.token),
            reports: true,
            ..QuorumRequest::of_job(&attempt.job, &attempt.lock)
        };
        let done = self
            .proposer
            .transact(&request, |_, job, _| {
                Transition::of(protocol::note_attempt(job, attempt), Vec::new())
            })
            .await?;
        done.or_recovering()
    }

    async fn register(&self, jobs: &[Registration]) -> Result<Vec<Registered>, StoreError> {
        self.register_all(jobs).await
    }

    async fn begin(&self, jobs: &[Beginning]) -> Result<Vec<bool>, StoreError> {
        self.begin_all(jobs).await
    }

    async fn listings(&self, jobs: &[JobName]) -> Result<Vec<Listing>, StoreError> {
        self.merged_listings(jobs).await
    }

    async fn enlist(
        &self,
        host: &HostName,
        entries: &[(JobName, Entry)],
    ) -> Result<(), StoreError> {
        self.enlist_on_nodes(host, entries).await
    }

    async fn keep(&self, jobs: &[Keeping]) -> Result<(), StoreError> {
        self.keep_on_nodes(jobs).await
    }

    async fn listed_since(
        &self,
        host: &HostName,
        known: Option<&JobsRevision>,
    ) -> Result<Option<HostJobs>, StoreError> {
        self.listed_on_nodes(host, known).await
    }

    async fn note_manual(&self, run: &ManualRun) -> Result<(), StoreError> {
        self.note_manual_on_nodes(run).await
    }

    async fn manual_runs(&self) -> Result<Vec<ManualNote>, StoreError> {
        self.merged_manual_runs().await
    }

    async fn forget_manual(&self, runs: &[RunId]) -> Result<(), StoreError> {
        self.forget_manual_on_nodes(runs).await
    }

    async fn file_request(
        &self,
        request: &DaemonRequest,
        deadline: Timestamp,
    ) -> Result<Filed, StoreError> {
        self.file_on_nodes(request, deadline).await
    }

    async fn requests(&self, host: Option<&HostName>) -> Result<Vec<FiledRequest>, StoreError> {
        self.merged_requests(host).await
    }

    async fn take_request(&self, id: &RunId) -> Result<bool, StoreError> {
        self.take_on_nodes(id).await
    }

    async fn reply_to_request(&self, id: &RunId, reply: &RequestReply) -> Result<(), StoreError> {
        self.reply_on_nodes(id, reply).await
    }

    async fn request_filed(&self, host: &HostName, limit: Duration) -> Result<(), StoreError> {
        self.request_filed_on_a_node(host, limit).await
    }

    async fn send_output(
        &self,
        run: &RunId,
        number: u64,
        chunk: &OutputChunk,
    ) -> Result<u64, StoreError> {
        self.send_output_to_nodes((run, number), chunk).await
    }

    async fn receive_output(
        &self,
        run: &RunId,
        from: u64,
    ) -> Result<Vec<(u64, OutputChunk)>, StoreError> {
        self.receive_output_from_nodes(run, from).await
    }

    async fn ledger(&self, job: &JobName, lock: &Lock) -> Result<super::Ledger, StoreError> {
        self.read_ledger(job, lock).await
    }

    async fn replace(&self, replacement: &Replacement) -> Result<Replaced, StoreError> {
        self.replace_ledger(replacement).await
    }

    async fn announce(&self, host: &HostInfo, valid_for: Duration) -> Result<(), StoreError> {
        let (host, asked) = (host.clone(), self.proposer.nodes.len());
        let answers = self.proposer.nodes.ask(0..asked, |node| {
            let host = host.clone();
            async move { node.store.announce(&host, valid_for).await }
        });
        if valid_for.is_zero() {
            // A node that did not receive it would continue to list the host.
            return self.all_there(answers).await.map(drop);
        }
        self.a_majority(answers).await?;
        self.repair.tend();
        Ok(())
    }

    async fn released(&self, lock: &Lock, limit: Duration) -> Result<(), StoreError> {
        // One that listens to the first of many is woken by most; it asks again anyway.
        let first = self.proposer.nodes.order(&lock.name)[0];
        self.proposer
            .nodes
            .get(first)
            .store
            .released(lock, limit)
            .await
    }

    async fn tell_returned(&self, job: &JobName) -> Result<(), StoreError> {
        let (job, asked) = (job.clone(), self.proposer.nodes.len());
        let answers = self.proposer.nodes.ask(0..asked, |node| {
            let job = job.clone();
            async move { node.store.tell_returned(&job).await }
        });
        self.a_majority(answers).await.map(drop)
    }

    async fn returned(&self, seen: &mut Seen, limit: Duration) -> Result<Returned, StoreError> {
        // All nodes receive it. If one is unreachable, the next one sends the message.
        let nodes = &self.proposer.nodes;
        let at = self.listens_to.load(Ordering::Relaxed) % nodes.len();
        let heard = nodes.get(at).store.returned(seen, limit).await;
        if heard.is_err() {
            self.listens_to.store(at + 1, Ordering::Relaxed);
            *seen = Seen::default();
        }
        heard
    }

    async fn now(&self) -> Result<Timestamp, StoreError> {
        let asked = self.proposer.nodes.len();
        let answers = self
            .proposer
            .nodes
            .ask(0..asked, |node| async move { node.store.now().await });
        let micros = |at: &Timestamp| u64::try_from(at.millis()).unwrap_or(0) * 1000;
        let clocks = self.agreeing_clocks(answers, micros).await?;
        Ok(clock::deciding_clock(clocks.iter().map(micros).collect()).utc())
    }

    async fn jobs(&self, jobs: &[(JobName, Lock)]) -> Result<Vec<JobReport>, StoreError> {
        self.report_all(jobs).await
    }

    async fn history(
        &self,
        job: &JobName,
        lock: &Lock,
        limit: usize,
    ) -> Result<History, StoreError> {
        let asked = self.proposer.nodes.len();
        let answers = self.proposer.nodes.ask(0..asked, |node| {
            let (job, lock) = (job.clone(), lock.clone());
            async move { node.records(&job, &lock, limit.max(1)).await }
        });
        let found = self.all_there(answers).await?;
        let (found, unreadable): (Vec<_>, Vec<_>) = found.into_iter().unzip();
        let mut records = history::merged_records(found);
        records.truncate(limit);
        Ok(History {
            records,
            unreadable: unreadable.into_iter().flatten().collect(),
        })
    }

    async fn failures(&self, _: &[(JobName, Lock)], limit: usize) -> Result<History, StoreError> {
        let nodes = &self.proposer.nodes;
        let replies = nodes.ask(0..nodes.len(), |node| async move {
            node.failures(limit.max(1)).await
        });
        let found = self.all_there(replies).await?;
        let (found, unreadable): (Vec<_>, Vec<_>) = found.into_iter().unzip();
        let mut records = history::merged_failures(found, nodes.quorum());
        records.truncate(limit);
        Ok(History {
            records,
            unreadable: unreadable.into_iter().flatten().collect(),
        })
    }

    async fn hosts(&self) -> Result<Vec<HostReport>, StoreError> {
        let asked = self.proposer.nodes.len();
        let answers = self
            .proposer
            .nodes
            .ask(0..asked, |node| async move { node.store.hosts().await });
        Ok(reads::newest(self.a_majority(answers).await?))
    }

    async fn peers(&self) -> Result<Vec<HostReport>, StoreError> {
        let answers = (self.proposer.nodes).ask(0..self.proposer.nodes.len(), |node| async move {
            node.store.hosts().await
        });
        Ok(reads::newest(self.all_there(answers).await?))
    }

    async fn vanished(&self) -> Result<Vec<HostReport>, StoreError> {
        self.vanished_from_nodes().await
    }

    async fn keep_list(
        &self,
        list: &Fingerprint,
        jobs: Option<&ListedJobs>,
    ) -> Result<bool, StoreError> {
        self.keep_list_on_nodes(list, jobs).await
    }

    async fn listed_jobs(&self, list: &Fingerprint) -> Result<Option<ListedJobs>, StoreError> {
        self.listed_jobs_on_nodes(list).await
    }

    async fn nodes(&self) -> Result<Option<StoreNodes>, StoreError> {
        let count = self.proposer.nodes.len();
        let answers =
            (self.proposer.nodes).ask(0..count, |node| async move { node.store.server().await });
        let servers = self.all_there(answers).await?.into_iter().collect();
        Ok(Some(StoreNodes { count, servers }))
    }

    async fn condition(&self, jobs: &[(JobName, Lock)]) -> Result<Condition, StoreError> {
        Ok(self.look_at_nodes(jobs).await)
    }

    async fn forget(&self, request: &Forget) -> Result<Forgotten, StoreError> {
        self.forget_everywhere(request).await
    }

    async fn attend(&self, host: &HostName) {
        let mut nodes = tokio::task::JoinSet::new();
        for node in self.proposer.nodes.all().iter() {
            let (node, host) = (Arc::clone(node), host.clone());
            nodes.spawn_boxed(async move { node.store.attend(&host).await });
        }
        while nodes.join_next().await.is_some() {}
    }

    async fn daemons(&self) -> Result<Vec<String>, StoreError> {
        self.daemons_on_nodes().await
    }

    async fn init(&self) -> Result<Option<u64>, StoreError> {
        self.declare_new().await
    }
}
