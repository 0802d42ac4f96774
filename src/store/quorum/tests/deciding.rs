//! What the replies of a majority lead to, by whose request it is.

use std::time::Duration;

use super::super::decide::{Decision, Requester, decide};
use super::super::request::Transition;
use super::super::trust::Trust;
use super::{ballot, held, ms, reply, running, token};
use crate::names::{JobName, LockName};
use crate::store::Lock;
use crate::store::protocol::{Clock, JobState, Key, LockState};
use crate::store::redis::node::{
    AcceptStatus, LongestTtl, PrepareReply, PrepareStatus, RequestTarget,
};
use crate::time::Timestamp;

fn resolved(replies: &[PrepareReply], requester: Requester<'_>) -> Decision<()> {
    let target = RequestTarget {
        lock: Lock::named(&LockName::parse("l").expect("a name")),
        job: Some(JobName::parse("j").expect("a name")),
        ttl: Duration::ZERO,
        longest: LongestTtl::default(),
    };
    let closes = |_: &mut LockState, job: &mut Option<JobState>, _: Clock| {
        job.as_mut().expect("it is known").open = None;
        Transition::of((), Vec::new())
    };
    decide((&target, ballot(9)), replies, 2, requester, closes)
}

#[test]
fn while_a_majority_recovers_only_the_holder_of_a_run_changes_anything() {
    let lost = PrepareReply {
        lost_at: Some(Timestamp::from_millis(1)),
        recovering: ms(300),
        remembers: false,
        ..running(1, 10, 1)
    };
    let replies = [lost.clone(), lost];
    let (me, other) = (token(1), token(2));
    let waits = resolved(&replies, Requester::new(Some(&other)));
    assert!(matches!(waits, Decision::Recovering(_)), "{waits:?}");
    let taken = resolved(&replies, Requester::holder(&me));
    let Decision::Propose {
        trust, proposal, ..
    } = taken
    else {
        panic!("not proposed: {taken:?}");
    };
    assert!(trust.counts(AcceptStatus::Recovering));
    let horizon = proposal.job.and_then(|job| job.horizon);
    assert!(horizon.is_some(), "what was lost is not forgotten over it");
    assert!(
        !Trust::Sound.counts(AcceptStatus::Forgetful)
            && !Trust::Forgetful.counts(AcceptStatus::Recovering)
    );
}

#[test]
fn after_an_outage_nobody_but_its_holder_closes_a_run() {
    let replies = [running(1, 10, 1), running(1, 10, 1)];
    let (me, other) = (token(1), token(2));
    let spared = |token| Requester {
        spares: ms(500),
        ..Requester::new(Some(token))
    };
    let waits = resolved(&replies, spared(&other));
    assert!(matches!(waits, Decision::Recovering(left) if left == ms(500)));
    let closed = resolved(&replies, spared(&me));
    assert!(matches!(closed, Decision::Propose { .. }), "{closed:?}");
    let closed = resolved(&replies, Requester::new(Some(&other)));
    assert!(matches!(closed, Decision::Propose { .. }), "{closed:?}");
}

#[test]
fn a_lock_that_is_torn_decides_nothing_while_another_host_proposes() {
    let target = RequestTarget {
        lock: Lock::named(&LockName::parse("l").expect("a name")),
        job: None,
        ttl: Duration::ZERO,
        longest: LongestTtl::default(),
    };
    let is_held = |third: Option<PrepareStatus>| {
        let third = third.map(|status| PrepareReply { status, ..reply() });
        let replies: Vec<PrepareReply> = [held(1, 900), reply()].into_iter().chain(third).collect();
        let requester = Requester::new(None);
        let found = decide(
            (&target, ballot(9)),
            &replies,
            2,
            requester,
            |lock, _, _| Transition::of(lock.key != Key::Absent, Vec::new()),
        );
        match found {
            Decision::Reply(held) | Decision::Propose { reply: held, .. } => Some(held),
            Decision::Recovering(_) | Decision::TooFew => None,
        }
    };
    assert_eq!(is_held(None), Some(true), "no other node answers");
    assert_eq!(is_held(Some(PrepareStatus::Promised)), Some(false));
    assert_eq!(is_held(Some(PrepareStatus::Preempted)), None);
}
