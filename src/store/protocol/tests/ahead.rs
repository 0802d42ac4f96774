//! Claims that come ahead of their instant.

use std::time::Duration;

use super::world::{World, fence, job, record, token_of};
use crate::store::protocol::{
    JobState, Key, LEAD, LockState, Marker, Moved, Past, Pause, SUCCESSOR_SKEW, notice,
};
use crate::store::{
    Claim, ClaimReply, Due, Fingerprint, FinishReply, GapAnswer, LockRef, Outcome, Overlap,
    RunStatus,
};
use crate::time::Timestamp;

const LEAD_MS: i64 = 40;

/// An occurrence that is due in so many milliseconds, by a host that may claim it ahead.
fn due_in(world: &World, ms: i64, lead: Duration) -> Due {
    let at = Timestamp::from_millis(world.ms + ms);
    Due {
        scheduled_at: at,
        not_before: at,
        prev: Some(Timestamp::from_millis(world.ms - 120_000)),
        lead,
        ..world.due()
    }
}

fn ahead(world: &World, token: &str) -> Claim {
    let lead = Duration::from_millis(LEAD_MS.unsigned_abs());
    world.occurrence(token, due_in(world, LEAD_MS, lead))
}

fn starts_in(reply: &ClaimReply) -> Duration {
    match reply {
        ClaimReply::Granted { starts_in, .. } => *starts_in,
        other => panic!("not granted: {other:?}"),
    }
}

#[test]
fn a_usual_claim_is_granted_ahead_for_its_instant() {
    let mut world = World::registered();
    let claim = ahead(&world, "a");
    let at = Timestamp::from_millis(world.ms + LEAD_MS);
    let reply = world.send(&claim);
    assert_eq!(starts_in(&reply), Duration::from_millis(40));
    assert_eq!(world.last(), at);
    let open = world.job.as_ref().and_then(|job| job.open.as_ref());
    assert_eq!(open.expect("it is open").started_at, at);
    // A copy of it gets the same grant, and waits for what is left.
    world.pass(15);
    let again = world.send(&claim);
    assert_eq!(fence(&again), fence(&reply));
    assert_eq!(starts_in(&again), Duration::from_millis(25));
    world.pass(25);
    assert_eq!(starts_in(&world.send(&claim)), Duration::ZERO);
}

#[test]
fn nothing_is_granted_further_ahead_than_the_claim_and_the_store_allow() {
    let mut world = World::registered();
    let leads = [
        (Duration::ZERO, 1),
        (Duration::from_millis(40), 41),
        (LEAD * 5, 1001),
    ];
    for (lead, ms) in leads {
        let due = due_in(&world, ms, lead);
        let before = world.job.clone();
        let by = Duration::from_millis(ms.unsigned_abs());
        let claim = world.occurrence("a", due);
        assert_eq!(world.send(&claim), ClaimReply::Early { by });
        assert_eq!(world.job, before);
    }
    let due = due_in(&world, 1000, LEAD * 5);
    let claim = world.occurrence("b", due);
    assert_eq!(starts_in(&world.send(&claim)), LEAD);
}

#[test]
fn hosts_that_come_after_an_early_grant_receive_the_usual_replies() {
    let mut world = World::registered();
    let (first, second, older) = (ahead(&world, "a"), ahead(&world, "b"), {
        let due = due_in(&world, LEAD_MS, Duration::ZERO);
        world.occurrence("c", due)
    });
    fence(&world.send(&first));
    let running = world.send(&second);
    let is_running = |reply: &ClaimReply| matches!(reply, ClaimReply::AlreadyClaimed(RunStatus::Running { by, .. }) if by == "host-a");
    assert!(is_running(&running), "{running:?}");
    // A host of an earlier version asks again at the instant.
    let by = Duration::from_millis(40);
    assert_eq!(world.send(&older), ClaimReply::Early { by });
    world.pass(LEAD_MS);
    let running = world.send(&older);
    assert!(is_running(&running), "{running:?}");
}

