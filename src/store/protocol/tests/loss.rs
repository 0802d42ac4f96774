//! The rules of a loss of data, by name.

use std::time::Duration;

use super::{World, job, token_of};
use crate::ground::timing;
use crate::store::protocol::{
    self, BARE_TTL_COUNTED, Ending, FORGOTTEN_AHEAD, JobState, Key, LEDGER_AHEAD, LockState,
    Marker, Past, REASON_UNKNOWN, SUCCESSOR_SKEW, least_wait, notice,
};
use crate::store::{
    Claim, ClaimReply, ClaimTarget, DroppedRange, Due, Fingerprint, FinishReply, GapAnswer, Grant,
    GrantedRun, Kind, Outcome, Overlap, Range, Record, RenewReply, Renewal, RunStatus, RunTerms,
};
use crate::time::{BootInstant, Timestamp};

const TTL: Duration = Duration::from_secs(30);

const TERMS: RunTerms = RunTerms {
    rerun_window: Duration::from_secs(300),
    max_reruns: 1,
    ..RunTerms::NONE
};

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
            grant: Grant {
                lock: claim.lock.clone(),
                token: claim.token.clone(),
                run_id: claim.run_id.clone(),
                fence,
                ttl: TTL,
                sent: BootInstant::BOOT,
                starts_at: None,
            },
            run: Some(GrantedRun {
                job: job(),
                scheduled_at: Some(at),
                attempt: 1,
                kind: Kind::Schedule,
                started_at: at,
                terms: TERMS,
            }),
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
fn a_loss_that_was_noticed_under_a_clock_far_ahead_counts_as_noticed_now() {
    let hour = Duration::from_secs(3600);
    let far = i64::try_from(LEDGER_AHEAD.as_millis()).expect("small");
    for (back, left) in [(far, LEDGER_AHEAD + hour), (far + 1, hour)] {
        let mut world = World::new();
        let mut marker = None;
        notice(&mut marker, "s", world.clock(), hour);
        world.pass(-back);
        let past = notice(&mut marker, "s", world.clock(), Duration::ZERO);
        assert_eq!(past.recovering(world.clock(), TTL), Some(left), "{back}");
        let horizon = world.now().plus(FORGOTTEN_AHEAD);
        assert_eq!(past.is_unknowable(horizon.plus(hour)), back == far);
        assert!(past.is_unknowable(horizon));
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

/// The holder renews as [`timing`] says, another program asks under another TTL all the time, and
/// the server comes back empty at any moment between two renewals.
#[test]
fn leases_of_different_ttls_on_one_lock_never_overlap_after_a_loss() {
    for (held, asked) in [(60_u64, 2_u64), (3600, 2), (30, 1), (2, 60)] {
        let [held, asked] = [held, asked].map(Duration::from_secs);
        let every = i64::try_from(timing::renew_every(held).as_millis()).expect("short");
        for lost_after in (0..=every).step_by(500) {
            let mut world = World::new();
            let holder = Claim {
                ttl: held,
                ..world.of_lock("a")
            };
            let fence = world.granted(&holder);
            world.ms += lost_after;
            world.loses_data(None);
            let renewal = Grant {
                lock: holder.lock.clone(),
                token: holder.token.clone(),
                run_id: holder.run_id.clone(),
                fence,
                ttl: held,
                sent: BootInstant::BOOT,
                starts_at: None,
            }
            .renewal();
            let other = Claim {
                ttl: asked,
                ..world.of_lock("b")
            };
            let mut until_renewal = every - lost_after;
            for _ in 0..300 {
                world.past.least = least_wait(false, Duration::ZERO);
                let reply = world.send(&other);
                let refused = matches!(
                    reply,
                    ClaimReply::Recovering { .. } | ClaimReply::Held { .. }
                );
                assert!(refused, "{held:?} {asked:?} {lost_after}: {reply:?}");
                world.past.least = Duration::ZERO;
                if until_renewal <= 0 {
                    let clock = world.clock();
                    let renewed = protocol::renew(&mut world.lock, &mut None, clock, &renewal);
                    assert_eq!(renewed.0, RenewReply::Renewed, "{held:?} {lost_after}");
                    until_renewal = every;
                }
                world.pass(250);
                until_renewal -= 250;
            }
        }
    }
}

#[test]
fn a_list_says_how_long_a_claim_waits_at_least_and_without_one_it_is_half_a_minute() {
    assert_eq!(least_wait(true, Duration::ZERO), Duration::ZERO);
    assert_eq!(least_wait(false, TTL / 10), Duration::ZERO);
    assert_eq!(least_wait(false, Duration::ZERO), BARE_TTL_COUNTED);
    let mut world = World::new();
    world.loses_data(None);
    world.past.least = least_wait(false, TTL / 10);
    let short = Claim {
        ttl: TTL / 10,
        ..world.of_lock("a")
    };
    world.pass(3_000);
    world.granted(&short);
    // A store that was declared new has nothing to wait for.
    let mut world = World::new();
    world.past.least = BARE_TTL_COUNTED;
    let at_once = world.of_lock("a");
    world.granted(&at_once);
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
fn a_result_that_arrives_after_its_run_was_called_unknown_replaces_that() {
    let (mut world, first, _, first_at) = running();
    let snapshot = (world.lock.clone(), world.job.clone());
    let end = world.succeeded("a", first_at);
    world.send(&first);
    world.pass(60_000);
    let at = world.now();
    let second = world.occurrence("b", world.due());
    let fence = world.granted(&second);
    world.records.clear();
    world.loses_data(Some(snapshot));
    assert_eq!(world.knowing(&second, fence, at), RenewReply::Renewed);
    assert_eq!(world.outcomes(), [Outcome::Unknown]);
    // Its host could not reach the store until now.
    assert_eq!(world.finish_with(&end), FinishReply::Lost);
    assert_eq!(world.outcomes(), [Outcome::Succeeded]);
    assert_eq!(world.records[0].scheduled_at, Some(first_at));
}

#[test]
fn a_result_that_arrives_after_its_occurrence_was_called_unknown_replaces_that() {
    let mut world = World::registered();
    let blocker = world.occurrence("a", world.due());
    world.granted(&blocker);
    world.pass(1000);
    let at = world.now();
    let waits = world.with_overlap("b", world.due(), Overlap::Queue { limit: 2 });
    world.send(&waits);
    // As old data have it: the occurrence still waits.
    let snapshot = (world.lock.clone(), world.job.clone());
    world.pass(1000);
    world.loses_data(Some(snapshot));
    world.pass(60_000);
    let later = world.occurrence("c", world.due());
    world.send(&later);
    let unknown = |world: &World| {
        let of_it = |r: &&Record| r.scheduled_at == Some(at) && r.outcome == Outcome::Unknown;
        world.records.iter().filter(of_it).count()
    };
    assert_eq!(unknown(&world), 1);
    // Its host had been granted it before the loss, and could not reach the store until now.
    let end = world.succeeded("b", at);
    world.finish_with(&end);
    assert_eq!(unknown(&world), 0);
    assert_eq!(
        world.records.last().map(|it| it.outcome),
        Some(Outcome::Succeeded)
    );
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
    let horizon = world.now().plus(FORGOTTEN_AHEAD);
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
        horizon: Some(lost_at.plus(FORGOTTEN_AHEAD)),
        decided_beyond: Vec::new(),
        pauses: Vec::new(),
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
fn a_job_that_is_not_known_after_a_loss_begins_at_it() {
    let mut world = World::new();
    world.loses_data(None);
    let lost_at = world.now();
    world.pass(10_000);
    assert_eq!(world.register("f1").decided_until, lost_at);
    // Nor when the wait is over: another host may have in hand what came due meanwhile.
    world.job = None;
    world.pass(60_000);
    assert_eq!(world.register("f1").decided_until, lost_at);
    world.job = None;
    let mut due = world.due();
    due.prev = Some(world.now().minus(Duration::from_secs(1)));
    let gap = ClaimReply::Gap {
        last: lost_at,
        horizon: Some(lost_at.plus(FORGOTTEN_AHEAD)),
        decided_beyond: Vec::new(),
        pauses: Vec::new(),
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

#[test]
fn a_claim_resent_to_old_data_takes_no_lock_that_another_may_have_by_now() {
    let (mut world, first, _, first_at) = running();
    let snapshot = (world.lock.clone(), world.job.clone());
    // Its answer was lost, its lease ends, another has the lock: none of it is in the snapshot.
    world.pass(40_000);
    let at = world.now();
    let second = world.occurrence("b", world.due());
    let fence = world.granted(&second);
    world.loses_data(Some(snapshot));
    world.lock.key = Key::Absent;
    let remaining = TTL;
    assert_eq!(world.send(&first), ClaimReply::Recovering { remaining });
    assert_eq!(world.knowing(&second, fence, at), RenewReply::Renewed);
    world.pass(29_000);
    assert_eq!(world.knowing(&second, fence, at), RenewReply::Renewed);
    world.pass(2_000);
    let reply = world.send(&first);
    assert!(matches!(reply, ClaimReply::Finished), "{reply:?}");
    let again = world.occurrence("c", world.due_at(first_at));
    assert!(matches!(world.send(&again), ClaimReply::AlreadyClaimed(_)));
}

#[test]
fn a_claim_resent_while_its_lease_lasts_keeps_it_also_on_old_data() {
    let (mut world, claim, fence, _) = running();
    let snapshot = (world.lock.clone(), world.job.clone());
    world.loses_data(Some(snapshot));
    assert_eq!(world.granted(&claim), fence);
    // The key is gone, its end has not come.
    world.lock.key = Key::Absent;
    assert_eq!(world.granted(&claim), fence);
}

#[test]
fn a_host_that_registers_first_closes_no_ledger_over_what_another_has_in_hand() {
    let mut world = World::new();
    let at = world.now();
    world.pass(5_000);
    world.loses_data(None);
    let lost_at = world.now();
    assert_eq!(world.register("f1").decided_until, lost_at);
    assert_eq!(world.job, None);
    world.pass(30_000);
    // The host that registered comes first, with the next occurrence.
    let next = Due {
        prev: Some(at),
        ..world.due()
    };
    let before = at.minus(Duration::from_millis(1));
    let gap = ClaimReply::Gap {
        last: before,
        horizon: Some(lost_at.plus(FORGOTTEN_AHEAD)),
        decided_beyond: Vec::new(),
        pauses: Vec::new(),
    };
    let claim = world.occurrence("b", next);
    assert_eq!(world.send(&claim), gap);
    // The other comes first.
    world.job = None;
    let in_hand = Due {
        prev: Some(before),
        ..world.due_at(at)
    };
    let claim = world.occurrence("a", in_hand);
    assert_eq!(world.send(&claim), ClaimReply::Unknown);
    assert_eq!(world.outcomes(), [Outcome::Unknown]);
}

#[test]
fn a_schedule_that_the_data_forgot_counts_from_the_loss_and_not_from_its_next_claim() {
    let mut world = World::registered();
    let snapshot = (world.lock.clone(), world.job.clone());
    world.loses_data(Some(snapshot));
    let lost_at = world.now();
    let after = |ms| lost_at.plus(Duration::from_millis(ms));
    world.pass(31_000);
    let newer = |due| Due {
        fingerprint: Fingerprint("f2".into()),
        ..due
    };
    // Those that came due while it recovered are a gap.
    let due = Due {
        prev: Some(after(20_000)),
        ..newer(world.due())
    };
    let gap = ClaimReply::Gap {
        last: lost_at,
        horizon: Some(lost_at.plus(FORGOTTEN_AHEAD)),
        decided_beyond: Vec::new(),
        pauses: Vec::new(),
    };
    let claim = world.occurrence("a", due);
    assert_eq!(world.send(&claim), gap);
    // It is no other for a host that registers first, until the loss is long ago.
    world.pass(1_000);
    assert_eq!(world.register("f3").decided_until, lost_at);
    world.pass(3_600_000);
    assert_eq!(world.register("f4").decided_until, world.now());
}

#[test]
fn long_after_a_loss_a_job_that_is_not_known_is_new() {
    let mut world = World::new();
    world.loses_data(None);
    world.pass(3_599_000);
    let prev = world.now().minus(Duration::from_secs(600));
    let due = |world: &World| Due {
        prev: Some(prev),
        ..world.due()
    };
    let claim = world.occurrence("a", due(&world));
    assert!(matches!(world.send(&claim), ClaimReply::Gap { .. }));
    world.job = None;
    world.pass(1_000);
    let claim = world.occurrence("b", due(&world));
    world.granted(&claim);
}

/// Each of the things that forbid that a holder takes its lease back, alone.
#[test]
fn a_lease_is_not_taken_back_from_a_later_one_or_from_another_program() {
    let taken_back = |change: &dyn Fn(&mut LockState)| {
        let (mut world, claim, fence, at) = running();
        world.loses_data(None);
        world.lock.fence = fence - 1;
        change(&mut world.lock);
        world.knowing(&claim, fence, at)
    };
    let (_, _, fence, _) = running();
    let other = || Some(token_of("b"));
    let key = |text: &str| Key::Value {
        text: text.to_owned(),
        end: Some(u64::MAX),
    };
    assert_eq!(taken_back(&|_| {}), RenewReply::Renewed);
    let later = |lock: &mut LockState| lock.fence = fence + 1;
    assert_eq!(taken_back(&later), RenewReply::Absent);
    let anothers = |lock: &mut LockState| (lock.fence, lock.token) = (fence, other());
    assert_eq!(taken_back(&anothers), RenewReply::Absent);
    let ended = |lock: &mut LockState| lock.finished = vec![(token_of("a"), Ending::Interrupted)];
    assert_eq!(taken_back(&ended), RenewReply::Absent);
    let list = |lock: &mut LockState| lock.key = Key::OtherType { end: None };
    assert_eq!(taken_back(&list), RenewReply::Taken);
    let foreign = |lock: &mut LockState| lock.key = key("another program");
    assert_eq!(taken_back(&foreign), RenewReply::Taken);
    let earlier = |lock: &mut LockState| {
        lock.token = other();
        lock.key = key(token_of("b").as_str());
    };
    assert_eq!(taken_back(&earlier), RenewReply::Renewed);
    let as_late = |lock: &mut LockState| {
        earlier(lock);
        lock.fence = fence;
    };
    assert_eq!(taken_back(&as_late), RenewReply::Taken);
}

#[test]
fn who_was_granted_nothing_takes_nothing_back() {
    let (mut world, claim, _, at) = running();
    world.loses_data(None);
    assert_eq!(world.knowing(&claim, 0, at), RenewReply::Absent);
    assert_eq!(world.lock, LockState::default());
}

#[test]
fn a_run_that_the_data_know_is_taken_back_as_it_was() {
    let (mut world, claim, fence, at) = running();
    let (mut lock, job) = (world.lock.clone(), world.job.clone());
    // Renewed for so long that its lease is over in the snapshot.
    (lock.key, lock.lease_end) = (Key::Absent, 0);
    world.loses_data(Some((lock, job.clone())));
    assert_eq!(world.knowing(&claim, fence, at), RenewReply::Renewed);
    assert_eq!((&world.job, world.outcomes()), (&job, Vec::new()));
}

#[test]
fn a_later_run_in_the_ledger_stays_and_an_earlier_one_becomes_unknown() {
    for (ahead, stays) in [(1, true), (0, true), (-1, false)] {
        let (mut world, claim, fence, at) = running();
        let mut job = world.job.clone();
        let open = job.as_mut().and_then(|job| job.open.as_mut());
        let open = open.expect("it runs");
        open.token = token_of("b");
        open.fence = fence.checked_add_signed(ahead).expect("in range");
        world.loses_data(Some((LockState::default(), job.clone())));
        assert_eq!(world.knowing(&claim, fence, at), RenewReply::Renewed);
        assert_eq!(world.job == job, stays);
        let replaced = if stays {
            vec![]
        } else {
            vec![Outcome::Unknown]
        };
        assert_eq!(world.outcomes(), replaced);
        let interrupted = world.lock.ending(&token_of("b"));
        assert_eq!(interrupted.is_some(), !stays);
    }
}

#[test]
fn a_run_that_is_taken_back_does_not_take_the_ledger_back() {
    let (mut world, claim, fence, at) = running();
    let mut job = world.job.clone();
    let later = at.plus(Duration::from_secs(3));
    if let Some(job) = &mut job {
        (job.last, job.open) = (later, None);
    }
    world.loses_data(Some((LockState::default(), job)));
    assert_eq!(world.knowing(&claim, fence, at), RenewReply::Renewed);
    assert_eq!(world.last(), later);
}

/// The others learn of an occurrence that is decided, or runs, whatever else the store forgot.
#[test]
fn what_is_settled_does_not_wait_after_a_loss() {
    let (mut world, claim, _, at) = running();
    world.loses_data(Some((world.lock.clone(), world.job.clone())));
    let late = world.occurrence("b", world.due_at(at));
    match world.send(&late) {
        ClaimReply::AlreadyClaimed(RunStatus::Running { run_id, .. }) => {
            assert_eq!(run_id, claim.run_id);
        }
        other => panic!("it runs: {other:?}"),
    }
    let ended = world.succeeded("a", at);
    world.finish_with(&ended);
    let decided = ClaimReply::AlreadyClaimed(RunStatus::Decided);
    assert_eq!(world.send(&late), decided);
    // An undecided occurrence waits, and the claim that has finished stays finished.
    world.pass(1000);
    let new = world.occurrence("c", world.due_at(world.now()));
    assert!(matches!(world.send(&new), ClaimReply::Recovering { .. }));
    assert_eq!(world.send(&claim), ClaimReply::Finished);
}

#[test]
fn what_came_due_before_a_loss_is_not_missed_by_a_host_that_has_not_heard_of_it() {
    for in_gap in [false, true] {
        let mut world = World::registered();
        let start = world.last();
        let minute = |n: u64| start.plus(Duration::from_secs(60 * n));
        world.ms = minute(3).millis();
        world.loses_data(Some((world.lock.clone(), world.job.clone())));
        world.ms = minute(5).millis();
        let answer = |(from, until), outcome| GapAnswer {
            if_last: start,
            drop: vec![DroppedRange {
                range: Range {
                    from: minute(from),
                    until: minute(until),
                    count: until - from + 1,
                },
                outcome,
                reason: "why".to_owned(),
            }],
        };
        let mut send = |answer: GapAnswer| {
            let due = Due {
                prev: Some(minute(4)),
                gap: Some(answer.clone()),
                ..world.due_at(minute(5))
            };
            let claim = world.occurrence("a", due);
            let what = ClaimTarget::Drops {
                job: job(),
                fingerprint: Fingerprint("f1".into()),
                answer,
                keep: crate::store::Retention::of_records(100),
            };
            let what = if in_gap { claim.what.clone() } else { what };
            world.send(&Claim { what, ..claim })
        };
        let reply = send(answer((1, 4), Outcome::Missed));
        let asks =
            matches!(&reply, ClaimReply::Gap { last, horizon: Some(_), .. } if *last == start);
        assert!(asks, "{reply:?}");
        // What the host knows of its own it may say.
        let reply = send(answer((1, 4), Outcome::Skipped));
        let done = matches!(reply, ClaimReply::Dropped | ClaimReply::Granted { .. });
        assert!(done, "{reply:?}");
    }
}

#[test]
fn what_came_due_after_a_loss_may_be_missed() {
    let mut world = World::registered();
    let start = world.last();
    world.loses_data(Some((world.lock.clone(), world.job.clone())));
    let after = world.now().plus(Duration::from_secs(60));
    world.ms = after.millis() + 60_000;
    let answer = GapAnswer {
        if_last: start,
        drop: vec![DroppedRange {
            range: Range {
                from: after,
                until: after,
                count: 1,
            },
            outcome: Outcome::Missed,
            reason: "why".to_owned(),
        }],
    };
    let claim = world.of_lock("a");
    let what = ClaimTarget::Drops {
        job: job(),
        fingerprint: Fingerprint("f1".into()),
        answer,
        keep: crate::store::Retention::of_records(100),
    };
    assert_eq!(world.send(&Claim { what, ..claim }), ClaimReply::Dropped);
}

#[test]
fn a_long_lease_is_renewed_three_times_before_a_store_that_forgot_it_grants_its_lock() {
    for secs in [2, 30, 31, 60, 86_400] {
        let every = timing::renew_every(Duration::from_secs(secs));
        assert!(3 * every <= BARE_TTL_COUNTED, "{secs} s");
    }
}
