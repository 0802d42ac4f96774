//! The notes of manual runs: a majority writes each note, and reading a majority finds it.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::QuorumStore;
use crate::names::RunId;
use crate::store::{ManualNote, ManualRun, Store as _, StoreError};

impl QuorumStore {
    pub(super) async fn note_manual_on_nodes(&self, run: &ManualRun) -> Result<(), StoreError> {
        let nodes = &self.proposer.nodes;
        let answers = nodes.ask(0..nodes.len(), |node| {
            let run = run.clone();
            async move { node.store.note_manual(&run).await }
        });
        self.a_majority(answers).await.map(drop)
    }

    pub(super) async fn merged_manual_runs(&self) -> Result<Vec<ManualNote>, StoreError> {
        let nodes = &self.proposer.nodes;
        let answers = nodes.ask(0..nodes.len(), |node| async move {
            node.store.manual_runs().await
        });
        Ok(newest(self.a_majority(answers).await?))
    }

    /// Deletes notes. An unreachable node keeps its own; a daemon deletes them later, once their runs
    /// can no longer be claimed.
    pub(super) async fn forget_manual_on_nodes(&self, runs: &[RunId]) -> Result<(), StoreError> {
        let nodes = &self.proposer.nodes;
        let runs: Arc<[RunId]> = runs.into();
        let answers = nodes.ask(0..nodes.len(), |node| {
            let runs = Arc::clone(&runs);
            async move { node.store.forget_manual(&runs).await }
        });
        self.all_there(answers).await.map(drop)
    }
}

/// Returns each run once, with its newest note.
fn newest(found: Vec<Vec<ManualNote>>) -> Vec<ManualNote> {
    let mut notes: BTreeMap<RunId, ManualNote> = BTreeMap::new();
    for note in found.into_iter().flatten() {
        let known = notes.get(&note.run.run_id);
        if known.is_none_or(|known| note.age < known.age) {
            notes.insert(note.run.run_id.clone(), note);
        }
    }
    notes.into_values().collect()
}
