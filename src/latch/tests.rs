//! Acquiring from a store with scripted replies, on paused time.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

use super::acquire::{Acquisition, NotAcquired};
use super::patience::WaitLimit;
use crate::names::{HostName, Token};
use crate::store::stub::stub_store;
use crate::store::{Claim, ClaimReply, Finish, FinishReply, Lock, StoreError};
use crate::time::Timestamp;

#[derive(Debug, Clone, Copy)]
enum Answer {
    Granted,
    Held,
    Silence,
}

/// Returns its replies in order; the last one is repeated.
#[derive(Debug, Default)]
struct ScriptedLocks {
    answers: Mutex<VecDeque<Answer>>,
    asked: Mutex<Vec<(Token, Instant)>>,
    finished: Mutex<Vec<Token>>,
    release: Notify,
}

impl ScriptedLocks {
    fn new(answers: &[Answer]) -> Arc<Self> {
        Arc::new(Self {
            answers: Mutex::new(answers.iter().copied().collect()),
            ..Self::default()
        })
    }

    fn asked(&self) -> Vec<(Token, Instant)> {
        self.asked.lock().expect("no test panics within").clone()
    }

    fn finished(&self) -> Vec<Token> {
        self.finished.lock().expect("no test panics within").clone()
    }
}

stub_store! {
    ScriptedLocks {
        async fn claim(&self, claim: &Claim) -> Result<ClaimReply, StoreError> {
            let answer = {
                let mut asked = self.asked.lock().expect("no test panics within");
                asked.push((claim.token.clone(), Instant::now()));
                let mut answers = self.answers.lock().expect("no test panics within");
                match answers.len() {
                    1 => answers[0],
                    _ => answers.pop_front().expect("an answer is left"),
                }
            };
            match answer {
                Answer::Granted => Ok(ClaimReply::Granted {
                    fence: 7,
                    attempt: 1,
                    at: Timestamp::EPOCH,
                    starts_in: Duration::ZERO,
                }),
                Answer::Held => Ok(ClaimReply::Held {
                    by: "other".to_owned(),
                    remaining: Some(Duration::from_secs(3600)),
                }),
                Answer::Silence => std::future::pending().await,
            }
        }

        async fn finish(&self, finish: &Finish) -> Result<FinishReply, StoreError> {
            let mut finished = self.finished.lock().expect("no test panics within");
            finished.push(finish.token.clone());
            Ok(FinishReply::Released)
        }

        async fn released(&self, _: &Lock, _: Duration) -> Result<(), StoreError> {
            self.release.notified().await;
            Ok(())
        }
    }
    away: renew settle note_attempt register announce now jobs history hosts forget init
}

fn acquisition(store: &Arc<ScriptedLocks>, wait: WaitLimit) -> Acquisition {
    let host = HostName::parse("here").expect("a sound name");
    let ttl = Duration::from_secs(30);
    Acquisition::new(store.clone(), &host, Lock::raw("k"), ttl, wait)
}

const WAIT: WaitLimit = WaitLimit::UpTo(Duration::from_secs(60));

#[tokio::test(start_paused = true)]
async fn one_who_waits_is_woken_by_the_release_and_not_by_the_clock() {
    let store = ScriptedLocks::new(&[Answer::Held, Answer::Granted]);
    let began = Instant::now();
    store.release.notify_one();
    let mut acquisition = acquisition(&store, WaitLimit::Forever);
    acquisition
        .acquire()
        .await
        .expect("granted when asked again");
    // The pause would have been 50 ms or more.
    assert!(
        began.elapsed() < Duration::from_millis(20),
        "{:?}",
        began.elapsed()
    );
}

#[tokio::test(start_paused = true)]
async fn a_release_that_nobody_announces_is_found_by_asking() {
    let store = ScriptedLocks::new(&[Answer::Held, Answer::Held, Answer::Held, Answer::Granted]);
    let mut acquisition = acquisition(&store, WaitLimit::Forever);
    acquisition.acquire().await.expect("granted at last");
}

#[tokio::test(start_paused = true)]
async fn a_wait_is_over_when_it_is_over_with_a_last_look() {
    let store = ScriptedLocks::new(&[Answer::Held]);
    let began = Instant::now();
    let refused = acquisition(&store, WAIT).acquire().await;
    assert!(
        matches!(refused, Err(NotAcquired::Held { .. })),
        "{refused:?}"
    );
    assert_eq!(began.elapsed().as_secs(), 60);
    let last = store.asked().last().map(|(_, at)| at.duration_since(began));
    assert_eq!(last.map(|at| at.as_secs()), Some(60));
}

#[tokio::test(start_paused = true)]
async fn a_claim_without_an_answer_is_sent_again_under_the_same_token() {
    let store = ScriptedLocks::new(&[Answer::Silence, Answer::Granted]);
    let mut acquisition = acquisition(&store, WAIT);
    let grant = acquisition
        .acquire()
        .await
        .expect("granted when asked again");
    let tokens: Vec<Token> = store.asked().into_iter().map(|(token, _)| token).collect();
    assert_eq!(tokens, [grant.token.clone(), grant.token]);
    acquisition.hand_over();
    tokio::task::yield_now().await;
    assert_eq!(store.finished(), []);
}

#[tokio::test(start_paused = true)]
async fn a_claim_that_may_still_be_granted_is_cancelled_when_given_up() {
    // Once answered `Held` in the end, once with the wait broken off.
    let store = ScriptedLocks::new(&[Answer::Silence, Answer::Held]);
    let mut first = acquisition(&store, WaitLimit::UpTo(Duration::from_secs(6)));
    assert!(first.acquire().await.is_err());
    first.cancel().await;
    assert_eq!(store.finished().len(), 1);

    let store = ScriptedLocks::new(&[Answer::Silence]);
    let mut second = acquisition(&store, WaitLimit::Forever);
    let broken_off = tokio::time::timeout(Duration::from_secs(1), second.acquire()).await;
    assert!(broken_off.is_err());
    drop(second);
    tokio::time::sleep(Duration::from_millis(1)).await;
    let tokens: Vec<Token> = store.asked().into_iter().map(|(token, _)| token).collect();
    assert_eq!(store.finished(), tokens);
}

#[tokio::test(start_paused = true)]
async fn one_who_was_only_ever_refused_has_nothing_to_cancel() {
    let store = ScriptedLocks::new(&[Answer::Held]);
    let mut acquisition = acquisition(&store, WAIT);
    assert!(acquisition.acquire().await.is_err());
    acquisition.cancel().await;
    assert_eq!(store.finished(), []);
}
