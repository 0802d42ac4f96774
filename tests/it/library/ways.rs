//! The ways to take, keep and look at a lock.

use std::time::{Duration, Instant};

use cronlatch::{AcquireError, ExtendError, Latch, LeaseLost, ReleaseError};

use super::{LONG, acquire, is_held, latch};
use crate::support::RedisServer;
use crate::support::redis::PASSWORD;

on_both_stores! {
    a_lock_is_tried_without_waiting
    an_owner_is_shown_and_released_by_force_with_its_token_alone
    a_lease_that_is_renewed_by_hand_lasts_as_long_as_it_is_extended
    a_lease_renewed_for_a_while_ends_within_a_ttl_after_it
    several_locks_are_taken_in_order_all_or_none
    a_wait_of_any_length_is_taken
}

async fn a_lock_is_tried_without_waiting(url: &str) {
    let (one, two) = (latch(url, "one"), latch(url, "two"));
    let request = one.lock("report").unwrap().wait_forever();
    let held = request.clone().try_acquire().await.unwrap();
    let held = held.expect("it is free");
    assert!(request.try_acquire().await.unwrap().is_none());
    let other = two.lock("report").unwrap().try_acquire().await.unwrap();
    assert!(other.is_none());
    held.release().await.expect("it was ours");
}

async fn an_owner_is_shown_and_released_by_force_with_its_token_alone(url: &str) {
    let (one, two) = (latch(url, "one"), latch(url, "two"));
    let request = two.lock("report").unwrap();
    assert_eq!(request.owner().await.unwrap(), None);
    let mut held = acquire(&one, 9).await;
    let owner = request.owner().await.unwrap().expect("it is held");
    assert_eq!(
        (owner.host.as_str(), owner.token.as_str()),
        ("one", held.token())
    );
    assert!(
        owner
            .remaining
            .is_some_and(|left| left <= Duration::from_secs(9))
    );
    let mut wrong = owner.token.clone();
    let last = wrong.pop();
    wrong.push(if last == Some('0') { '1' } else { '0' });
    assert!(!request.force_release(&wrong).await.unwrap());
    assert!(is_held(&two).await);
    assert!(request.force_release(&owner.token).await.unwrap());
    assert!(!is_held(&two).await);
    // Taken, should a renewal meet the lock in the hands of the other.
    let lost = held.lost().await;
    assert!(matches!(lost, LeaseLost::Absent | LeaseLost::Taken));
    assert!(matches!(held.release().await, Err(ReleaseError::Lost(_))));
}

async fn a_lease_that_is_renewed_by_hand_lasts_as_long_as_it_is_extended(url: &str) {
    let ttl = Duration::from_secs(2);
    let latch = latch(url, "one");
    let request = latch.lock("report").unwrap().ttl(ttl).manual_renewal();
    let began = Instant::now();
    let mut held = request.acquire().await.unwrap();
    while began.elapsed() < ttl + ttl / 4 {
        tokio::time::sleep(ttl / 4).await;
        held.extend().await.expect("it is ours");
        assert!(held.validity() > ttl / 2);
    }
    let began = Instant::now();
    assert_eq!(held.lost().await, LeaseLost::Expired);
    assert!(began.elapsed() <= ttl, "{:?}", began.elapsed());
    match held.extend().await {
        Err(ExtendError::Lost(LeaseLost::Expired)) => {}
        other => panic!("extended after its end: {other:?}"),
    }
    // Only now may another have it, and only what it holds is its own.
    let next = acquire(&latch, 30).await;
    assert!(next.fence() > held.fence());
    next.release().await.expect("it was its own");
}

async fn a_lease_renewed_for_a_while_ends_within_a_ttl_after_it(url: &str) {
    let ttl = Duration::from_millis(1200);
    let latch = latch(url, "one");
    let request = latch.lock("report").unwrap().ttl(ttl).renew_for(ttl);
    let began = Instant::now();
    let mut held = request.acquire().await.unwrap();
    assert_eq!(held.lost().await, LeaseLost::Expired);
    let lasted = began.elapsed();
    assert!(lasted > ttl, "not renewed at all: {lasted:?}");
    assert!(lasted < 3 * ttl, "{lasted:?}");
}

