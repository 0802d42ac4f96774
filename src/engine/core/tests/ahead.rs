//! Occurrences that are claimed ahead of their instants.

use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use super::super::Core;
use super::super::event::{Action, ClaimSpec, Event, JobIx, LaneChange, ListedJob, NewList, Now};
use super::super::policy::{Exclusion, Policy};
use super::bench::{Every, JOB, grant, policy, secs};
use crate::config::OnStoreDown;
use crate::schedule::Spread;
use crate::store::protocol::LEAD;
use crate::store::{ClaimReply, Grant, Kind, Registered, RunStatus};
use crate::time::{BootInstant, Timestamp};

const START: i64 = 1_000_000;

/// The clocks so many milliseconds after the start of the daemon.
fn now(ms: i64) -> Now {
    let boot = u64::try_from(START + ms).expect("positive");
    Now {
        utc: Timestamp::from_millis(START + ms),
        boot: BootInstant::from_duration(Duration::from_millis(boot)),
    }
}

/// A core whose job is due ten seconds after its start.
fn core(policy: Policy) -> Core {
    let mut core = Core::new([policy], NonZeroUsize::new(5), now(0));
    assert_eq!(registered(&mut core, JOB, 0), []);
    core
}

fn due(core: &mut Core, ms: i64) -> Vec<Action> {
    let at = secs(1010);
    core.handle(now(ms), Event::Due { job: JOB, at })
}

#[track_caller]
fn claim(actions: &[Action]) -> ClaimSpec {
    match actions {
        [Action::Claim(spec)] => spec.clone(),
        other => panic!("not a claim: {other:?}"),
    }
}

#[test]
fn an_occurrence_that_fires_ahead_is_claimed_ahead_and_starts_at_its_instant() {
    let mut core = core(policy());
    let spec = claim(&due(&mut core, 9_960));
    assert_eq!((spec.at, spec.not_before), (secs(1010), secs(1010)));
    assert_eq!((spec.lead, spec.kind), (LEAD, Kind::Schedule));
    let starts_at = Some(now(10_000).boot);
    let grant = Grant {
        starts_at,
        ..grant(7)
    };
    let granted = Event::Granted {
        job: JOB,
        claim: spec.claim,
        grant,
        attempt: 1,
    };
    let actions = core.handle(now(9_962), granted);
    let starts = |action: &Action| matches!(action, Action::Start { grant, .. } if grant.starts_at == starts_at);
    assert!(actions.iter().any(starts), "{actions:?}");
}

#[test]
fn an_early_reply_is_followed_by_a_claim_at_the_instant() {
    let mut core = core(policy());
    let spec = claim(&due(&mut core, 9_960));
    let by = Duration::from_millis(40);
    let replied = Event::Replied {
        job: JOB,
        claim: spec.claim,
        reply: ClaimReply::Early { by },
    };
    assert_eq!(core.handle(now(9_961), replied), []);
    let timer = core.next_timer().expect("it waits");
    assert_eq!(timer, now(10_001).boot);
    let again = claim(&core.handle(now(10_001), Event::Timer));
    assert_ne!(again.claim, spec.claim);
}

/// The claim of the occurrence `n` periods of ten seconds after the start, so many milliseconds from its instant.
fn claim_of(core: &mut Core, n: i64, from: i64) -> ClaimSpec {
    let at = secs(1000 + 10 * n);
    claim(&core.handle(now(10_000 * n + from), Event::Due { job: JOB, at }))
}

/// The actions that follow from a reply to this claim.
fn replied(core: &mut Core, at: i64, spec: &ClaimSpec, reply: ClaimReply) -> Vec<Action> {
    let claim = spec.claim;
    core.handle(
        now(at),
        Event::Replied {
            job: JOB,
            claim,
            reply,
        },
    )
}

const DECIDED: ClaimReply = ClaimReply::AlreadyClaimed(RunStatus::Decided);

