//! What a program learns from an error about its cause.

use std::error::Error;
use std::io;

use cronlatch::{AcquireError, ReleaseError, RunError};

use super::{acquire, latch};
use crate::support::RedisServer;

/// Returns the last cause of an error of this type.
fn cause<'a, T: Error + 'static>(error: &'a (dyn Error + 'static)) -> Option<&'a T> {
    let (mut next, mut found) = (Some(error), None);
    while let Some(error) = next {
        found = error.downcast_ref().or(found);
        next = error.source();
    }
    found
}

fn assert_refused_connection(error: &(dyn Error + 'static)) {
    let cause = cause::<redis::RedisError>(error);
    let cause = cause.unwrap_or_else(|| panic!("{error:?} names no cause"));
    assert!(cause.is_connection_refusal(), "{cause:?}");
}

async fn try_to_acquire(url: &str) -> AcquireError {
    let request = latch(url, "one").lock("report").expect("a sound name");
    let acquired = request.acquire().await;
    acquired.expect_err("the store is away")
}

#[tokio::test]
async fn the_source_of_an_error_is_that_of_the_redis_client() {
    let server = RedisServer::start();
    let url = server.url();
    let held = acquire(&latch(&url, "one"), 5).await;
    drop(server);
    assert_refused_connection(&try_to_acquire(&url).await);
    let request = latch(&url, "two").lock("report").expect("a sound name");
    let run: RunError<()> = request.run(async |_| ()).await.expect_err("it is away");
    assert_refused_connection(&run);
    match held.release().await {
        Err(error @ ReleaseError::Store(_)) => assert_refused_connection(&error),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn the_source_of_an_error_of_several_nodes_is_that_of_one_of_them() {
    let servers: Vec<_> = (0..3).map(|_| RedisServer::start()).collect();
    let urls: Vec<_> = servers.iter().map(RedisServer::url).collect();
    drop(servers);
    assert_refused_connection(&try_to_acquire(&urls.join(",")).await);
}

#[tokio::test]
async fn the_source_of_an_error_is_that_of_the_file_or_of_sqlite() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let file = dir.path().join("file");
    std::fs::write(&file, "no directory").expect("it can be written");
    let error = try_to_acquire(&format!("sqlite:{}/store.db", file.display())).await;
    assert!(cause::<io::Error>(&error).is_some(), "{error:?}");

    std::fs::write(&file, "no database at all".repeat(100)).expect("it can be written");
    let error = try_to_acquire(&format!("sqlite:{}", file.display())).await;
    let code = cause::<rusqlite::Error>(&error).and_then(rusqlite::Error::sqlite_error_code);
    assert_eq!(code, Some(rusqlite::ErrorCode::NotADatabase), "{error:?}");
}
