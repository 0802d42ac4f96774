//! One change of a lock and its job, taken by a majority of the nodes or by nobody.
//!
//! Phase 1: the first node that answers, in an order all hosts share, is asked alone for its vote
//! and names the number of the proposal; whoever gets the vote has all others promise to take
//! nothing older, and learns what they know. The rules of the protocol are applied to what a
//! majority knows together. Phase 2: the outcome is proposed to all; a node takes it if it has
//! promised nothing later since, and, if the lock is taken with it, has the lock free. What a
//! majority took stands: every later proposal begins with hearing at least one of them.
//!
//! Who loses the vote only reads: once a majority agrees on a state that answers the request as it
//! is, that is the answer.

use std::collections::HashSet;
use std::sync::atomic::AtomicBool;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::ask::{Answer, Nodes};
use super::hear::Heard;
use super::judge::judge;
use super::longest::Longest;
use super::outage::Outage;
use super::propose::{Proposed, Verdict, validity};
use super::resolve::{Asker, Resolved, resolve};
use super::turns::{Ids, Turns};
use super::view::{Counting, count, merge};
use crate::names::{JobName, Token};
use crate::store::protocol::{Clock, Effect, JobState, LockState, counted};
use crate::store::redis::node::{Ballot, LookAnswer, Mode, Place, View};
use crate::store::{Lock, RedlockSettings, StoreError};

/// How long hosts step aside for one another before a request counts as unanswered.
const CONTENTION_LIMIT: Duration = Duration::from_secs(10);

/// What a request is about.
#[derive(Debug, Clone)]
pub(super) struct Subject<'a> {
    pub(super) lock: &'a Lock,
    pub(super) job: Option<&'a JobName>,
    /// Who asks.
    pub(super) me: Option<&'a Token>,
    /// Who asks reports on its own run.
    pub(super) reports: bool,
    /// Zero when the request names none.
    pub(super) ttl: Duration,
    pub(super) hear: QuorumWait,
}

/// Who is heard before a decision.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum QuorumWait {
    /// As many as it takes.
    Enough,
    /// Everybody who answers.
    All,
}

impl<'a> Subject<'a> {
    /// A job and its lock, in nobody's name.
    pub(super) fn of_job(job: &'a JobName, lock: &'a Lock) -> Self {
        Self {
            lock,
            job: Some(job),
            me: None,
            reports: false,
            ttl: Duration::ZERO,
            hear: QuorumWait::Enough,
        }
    }
}

/// What the rules made of it.
#[derive(Debug)]
pub(super) struct Outcomes<R> {
    pub(super) reply: R,
    pub(super) effects: Vec<Effect>,
    /// The lock is taken for the state's token.
    pub(super) taken: bool,
}

/// What became of a request.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Done<R> {
    Reply(R),
    /// Too many nodes lost their data; so long yet.
    Recovering(Duration),
}

enum Attempt<R> {
    Done(Done<R>),
    /// Another host is at it; a proposal must have a greater number than this.
    Contended(u64),
    /// Too few answers.
    Failed(StoreError),
}

/// The nodes, and how patiently they are asked.
#[derive(Debug)]
pub(super) struct Proposer {
    pub(super) nodes: Nodes,
    tries: u32,
    retry_delay: (Duration, Duration),
    pub(super) longest: Longest,
    ids: Ids,
    turns: Turns,
    /// All nodes were heard out once: they are as many servers as they should be.
    pub(super) looked: AtomicBool,
    /// Whether a majority was away.
    pub(super) outage: Outage,
    /// The tokens of the runs that are being brought back.
    returning: Mutex<HashSet<Token>>,
}

impl Proposer {
    pub(super) fn new(settings: &RedlockSettings) -> Result<Self, StoreError> {
        Ok(Self {
            nodes: Nodes::new(settings)?,
            tries: settings.tries.max(1),
            retry_delay: settings.retry_delay,
            longest: Longest::default(),
            ids: Ids::new(random()),
            turns: Turns::default(),
            looked: AtomicBool::new(false),
            outage: Outage::default(),
            returning: Mutex::default(),
        })
    }

    /// The error for too few answers, which is remembered.
    pub(super) fn few(&self, answered: usize, errors: &[Answer<()>]) -> StoreError {
        let error = self.nodes.too_few(answered, errors);
        self.outage.failed(&error);
        error
    }

