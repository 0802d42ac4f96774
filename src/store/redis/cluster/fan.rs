//! Many calls at once: each to the server of its slot, none waiting for another's server.

use std::sync::Arc;
use std::time::Duration;

use redis::Value;
use tokio::task::JoinSet;

use super::router::Router;
use super::slot;
use crate::store::ErrorDetail;
use crate::store::redis::failure::RedisFailure;
use crate::store::redis::link::{Call, ConnectionHandle};
use crate::store::redis::script::{Script, Scripts};

/// How many calls are under way at most: more would wait in the servers' queues, and their time
/// would run.
const AT_ONCE: usize = 512;

/// One of the scripts.
pub(super) type Which = fn(&Scripts) -> &Script;

/// A script's answer, and how it came.
#[derive(Debug)]
pub(super) struct FanReply {
    pub(super) value: Value,
    slot: u16,
    way: ConnectionHandle,
}

impl FanReply {
    /// The URL of the server, without password.
    pub(super) fn server(&self) -> String {
        self.way.server()
    }

    /// Waits until as many replicas as configured know of what was answered.
    pub(super) async fn replicated(
        &self,
        router: &Router,
        limit: Duration,
    ) -> Result<(), RedisFailure> {
        router.replicated(self.slot, &self.way, limit).await
    }
}

/// Calls one script.
pub(super) async fn run(
    router: &Router,
    which: Which,
    call: Call,
    limit: Duration,
) -> Result<Value, RedisFailure> {
    hear(router, which, call, limit)
        .await
        .map(|heard| heard.value)
}

/// The same, and how the answer came.
pub(super) async fn hear(
    router: &Router,
    which: Which,
    mut call: Call,
    limit: Duration,
) -> Result<FanReply, RedisFailure> {
    let slot = slot::settle(router.prefix(), &mut call)?;
    let script = which(&router.scripts);
    let (value, way) = router.run(slot, script, &call, limit).await?;
    Ok(FanReply { value, slot, way })
}

/// Calls a script many times over; the answers in the order of the calls.
pub(super) async fn fan_out(
    router: &Arc<Router>,
    which: Which,
    calls: Vec<Call>,
    limit: Duration,
) -> Result<Vec<Value>, RedisFailure> {
    let calls = calls.into_iter().map(|call| {
        let router = Arc::clone(router);
        async move { run(&router, which, call, limit).await }
    });
    all(calls).await
}

/// Does many things at once; the outcomes in the same order, or the first failure once all have
/// been tried: none is held back because another's server is down.
pub(super) async fn all<T, F>(tasks: impl Iterator<Item = F>) -> Result<Vec<T>, RedisFailure>
where
    T: Send + 'static,
    F: Future<Output = Result<T, RedisFailure>> + Send + 'static,
{
    let mut done: Vec<Option<T>> = Vec::new();
    let mut failed = None;
    let mut tasks = tasks.enumerate();
    let mut under_way = JoinSet::new();
    loop {
        while under_way.len() < AT_ONCE
            && let Some((at, task)) = tasks.next()
        {
            done.push(None);
            under_way.spawn(async move { (at, task.await) });
        }
        match under_way.join_next().await {
            None => break,
            Some(Ok((at, Ok(outcome)))) => done[at] = Some(outcome),
            Some(Ok((_, Err(failure)))) => failed = failed.or(Some(failure)),
            Some(Err(e)) => {
                failed = failed.or_else(|| {
                    Some(RedisFailure::unreachable(ErrorDetail::of(
                        "a call ended",
                        e,
                    )))
                });
            }
        }
    }
    match failed {
        None => Ok(done.into_iter().flatten().collect()),
        Some(failure) => Err(failure),
    }
}
