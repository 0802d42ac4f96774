//! Moving a job's ledger to another lock, when a job list changes the lock.
//!
//! The two ledgers may lie on different servers, so a move takes several steps, each of which is a
//! [`Replacement`] that any host can repeat: first every ledger that the job has under another lock
//! becomes a tombstone, which keeps its data and rejects every claim; then the ledger under the
//! new lock begins with these data. A host that finds tombstones whose data no ledger has taken over
//! completes the move to the lock that its own list names.
//!
//! [`Relocation`] decides, without I/O, so that the daemon and the simulated fleets do the same;
//! [`relocate`] executes its steps on a store.

mod merge;

use std::collections::BTreeMap;
use std::time::Duration;

use super::contract::{
    Finish, FinishReply, JobState, Ledger, Lock, LockId, LockRef, Moved, Replaced, Replacement,
    Store, StoreError,
};
use crate::names::{HostName, JobName};
use crate::time::Timestamp;
use merge::{SourceLedgers, empty, merge};

/// How often a move starts again because other hosts changed a ledger in the meantime.
const TRIES: u32 = 20;

/// The outcome of a move.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Relocated {
    /// The ledger is under the lock of the list, or there is no ledger yet.
    Home {
        /// The locks from which this call moved it.
        from: Vec<Lock>,
    },
    /// A run under another lock is not over. The move waits for its end.
    Leased {
        /// That lock.
        lock: Lock,
        /// The host of the run.
        by: String,
        /// How long its lease lasts unless renewed.
        remaining: Duration,
    },
    /// The store may have lost data. The move waits.
    Recovering {
        /// For how long.
        remaining: Duration,
    },
    /// Other hosts keep changing the ledgers.
    Contended,
}

/// The next step of a move.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MoveStep {
    /// Read the ledger under this lock, and pass it to [`Relocation::read`].
    Read(Lock),
    /// Send this request, and pass the reply to [`Relocation::replaced`].
    Replace(Box<Replacement>),
    /// The move is over.
    Done(Relocated),
}

/// One job's move to the lock that a list gives to it.
#[derive(Debug, Clone)]
pub struct Relocation {
    job: JobName,
    id: LockId,
    target: Lock,
    ttl: Duration,
    now: Timestamp,
    /// A host's own ledger begins no earlier, unless it takes over what others were to run.
    counts_from: Timestamp,
    others: Vec<Lock>,
    known: BTreeMap<LockRef, Ledger>,
    /// What remains to be replaced, in reverse order.
    plan: Option<Vec<Replacement>>,
    from: Vec<Lock>,
    tries: u32,
    over: Option<Relocated>,
}

/// Where a ledger moves to.
#[derive(Debug, Clone)]
pub struct Destination<'a> {
    /// The job.
    pub job: &'a JobName,
    /// The lock that this host's list gives to it.
    pub lock: &'a LockId,
    /// This host.
    pub host: &'a HostName,
    /// The TTL of the job's leases.
    pub ttl: Duration,
    /// The store's clock.
    pub now: Timestamp,
    /// From when the job counts on this host, if each host has its own ledger.
    pub counts_from: Timestamp,
}

/// What the ledgers that were read have to do with the move.
struct Survey<'a> {
    /// The number of this move.
    number: u64,
    sources: SourceLedgers<'a>,
    /// The other locks under which the ledger lives, and its states there.
    to_vacate: Vec<(LockRef, &'a JobState)>,
}

impl Relocation {
    /// A move to `to`; a ledger may lie under each of `others`.
    pub fn new(to: &Destination<'_>, others: Vec<Lock>) -> Self {
        Self {
            job: to.job.clone(),
            id: to.lock.clone(),
            target: to.lock.on(to.host),
            ttl: to.ttl,
            now: to.now,
            counts_from: to.counts_from,
            others,
            known: BTreeMap::new(),
            plan: None,
            from: Vec::new(),
            tries: 0,
            over: None,
        }
    }

    /// The next step of a move.
    pub fn step(&mut self) -> MoveStep {
        if self.over.is_none() && self.plan.is_none() {
            if let Some(lock) = self.unread() {
                return MoveStep::Read(lock);
            }
            self.decide();
        }
        if let Some(over) = &self.over {
            return MoveStep::Done(over.clone());
        }
        match self.plan.as_ref().and_then(|plan| plan.last()) {
            Some(next) => MoveStep::Replace(Box::new(next.clone())),
            None => MoveStep::Done(Relocated::Home {
                from: self.from.clone(),
            }),
        }
    }

