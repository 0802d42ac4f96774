//! One of several independent nodes: the requests that `store::quorum` sends to a majority.
//!
//! The keys and their meaning are those of a single server. The state of a lock and the ledger of a job
//! also name the proposal that wrote them, and the newest proposal that the node has promised.
//! `store::quorum` counts the replies and decides.

mod backfill;
mod history;
mod ledger;
mod message;
mod prepare_reply;
mod standing;

use std::sync::Arc;
use std::time::Duration;

use redis::Value;

pub use self::history::{HistoryEntry, StreamId};
pub(in crate::store) use self::message::SERIAL_BITS;
pub use self::message::{
    AcceptReply, AcceptStatus, Ballot, ExtendReply, JobView, KeyHolder, LockView, LongestTtl,
    PrepareMode, PrepareReply, PrepareStatus, Proposal, ProposedLease, ProposedRecord,
    RequestTarget, finished_text,
};
use self::prepare_reply::read_view;
pub(in crate::store) use self::standing::{LedgerPresence, NodeState};
use super::RESPONSE_TIMEOUT;
use super::codec::call::{Call, flag, millis, optional};
use super::codec::history::{StreamEntries, StreamEntry};
use super::codec::keys::{self, Key, LockKeys, job_keys};
use super::codec::record::pairs;
use super::codec::reply::{Items, integer};
use super::codec::summary::retention;
use super::codec::{self, renew};
use super::conn::hello::Part;
use super::conn::link::Link;
use super::failure::RedisFailure;
use super::script::NodeScripts;
use super::{BATCH, RedisStore};
use crate::names::{JobName, RunId, Token};
use crate::store::{KeyFault, Lock, RedisSettings, Renewal, StoreError};

/// A node and the link to it.
#[derive(Debug)]
pub struct QuorumNode {
    pub(in crate::store) store: RedisStore,
    link: Arc<Link>,
    scripts: NodeScripts,
}

impl QuorumNode {
    pub fn new(settings: &RedisSettings) -> Result<Self, StoreError> {
        let link = Link::new(settings, Part::Alone);
        Ok(Self {
            store: RedisStore::by(Arc::clone(&link)),
            link,
            scripts: NodeScripts::new(),
        })
    }

    /// Returns its URL without password.
    pub(in crate::store) fn shown(&self) -> String {
        self.link.settings().shown()
    }