#[test]
fn the_store_is_asked_first_ahead_of_an_instant_while_other_hosts_have_won_lately() {
    let mut core = core(policy());
    let first = claim_of(&mut core, 1, -40);
    assert!(!first.asks_first, "nothing is known of other hosts");
    let running = ClaimReply::AlreadyClaimed(RunStatus::Running {
        by: "b".to_owned(),
        run_id: crate::names::RunId::from_text("r"),
        attempt: 1,
        remaining: Duration::from_secs(30),
    });
    replied(&mut core, 9_961, &first, running);
    let second = claim_of(&mut core, 2, -40);
    assert!(second.asks_first);
    replied(&mut core, 19_961, &second, DECIDED);
    // Late by now: if this host wins, it should not start even later.
    let third = claim_of(&mut core, 3, 1);
    assert!(!third.asks_first);
    replied(&mut core, 30_002, &third, DECIDED);
    // It wins all occurrences from now on, so that it seems to be alone.
    for n in 4..9 {
        let spec = claim_of(&mut core, n, -40);
        assert_eq!(spec.asks_first, n < 7, "{n}");
        let granted = Event::Granted {
            job: JOB,
            claim: spec.claim,
            grant: grant(7),
            attempt: 1,
        };
        core.handle(now(10_000 * n - 39), granted);
        core.handle(now(10_000 * n + 1_000), Event::RunEnded { job: JOB });
        core.handle(now(10_000 * n + 1_000), Event::RunClosed { job: JOB });
    }
}

#[test]
fn the_store_is_not_asked_first_at_an_instant_nor_after_a_claim_ahead_of_one_that_was_early() {
    let early = |by| ClaimReply::Early {
        by: Duration::from_millis(by),
    };
    let mut core = core(policy());
    let first = claim_of(&mut core, 1, -40);
    replied(&mut core, 9_961, &first, DECIDED);
    // As a job that was once paused is answered at each occurrence.
    for (n, asks) in [(2, true), (3, false)] {
        let from = 10_000 * n;
        let ahead = claim_of(&mut core, n, -40);
        assert_eq!(ahead.asks_first, asks, "{n}");
        assert_eq!(replied(&mut core, from - 39, &ahead, early(40)), []);
        let again = claim(&core.handle(now(from + 1), Event::Timer));
        assert!(!again.asks_first, "all hosts claim at this moment");
        replied(&mut core, from + 2, &again, DECIDED);
    }
    let granted_ahead_again = claim_of(&mut core, 4, -40);
    assert!(!granted_ahead_again.asks_first);
    replied(&mut core, 39_961, &granted_ahead_again, DECIDED);
    assert!(claim_of(&mut core, 5, -40).asks_first);
}

#[test]
fn what_is_not_claimed_ahead_waits_for_its_instant() {
    let host = crate::names::HostName::parse("a").expect("a name");
    let job = crate::names::JobName::parse("j").expect("a name");
    let policies = [
        policy().with(|it| it.exclusion = Exclusion::None),
        policy().with(|it| it.on_store_down = OnStoreDown::Run),
        policy().with(|it| it.on_store_down = OnStoreDown::Skip),
        Policy {
            spread: Spread::new(&host, &job, Duration::from_millis(1)),
            ..policy()
        },
    ];
    for policy in policies {
        assert!(!policy.claims_ahead());
        let mut core = core(policy);
        assert_eq!(due(&mut core, 9_960), []);
        let spec = claim(&core.handle(now(10_000), Event::Timer));
        assert_eq!(spec.lead, Duration::ZERO);
    }
}

/// The reply to a registration: the store has decided nothing after 1000.
fn reply(ms: i64) -> Registered {
    Registered {
        pauses: Vec::new(),
        decided_until: secs(1000),
        decided_beyond: Vec::new(),
        now: now(ms).utc,
        open: None,
        head: None,
        recovering: Duration::ZERO,
        moved: false,
    }
}

fn registered(core: &mut Core, job: JobIx, ms: i64) -> Vec<Action> {
    let reply = reply(ms);
    core.handle(now(ms), Event::Registered { job, reply })
}

#[test]
fn what_fires_ahead_in_an_outage_that_ends_before_its_instant_is_claimed_at_its_time() {
    let mut core = core(policy());
    core.handle(now(9_000), Event::StoreDown);
    assert_eq!(due(&mut core, 9_960), []);
    let actions = core.handle(now(9_970), Event::StoreUp);
    assert_eq!(actions, [Action::Register { job: JOB }]);
    let spec = claim(&registered(&mut core, JOB, 9_972));
    assert_eq!((spec.at, spec.kind), (secs(1010), Kind::Schedule));
}

