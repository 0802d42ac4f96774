//! One lock, one job, and a clock that only the test moves; builders of claims and results.

use std::time::Duration;

use crate::names::{JobName, LockName, RunId, Token};
use crate::store::protocol::{self, Clock, Effect, JobState, Key, LockState, Past, is_replaced_by};
use crate::store::{
    Claim, ClaimReply, ClaimTarget, Due, Fingerprint, Finish, FinishReply, Grant, Kind, Late, Lock,
    Outcome, Overlap, Record, Registered, Registration, RenewReply, Settle,
};
use crate::time::{BootInstant, Timestamp};

pub(super) const TTL: Duration = Duration::from_secs(30);

/// One lock, one job, and a clock that only the test moves.
pub(in crate::store::protocol) struct World {
    pub(in crate::store::protocol) lock: LockState,
    pub(in crate::store::protocol) job: Option<JobState>,
    pub(in crate::store::protocol) ms: i64,
    pub(in crate::store::protocol) exclusive: bool,
    pub(in crate::store::protocol) records: Vec<Record>,
    pub(in crate::store::protocol) released: usize,
    pub(in crate::store::protocol) past: Past,
}

impl World {
    pub(in crate::store::protocol) fn new() -> Self {
        Self {
            lock: LockState::default(),
            job: None,
            ms: 1_000_000_000_000,
            exclusive: true,
            records: Vec::new(),
            released: 0,
            past: Past::default(),
        }
    }

    /// A world whose job is registered, a minute ago.
    pub(in crate::store::protocol) fn registered() -> Self {
        let mut world = Self::new();
        world.register("f1");
        world.ms += 60_000;
        world
    }

    pub(in crate::store::protocol) fn clock(&self) -> Clock {
        Clock {
            micros: u64::try_from(self.ms).expect("a positive time") * 1000,
            lease: u64::try_from(self.ms).expect("a positive time"),
            past: self.past,
        }
    }

    pub(in crate::store::protocol) fn now(&self) -> Timestamp {
        Timestamp::from_millis(self.ms)
    }

    pub(in crate::store::protocol) fn name_of_lock(&self) -> Lock {
        Lock {
            exclusive: self.exclusive,
            ..Lock::named(&LockName::parse("l").expect("a name"))
        }
    }

    pub(in crate::store::protocol) fn take_effects(&mut self, effects: Vec<Effect>) {
        for effect in effects {
            match effect {
                Effect::Append {
                    record, replaces, ..
                } => {
                    if replaces {
                        self.remove_provisional(&record);
                    }
                    self.records.push(*record);
                }
                Effect::Released => self.released += 1,
            }
        }
    }

    pub(in crate::store::protocol) fn remove_provisional(&mut self, late: &Record) {
        self.records.retain(|record| !is_replaced_by(record, late));
    }

    pub(in crate::store::protocol) fn register(&mut self, fingerprint: &str) -> Registered {
        let registration = Registration {
            job: job(),
            lock: self.name_of_lock(),
            fingerprint: Fingerprint(fingerprint.into()),
            ttl: TTL,
        };
        let clock = self.clock();
        protocol::register(&self.lock, &mut self.job, clock, &registration)
    }

    pub(in crate::store::protocol) fn send(&mut self, claim: &Claim) -> ClaimReply {
        let clock = self.clock();
        let (reply, effects) = protocol::claim(&mut self.lock, &mut self.job, clock, claim);
        self.take_effects(effects);
        reply
    }

    /// An occurrence due now, by a host whose schedule has nothing before it.
    pub(in crate::store::protocol) fn due(&self) -> Due {
        Due {
            scheduled_at: self.now(),
            not_before: self.now(),
            deadline: self.now().plus(Duration::from_secs(60 * 5)),
            prev: None,
            fingerprint: Fingerprint("f1".into()),
            gap: None,
            late: Late::Miss,
            max_reruns: 0,
            max_attempts: 0,
            rerun_window: Duration::from_secs(60 * 5),
            lead: Duration::ZERO,
        }
    }

    pub(in crate::store::protocol) fn occurrence(&self, token: &str, due: Due) -> Claim {
        self.with_overlap(token, due, Overlap::Skip)
    }

