//! Hosts that vanished, and the jobs of lists, on several nodes.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::{QuorumStore, reads};
use crate::names::HostName;
use crate::store::{Fingerprint, HostReport, ListedJobs, Store as _, StoreError};

impl QuorumStore {
    /// A host has vanished if a majority has its expired announcement. A node that did not receive that
    /// the host stops has it, too, and so has one that did not receive that it reports again.
    pub(super) async fn vanished_from_nodes(&self) -> Result<Vec<HostReport>, StoreError> {
        let nodes = &self.proposer.nodes;
        let replies = nodes.ask(
            0..nodes.len(),
            |node| async move { node.store.vanished().await },
        );
        let found = self.all_there(replies).await?;
        let mut on_nodes: BTreeMap<HostName, usize> = BTreeMap::new();
        for report in found.iter().flatten() {
            *on_nodes.entry(report.info.host.clone()).or_default() += 1;
        }
        let mut vanished = reads::newest(found);
        vanished.retain(|it| on_nodes.get(&it.info.host) >= Some(&nodes.quorum()));
        Ok(vanished)
    }

    pub(super) async fn keep_list_on_nodes(
        &self,
        list: &Fingerprint,
        jobs: Option<&ListedJobs>,
    ) -> Result<bool, StoreError> {
        let jobs = Arc::new(jobs.cloned());
        let nodes = &self.proposer.nodes;
        let replies = nodes.ask(0..nodes.len(), |node| {
            let (list, jobs) = (list.clone(), Arc::clone(&jobs));
            async move { node.store.keep_list(&list, (*jobs).as_ref()).await }
        });
        let found = self.all_there(replies).await?;
        Ok(found.into_iter().all(|is_there| is_there))
    }

    /// Any node that has the list will do: the fingerprint says what is in it.
    pub(super) async fn listed_jobs_on_nodes(
        &self,
        list: &Fingerprint,
    ) -> Result<Option<ListedJobs>, StoreError> {
        let nodes = &self.proposer.nodes;
        let replies = nodes.ask(0..nodes.len(), |node| {
            let list = list.clone();
            async move { node.store.listed_jobs(&list).await }
        });
        Ok(self.all_there(replies).await?.into_iter().flatten().next())
    }
}
