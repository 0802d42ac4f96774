//! Many calls at once: each to the server of its slot, none waiting for another's server.

use std::sync::Arc;
use std::time::Duration;

use redis::Value;
use tokio::task::JoinSet;

use super::router::{Operation, Router};
use super::slot;
use crate::store::redis::failure::Failure;
use crate::store::redis::link::Call;
use crate::store::redis::script::{Script, Scripts};

/// How many calls are under way at most: more would wait in the servers' queues, and their time
/// would run.
const AT_ONCE: usize = 512;

/// One of the scripts.
pub(super) type Which = fn(&Scripts) -> &Script;

/// Calls one script.
pub(super) async fn run(
    router: &Router,
    which: Which,
    mut call: Call,
    limit: Duration,
) -> Result<Value, Failure> {
    let slot = slot::settle(router.prefix(), &mut call)?;
    let operation = Operation::Script(which(&router.scripts), &call);
    router.send(slot, operation, limit).await
}

/// Calls a script many times over; the answers in the order of the calls, or the first failure
/// once all have been tried: none is held back because another's server is down.
pub(super) async fn fan_out(
    router: &Arc<Router>,
    which: Which,
    calls: Vec<Call>,
    limit: Duration,
) -> Result<Vec<Value>, Failure> {
    let mut answers: Vec<Option<Value>> = vec![None; calls.len()];
    let mut failed = None;
    let mut calls = calls.into_iter().enumerate();
    let mut under_way = JoinSet::new();
    loop {
        while under_way.len() < AT_ONCE
            && let Some((at, call)) = calls.next()
        {
            let router = Arc::clone(router);
            under_way.spawn(async move { (at, run(&router, which, call, limit).await) });
        }
        match under_way.join_next().await {
            None => break,
            Some(Ok((at, Ok(answer)))) => answers[at] = Some(answer),
            Some(Ok((_, Err(failure)))) => failed = failed.or(Some(failure)),
            Some(Err(e)) => {
                failed =
                    failed.or_else(|| Some(Failure::unreachable(format!("a call ended: {e}"))));
            }
        }
    }
    match failed {
        None => Ok(answers.into_iter().flatten().collect()),
        Some(failure) => Err(failure),
    }
}