    fn marker(&self) -> Key<'_> {
        keys::node(self.store.prefix())
    }

    /// Reads a lock and a job. In the modes `Vote` and `Promise` the node also gives the vote or promise;
    /// `Yield` returns a vote.
    pub async fn prepare(
        &self,
        target: &RequestTarget,
        (mode, ballot): (PrepareMode, Ballot),
        vote_for: Duration,
        timeout: Duration,
    ) -> Result<PrepareReply, StoreError> {
        let keys = LockKeys::of(self.store.prefix(), &target.lock);
        let mut call = Call::default();
        call.key(&keys.lock())
            .key(&keys.state())
            .key(&self.marker());
        if let Some(job) = &target.job {
            call.key(&keys.job(job));
        }
        call.arg(&flag(target.lock.exclusive))
            .arg(&match mode {
                PrepareMode::Vote => "vote",
                PrepareMode::Promise => "promise",
                PrepareMode::Read => "read",
                PrepareMode::Yield => "yield",
            })
            .arg(&ballot.number)
            .arg(&ballot.id)
            .arg(&target.longest.listed.as_millis())
            .arg(&target.waits_for().as_millis())
            .arg(&vote_for.as_millis())
            .arg(&target.longest.elsewhere.as_millis());
        let reply = self.link.run(&self.scripts.prepare, &call, timeout);
        let blamed_key = match &target.job {
            Some(job) => keys.job(job),
            None => keys.state(),
        };
        Ok(read_view(reply.await?)
            .map_err(|failure| failure.attributed_to(&blamed_key.to_string()))?)
    }

    pub async fn accept(
        &self,
        proposal: &Proposal,
        timeout: Duration,
    ) -> Result<AcceptReply, StoreError> {
        let call = self.accept_call(proposal)?;
        let reply = self.link.run(&self.scripts.accept, &call, timeout);
        let mut items = Items::of(reply.await?)?;
        let mut lacks = None;
        let status = match items.text()?.as_str() {
            "accepted" => {
                let standing = items.text()?;
                lacks = Some(items.text()?).filter(|mark| !mark.is_empty());
                match standing.as_str() {
                    "sound" => AcceptStatus::Accepted,
                    "forgetful" => AcceptStatus::Forgetful,
                    "recovering" => AcceptStatus::Recovering,
                    other => return Err(unknown_word(other)),
                }
            }
            "promised" => AcceptStatus::Preempted,
            "held" => AcceptStatus::Held,
            other => return Err(unknown_word(other)),
        };
        Ok(AcceptReply { status, lacks })
    }

    fn accept_call(&self, proposal: &Proposal) -> Result<Call, RedisFailure> {
        let target = &proposal.target;
        let keys = LockKeys::of(self.store.prefix(), &target.lock);
        let all_failures = keys::all_failures(self.store.prefix());
        let mut call = Call::default();
        call.key(&keys.lock())
            .key(&keys.state())
            .key(&self.marker());
        if let Some(job) = &target.job {
            job_keys(&mut call, (keys, job), Some(all_failures));
        }
        let lock = &proposal.lock;
        // The numbers are those of ARGV in accept.lua.
        call.arg(&flag(target.lock.exclusive)) // 1
            .arg(&proposal.ballot.number) // 2
            .arg(&proposal.ballot.id) // 3
            .arg(&keys.released()) // 4
            .arg(&flag(proposal.released)) // 5
            .arg(&optional(proposal.keep.map(retention))) // 6
            .arg(&lock.fence) // 7
            .arg(lock.token.as_ref().map_or("", Token::as_str)) // 8
            .arg(lock.run_id.as_ref().map_or("", RunId::as_str)) // 9
            .arg(&finished_text(lock)); // 10
        // 11, 12
        match proposal.lease {
            ProposedLease::Take(ttl) => call.arg("take").arg(&millis(ttl)),
            ProposedLease::Stay(left) => call.arg("stay").arg(&millis(left)),
            ProposedLease::Over(Some(ago)) => call.arg("over").arg(&millis(ago)),
            ProposedLease::Over(None) => call.arg("over").arg(&""),
        };
        let job = proposal.job.as_ref().map(ledger::write).transpose()?;
        call.arg(&job.unwrap_or_default()) // 13
            .arg(&proposal.base.number) // 14
            .arg(&proposal.base.id); // 15
        for proposed in &proposal.records {
            let mut fields = pairs(&proposed.record);
            if let Some(follows) = proposed.follows {
                fields.push(("follows", follows.millis().to_string().into()));
            }
            if proposed.replaces {
                fields.push(("replaces", "1".into()));
            }
            call.arg(&fields.len());
            for (name, value) in fields {
                call.arg(name).arg(&value);
            }
        }
        Ok(call)
    }

    /// Releases the lock of a proposal that no majority accepted.
    pub async fn withdraw(
        &self,
        lock: &Lock,
        ballot: Ballot,
        token: &Token,
    ) -> Result<(), StoreError> {
        let keys = LockKeys::of(self.store.prefix(), lock);
        let mut call = Call::default();
        call.key(&keys.lock()).key(&keys.state());
        call.arg(&flag(lock.exclusive))
            .arg(&ballot.number)
            .arg(&ballot.id)
            .arg(token.as_str())
            .arg(&keys.released());
        self.link
            .run(&self.scripts.withdraw, &call, RESPONSE_TIMEOUT)
            .await?;
        Ok(())
    }

    /// Extends leases. A lock that is gone is set again while its lease lasts or the node recovers; with
    /// `restore_all`, always, because a majority has the lease.
    pub async fn extend(
        &self,
        renewals: &[Renewal],
        longest: LongestTtl,
        restore_all: bool,
    ) -> Result<Vec<ExtendReply>, StoreError> {
        let timeout = renew::limit(renewals);
        let mut replies = Vec::with_capacity(renewals.len());
        for batch in renewals.chunks(BATCH) {
            let mut call = Call::default();
            call.key(&self.marker());
            call.arg(&longest.listed.as_millis())
                .arg(&flag(restore_all))
                .arg(&longest.elsewhere.as_millis());
            for renewal in batch {
                let keys = LockKeys::of(self.store.prefix(), &renewal.grant.lock);
                call.key(&keys.lock()).key(&keys.state());
                call.arg(&flag(renewal.grant.lock.exclusive))
                    .arg(renewal.grant.token.as_str())
                    .arg(&millis(renewal.grant.ttl));
            }
            let reply = self.link.run(&self.scripts.extend, &call, timeout);
            replies.extend(read_extended(reply.await?, batch.len())?);
        }
        Ok(replies)
    }

    /// Returns the newest records of a job, each with its position in the stream, and the faults of
    /// entries that cannot be read.
    pub async fn records(
        &self,
        job: &JobName,
        lock: &Lock,
        limit: usize,
    ) -> Result<(Vec<HistoryEntry>, Vec<KeyFault>), StoreError> {
        let keys = LockKeys::of(self.store.prefix(), lock);
        let runs = self.store.stream(keys.runs(job), Some(job), limit).await?;
        let failures = keys.failures(job);
        let failures = self.store.stream(failures, Some(job), limit).await?;
        Ok(into_history(codec::history::merged(runs, failures, limit)))
    }

    /// Returns the newest failures of all jobs, as [`records`](Self::records) does.
    pub(in crate::store) async fn failures(
        &self,
        limit: usize,
    ) -> Result<(Vec<HistoryEntry>, Vec<KeyFault>), StoreError> {
        let all = keys::all_failures(self.store.prefix());
        Ok(into_history(self.store.stream(all, None, limit).await?))
    }

    /// Counts the keys that begin with our prefix, except the markers.
    pub(in crate::store) async fn count_keys(&self) -> Result<u64, StoreError> {
        let mut command = redis::cmd("EXISTS");
        let store = keys::store(self.store.prefix());
        let markers = [self.marker(), store].map(|marker| marker.to_string());
        command.arg(&markers);
        let markers = integer(&self.link.send(&command).await?)?;
        let count = self.link.count_keys().await?;
        Ok(count.saturating_sub(u64::try_from(markers).unwrap_or(0)))
    }

    /// Marks the node as new and empty.
    pub async fn declare_new(&self) -> Result<(), StoreError> {
        let mut call = Call::default();
        call.key(&self.marker());
        self.link
            .run(&self.scripts.declare, &call, RESPONSE_TIMEOUT)
            .await?;
        Ok(())
    }

    /// How long a reply may take unless the request has its own limit.
    pub(in crate::store) const RESPONSE_TIMEOUT: Duration = RESPONSE_TIMEOUT;
}