#[test]
fn before_the_instant_nothing_but_a_plain_grant_is_decided() {
    type Unusual = (&'static str, fn(&mut World));
    let cases: [Unusual; 11] = [
        ("another program has the lock", |world| {
            let text = "theirs".to_owned();
            world.lock.key = Key::Value { text, end: None };
        }),
        ("a lease has not ended", |world| {
            world.lock.token = Some(token_of("x"));
        }),
        ("an occurrence waits", |world| {
            let earlier = world.occurrence("x", world.due());
            fence(&world.send(&earlier));
            assert_eq!(world.give_back("x"), FinishReply::Released);
        }),
        ("a run is open", |world| {
            let earlier = world.occurrence("x", world.due());
            fence(&world.send(&earlier));
            (world.lock.key, world.lock.token) = (Key::Absent, None);
        }),
        ("an occurrence is decided beyond", |world| {
            let at = world.now().plus(Duration::from_secs(60));
            state(world).decided_beyond = vec![at];
        }),
        ("the job is paused", |world| {
            let since = world.now();
            state(world).pauses = vec![Pause {
                since,
                until: None,
                by: "alice@web1".to_owned(),
                resumed_by: None,
                reason: String::new(),
                asked_at: since,
            }];
        }),
        ("the schedule is new", |world| {
            state(world).fingerprints = vec![(Fingerprint("f2".into()), Timestamp::EPOCH)];
        }),
        ("the ledger is ahead of the clock", |world| {
            state(world).last = world.now().plus(Duration::from_millis(10));
        }),
        ("the job is not known", |world| world.job = None),
        ("the store may have forgotten it", |world| {
            world.past = Past {
                horizon: Some(world.now().plus(Duration::from_millis(40))),
                ..Past::default()
            };
        }),
        ("the lock does not exclude", |world| world.exclusive = false),
    ];
    for (what, make) in cases {
        let mut world = World::registered();
        make(&mut world);
        for overlap in [Overlap::Skip, Overlap::Wait, Overlap::Queue { limit: 3 }] {
            let claim = world.with_overlap(
                "a",
                due_in(&world, LEAD_MS, Duration::from_millis(40)),
                overlap,
            );
            let before = (world.job.clone(), world.lock.clone());
            let by = Duration::from_millis(40);
            assert_eq!(world.send(&claim), ClaimReply::Early { by }, "{what}");
            assert_eq!((world.job.clone(), world.lock.clone()), before, "{what}");
        }
    }
}

#[test]
fn what_is_settled_does_not_make_a_claim_wait_for_its_instant() {
    let mut world = World::registered();
    let to = LockRef::of(&ahead(&world, "a").lock);
    let job = state(&mut world);
    job.moved = Some(Moved {
        number: 2,
        since: 1,
        to,
    });
    job.decided_beyond = vec![job.last.minus(Duration::from_secs(60)), job.last];
    let claim = ahead(&world, "a");
    assert_eq!(starts_in(&world.send(&claim)), Duration::from_millis(40));
    let claim = ahead(&world, "b");
    let reply = world.send(&claim);
    let is_running = matches!(reply, ClaimReply::AlreadyClaimed(RunStatus::Running { .. }));
    assert!(is_running, "{reply:?}");
}

#[test]
fn a_gap_or_what_a_gap_drops_waits_for_the_instant() {
    let mut world = World::registered();
    let by = Duration::from_millis(40);
    let mut due = due_in(&world, LEAD_MS, by);
    due.prev = Some(world.now().minus(Duration::from_secs(1)));
    let claim = world.occurrence("a", due.clone());
    assert_eq!(world.send(&claim), ClaimReply::Early { by });
    due.gap = Some(GapAnswer {
        if_last: world.last(),
        drop: Vec::new(),
    });
    let claim = world.occurrence("b", due.clone());
    assert_eq!(world.send(&claim), ClaimReply::Early { by });
    due.prev = None;
    due.gap = None;
    let first = world.occurrence("c", due);
    assert_eq!(world.send(&first), ClaimReply::Early { by });
}

#[test]
fn an_occurrence_that_is_returned_before_its_instant_runs_at_it() {
    let mut world = World::registered();
    let (first, second) = (ahead(&world, "a"), ahead(&world, "b"));
    fence(&world.send(&first));
    assert_eq!(world.give_back("a"), FinishReply::Released);
    world.pass(10);
    let by = Duration::from_millis(30);
    assert_eq!(world.send(&second), ClaimReply::Early { by });
    world.pass(30);
    assert_eq!(starts_in(&world.send(&second)), Duration::ZERO);
    assert!(world.records.is_empty());
}

#[test]
fn a_holder_that_dies_before_the_instant_leaves_an_interrupted_run() {
    let mut world = World::registered();
    let first = ahead(&world, "a");
    fence(&world.send(&first));
    world.pass(60_000);
    let mut due = world.due();
    due.prev = Some(world.last());
    let next = world.occurrence("b", due);
    fence(&world.send(&next));
    assert_eq!(world.outcomes(), [Outcome::Interrupted]);
    let at = first.what;
    let late = record(scheduled(&at), Outcome::Succeeded);
    assert_eq!(world.records[0].scheduled_at, late.scheduled_at);
    assert_eq!(world.records[0].job, job());
}

/// The server that granted was ahead of its successor by as much as the protocol allows, and the claim
/// came ahead of its instant by as much.
#[test]
fn an_occurrence_that_was_granted_ahead_and_forgotten_is_not_granted_again() {
    let mut world = World::registered();
    let snapshot: (LockState, Option<JobState>) = (world.lock.clone(), world.job.clone());
    let skew = i64::try_from(SUCCESSOR_SKEW.as_millis()).expect("small");
    world.ms += skew;
    let lead = i64::try_from(LEAD.as_millis()).expect("small");
    let due = due_in(&world, lead, LEAD);
    let first = world.occurrence("a", due.clone());
    assert_eq!(starts_in(&world.send(&first)), LEAD);
    // The new server has a snapshot, and its clock shows a second less.
    world.ms -= skew;
    (world.lock, world.job) = snapshot;
    let mut marker = Some(Marker::new("before", world.clock()));
    world.past = notice(&mut marker, "s", world.clock(), Duration::ZERO);
    world.pass(30_000);
    let second = world.occurrence("b", due);
    assert_eq!(world.send(&second), ClaimReply::Unknown);
}

fn state(world: &mut World) -> &mut JobState {
    world.job.as_mut().expect("the job is registered")
}

fn scheduled(what: &crate::store::ClaimTarget) -> Option<Timestamp> {
    match what {
        crate::store::ClaimTarget::Occurrence { due, .. } => Some(due.scheduled_at),
        _ => None,
    }
}
