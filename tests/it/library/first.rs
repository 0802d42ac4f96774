//! First contact: a Redis that cronlatch has never used, and no program at hand.

use std::time::Duration;

use cronlatch::AcquireError;

use super::{LONG, latch};
use crate::support::RedisServer;

/// Makes it half an hour ago that the store was first used.
fn half_an_hour_passes(server: &RedisServer) {
    for field in ["lost_at", "until"] {
        server.command(&["HINCRBY", "cronlatch:store", field, "-1800000"]);
    }
}

#[tokio::test]
async fn on_a_fresh_redis_ready_tells_how_long_it_takes_and_the_front_page_waits_for_longer() {
    let server = RedisServer::builder().unmarked().start();
    let latch = latch(&server.url(), "one");
    let told = latch.ready(Duration::ZERO).await.expect_err("it is fresh");
    let AcquireError::Recovering { remaining } = &told else {
        panic!("{told:?}");
    };
    let limit = Duration::from_secs(30);
    assert!(*remaining <= limit, "{remaining:?}");
    let text = told.to_string();
    assert!(
        text.contains("Latch::ready") && text.contains("Latch::init"),
        "{text}"
    );
    assert!(!text.contains("cronlatch init"), "{text}");
    let front_page = include_str!("../../../README.md");
    assert!(
        front_page.contains("latch.lock(\"report:42\")?.wait(Duration::from_secs(60))"),
        "what it waits must be more than {limit:?}"
    );

    // Others that want a lock for an hour do not make it longer.
    let long = latch.lock("long").unwrap().ttl(Duration::from_secs(3600));
    let refused = long.acquire().await.expect_err("it is fresh");
    assert!(
        matches!(refused, AcquireError::Recovering { .. }),
        "{refused:?}"
    );
    match latch.ready(Duration::ZERO).await {
        Err(AcquireError::Recovering { remaining }) => assert!(remaining <= limit),
        other => panic!("{other:?}"),
    }

    half_an_hour_passes(&server);
    latch.ready(LONG).await.expect("the store has recovered");
    let request = latch.lock("report:42").unwrap().wait(LONG);
    let done = request.run(|ticket| async move { ticket.fence() }).await;
    assert!(done.expect("the lock is free") > 0);
}

#[tokio::test]
async fn a_redis_that_init_declared_new_is_ready_at_once() {
    let server = RedisServer::builder().unmarked().start();
    let latch = latch(&server.url(), "one");
    assert!(latch.init().await.expect("it is empty"));
    latch.ready(Duration::ZERO).await.expect("it is new");
    assert!(!latch.init().await.expect("an answer"), "it is in use");
}