    pub(super) fn returning(&self) -> MutexGuard<'_, HashSet<Token>> {
        // Nothing that holds the guard can panic half-way through a change.
        self.returning
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes lock and job by the rules. They may be applied several times, to what was found
    /// then; only the last outcome counts.
    pub(super) async fn transact<R>(
        &self,
        subject: &Subject<'_>,
        rules: impl Fn(&mut LockState, &mut Option<JobState>, Clock) -> Outcomes<R>,
    ) -> Result<Done<R>, StoreError> {
        let began = Instant::now();
        let (mut failures, mut floor) = (0, 0);
        loop {
            let turn = self.turns.take(&subject.lock.name).await;
            let attempt = self.attempt(subject, &rules, floor).await?;
            drop(turn);
            match attempt {
                Attempt::Done(done) => return Ok(done),
                Attempt::Contended(seen) if began.elapsed() < CONTENTION_LIMIT => {
                    floor = floor.max(seen);
                }
                Attempt::Contended(_) => {
                    return Err(StoreError::unreachable(format!(
                        "the nodes are busy with other hosts' requests for lock {} since \
                         {CONTENTION_LIMIT:?}",
                        subject.lock.name
                    )));
                }
                Attempt::Failed(error) => {
                    failures += 1;
                    if failures >= self.tries {
                        return Err(error);
                    }
                }
            }
            tokio::time::sleep(self.jittered()).await;
        }
    }

    /// As [`Self::transact`], for requests that most often change nothing: the nodes are asked to
    /// propose only if they must.
    pub(super) async fn transact_lazily<R>(
        &self,
        subject: &Subject<'_>,
        rules: impl Fn(&mut LockState, &mut Option<JobState>, Clock) -> Outcomes<R>,
    ) -> Result<Done<R>, StoreError> {
        let place = self.place(subject);
        let all = 0..self.nodes.len();
        let heard = self
            .look(&place, all, (Mode::Read, Ballot::default()), Vec::new())
            .await?;
        if let Some(reply) = self.settled(&heard.views, subject, &rules) {
            return Ok(Done::Reply(reply));
        }
        self.transact(subject, rules).await
    }

    async fn attempt<R>(
        &self,
        subject: &Subject<'_>,
        rules: &impl Fn(&mut LockState, &mut Option<JobState>, Clock) -> Outcomes<R>,
        floor: u64,
    ) -> Result<Attempt<R>, StoreError> {
        let place = self.place(subject);
        let ballot = Ballot {
            number: floor.saturating_add(1),
            id: self.ids.next(),
        };
        let sent = Instant::now();
        let (first, view) = match self.first(&place, ballot).await? {
            Ok(first) => first,
            Err(error) => return Ok(Attempt::Failed(error)),
        };
        let others = (0..self.nodes.len()).filter(|at| *at != first);
        if view.said == LookAnswer::Busy {
            let view = View {
                said: LookAnswer::Read,
                ..view
            };
            let seen = view.promised;
            let heard = self
                .look(&place, others, (Mode::Read, Ballot::default()), vec![view])
                .await?;
            return Ok(match self.settled(&heard.views, subject, rules) {
                Some(reply) => Attempt::Done(Done::Reply(reply)),
                None => Attempt::Contended(seen),
            });
        }
        let ballot = Ballot {
            number: view.promised,
            ..ballot
        };
        let promise = (Mode::Promise, ballot);
        let mut heard = match subject.hear {
            QuorumWait::Enough => self.look(&place, others, promise, vec![view]).await?,
            QuorumWait::All => self.hear(&place, others, promise, vec![view], true).await?,
        };
        if self.is_in_doubt(&heard.views, subject) {
            let unheard: Vec<usize> = (0..self.nodes.len())
                .filter(|at| *at != first && !heard.knows(*at))
                .collect();
            let views = std::mem::take(&mut heard.views);
            let more = self.hear(&place, unheard.into_iter(), promise, views, true);
            let more = more.await?;
            heard.views = more.views;
            heard.at.extend(more.at);
            heard.errors.extend(more.errors);
        }
        let outcome = self
            .decide(&place, ballot, &heard, (subject, rules), sent)
            .await;
        if !matches!(outcome, Ok((_, Proposed::Yes))) {
            self.yield_vote(first, &place, ballot);
        }
        outcome.map(|(attempt, _)| attempt)
    }

