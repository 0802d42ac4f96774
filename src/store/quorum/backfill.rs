//! Copies records to a node that was unreachable when they were written.
//!
//! Only the nodes that accept a proposal write its records. A node that accepts the next proposal
//! without having accepted the one before reports that its history may lack records, and receives
//! them from the other nodes. Otherwise a record would disappear with the nodes that wrote it, even
//! if a majority never failed at the same time.

use std::sync::Arc;

use tokio::task::JoinSet;

use super::history::{merge_histories, with_rising_ids};
use super::merge::quorum;
use crate::ground::tasks::SpawnBoxed as _;
use crate::names::JobName;
use crate::store::redis::node::QuorumNode;
use crate::store::{Lock, StoreError};

/// The most records that are copied. More would block the node for too long.
const MOST: usize = 1000;

/// Copies to `node` the records of a job that it lacks. `mark` is the mark that the node returned. A
/// failure is not retried here: the next proposal finds the mark again.
pub(super) async fn backfill(
    nodes: Arc<[Arc<QuorumNode>]>,
    node: Arc<QuorumNode>,
    (job, lock): (JobName, Lock),
    mark: String,
) {
    match try_to(&nodes, &node, (&job, &lock), &mark).await {
        Ok(0) => {}
        Ok(copied) => tracing::debug!(
            node = node.shown(),
            %job,
            "copied {copied} records to a node that lacked them"
        ),
        Err(error) => tracing::debug!(
            node = node.shown(),
            %job,
            %error,
            "cannot copy records to a node that lacks them; the next change of the job retries"
        ),
    }
}

/// Returns how many records the node lacked.
async fn try_to(
    nodes: &[Arc<QuorumNode>],
    node: &Arc<QuorumNode>,
    (job, lock): (&JobName, &Lock),
    mark: &str,
) -> Result<usize, StoreError> {
    let mut asked = JoinSet::new();
    for other in nodes {
        let (other, job, lock) = (Arc::clone(other), job.clone(), lock.clone());
        let is_it = Arc::ptr_eq(&other, node);
        asked.spawn_boxed(async move { (is_it, other.records(&job, &lock, MOST).await) });
    }
    let (mut own, mut found) = (None, Vec::new());
    while let Some(answer) = asked.join_next().await {
        match answer {
            Ok((true, records)) => own = Some(records?.0),
            Ok((false, Ok((records, _)))) => found.push(records),
            Ok((false, Err(_))) | Err(_) => {}
        }
    }
    let Some(own) = own.filter(|_| found.len() + 1 >= quorum(nodes.len())) else {
        return Ok(0);
    };
    let newest = own.first().map(|entry| entry.id);
    let (had, is_long) = (own.len(), own.len() >= MOST);
    found.push(own.clone());
    let mut whole = merge_histories(found);
    let is_whole = whole
        .iter()
        .map(|it| &it.record)
        .eq(own.iter().map(|it| &it.record));
    if is_whole || is_long {
        node.backfill((job, lock), mark, newest, None).await?;
        return Ok(0);
    }
    whole.truncate(MOST);
    let whole = with_rising_ids(whole);
    let done = node
        .backfill((job, lock), mark, newest, Some(&whole))
        .await?;
    Ok(if done {
        whole.len().saturating_sub(had).max(1)
    } else {
        0
    })
}