    pub(in crate::store::protocol) fn with_overlap(
        &self,
        token: &str,
        due: Due,
        overlap: Overlap,
    ) -> Claim {
        Claim {
            lock: self.name_of_lock(),
            token: token_of(token),
            run_id: RunId::from_text(&format!("run-{token}")),
            ttl: TTL,
            what: ClaimTarget::Occurrence {
                job: job(),
                kind: Kind::Schedule,
                due,
                overlap,
                keep: crate::store::Retention::of_records(100),
            },
        }
    }

    pub(in crate::store::protocol) fn of_lock(&self, token: &str) -> Claim {
        Claim {
            what: ClaimTarget::Lock,
            ..self.occurrence(token, self.due())
        }
    }

    pub(in crate::store::protocol) fn finish_with(&mut self, finish: &Finish) -> FinishReply {
        let clock = self.clock();
        let (reply, effects) = protocol::finish(&mut self.lock, &mut self.job, clock, finish);
        self.take_effects(effects);
        reply
    }

    pub(in crate::store::protocol) fn ending(&self, token: &str) -> Finish {
        Finish {
            lock: self.name_of_lock(),
            token: token_of(token),
            record: None,
            job: Some(job()),
            give_back: false,
            keep: crate::store::Retention::of_records(100),
        }
    }

    pub(in crate::store::protocol) fn succeeded(
        &self,
        token: &str,
        scheduled_at: Timestamp,
    ) -> Finish {
        Finish {
            record: Some(Record {
                run_id: Some(RunId::from_text(&format!("run-{token}"))),
                ..record(Some(scheduled_at), Outcome::Succeeded)
            }),
            ..self.ending(token)
        }
    }

    pub(in crate::store::protocol) fn give_back(&mut self, token: &str) -> FinishReply {
        let finish = Finish {
            give_back: true,
            ..self.ending(token)
        };
        self.finish_with(&finish)
    }

    pub(in crate::store::protocol) fn renew(&mut self, token: &str) -> RenewReply {
        let renewal = Grant {
            lock: self.name_of_lock(),
            token: token_of(token),
            run_id: RunId::from_text("r"),
            fence: 0,
            ttl: TTL,
            sent: BootInstant::BOOT,
            starts_at: None,
        }
        .renewal();
        let clock = self.clock();
        protocol::renew(&mut self.lock, &mut self.job, clock, &renewal).0
    }

    pub(in crate::store::protocol) fn settle(&mut self, run: &str) -> bool {
        let settle = Settle {
            lock: self.name_of_lock(),
            job: job(),
            run_id: RunId::from_text(run),
            keep: crate::store::Retention::of_records(100),
        };
        let clock = self.clock();
        let (done, effects) = protocol::settle(&mut self.lock, &mut self.job, clock, &settle);
        self.take_effects(effects);
        done
    }

    /// Moves the clock; a key whose end has come is gone.
    pub(in crate::store::protocol) fn pass(&mut self, ms: i64) {
        self.ms += ms;
        let now = self.clock().lease;
        if let Key::Value { end: Some(end), .. } = self.lock.key
            && end <= now
        {
            self.lock.key = Key::Absent;
        }
    }

    pub(in crate::store::protocol) fn last(&self) -> Timestamp {
        self.job.as_ref().expect("the job is known").last
    }

    pub(in crate::store::protocol) fn outcomes(&self) -> Vec<Outcome> {
        self.records.iter().map(|record| record.outcome).collect()
    }
}

pub(in crate::store::protocol) fn job() -> JobName {
    JobName::parse("j").expect("a name")
}

pub(in crate::store::protocol) fn token_of(name: &str) -> Token {
    Token::from_text(&format!("host-{name}:1:run-{name}:0f"))
}

pub(in crate::store::protocol) fn record(
    scheduled_at: Option<Timestamp>,
    outcome: Outcome,
) -> Record {
    Record {
        scheduled_at,
        attempts: 1,
        ..Record::blank(job(), Kind::Schedule, outcome)
    }
}

pub(in crate::store::protocol) fn fence(reply: &ClaimReply) -> u64 {
    match reply {
        ClaimReply::Granted { fence, .. } => *fence,
        other => panic!("not granted: {other:?}"),
    }
}

pub(in crate::store::protocol) fn attempt(reply: &ClaimReply) -> u32 {
    match reply {
        ClaimReply::Granted { attempt, .. } => *attempt,
        other => panic!("not granted: {other:?}"),
    }
}