#[test]
fn what_fires_ahead_just_before_the_clock_is_right_again_is_claimed_at_its_time() {
    let mut core = core(policy());
    core.handle(now(9_000), Event::ClockWrong);
    assert_eq!(due(&mut core, 9_960), []);
    let actions = core.handle(now(9_970), Event::ClockRight);
    assert_eq!(actions, [Action::Register { job: JOB }]);
    let spec = claim(&registered(&mut core, JOB, 9_972));
    assert_eq!((spec.at, spec.kind), (secs(1010), Kind::Schedule));
}

#[test]
fn a_claim_ahead_under_a_lock_that_the_job_no_longer_has_is_made_again_under_its_new_one() {
    let mut core = core(policy());
    let spec = claim(&due(&mut core, 9_960));
    let new = JobIx(1);
    let listed = ListedJob {
        job: new,
        policy: policy(),
        change: LaneChange::Moved { before: JOB },
    };
    let list = NewList {
        jobs: vec![listed],
        max_running: None,
    };
    let actions = core.handle(now(9_961), Event::Reload(list));
    let cancel = Action::Cancel {
        job: JOB,
        claim: spec.claim,
    };
    assert_eq!(actions, [cancel, Action::Register { job: new }]);
    let again = claim(&registered(&mut core, new, 9_970));
    assert_eq!((again.at, again.kind), (secs(1010), Kind::Schedule));
}

#[test]
fn jitter_delays_the_claim_too() {
    let mut core = core(Policy {
        delay: Duration::from_secs(3),
        ..policy()
    });
    let spec = claim(&due(&mut core, 12_960));
    assert_eq!(spec.not_before, secs(1013));
    assert_eq!(spec.lead, LEAD);
}

#[test]
fn a_drain_before_the_grant_returns_the_occurrence() {
    let mut core = core(policy());
    let spec = claim(&due(&mut core, 9_960));
    let actions = core.handle(now(9_961), Event::Drain);
    let is_cancelled =
        |action: &Action| matches!(action, Action::Cancel { claim, .. } if *claim == spec.claim);
    assert!(actions.iter().any(is_cancelled), "{actions:?}");
}

#[test]
fn a_measurement_of_the_clock_leaves_a_claim_ahead_as_it_is_unless_it_is_too_far_ahead_now() {
    let mut core = core(policy());
    let spec = claim(&due(&mut core, 9_960));
    assert_eq!(core.handle(now(9_970), Event::ClockSet), []);
    // By the clock as it is known now there is still more than a second left.
    let corrected = Now {
        utc: Timestamp::from_millis(START + 8_990),
        ..now(9_971)
    };
    let actions = core.handle(corrected, Event::ClockSet);
    let is_cancelled =
        |action: &Action| matches!(action, Action::Cancel { claim, .. } if *claim == spec.claim);
    assert!(actions.iter().any(is_cancelled), "{actions:?}");
}

#[test]
fn what_fires_almost_a_second_ahead_is_claimed_and_what_fires_earlier_is_left_to_the_corrected_clock()
 {
    let mut core = core(policy());
    assert_eq!(due(&mut core, 8_999), []);
    assert_eq!(claim(&due(&mut core, 9_000)).at, secs(1010));
}

#[test]
fn what_stays_claimed_when_the_clock_is_corrected_is_not_claimed_twice() {
    let mut core = core(Policy {
        calendar: Arc::new(Every(1)),
        ..policy()
    });
    // The clock is 2050 ms ahead, and nobody knows it yet.
    let fast = |ms: i64| Now {
        utc: Timestamp::from_millis(START + ms + 2_050),
        ..now(ms)
    };
    let due = |at: i64| Event::Due {
        job: JOB,
        at: secs(1000 + at),
    };
    let spec = claim(&core.handle(fast(3_940), due(5)));
    assert_eq!(spec.at, secs(1005));
    assert_eq!(core.handle(fast(4_940), due(6)), []);
    assert_eq!(core.handle(now(4_945), Event::ClockSet), []);
    assert_eq!(core.handle(now(4_950), due(5)), [], "it is being claimed");
    let decided = Event::Replied {
        job: JOB,
        claim: spec.claim,
        reply: ClaimReply::AlreadyClaimed(RunStatus::Decided),
    };
    let claims = |action: &Action| matches!(action, Action::Claim(_));
    let actions = core.handle(now(4_955), decided);
    assert!(!actions.iter().any(claims), "{actions:?}");
    let reply = Registered {
        decided_until: secs(1005),
        ..reply(4_957)
    };
    let actions = core.handle(now(4_958), Event::Registered { job: JOB, reply });
    assert!(!actions.iter().any(claims), "{actions:?}");
}
