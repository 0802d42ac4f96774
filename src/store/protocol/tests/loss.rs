//! The rules of a loss of data, by name.

use std::time::Duration;

use super::{World, job};
use crate::store::protocol::{
    self, JobState, Key, LockState, Marker, Past, REASON_UNKNOWN, SUCCESSOR_SKEW, notice,
};
use crate::store::{
    Claim, ClaimReply, Due, FinishReply, Kind, Outcome, RenewReply, Renewal, RunTenure, Tenure,
};
use crate::time::Timestamp;

const TTL: Duration = Duration::from_secs(30);

impl World {
    /// All is lost, or all but `kept`; the next request notices it.
    fn loses_data(&mut self, kept: Option<(LockState, Option<JobState>)>) {
        (self.lock, self.job) = kept.unwrap_or_default();
        let mut marker = None;
        self.past = notice(&mut marker, "s", self.clock(), Duration::ZERO);
    }

    /// The renewal of one who was granted `claim` under `fence`.
    fn knowing(&mut self, claim: &Claim, fence: u64, at: Timestamp) -> RenewReply {
        let renewal = Renewal {
            lock: claim.lock.clone(),
            token: claim.token.clone(),
            ttl: TTL,
            tenure: Tenure {
                fence,
                run_id: claim.run_id.clone(),
                run: Some(RunTenure {
                    job: job(),
                    scheduled_at: Some(at),
                    attempt: 1,
                    kind: Kind::Schedule,
                    started_at: at,
                }),
            },
        };
        let clock = self.clock();
        let (reply, effects) = protocol::renew(&mut self.lock, &mut self.job, clock, &renewal);
        self.take_effects(effects);
        reply
    }

    fn due_at(&self, at: Timestamp) -> Due {
        Due {
            scheduled_at: at,
            not_before: at,
            ..self.due()
        }
    }

    fn granted(&mut self, claim: &Claim) -> u64 {
        match self.send(claim) {
            ClaimReply::Granted { fence, .. } => fence,
            other => panic!("not granted: {other:?}"),
        }
    }
}

/// A job whose occurrence of now runs under the token `a`.
fn running() -> (World, Claim, u64, Timestamp) {
    let mut world = World::registered();
    let at = world.now();
    let claim = world.occurrence("a", world.due());
    let fence = world.granted(&claim);
    world.pass(1000);
    (world, claim, fence, at)
}

#[test]
fn a_marker_of_the_same_server_says_that_nothing_was_lost() {
    let world = World::new();
    let mut marker = Some(Marker::new("s", world.clock()));
    let past = notice(&mut marker, "s", world.clock(), TTL);
    assert_eq!(past.recovering(world.clock(), TTL), None);
    assert!(!past.is_unknowable(Timestamp::EPOCH));
}

#[test]
fn another_server_or_none_begins_one_wait_for_the_longest_ttl() {
    let mut world = World::new();
    let hour = Duration::from_secs(3600);
    for mut marker in [None, Some(Marker::new("before", world.clock()))] {
        let past = notice(&mut marker, "s", world.clock(), hour);
        assert_eq!(past.recovering(world.clock(), TTL), Some(hour));
        world.pass(60_000);
        // Noticed once.
        let past = notice(&mut marker, "s", world.clock(), Duration::ZERO);
        let left = hour.checked_sub(Duration::from_secs(60));
        assert_eq!(past.recovering(world.clock(), TTL), left);
        // What a restart does not lose is remembered for the next.
        let past = notice(&mut marker, "later", world.clock(), Duration::ZERO);
        assert_eq!(past.recovering(world.clock(), TTL), Some(hour));
    }
}

#[test]
fn a_claim_waits_for_its_own_ttl_at_least_and_a_longer_list_does_not_begin_it_anew() {
    let mut world = World::new();
    let mut marker = None;
    let past = notice(&mut marker, "s", world.clock(), TTL);
    assert_eq!(past.recovering(world.clock(), TTL * 2), Some(TTL * 2));
    world.pass(30_000);
    let past = notice(&mut marker, "s", world.clock(), TTL * 10);
    assert_eq!(past.recovering(world.clock(), TTL), None);
}

#[test]
fn nothing_is_granted_and_nothing_changes_while_the_store_recovers() {
    let (mut world, _, _, _) = running();
    world.loses_data(None);
    let other = world.occurrence("b", world.due());
    for claim in [other, world.of_lock("c")] {
        let remaining = TTL;
        assert_eq!(world.send(&claim), ClaimReply::Recovering { remaining });
    }
    assert_eq!((&world.lock, &world.job), (&LockState::default(), &None));
    world.pass(30_000);
    let claim = world.of_lock("c");
    world.granted(&claim);
}

#[test]
fn a_holder_takes_its_lease_and_its_run_back() {
    let (mut world, claim, fence, at) = running();
    let before = (world.lock.fence, world.last());
    world.loses_data(None);
    assert_eq!(world.knowing(&claim, fence, at), RenewReply::Renewed);
    assert_eq!((world.lock.fence, world.last()), before);
    world.pass(29_000);
    assert_eq!(world.knowing(&claim, fence, at), RenewReply::Renewed);
    world.pass(2_000);
    // The store has recovered, and knows that it runs.
    let same = world.occurrence("b", world.due_at(at));
    let reply = world.send(&same);
    assert!(matches!(reply, ClaimReply::AlreadyClaimed(_)), "{reply:?}");
    let end = world.succeeded("a", at);
    assert_eq!(world.finish_with(&end), FinishReply::Released);
    let next = world.occurrence("c", world.due());
    assert!(world.granted(&next) > fence);
}