fn into_history(entries: StreamEntries) -> (Vec<HistoryEntry>, Vec<KeyFault>) {
    let entry = |it: StreamEntry| HistoryEntry {
        id: it.id,
        ballot: it.ballot,
        record: it.record,
    };
    let records = entries.records.into_iter().map(entry).collect();
    (records, entries.unreadable)
}

fn unknown_word(word: &str) -> StoreError {
    RedisFailure::corrupt(format!("the reply to a proposal is {word:?}")).into()
}

/// Reads the reply of `extend.lua`: a letter for each lease.
fn read_extended(reply: Value, count: usize) -> Result<Vec<ExtendReply>, RedisFailure> {
    renew::letters(reply, count, |letter| match letter {
        'R' => Some(ExtendReply::Renewed),
        'F' => Some(ExtendReply::Unrecorded),
        'T' => Some(ExtendReply::Taken),
        'A' => Some(ExtendReply::Absent),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_letter_of_an_extension_has_its_meaning_and_others_are_errors() {
        let read = |letters: &str| read_extended(Value::BulkString(letters.into()), 4);
        let expected = [
            ExtendReply::Renewed,
            ExtendReply::Unrecorded,
            ExtendReply::Taken,
            ExtendReply::Absent,
        ];
        assert_eq!(read("RFTA").expect("letters of the script"), expected);
        assert!(read("RFTX").is_err());
        assert!(read("RFT").is_err());
    }
}
