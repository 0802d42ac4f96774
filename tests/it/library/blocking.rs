//! The library for programs without a runtime.

use std::time::Duration;

use cronlatch::blocking::Latch;
use cronlatch::{AcquireError, LeaseLost, RunError};

use crate::support::RedisServer;

#[test]
fn a_program_without_a_runtime_takes_the_same_locks() {
    let server = RedisServer::start();
    let one = Latch::open(&server.url()).expect("a sound URL");
    let two = Latch::open(&server.url()).expect("a sound URL");
    let request = two.lock("user:42").unwrap();
    let mut held = one.lock("user:42").unwrap().acquire().expect("it is free");
    assert!(request.clone().try_acquire().unwrap().is_none());
    assert_eq!(request.owner().unwrap().unwrap().token, held.token());
    held.extend().expect("it is ours");
    let ticket = held.ticket();
    held.release().expect("it was ours");
    assert_eq!(ticket.loss(), Some(LeaseLost::Released));

    let held = request
        .clone()
        .wait_forever()
        .acquire()
        .expect("it is free");
    let waited = one.lock("user:42").unwrap().wait(Duration::from_millis(50));
    match waited.acquire() {
        Err(AcquireError::Held { lock, .. }) => assert_eq!(lock, "user:42"),
        other => panic!("not refused: {other:?}"),
    }
    drop(held);
    two.shutdown(Duration::from_secs(60))
        .expect("the store answers");
    let fence = one.lock("user:42").unwrap().run(|ticket| ticket.fence());
    assert!(fence.expect("it is free") > 0);
}

#[test]
fn several_locks_are_taken_together_or_not_at_all() {
    let server = RedisServer::start();
    let latch = Latch::open(&server.url()).expect("a sound URL");
    let other = Latch::open(&server.url()).expect("a sound URL");
    let mut both = latch.locks(["b", "a", "b"]).unwrap();
    both = both.ttl(Duration::from_secs(20)).wait(Duration::ZERO);
    let theirs = other.lock("b").unwrap().acquire().expect("it is free");
    match both.clone().acquire() {
        Err(AcquireError::Held { lock, .. }) => assert_eq!(lock, "b"),
        other => panic!("not refused: {other:?}"),
    }
    // What was acquired before that was released.
    let a = other.lock("a").unwrap().acquire().expect("it is free");
    a.release().expect("it was theirs");
    theirs.release().expect("it was theirs");
    let held = both.wait_forever().acquire().expect("both are free");
    assert_eq!(held.names().collect::<Vec<_>>(), ["a", "b"]);
    assert!(held.fence("a").is_some() && held.fence("c").is_none());
    assert!(held.validity() > Duration::ZERO && held.loss().is_none());
    assert!(other.lock("a").unwrap().try_acquire().unwrap().is_none());
    server.number(&["DEL", "cronlatch:{b}:lock", "cronlatch:{b}:state"]);
    assert!(held.release().is_err(), "one was not ours any more");
    let a = other.lock("a").unwrap().try_acquire().unwrap();
    assert!(a.is_some(), "the other was released all the same");
    assert!(latch.locks([""]).is_err(), "no empty name");
}

#[test]
fn work_that_lost_its_lock_keeps_its_result() {
    let server = RedisServer::start();
    let latch = Latch::open(&server.url()).expect("a sound URL");
    let done = latch.lock("report").unwrap().run(|_| {
        server.number(&["DEL", "cronlatch:{report}:lock", "cronlatch:{report}:state"]);
        7
    });
    let error = done.expect_err("the lock was not ours any more");
    assert!(matches!(error, RunError::LostAtEnd { .. }), "{error:?}");
    assert_eq!(error.into_output(), Some(7));
}

#[tokio::test]
async fn a_blocking_latch_may_be_used_and_dropped_within_a_runtime() {
    let server = RedisServer::start();
    let latch = Latch::open(&server.url()).expect("a sound URL");
    let mut held = latch.lock("report").unwrap().acquire().expect("it is free");
    held.extend().expect("it is ours");
    drop((latch, held));
    let latch = Latch::open(&server.url()).expect("a sound URL");
    assert!(
        latch
            .lock("report")
            .unwrap()
            .try_acquire()
            .unwrap()
            .is_some()
    );
}