#[test]
fn a_token_that_finished_is_not_brought_back() {
    let (mut world, claim, fence, at) = running();
    world.loses_data(None);
    let end = world.succeeded("a", at);
    assert_eq!(world.finish_with(&end), FinishReply::Released);
    assert_eq!(world.knowing(&claim, fence, at), RenewReply::Absent);
    assert_eq!(world.lock.key, Key::Absent);
}

#[test]
fn after_the_wait_a_forgotten_lease_is_gone() {
    let (mut world, claim, fence, at) = running();
    world.loses_data(None);
    world.pass(30_000);
    assert_eq!(world.knowing(&claim, fence, at), RenewReply::Absent);
}

#[test]
fn of_an_old_snapshots_lease_and_a_holders_the_later_one_stays() {
    let (mut world, first, first_fence, first_at) = running();
    let snapshot = (world.lock.clone(), world.job.clone());
    let end = world.succeeded("a", first_at);
    world.finish_with(&end);
    world.pass(1000);
    let at = world.now();
    let second = world.occurrence("b", world.due());
    let fence = world.granted(&second);
    world.records.clear();
    world.loses_data(Some(snapshot));
    assert_eq!(world.knowing(&second, fence, at), RenewReply::Renewed);
    assert_eq!(
        world.knowing(&first, first_fence, first_at),
        RenewReply::Taken
    );
    assert_eq!(world.outcomes(), [Outcome::Unknown]);
    assert_eq!(world.records[0].scheduled_at, Some(first_at));
    assert_eq!(world.last(), at);
}

#[test]
fn another_programs_lock_is_respected_also_then() {
    let (mut world, claim, fence, at) = running();
    world.loses_data(None);
    world.lock.key = Key::Value {
        text: "another program".to_owned(),
        end: None,
    };
    assert_eq!(world.knowing(&claim, fence, at), RenewReply::Taken);
}

#[test]
fn what_was_due_before_the_loss_and_is_undecided_is_unknown() {
    let mut world = World::registered();
    let snapshot = (world.lock.clone(), world.job.clone());
    let at = world.now();
    world.pass(5_000);
    world.loses_data(Some(snapshot));
    world.pass(30_000);
    let claim = world.occurrence("b", world.due_at(at));
    assert_eq!(world.send(&claim), ClaimReply::Unknown);
    assert_eq!(world.outcomes(), [Outcome::Unknown]);
    assert_eq!(world.records[0].reason.as_deref(), Some(REASON_UNKNOWN));
    let again = world.occurrence("c", world.due_at(at));
    assert!(matches!(world.send(&again), ClaimReply::AlreadyClaimed(_)));
}

#[test]
fn what_a_server_ahead_by_a_second_may_have_granted_is_unknown_too() {
    let mut world = World::registered();
    let snapshot = (world.lock.clone(), world.job.clone());
    world.loses_data(Some(snapshot));
    let horizon = world.now().plus(SUCCESSOR_SKEW);
    world.pass(30_000);
    let at_it = world.occurrence("b", world.due_at(horizon));
    assert_eq!(world.send(&at_it), ClaimReply::Unknown);
    assert_eq!(world.outcomes(), [Outcome::Unknown]);
    let after = horizon.plus(Duration::from_millis(1));
    let after_it = world.occurrence("c", world.due_at(after));
    world.granted(&after_it);
}

#[test]
fn what_lies_up_to_the_horizon_is_the_gap_of_a_forgotten_job() {
    let mut world = World::new();
    world.loses_data(None);
    let lost_at = world.now();
    let within = lost_at.plus(Duration::from_millis(700));
    world.register("f1");
    world.pass(30_000);
    let due = Due {
        prev: Some(within),
        ..world.due()
    };
    let gap = ClaimReply::Gap {
        last: lost_at,
        horizon: Some(lost_at.plus(SUCCESSOR_SKEW)),
    };
    let claim = world.occurrence("a", due);
    assert_eq!(world.send(&claim), gap);
}

#[test]
fn however_short_a_ttl_fences_outgrow_those_of_a_server_that_was_ahead() {
    let mut world = World::new();
    let ahead = world.clock().micros + 900_000;
    world.loses_data(None);
    let mut claim = world.of_lock("a");
    claim.ttl = Duration::from_millis(100);
    let remaining = SUCCESSOR_SKEW;
    assert_eq!(world.send(&claim), ClaimReply::Recovering { remaining });
    world.pass(1000);
    assert!(world.granted(&claim) > ahead);
}

#[test]
fn a_forgotten_job_begins_at_the_loss_and_a_new_one_now() {
    let mut world = World::new();
    world.loses_data(None);
    let lost_at = world.now();
    world.pass(10_000);
    assert_eq!(world.register("f1").decided_until, lost_at);
    world.job = None;
    world.pass(60_000);
    assert_eq!(world.register("f1").decided_until, world.now());
    // A claim that finds no ledger comes from a host that had registered.
    world.job = None;
    let mut due = world.due();
    due.prev = Some(world.now().minus(Duration::from_secs(1)));
    let gap = ClaimReply::Gap {
        last: lost_at,
        horizon: Some(lost_at.plus(SUCCESSOR_SKEW)),
    };
    let claim = world.occurrence("a", due);
    assert_eq!(world.send(&claim), gap);
}

#[test]
fn an_orphan_is_not_settled_before_its_holder_had_its_chance() {
    let (mut world, _, _, _) = running();
    world.pass(31_000);
    let mut marker = None;
    world.past = notice(&mut marker, "s", world.clock(), TTL);
    assert!(!world.settle("run-a"));
    world.pass(30_000);
    assert!(world.settle("run-a"));
}

#[test]
fn a_store_that_cannot_lose_its_data_never_waits() {
    let world = World::new();
    assert_eq!(Past::default().recovering(world.clock(), TTL), None);
}
