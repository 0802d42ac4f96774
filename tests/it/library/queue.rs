//! Many tasks of one process that want one lock.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use cronlatch::{AcquireError, HeldLock};

use super::{LONG, acquire, latch, steal};
use crate::support::RedisServer;

fn script_calls(server: &RedisServer) -> u64 {
    let told = server.text(&["INFO", "commandstats"]);
    let calls = |command: &str| {
        told.lines()
            .find_map(|line| line.strip_prefix(&format!("cmdstat_{command}:calls=")))
            .and_then(|rest| rest.split(',').next()?.parse::<u64>().ok())
            .unwrap_or(0)
    };
    calls("evalsha") + calls("eval")
}

#[tokio::test]
async fn tasks_that_wait_for_one_lock_get_it_in_order_and_ask_once_each() {
    const TASKS: u64 = 200;
    let server = RedisServer::start();
    let latch = latch(&server.url(), "one");
    let held = acquire(&latch, 60).await;
    let order = Arc::new(Mutex::new(Vec::new()));
    let tasks: Vec<_> = (0..TASKS)
        .map(|n| {
            let (latch, order) = (latch.clone(), Arc::clone(&order));
            tokio::spawn(async move {
                let held = acquire(&latch, 60).await;
                order.lock().unwrap().push(n);
                held.release().await.expect("it was its own");
            })
        })
        .collect();
    // On this runtime of one thread each task has begun to wait after this.
    tokio::task::yield_now().await;
    let before = script_calls(&server);
    held.release().await.expect("it was ours");
    for task in tasks {
        task.await.expect("no task panics");
    }
    let asked = script_calls(&server) - before;
    assert_eq!(*order.lock().unwrap(), (0..TASKS).collect::<Vec<_>>());
    // A claim and a release each, the release above, and what the watchdog renews meanwhile.
    let least = 2 * TASKS + 1;
    assert!((least..least + 20).contains(&asked), "{asked} calls");
}

#[tokio::test]
async fn a_task_whose_wait_ends_in_the_queue_is_told_who_holds_the_lock() {
    let server = RedisServer::start();
    let latch = latch(&server.url(), "one");
    let held = acquire(&latch, 60).await;
    let request = latch.lock("report").unwrap();
    let refused = request.wait(Duration::from_millis(50)).acquire().await;
    match refused {
        Err(AcquireError::Held {
            lock,
            by,
            remaining,
        }) => {
            assert_eq!((lock.as_str(), by.as_str()), ("report", "one"));
            assert!(remaining.is_some());
        }
        other => panic!("not refused: {other:?}"),
    }
    held.release().await.expect("it was ours");
    acquire(&latch, 60).await.release().await.unwrap();
}

#[tokio::test]
async fn a_lost_lock_does_not_keep_the_tasks_of_its_process_waiting() {
    let server = RedisServer::start();
    let latch = latch(&server.url(), "one");
    let mut lost: HeldLock = acquire(&latch, 3).await;
    let next = tokio::spawn({
        let latch = latch.clone();
        async move { acquire(&latch, 60).await }
    });
    tokio::task::yield_now().await;
    let (store, thief) = steal(&server.url(), &lost).await;
    lost.lost().await;
    let finish = super::finish_of("report", thief.token.as_str());
    store.finish(&finish).await.expect("the store answers");
    // `lost` still lives.
    let next = tokio::time::timeout(LONG, next).await;
    let next = next.expect("the turn has passed on").unwrap();
    next.release().await.expect("it was its own");
    drop(lost);
}