    /// Phase 2, if there is anything to propose.
    async fn decide<R>(
        &self,
        place: &Place,
        ballot: Ballot,
        heard: &Heard,
        (subject, rules): (
            &Subject<'_>,
            &impl Fn(&mut LockState, &mut Option<JobState>, Clock) -> Outcomes<R>,
        ),
        sent: Instant,
    ) -> Result<(Attempt<R>, Proposed), StoreError> {
        let told = |lock: &mut _, job: &mut _, clock| {
            let outcomes = rules(lock, job, clock);
            (outcomes.reply, outcomes.effects, outcomes.taken)
        };
        let quorum = self.nodes.quorum();
        let asker = Asker {
            token: subject.me,
            reports: subject.reports,
            spares: self.outage.spares(&subject.lock.name),
        };
        let (proposal, taken, trust, reply) =
            match resolve((place, ballot), &heard.views, quorum, asker, told) {
                Resolved::Reply(reply) => {
                    return Ok((Attempt::Done(Done::Reply(reply)), Proposed::No));
                }
                Resolved::Recovering(left) => {
                    return Ok((Attempt::Done(Done::Recovering(left)), Proposed::No));
                }
                Resolved::TooFew => return Ok((self.too_few(heard), Proposed::No)),
                Resolved::Propose {
                    proposal,
                    taken,
                    trust,
                    reply,
                } => (proposal, taken, trust, reply),
            };
        let verdict = self.propose(&proposal, trust).await;
        let over = taken && sent.elapsed() >= validity(subject.ttl);
        let attempt = match verdict {
            Verdict::Taken if !over => Attempt::Done(Done::Reply(reply)),
            Verdict::Taken => Attempt::Failed(StoreError::unreachable(format!(
                "the nodes took {:?} to grant a lease of {:?}",
                sent.elapsed(),
                subject.ttl
            ))),
            Verdict::Outbid => Attempt::Contended(ballot.number),
            Verdict::TooFew(error) => Attempt::Failed(error),
        };
        if taken && !matches!(attempt, Attempt::Done(_)) {
            self.withdraw(&proposal);
        }
        let over = matches!(attempt, Attempt::Done(_));
        Ok((attempt, if over { Proposed::Yes } else { Proposed::No }))
    }

    fn too_few<R>(&self, heard: &Heard) -> Attempt<R> {
        let later = heard
            .views
            .iter()
            .filter(|view| view.said == LookAnswer::Outbid);
        match later.map(|view| view.promised).max() {
            Some(seen) => Attempt::Contended(seen),
            None => Attempt::Failed(self.few(heard.views.len(), &heard.errors)),
        }
    }

    /// The answer, if a majority agrees on a state that gives it as it is.
    fn settled<R>(
        &self,
        views: &[View],
        subject: &Subject<'_>,
        rules: &impl Fn(&mut LockState, &mut Option<JobState>, Clock) -> Outcomes<R>,
    ) -> Option<R> {
        let quorum = self.nodes.quorum();
        let Counting::On {
            counted,
            horizon: None,
        } = count(views, quorum)
        else {
            return None;
        };
        let exclusive = subject.lock.exclusive;
        let merged = merge(views, &counted, quorum, (exclusive, subject.me));
        if !merged.agreed {
            return None;
        }
        let judged = judge(&merged, rules);
        (!judged.changed).then_some(judged.outcomes.reply)
    }

    pub(super) fn place(&self, subject: &Subject<'_>) -> Place {
        Place {
            lock: subject.lock.clone(),
            job: subject.job.cloned(),
            ttl: subject.ttl,
            longest: if subject.job.is_none() && !subject.reports {
                self.longest.with_bare(subject.ttl)
            } else {
                self.longest
                    .with(counted(subject.ttl, subject.job.is_some()))
            },
        }
    }

    fn jittered(&self) -> Duration {
        let (least, most) = self.retry_delay;
        let share = u32::try_from(random() >> 48).unwrap_or(0);
        least + most.saturating_sub(least) * share / 65_536
    }
}

fn random() -> u64 {
    let mut bytes = [0_u8; 8];
    // Nothing safe can be done without, as for tokens.
    getrandom::fill(&mut bytes).expect("the kernel's random source answers once booted");
    u64::from_ne_bytes(bytes)
}