    /// Takes the ledger that [`MoveStep::Read`] asked for.
    pub fn read(&mut self, lock: &Lock, ledger: Ledger) {
        self.known.insert(LockRef::of(lock), ledger);
    }

    /// Takes the reply to [`MoveStep::Replace`].
    pub fn replaced(&mut self, reply: Replaced) {
        let Some(replacement) = self.plan.as_mut().and_then(Vec::pop) else {
            return;
        };
        match reply {
            Replaced::Done => {
                if replacement.expected.is_some() && replacement.lock != self.target {
                    self.from.push(replacement.lock);
                }
            }
            Replaced::Changed => {
                self.tries += 1;
                self.known.clear();
                self.plan = None;
                if self.tries > TRIES {
                    self.over = Some(Relocated::Contended);
                }
            }
            Replaced::Leased { remaining } => {
                let open = replacement.expected.as_ref().and_then(|it| it.open.clone());
                self.over = Some(Relocated::Leased {
                    lock: replacement.lock,
                    by: open.map(|open| open.host).unwrap_or_default(),
                    remaining,
                });
            }
            Replaced::Recovering { remaining } => {
                self.over = Some(Relocated::Recovering { remaining });
            }
        }
    }

    /// A lock whose ledger is to be read; tombstones name further ones.
    fn unread(&mut self) -> Option<Lock> {
        let named = self.known.values().filter_map(|ledger| {
            let moved = ledger.state.as_ref()?.moved.as_ref()?;
            (!self.is_sibling(&moved.to)).then(|| moved.to.lock())
        });
        let all = std::iter::once(&self.target).chain(&self.others).cloned();
        let mut all = all.chain(named);
        all.find(|lock| !self.known.contains_key(&LockRef::of(lock)))
    }

    /// Whether this is another host's ledger, where each host has its own, under whatever name its
    /// list gave to the lock.
    fn is_sibling(&self, lock: &LockRef) -> bool {
        let (LockId::Host(_) | LockId::None(_)) = &self.id else {
            return false;
        };
        let lock = lock.lock();
        let host = lock.host();
        host.is_some() && host != self.target.host()
    }

    /// Whether the data of a tombstone are in the ledger that it names. The two may be one, where
    /// both locks share a hash tag.
    fn is_taken(&self, moved: &Moved) -> bool {
        let there = self.known.get(&moved.to).and_then(|it| it.state.as_ref());
        there
            .and_then(|state| state.moved.as_ref())
            .is_some_and(|there| {
                let is_live = there.to == moved.to;
                there.since >= moved.number || is_live && there.number >= moved.number
            })
    }

    /// Plans the replacements, once every ledger has been read.
    fn decide(&mut self) {
        let me = LockRef::of(&self.target);
        let (over, plan) = {
            let survey = self.survey(&me);
            let own = self.known.get(&me).and_then(|ledger| ledger.state.as_ref());
            if self.is_home(own) && survey.to_vacate.is_empty() {
                (None, Some(Vec::new()))
            } else if let Some(leased) = self.leased(&me, &survey) {
                (Some(leased), None)
            } else {
                (None, Some(self.replacements(&me, survey, own)))
            }
        };
        if over.is_some() {
            self.over = over;
        } else {
            self.plan = plan;
        }
    }

    /// Whether the ledger lives under the new lock, whose state is `own`.
    fn is_home(&self, own: Option<&JobState>) -> bool {
        own.is_some_and(|state| state.moved_from(&self.target).is_none())
    }

