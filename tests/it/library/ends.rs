//! How a lock ends: with its ticket, with its holder, with its program.

use std::time::{Duration, Instant};

use cronlatch::{AcquireError, Latch, LeaseLost, RunError, Ticket};

use super::{LONG, acquire, is_held, latch};
use crate::support::RedisServer;

on_both_stores! {
    a_ticket_is_over_before_its_lock_is_given_back
    a_lock_dropped_with_its_runtime_is_released
    a_shut_down_latch_waits_for_its_locks_and_acquires_no_more
}

async fn assert_is_over(mut ticket: Ticket) {
    assert_eq!(ticket.loss(), Some(LeaseLost::Released));
    assert_eq!(ticket.validity(), Duration::ZERO);
    let lost = tokio::time::timeout(Duration::from_secs(1), ticket.lost()).await;
    assert_eq!(lost, Ok(LeaseLost::Released));
}

async fn a_ticket_is_over_before_its_lock_is_given_back(url: &str) {
    let (one, two) = (latch(url, "one"), latch(url, "two"));
    let held = acquire(&one, 30).await;
    let released = held.ticket();
    held.release().await.expect("it was ours");
    assert_is_over(released).await;

    let held = acquire(&one, 30).await;
    let dropped = held.ticket();
    drop(held);
    assert_is_over(dropped).await;

    let (sender, ticket) = tokio::sync::oneshot::channel();
    let request = one.lock("report").unwrap().wait(LONG);
    let run = request.run(|ticket| async move {
        sender.send(ticket).expect("the test waits");
        std::future::pending::<()>().await;
    });
    let cancelled = tokio::select! {
        done = run => panic!("it ended: {done:?}"),
        ticket = ticket => ticket.unwrap(),
    };
    assert_is_over(cancelled).await;

    // While a release is under way another may hold the lock, and the ticket is over by then.
    let held = acquire(&one, 30).await;
    let ticket = held.ticket();
    let next = tokio::spawn(async move {
        let next = acquire(&two, 30).await;
        assert_eq!(ticket.loss(), Some(LeaseLost::Released));
        next.release().await.expect("it was its own");
    });
    held.release().await.expect("it was ours");
    next.await.expect("the ticket is over");
}

async fn a_lock_dropped_with_its_runtime_is_released(url: &str) {
    let program = |ends: fn(Latch) -> Result<(), std::fmt::Error>| {
        let url = url.to_owned();
        let program = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .unwrap();
            runtime.block_on(async {
                let latch = latch(&url, "one");
                let _held = acquire(&latch, 3600).await;
                ends(latch.clone())
            })
        });
        program.join()
    };
    let two = latch(url, "two");
    // With `?`, with a panic, and with a task that is dropped with its runtime.
    assert!(program(|_| Err(std::fmt::Error)).unwrap().is_err());
    assert!(!is_held(&two).await);
    assert!(program(|_| panic!("as told")).is_err());
    assert!(!is_held(&two).await);
    let task = |latch: Latch| {
        tokio::spawn(async move {
            let _held = latch.lock("other").unwrap().acquire().await;
            std::future::pending::<()>().await;
        });
        Ok(())
    };
    assert!(program(task).unwrap().is_ok());
    assert!(!is_held(&two).await);
    let other = two.lock("other").unwrap().try_acquire().await.unwrap();
    assert!(other.is_some());
    // On a thread without any runtime.
    let held = acquire(&latch(url, "one"), 3600).await;
    std::thread::spawn(move || drop(held)).join().unwrap();
    assert!(!is_held(&two).await);
}

async fn a_shut_down_latch_waits_for_its_locks_and_acquires_no_more(url: &str) {
    let (one, two) = (latch(url, "one"), latch(url, "two"));
    // As a `static` would: never dropped.
    std::mem::forget(one.clone());
    let held = acquire(&one, 3600).await;
    let waiter = tokio::spawn(one.lock("report").unwrap().wait_forever().acquire());
    tokio::task::yield_now().await;
    let early = one.shutdown(Duration::from_millis(50)).await;
    assert_eq!(early.map_err(|error| error.left), Err(1));
    let refused = waiter.await.unwrap();
    assert!(
        matches!(refused, Err(AcquireError::ShutDown)),
        "{refused:?}"
    );
    let refused = one.lock("other").unwrap().acquire().await;
    assert!(
        matches!(refused, Err(AcquireError::ShutDown)),
        "{refused:?}"
    );
    drop(held);
    one.shutdown(LONG).await.expect("the store answers");
    assert!(!is_held(&two).await);
}

#[tokio::test]
async fn the_end_of_a_latch_waits_two_seconds_for_a_store_that_is_away() {
    let mut server = RedisServer::start();
    let held = acquire(&latch(&server.url(), "one"), 3600).await;
    server.stop();
    let began = Instant::now();
    drop(held);
    let took = began.elapsed();
    assert!(took >= Duration::from_secs(2), "{took:?}");
    assert!(took < Duration::from_secs(6), "{took:?}");
}

#[tokio::test]
async fn work_that_came_to_its_end_is_not_discarded_with_its_lock() {
    let server = RedisServer::start();
    let latch = latch(&server.url(), "one");
    let done = latch.lock("report").unwrap().run(|_| async {
        server.number(&["DEL", "cronlatch:{report}:lock", "cronlatch:{report}:state"]);
        "the result"
    });
    match done.await {
        Err(RunError::LostAtEnd { why, output }) => {
            assert_eq!((why, output), (LeaseLost::Absent, "the result"));
        }
        other => panic!("the lock was not ours any more: {other:?}"),
    }
}
