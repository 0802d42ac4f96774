//! What the views of a majority lead to, by whose request it is.

use std::time::Duration;

use super::super::resolve::{Asker, Resolved, resolve};
use super::super::trust::Trust;
use super::{ballot, held, ms, running, token, view};
use crate::names::{JobName, LockName};
use crate::store::Lock;
use crate::store::protocol::{Clock, JobState, Key, LockState};
use crate::store::redis::node::{LongestTtl, LookAnswer, Place, Taken, View};
use crate::time::Timestamp;

fn resolved(views: &[View], asker: Asker<'_>) -> Resolved<()> {
    let place = Place {
        lock: Lock::named(&LockName::parse("l").expect("a name")),
        job: Some(JobName::parse("j").expect("a name")),
        ttl: Duration::ZERO,
        longest: LongestTtl::default(),
    };
    let closes = |_: &mut LockState, job: &mut Option<JobState>, _: Clock| {
        job.as_mut().expect("it is known").open = None;
        ((), Vec::new(), false)
    };
    resolve((&place, ballot(9)), views, 2, asker, closes)
}

#[test]
fn while_a_majority_recovers_only_the_holder_of_a_run_changes_anything() {
    let lost = View {
        lost_at: Some(Timestamp::from_millis(1)),
        recovering: ms(300),
        remembers: false,
        ..running(1, 10, 1)
    };
    let views = [lost.clone(), lost];
    let (me, other) = (token(1), token(2));
    let waits = resolved(&views, Asker::new(Some(&other)));
    assert!(matches!(waits, Resolved::Recovering(_)), "{waits:?}");
    let taken = resolved(&views, Asker::holder(&me));
    let Resolved::Propose {
        trust, proposal, ..
    } = taken
    else {
        panic!("not proposed: {taken:?}");
    };
    assert!(trust.counts(Taken::Recovering));
    let horizon = proposal.job.and_then(|job| job.horizon);
    assert!(horizon.is_some(), "what was lost is not forgotten over it");
    assert!(!Trust::Sound.counts(Taken::Forgetful) && !Trust::Forgetful.counts(Taken::Recovering));
}

#[test]
fn after_an_outage_nobody_but_its_holder_closes_a_run() {
    let views = [running(1, 10, 1), running(1, 10, 1)];
    let (me, other) = (token(1), token(2));
    let spared = |token| Asker {
        spares: ms(500),
        ..Asker::new(Some(token))
    };
    let waits = resolved(&views, spared(&other));
    assert!(matches!(waits, Resolved::Recovering(left) if left == ms(500)));
    let closed = resolved(&views, spared(&me));
    assert!(matches!(closed, Resolved::Propose { .. }), "{closed:?}");
    let closed = resolved(&views, Asker::new(Some(&other)));
    assert!(matches!(closed, Resolved::Propose { .. }), "{closed:?}");
}

#[test]
fn a_lock_that_is_torn_decides_nothing_while_another_host_proposes() {
    let place = Place {
        lock: Lock::named(&LockName::parse("l").expect("a name")),
        job: None,
        ttl: Duration::ZERO,
        longest: LongestTtl::default(),
    };
    let is_held = |third: Option<LookAnswer>| {
        let third = third.map(|said| View { said, ..view() });
        let views: Vec<View> = [held(1, 900), view()].into_iter().chain(third).collect();
        let asker = Asker::new(None);
        let found = resolve((&place, ballot(9)), &views, 2, asker, |lock, _, _| {
            (lock.key != Key::Absent, Vec::new(), false)
        });
        match found {
            Resolved::Reply(held) | Resolved::Propose { reply: held, .. } => Some(held),
            Resolved::Recovering(_) | Resolved::TooFew => None,
        }
    };
    assert_eq!(is_held(None), Some(true), "no other node answers");
    assert_eq!(is_held(Some(LookAnswer::Promised)), Some(false));
    assert_eq!(is_held(Some(LookAnswer::Outbid)), None);
}
