//! What must hold after any sequence of requests: copies, delays, evictions and ends of leases
//! included. Hosts are honest: they send each occurrence with the one before it, and answer a gap
//! with all that lies in it.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use proptest::prelude::{Just, ProptestConfig, Strategy, any};
use proptest::{prop_assert, prop_assert_eq, prop_oneof, proptest};

use super::Key;
use super::tests::{World, job, record, token_of};
use crate::names::{RunId, Token};
use crate::store::{
    Claim, ClaimReply, Drop, Due, Fingerprint, Finish, GapAnswer, Kind, Outcome, Overlap, Range,
    RenewReply, Renewal, Settle, Tenure, What,
};
use crate::time::Timestamp;

const TTL_MS: i64 = 3000;
const SECOND: Duration = Duration::from_secs(1);

#[derive(Clone, Debug)]
enum Step {
    /// A new claim of the newest due occurrence, or of one a little before.
    Occurrence {
        back: u64,
        wait: bool,
        drop: bool,
        patient: bool,
        max_reruns: u32,
    },
    Bare,
    Manual,
    /// What was sent before, again: the nth newest.
    Again(usize),
    Renew(usize),
    Finish(usize, bool),
    GiveBack(usize),
    Settle(usize),
    Evict,
    Pass(i64),
}

fn step() -> impl Strategy<Value = Step> {
    let nth = || 0..4_usize;
    let occurrence = (
        0..3_u64,
        any::<bool>(),
        any::<bool>(),
        any::<bool>(),
        0..3_u32,
    )
        .prop_map(|(back, wait, drop, patient, max_reruns)| Step::Occurrence {
            back,
            wait,
            drop,
            patient,
            max_reruns,
        });
    prop_oneof![
        8 => occurrence,
        1 => Just(Step::Bare),
        1 => Just(Step::Manual),
        4 => nth().prop_map(Step::Again),
        3 => nth().prop_map(Step::Renew),
        4 => (nth(), any::<bool>()).prop_map(|(n, record)| Step::Finish(n, record)),
        2 => nth().prop_map(Step::GiveBack),
        2 => nth().prop_map(Step::Settle),
        1 => Just(Step::Evict),
        4 => (1..2500_i64).prop_map(Step::Pass),
        1 => Just(Step::Pass(TTL_MS)),
    ]
}

/// What the hosts and the fleet's historian know.
struct Fleet {
    world: World,
    start: Timestamp,
    sent: Vec<Claim>,
    /// Until when each granted token may believe it holds the lock.
    leases: BTreeMap<Token, i64>,
    /// Occurrences whose first attempt was granted and not given back.
    started: BTreeSet<Timestamp>,
    granted: BTreeSet<Token>,
    newest_fence: u64,
}

impl Fleet {
    fn new() -> Self {
        let mut world = World::new();
        let start = world.register("f1").decided_until;
        Self {
            world,
            start,
            sent: Vec::new(),
            leases: BTreeMap::new(),
            started: BTreeSet::new(),
            granted: BTreeSet::new(),
            newest_fence: 0,
        }
    }

    fn at(&self, n: u64) -> Timestamp {
        self.start
            .plus(SECOND * u32::try_from(n).unwrap_or(u32::MAX))
    }

    fn due(&self) -> u64 {
        self.world.now().since(self.start).as_secs()
    }

    fn last(&self) -> Timestamp {
        self.world.job.as_ref().map_or(self.start, |job| job.last)
    }

    fn nth(&self, n: usize) -> Option<Claim> {
        self.sent.iter().rev().nth(n).cloned()
    }

    fn new_claim(&self, what: What) -> Claim {
        let name = format!("t{}", self.sent.len());
        Claim {
            lock: self.world.name_of_lock(),
            token: token_of(&name),
            run_id: RunId::from_text(&format!("run-{name}")),
            ttl: Duration::from_millis(TTL_MS.unsigned_abs()),
            what,
        }
    }

    fn occurrence(&self, n: u64, wait: bool, patient: bool, max_reruns: u32) -> What {
        What::Occurrence {
            job: job(),
            kind: Kind::Schedule,
            due: Due {
                scheduled_at: self.at(n),
                not_before: self.at(n),
                deadline: self.at(n).plus(SECOND * if patient { 1000 } else { 1 }),
                prev: (n > 1).then(|| self.at(n - 1)),
                fingerprint: Fingerprint("f1".to_owned()),
                gap: None,
                max_reruns,
            },
            overlap: if wait { Overlap::Wait } else { Overlap::Skip },
            keep: 100,
        }
    }