async fn several_locks_are_taken_in_order_all_or_none(url: &str) {
    let (one, two) = (latch(url, "one"), latch(url, "two"));
    let held = acquire(&one, 30).await;
    let request = two.locks(["zebra", "apple", "report", "apple"]).unwrap();
    match request.clone().acquire().await {
        Err(AcquireError::Held { lock, .. }) => assert_eq!(lock, "report"),
        other => panic!("one of them is held: {other:?}"),
    }
    let apple = one.lock("apple").unwrap().try_acquire().await.unwrap();
    apple.expect("given back").release().await.unwrap();
    held.release().await.expect("it was ours");
    let ttl = Duration::from_secs(9);
    let mut all = request
        .ttl(ttl)
        .wait(LONG)
        .acquire()
        .await
        .expect("all are free");
    let names: Vec<_> = all.iter().map(|held| held.name().to_owned()).collect();
    assert_eq!(names, ["apple", "report", "zebra"]);
    assert!(all.validity() > Duration::ZERO);
    let token = all.get("report").unwrap().token().to_owned();
    let still = tokio::time::timeout(Duration::from_millis(50), all.lost()).await;
    assert!(still.is_err(), "{still:?}");
    one.lock("report")
        .unwrap()
        .force_release(&token)
        .await
        .unwrap();
    let lost = all.lost().await;
    assert_eq!(lost, ("report".to_owned(), LeaseLost::Absent));
    assert_eq!(all.validity(), Duration::ZERO);
    assert!(matches!(all.release().await, Err(ReleaseError::Lost(_))));
    for name in ["apple", "report", "zebra"] {
        let free = one.lock(name).unwrap().try_acquire().await.unwrap();
        assert!(free.is_some(), "{name} is still held");
    }
}

async fn a_wait_of_any_length_is_taken(url: &str) {
    let latch = latch(url, "one");
    let request = latch.lock("user:42").unwrap().wait(Duration::MAX);
    let held = request
        .clone()
        .renew_for(Duration::MAX)
        .acquire()
        .await
        .unwrap();
    let waiter = tokio::spawn(request.acquire());
    tokio::task::yield_now().await;
    held.release().await.expect("it was ours");
    let held = waiter.await.unwrap().expect("it is free");
    held.release().await.expect("it was ours");
}

#[tokio::test]
async fn a_foreign_holder_of_a_raw_key_is_shown_and_can_be_released() {
    let server = RedisServer::start();
    let latch = latch(&server.url(), "one");
    server.text(&["SET", "app:lock", "theirs"]);
    let request = latch.key("app:lock").unwrap();
    let owner = request.owner().await.unwrap().expect("it is held");
    assert_eq!((owner.host.as_str(), owner.remaining), ("theirs", None));
    assert!(request.force_release("theirs").await.unwrap());
    assert!(request.try_acquire().await.unwrap().is_some());
}

#[tokio::test]
async fn no_debug_output_shows_a_password_or_a_token() {
    let url = format!(
        "redis://user:{PASSWORD}@127.0.0.1:1,redis://:{PASSWORD}@127.0.0.1:2,redis://127.0.0.1:3"
    );
    let builder = Latch::builder(&url).host("one");
    let latch = builder.clone().open().expect("a sound URL");
    for shown in [format!("{builder:?}"), format!("{latch:?}")] {
        assert!(
            shown.contains("***") && !shown.contains(PASSWORD),
            "{shown}"
        );
    }
    let request = latch.lock("report").unwrap();
    assert!(!format!("{request:?}").contains(PASSWORD));

    let server = RedisServer::start();
    let held = acquire(&super::latch(&server.url(), "one"), 30).await;
    for shown in [format!("{held:?}"), format!("{:?}", held.ticket())] {
        assert!(!shown.contains(held.token()), "{shown}");
    }
}

#[test]
fn errors_keep_their_sources() {
    let lost: cronlatch::RunError<String> = cronlatch::RunError::Lost(LeaseLost::Taken);
    let source = std::error::Error::source(&lost).expect("why it was lost");
    assert_eq!(source.to_string(), LeaseLost::Taken.to_string());
    assert!(!lost.to_string().contains(&source.to_string()));
}
