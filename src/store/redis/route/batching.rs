//! How an operation on many entries is split into calls. A single server gets many entries in one
//! call, a Cluster gets many calls at once.

use tokio::task::JoinSet;

use crate::ground::tasks::SpawnBoxed as _;
use crate::store::ErrorDetail;
use crate::store::redis::BATCH;
use crate::store::redis::failure::RedisFailure;

/// The most calls under way at once. More calls would wait in the queues of the servers while their
/// time-outs run.
const AT_ONCE: usize = 512;

/// How the calls of one operation are made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::store::redis) enum Batching {
    /// Up to [`BATCH`] entries in one call, one call after the other. All go to one server, so the
    /// first failure ends the operation.
    InTurn,
    /// One entry in each call, because its keys lie in a slot of their own; many calls at once.
    /// Each is made even if another failed, because its server may be up.
    AtOnce,
}

impl Batching {
    /// Returns how many entries one call takes.
    pub(in crate::store::redis) fn size(self) -> usize {
        match self {
            Self::InTurn => BATCH,
            Self::AtOnce => 1,
        }
    }

    /// Makes the calls. Returns their outcomes in order, or the first failure.
    pub(in crate::store::redis) async fn make<T, F>(
        self,
        calls: Vec<F>,
    ) -> Result<Vec<T>, RedisFailure>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, RedisFailure>> + Send + 'static,
    {
        match self {
            Self::InTurn => {
                let mut outcomes = Vec::with_capacity(calls.len());
                for call in calls {
                    outcomes.push(call.await?);
                }
                Ok(outcomes)
            }
            Self::AtOnce => at_once(calls).await,
        }
    }
}

async fn at_once<T, F>(calls: Vec<F>) -> Result<Vec<T>, RedisFailure>
where
    T: Send + 'static,
    F: Future<Output = Result<T, RedisFailure>> + Send + 'static,
{
    let mut done: Vec<Option<T>> = calls.iter().map(|_| None).collect();
    let mut failed = None;
    let mut calls = calls.into_iter().enumerate();
    let mut under_way = JoinSet::new();
    loop {
        while under_way.len() < AT_ONCE
            && let Some((at, call)) = calls.next()
        {
            under_way.spawn_boxed(async move { (at, call.await) });
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