    /// All that lies between the watermark and the claimed occurrence is dropped.
    fn answer_gap(&self, claim: &Claim, last: Timestamp) -> Claim {
        let mut claim = claim.clone();
        let until = self.due();
        if let What::Occurrence { due, .. } = &mut claim.what {
            let between: Vec<_> = (1..=until)
                .map(|n| self.at(n))
                .filter(|at| *at > last && *at < due.scheduled_at)
                .collect();
            let drop = between
                .first()
                .zip(between.last())
                .map(|(from, until)| Drop {
                    range: Range {
                        from: *from,
                        until: *until,
                        count: between.len() as u64,
                    },
                    outcome: Outcome::Missed,
                    reason: "dropped".to_owned(),
                });
            due.gap = Some(GapAnswer {
                if_last: last,
                drop: drop.into_iter().collect(),
            });
        }
        claim
    }

    fn others_hold(&self, token: &Token) -> bool {
        let now = self.world.ms;
        self.leases
            .iter()
            .any(|(holder, end)| holder != token && *end > now)
    }

    /// Sends a claim and checks what its answer promises.
    fn claim(&mut self, claim: &Claim) -> Result<ClaimReply, String> {
        let finished = self.world.lock.ending(&claim.token).is_some();
        let (job, records) = (self.world.job.clone(), self.world.records.len());
        let reply = self.world.send(claim);
        let unchanged = job == self.world.job && records == self.world.records.len();
        match &reply {
            ClaimReply::Finished => check(finished && unchanged, "Finished without reason")?,
            ClaimReply::Recovering { .. } | ClaimReply::Unknown => {
                check(false, "a store that lost nothing speaks of a loss")?;
            }
            ClaimReply::Gap { .. } | ClaimReply::Early { .. } | ClaimReply::AlreadyClaimed(_) => {
                check(unchanged, "a refusal changed the ledger")?;
            }
            ClaimReply::Granted { fence, attempt, .. } => {
                check(!finished, "a finished token was granted")?;
                check(!self.others_hold(&claim.token), "two hold the lock")?;
                if self.granted.insert(claim.token.clone()) {
                    check(*fence > self.newest_fence, "the fence did not rise")?;
                    if let What::Occurrence { due, .. } = &claim.what {
                        let first = self.started.insert(due.scheduled_at);
                        check(first != (*attempt > 1), "an occurrence started twice")?;
                    }
                }
                check(*fence >= self.newest_fence, "the fence fell")?;
                self.newest_fence = *fence;
                let end = self.world.ms + TTL_MS;
                self.leases.insert(claim.token.clone(), end);
            }
            ClaimReply::TooLate | ClaimReply::Held { .. } => (),
        }
        Ok(reply)
    }

    fn finish(&mut self, claim: &Claim, with_record: bool, give_back: bool) {
        let scheduled_at = match &claim.what {
            What::Occurrence { due, .. } => Some(due.scheduled_at),
            What::Lock | What::Manual { .. } => None,
        };
        let bare = matches!(claim.what, What::Lock);
        let finish = Finish {
            lock: claim.lock.clone(),
            token: claim.token.clone(),
            record: (with_record && !bare && self.granted.contains(&claim.token))
                .then(|| record(scheduled_at, Outcome::Succeeded)),
            job: (!bare).then(job),
            give_back,
            keep: 100,
        };
        let clock = self.world.clock();
        let before = self.last();
        let (_, effects) = super::finish(&mut self.world.lock, &mut self.world.job, clock, &finish);
        self.world.take_effects(effects);
        self.leases.remove(&claim.token);
        if self.last() < before {
            self.started.retain(|at| Some(*at) != scheduled_at);
        }
    }

    fn run(&mut self, step: &Step) -> Result<(), String> {
        match step {
            Step::Occurrence {
                back,
                wait,
                drop,
                patient,
                max_reruns,
            } => {
                let n = self.due().saturating_sub(*back).max(1);
                let claim = self.new_claim(self.occurrence(n, *wait, *patient, *max_reruns));
                self.sent.push(claim.clone());
                if let ClaimReply::Gap { last, .. } = self.claim(&claim)?
                    && *drop
                {
                    let answer = self.answer_gap(&claim, last);
                    self.sent.push(answer.clone());
                    let again = self.claim(&answer)?;
                    let gap = matches!(again, ClaimReply::Gap { .. });
                    check(!gap, "an answered gap is still one")?;
                }
            }
            Step::Bare | Step::Manual => {
                let what = if matches!(step, Step::Bare) {
                    What::Lock
                } else {
                    What::Manual { job: job() }
                };
                let claim = self.new_claim(what);
                self.sent.push(claim.clone());
                self.claim(&claim)?;
            }
            Step::Evict => self.world.lock.key = Key::Absent,
            Step::Pass(ms) => self.world.pass(*ms),
            Step::Again(n) => {
                if let Some(claim) = self.nth(*n) {
                    self.claim(&claim)?;
                }
            }
            Step::Renew(n) => self.nth(*n).map_or(Ok(()), |claim| self.renew(&claim))?,
            Step::Finish(n, with_record) => {
                if let Some(claim) = self.nth(*n) {
                    let with_record = *with_record;
                    self.finish(&claim, with_record, !self.granted.contains(&claim.token));
                }
            }
            Step::GiveBack(n) => {
                if let Some(claim) = self.nth(*n) {
                    self.finish(&claim, false, true);
                }
            }
            Step::Settle(n) => self.nth(*n).map_or(Ok(()), |claim| self.settle(&claim))?,
        }
        Ok(())
    }

