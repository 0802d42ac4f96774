//! A claim that is sent, answered, given up and handed over, in any order.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::{Claimant, CopyReply};
use crate::names::{HostName, JobName, RunId, Token};
use crate::store::stub::stub_store;
use crate::store::{
    Claim, ClaimReply, ClaimTarget, Finish, FinishReply, IfPaused, Lock, RunStatus, StoreError,
};
use crate::time::{BootInstant, Timestamp};

type Reply = Result<ClaimReply, StoreError>;
type Known = Result<Option<RunStatus>, StoreError>;

/// Gives these replies to claims, then none, and keeps the tokens of the finishes.
#[derive(Debug, Default)]
struct ScriptedClaims {
    replies: Mutex<VecDeque<Reply>>,
    /// The answers to the question whether another host has claimed the occurrence, then none.
    known: Mutex<VecDeque<Known>>,
    /// The claim that is given up while the store is asked.
    given_up: Mutex<Option<Claimant>>,
    /// When it was asked.
    asked: Mutex<Option<BootInstant>>,
    finished: Mutex<Vec<Token>>,
}

fn store(replies: impl IntoIterator<Item = Reply>) -> ScriptedClaims {
    ScriptedClaims {
        replies: Mutex::new(replies.into_iter().collect()),
        ..ScriptedClaims::default()
    }
}

const GRANTED: Reply = Ok(ClaimReply::Granted {
    fence: 7,
    attempt: 2,
    at: Timestamp::EPOCH,
    starts_in: Duration::ZERO,
});

const REFUSED: Reply = Ok(ClaimReply::Finished);

fn no_reply() -> Reply {
    Err(StoreError::unreachable("no reply".to_owned()))
}

fn rejected() -> Reply {
    Err(StoreError::refused("rejected".to_owned()))
}

stub_store! {
    ScriptedClaims {
        async fn claim(&self, _: &Claim) -> Result<ClaimReply, StoreError> {
            let reply = self.replies.lock().expect("no test panics").pop_front();
            match reply {
                Some(reply) => reply,
                None => std::future::pending().await,
            }
        }
        async fn already_claimed(&self, _: &Claim) -> Known {
            let known = self.known.lock().expect("no test panics").pop_front();
            if let Some(claimant) = self.given_up.lock().expect("no test panics").take() {
                assert_eq!(claimant.give_up(), None, "nothing to cancel");
            }
            *self.asked.lock().expect("no test panics") = Some(BootInstant::now());
            match known {
                Some(known) => known,
                None => std::future::pending().await,
            }
        }
        async fn finish(&self, finish: &Finish) -> Result<FinishReply, StoreError> {
            let mut finished = self.finished.lock().expect("no test panics");
            finished.push(finish.token.clone());
            Ok(FinishReply::Released)
        }
    }
    away: renew settle note_attempt register announce released now jobs history hosts forget init
}

fn claimant(what: ClaimTarget) -> Claimant {
    let host = HostName::parse("here").expect("a name");
    let run_id = RunId::new();
    let claim = Claim {
        lock: Lock::raw("k"),
        token: Token::new(&host, &run_id),
        run_id,
        ttl: Duration::from_secs(30),
        what,
    };
    Claimant::new(claim, crate::store::Retention::DEFAULT)
}

fn manual() -> ClaimTarget {
    ClaimTarget::Manual {
        job: JobName::parse("j").expect("a name"),
        if_paused: IfPaused::Refuse,
    }
}

#[tokio::test]
async fn a_grant_is_that_of_the_claim_and_is_cancelled_unless_it_is_handed_over() {
    let store = store([GRANTED, GRANTED]);
    let first = claimant(manual());
    let Ok(CopyReply::Granted { grant, attempt }) = first.send(&store).await else {
        panic!("not granted");
    };
    assert_eq!((grant.fence, attempt), (7, 2));
    assert_eq!(grant.token, first.claim().token);
    let cancel = first.give_up().expect("a grant without an owner");
    assert_eq!((cancel.token, cancel.give_back), (grant.token, true));
    assert_eq!(first.give_up(), None, "cancelled once");

    let second = claimant(manual());
    second.send(&store).await.expect("granted");
    second.hand_over();
    let late = second.send(&store).await.expect("nothing is sent");
    assert_eq!(late, CopyReply::NotSent);
    assert_eq!(second.give_up(), None);
}

#[tokio::test]
async fn a_claim_is_in_doubt_for_as_long_as_one_copy_has_no_reply() {
    let store = store([no_reply(), REFUSED]);
    let claimant = claimant(ClaimTarget::Lock);
    assert!(claimant.send(&store).await.is_err());
    let second = claimant.send(&store).await.expect("a reply");
    assert!(matches!(second, CopyReply::Refused(_)));
    let cancel = claimant.give_up().expect("the first copy may be granted");
    assert_eq!((cancel.job, cancel.give_back), (None, false));
}

#[tokio::test]
async fn a_claim_that_was_only_refused_has_nothing_to_cancel() {
    let store = store([REFUSED, REFUSED]);
    let claimant = claimant(manual());
    for _ in 0..2 {
        claimant.send(&store).await.expect("a reply");
    }
    assert_eq!(claimant.give_up(), None);
    let late = claimant.send(&store).await.expect("nothing is sent");
    assert_eq!(late, CopyReply::NotSent);
}

