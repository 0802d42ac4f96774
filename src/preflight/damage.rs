//! What the store keeps of each job of the list: whether it can be used.

use std::sync::Arc;

use super::{Finding, Subject, ids, ledger};
use crate::names::JobName;
use crate::store::{ErrorDetail, KeyFault, Lock, NodeStanding, Store, StoreError, apart};

/// How many records of each job are read.
const RECORDS: usize = 100;

/// Reads ledger, lock and history of each job. What the store as a whole refuses, other looks say.
pub(super) async fn look(store: &Arc<dyn Store>, subject: &Subject) -> Vec<Finding> {
    let listed = subject.list.iter().flat_map(|list| &list.jobs);
    let jobs: Vec<(JobName, Lock)> = listed
        .map(|job| (job.name.clone(), job.lock_on(&subject.host)))
        .collect();
    // A read marks a node that was never used, and there is nothing to read on it.
    let condition = store.condition(&jobs).await.unwrap_or_default();
    if (condition.nodes.iter()).any(|node| node.standing == NodeStanding::New) {
        return Vec::new();
    }
    let of_nodes = condition.nodes.iter().flat_map(|node| {
        let unusable = node.unusable.iter();
        unusable.map(|(job, fault)| unusable_on_node(&node.node, job, fault))
    });
    let mut found: Vec<Finding> = of_nodes.collect();
    let reports = apart(jobs.clone(), |part| {
        let store = Arc::clone(store);
        async move { store.jobs(&part).await }
    });
    let Ok(reports) = reports.await else {
        return found;
    };
    let now = store.now().await.ok();
    for ((job, lock), report) in jobs.iter().zip(reports) {
        match report {
            Ok(report) => {
                let decided = report.last.zip(now);
                found.extend(decided.and_then(|(last, now)| ledger::ahead(job, last, now)));
            }
            Err(StoreError::Key(fault)) => found.push(unusable(job, &fault)),
            Err(_) => {}
        }
        match store.history(job, lock, RECORDS).await {
            Ok(history) => {
                let unreadable = history.unreadable.iter();
                found.extend(unreadable.map(|fault| unreadable_record(job, fault)));
            }
            Err(StoreError::Key(fault)) => found.push(unusable(job, &fault)),
            Err(_) => {}
        }
    }
    // One key may stand in the way of both.
    found.dedup();
    found
}

/// What all jobs depend on cannot be used.
pub(super) fn of_all(shown: &str, detail: &ErrorDetail) -> Finding {
    ids::KEYS.danger(
        shown,
        format!("no job starts: {detail}"),
        "if it is of another format, use the version of cronlatch that the other hosts have; if a \
         key is named, repair or delete that key",
    )
}

fn unusable(job: &JobName, fault: &KeyFault) -> Finding {
    ids::KEYS.danger(
        &format!("job {job}"),
        format!("{fault}: no occurrence of this job starts until this is repaired"),
        fault.repair(Some(job.as_str())),
    )
}

fn unusable_on_node(node: &str, job: &JobName, fault: &KeyFault) -> Finding {
    ids::KEYS.warning(
        &format!("job {job} on {node}"),
        format!("{fault}: this node does not count for this job"),
        fault.repair_on_node(),
    )
}

fn unreadable_record(job: &JobName, fault: &KeyFault) -> Finding {
    ids::KEYS.warning(
        &format!("job {job}"),
        format!("{fault}: `history` does not show this record"),
        fault.repair(Some(job.as_str())),
    )
}
