//! The notes of runs by hand on several nodes: a majority writes a note, and whatever any node of
//! a majority has is looked after.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::RedlockStore;
use crate::names::RunId;
use crate::store::{ManualNote, ManualRun, Store as _, StoreError};

impl RedlockStore {
    pub(super) async fn note_manual_on_nodes(&self, run: &ManualRun) -> Result<(), StoreError> {
        let nodes = &self.majority.nodes;
        let answers = nodes.ask(0..nodes.len(), |node| {
            let run = run.clone();
            async move { node.store.note_manual(&run).await }
        });
        self.a_majority(answers).await.map(drop)
    }

    pub(super) async fn merged_manual_runs(&self) -> Result<Vec<ManualNote>, StoreError> {
        let nodes = &self.majority.nodes;
        let answers = nodes.ask(0..nodes.len(), |node| async move {
            node.store.manual_runs().await
        });
        Ok(newest(self.a_majority(answers).await?))
    }

    /// A node that is away keeps its notes. Once they are old enough to name no run that may still
    /// be claimed, a daemon has them forgotten.
    pub(super) async fn forget_manual_on_nodes(&self, runs: &[RunId]) -> Result<(), StoreError> {
        let nodes = &self.majority.nodes;
        let runs: Arc<[RunId]> = runs.into();
        let answers = nodes.ask(0..nodes.len(), |node| {
            let runs = Arc::clone(&runs);
            async move { node.store.forget_manual(&runs).await }
        });
        self.all_there(answers).await.map(drop)
    }
}

/// Each run once, with its newest note.
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