#[tokio::test]
async fn an_error_leaves_doubt_about_the_claim_of_a_job_but_not_about_a_bare_lock() {
    for (what, doubt) in [(ClaimTarget::Lock, false), (manual(), true)] {
        let store = store([rejected()]);
        let claimant = claimant(what);
        assert!(claimant.send(&store).await.is_err());
        assert_eq!(claimant.give_up().is_some(), doubt);
    }
}

#[tokio::test]
async fn a_claim_given_up_before_it_is_sent_is_never_sent() {
    let store = store([GRANTED]);
    let claimant = claimant(manual());
    let task = claimant.clone();
    assert_eq!(claimant.give_up(), None);
    let late = task.send(&store).await.expect("nothing is sent");
    assert_eq!(late, CopyReply::NotSent);
}

#[tokio::test]
async fn a_claim_given_up_while_a_copy_is_under_way_is_cancelled_whatever_its_reply() {
    let store = Arc::new(store([]));
    let claimant = claimant(ClaimTarget::Lock);
    let sending = tokio::time::timeout(Duration::from_millis(1), claimant.send(&*store)).await;
    assert!(sending.is_err(), "no reply comes");
    claimant.cancel(&*store).await;
    let finished = store.finished.lock().expect("no test panics").clone();
    assert_eq!(finished, std::slice::from_ref(&claimant.claim().token));
}

const DECIDED: ClaimReply = ClaimReply::AlreadyClaimed(RunStatus::Decided);

/// An instant until which there is time for a question.
fn later() -> BootInstant {
    BootInstant::now().plus(Duration::from_secs(60))
}

fn knowing(known: Known, replies: impl IntoIterator<Item = Reply>) -> ScriptedClaims {
    ScriptedClaims {
        known: Mutex::new([known].into()),
        ..store(replies)
    }
}

#[tokio::test]
async fn a_claim_is_not_sent_if_the_store_knows_of_another_hosts() {
    let store = knowing(Ok(Some(RunStatus::Decided)), []);
    let claimant = claimant(manual()).asking_first(later());
    let reply = claimant.send(&store).await.expect("a reply");
    assert_eq!(reply, CopyReply::Refused(DECIDED));
    assert_eq!(claimant.give_up(), None, "nothing to cancel");
}

#[tokio::test]
async fn a_claim_of_which_the_store_knows_nothing_is_sent() {
    let store = knowing(Ok(None), [GRANTED]);
    let claimant = claimant(manual()).asking_first(later());
    let reply = claimant.send(&store).await.expect("a reply");
    let CopyReply::Granted { grant, .. } = reply else {
        panic!("not granted: {reply:?}");
    };
    let asked = *store.asked.lock().expect("no test panics");
    assert!(
        asked.is_some_and(|asked| asked <= grant.sent),
        "the claim comes after"
    );
}

#[tokio::test]
async fn a_claim_for_whose_question_there_is_no_time_is_sent_at_once() {
    let store = knowing(Ok(None), [GRANTED]);
    let claimant = claimant(manual()).asking_first(BootInstant::now());
    let reply = claimant.send(&store).await.expect("a reply");
    assert!(matches!(reply, CopyReply::Granted { .. }), "{reply:?}");
    assert_eq!(*store.asked.lock().expect("no test panics"), None);
}

#[tokio::test]
async fn a_claim_given_up_while_the_store_is_asked_is_not_sent_whatever_the_answer() {
    for (known, expected) in [
        (None, CopyReply::NotSent),
        (Some(RunStatus::Decided), CopyReply::Refused(DECIDED)),
    ] {
        let claimant = claimant(manual()).asking_first(later());
        let store = knowing(Ok(known), [GRANTED]);
        *store.given_up.lock().expect("no test panics") = Some(claimant.clone());
        assert_eq!(claimant.send(&store).await.expect("an answer"), expected);
        assert_eq!(
            claimant.send(&store).await.expect("nothing"),
            CopyReply::NotSent
        );
        assert_eq!(store.replies.lock().expect("no test panics").len(), 1);
    }
}

#[tokio::test]
async fn only_a_claim_that_was_never_sent_is_asked_about_and_only_once() {
    // A further question would have no answer.
    let no_answer = || Err(StoreError::unreachable("no answer".to_owned()));
    for (known, replies) in [
        (Ok(None), vec![no_reply(), REFUSED]),
        (no_answer(), vec![REFUSED]),
    ] {
        let store = knowing(known, replies);
        let claimant = claimant(manual()).asking_first(later());
        assert!(claimant.send(&store).await.is_err());
        let reply = claimant.send(&store).await.expect("a reply");
        assert_eq!(reply, CopyReply::Refused(ClaimReply::Finished));
    }
    let silent = store([REFUSED]);
    let reply = claimant(manual()).send(&silent).await.expect("a reply");
    assert_eq!(reply, CopyReply::Refused(ClaimReply::Finished));
}

#[tokio::test]
async fn a_claim_given_up_before_it_is_asked_about_is_neither_asked_about_nor_sent() {
    let store = store([]);
    let claimant = claimant(manual()).asking_first(later());
    assert_eq!(claimant.give_up(), None);
    let late = claimant
        .send(&store)
        .await
        .expect("nothing is asked or sent");
    assert_eq!(late, CopyReply::NotSent);
}

#[tokio::test]
async fn a_claim_given_up_during_the_question_has_nothing_to_cancel() {
    let store = store([GRANTED]);
    let claimant = claimant(manual()).asking_first(later());
    let sending = tokio::time::timeout(Duration::from_millis(1), claimant.send(&store)).await;
    assert!(sending.is_err(), "no answer comes");
    assert_eq!(claimant.give_up(), None);
}