    /// Finds the ledgers that the new one is made of, and the locks that are to be vacated.
    fn survey(&self, me: &LockRef) -> Survey<'_> {
        let states = self.known.iter();
        let states: Vec<_> = states
            .filter_map(|(lock, ledger)| Some((lock, ledger, ledger.state.as_ref()?)))
            .collect();
        let numbers = states
            .iter()
            .filter_map(|(_, _, state)| state.moved.as_ref());
        let number = 1 + numbers.map(|moved| moved.number).max().unwrap_or(0);
        let mut sources = SourceLedgers::default();
        let mut to_vacate = Vec::new();
        for (lock, ledger, state) in states {
            let moved = state.moved.as_ref().filter(|moved| moved.to != *lock);
            match moved {
                Some(moved) if self.is_sibling(&moved.to) => sources.passed.push(state),
                Some(moved) if self.is_taken(moved) => {}
                _ => {
                    sources.add(ledger, state, moved.is_none());
                    if lock != me {
                        to_vacate.push((lock.clone(), state));
                    }
                }
            }
        }
        Survey {
            number,
            sources,
            to_vacate,
        }
    }

    /// Returns the run that still holds one of the locks, if any does.
    fn leased(&self, me: &LockRef, survey: &Survey<'_>) -> Option<Relocated> {
        let (lock, ledger) = self.known.iter().find(|(lock, ledger)| {
            let is_vacated = || survey.to_vacate.iter().any(|(other, _)| other == *lock);
            (*lock == me || is_vacated()) && !ledger.remaining.is_zero()
        })?;
        let open = ledger.state.as_ref().and_then(|it| it.open.as_ref());
        Some(Relocated::Leased {
            lock: lock.lock(),
            by: open.map(|open| open.host.clone()).unwrap_or_default(),
            remaining: ledger.remaining,
        })
    }

    /// Returns the steps of the move, in order: the new ledger, then the tombstones. `own` is the state
    /// under the new lock.
    fn replacements(
        &self,
        me: &LockRef,
        survey: Survey<'_>,
        own: Option<&JobState>,
    ) -> Vec<Replacement> {
        let here = self.is_home(own);
        let Survey {
            number,
            sources,
            to_vacate,
        } = survey;
        let moved = |since| Moved {
            number,
            since,
            to: me.clone(),
        };
        let mut plan = Vec::new();
        let counts_from = self.counts_from;
        if let Some(new) = merge(&sources, self.now, counts_from).or(own.map(|_| empty())) {
            plan.push((
                self.target.clone(),
                JobState {
                    moved: Some(moved(number)),
                    ..new
                },
            ));
        }
        for (lock, state) in to_vacate {
            // A tombstone that leads here stays as it is. With a new number it would count as taken
            // by nobody, although the host that wrote it may have begun the new ledger by now.
            let leads_here = state.moved.clone().filter(|moved| moved.to == *me);
            let new = JobState {
                moved: leads_here.or_else(|| Some(moved(state.began_with()))),
                ..state.clone()
            };
            plan.push((self.lock_of(&lock), new));
        }
        // A host that slept must not begin there anew, nor a step of an earlier move arrive late.
        let absent = self
            .known
            .iter()
            .filter(|(lock, ledger)| ledger.state.is_none() && *lock != me && !here);
        for (lock, _) in absent {
            let new = JobState {
                moved: Some(moved(0)),
                ..empty()
            };
            plan.push((self.lock_of(lock), new));
        }
        let replacement = |(lock, new)| Replacement {
            expected: (self.known.get(&LockRef::of(&lock))).and_then(|it| it.state.clone()),
            job: self.job.clone(),
            ttl: self.ttl,
            lock,
            new,
        };
        plan.into_iter().map(replacement).collect()
    }

    fn lock_of(&self, lock: &LockRef) -> Lock {
        let known = self.others.iter().find(|other| lock.is(other));
        known.cloned().unwrap_or_else(|| lock.lock())
    }
}

/// Sends a result to the lock that the ledger has moved to since the run was granted, if it moved.
pub(super) async fn follow<F>(
    finish: &Finish,
    send: impl Fn(Finish) -> F,
) -> Result<FinishReply, StoreError>
where
    F: Future<Output = Result<FinishReply, StoreError>>,
{
    let mut reply = send(finish.clone()).await?;
    for _ in 0..TRIES {
        let FinishReply::Moved { to } = reply else {
            return Ok(reply);
        };
        let there = Finish {
            lock: to.lock(),
            ..finish.clone()
        };
        reply = send(there).await?;
    }
    Err(StoreError::unreachable(
        "the ledger moves from lock to lock".to_owned(),
    ))
}

/// Executes a move on a store.
pub async fn relocate(
    store: &dyn Store,
    mut relocation: Relocation,
) -> Result<Relocated, StoreError> {
    loop {
        match relocation.step() {
            MoveStep::Read(lock) => {
                let ledger = store.ledger(&relocation.job, &lock).await?;
                relocation.read(&lock, ledger);
            }
            MoveStep::Replace(replacement) => {
                relocation.replaced(store.replace(&replacement).await?);
            }
            MoveStep::Done(relocated) => return Ok(relocated),
        }
    }
}