    fn renew(&mut self, claim: &Claim) -> Result<(), String> {
        let renewal = Renewal {
            lock: claim.lock.clone(),
            token: claim.token.clone(),
            ttl: claim.ttl,
            tenure: Tenure::of_lock(0, claim.run_id.clone()),
        };
        let lived = self
            .leases
            .get(&claim.token)
            .is_some_and(|end| *end > self.world.ms);
        let clock = self.world.clock();
        let (reply, _) = super::renew(&mut self.world.lock, &mut self.world.job, clock, &renewal);
        if reply == RenewReply::Renewed {
            check(lived, "a lease that was over was renewed")?;
            let end = self.world.ms + TTL_MS;
            self.leases.insert(claim.token.clone(), end);
        }
        check(
            reply == RenewReply::Renewed || !lived,
            "a living lease was not renewed",
        )
    }

    fn settle(&mut self, claim: &Claim) -> Result<(), String> {
        let settle = Settle {
            lock: claim.lock.clone(),
            job: job(),
            run_id: claim.run_id.clone(),
            keep: 100,
        };
        let lived = self
            .leases
            .get(&claim.token)
            .is_some_and(|end| *end > self.world.ms);
        let clock = self.world.clock();
        let (done, effects) =
            super::settle(&mut self.world.lock, &mut self.world.job, clock, &settle);
        self.world.take_effects(effects);
        check(!(done && lived), "a living run was settled")
    }

    /// G7: whatever is decided has a record, or a run that is open.
    fn each_decided_occurrence_has_its_verdict(&self) -> Result<(), String> {
        let open = self.world.job.as_ref().and_then(|job| job.open.as_ref());
        for at in (1..=self.due())
            .map(|n| self.at(n))
            .filter(|at| *at <= self.last())
        {
            let told = self.world.records.iter().any(|record| {
                let until = record.until.or(record.scheduled_at);
                record.scheduled_at.is_some_and(|from| from <= at) && until >= Some(at)
            });
            let running = open.is_some_and(|open| open.scheduled_at == Some(at));
            check(told || running, &format!("{at} has no verdict"))?;
        }
        Ok(())
    }
}

fn check(holds: bool, otherwise: &str) -> Result<(), String> {
    if holds {
        Ok(())
    } else {
        Err(otherwise.to_owned())
    }
}

fn key_holder(key: &Key) -> Option<&str> {
    match key {
        Key::Value { text, .. } => Some(text),
        Key::Absent | Key::OtherType { .. } => None,
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn whatever_happens_the_guarantees_hold(steps in proptest::collection::vec(step(), 1..80)) {
        let mut fleet = Fleet::new();
        fleet.world.pass(3500);
        for step in steps {
            let last = fleet.last();
            let fence = fleet.world.lock.fence;
            let done = fleet.run(&step);
            prop_assert_eq!(done, Ok(()), "{:?}", step);
            prop_assert!(fleet.world.lock.fence >= fence);
            let gives_back = matches!(step, Step::GiveBack(_) | Step::Finish(..));
            prop_assert!(fleet.last() >= last || gives_back, "last fell at {:?}", step);
            prop_assert_eq!(fleet.each_decided_occurrence_has_its_verdict(), Ok(()), "{:?}", step);
        }
    }

    #[test]
    fn no_request_changes_a_key_that_is_anothers(steps in proptest::collection::vec(step(), 1..60)) {
        let mut fleet = Fleet::new();
        fleet.world.pass(3500);
        for step in steps {
            let before = fleet.world.lock.key.clone();
            let newest = fleet.sent.len();
            let asks = match &step {
                Step::Again(n) | Step::Renew(n) | Step::Finish(n, _) | Step::GiveBack(n)
                | Step::Settle(n) => fleet.nth(*n).map(|claim| claim.token),
                Step::Evict | Step::Pass(_) => continue_with(&mut fleet, &step),
                _ => None,
            };
            if matches!(step, Step::Evict | Step::Pass(_)) {
                continue;
            }
            prop_assert_eq!(fleet.run(&step), Ok(()));
            let asks = asks.or_else(|| fleet.sent.get(newest).map(|claim| claim.token.clone()));
            if let Some(holder) = key_holder(&before)
                && asks.as_ref().map(Token::as_str) != Some(holder)
            {
                prop_assert_eq!(&fleet.world.lock.key, &before, "{:?}", step);
            }
        }
    }
}

/// Time and evictions are no requests: they may change any key.
fn continue_with(fleet: &mut Fleet, step: &Step) -> Option<Token> {
    let _ = fleet.run(step);
    None
}
