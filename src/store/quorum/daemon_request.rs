//! Requests to daemons: a majority keeps each request, and reading a majority finds it. A daemon takes a
//! request only if a majority has not seen it taken, so that it is taken once.

use std::collections::BTreeMap;
use std::time::Duration;

use super::QuorumStore;
use crate::names::{HostName, RunId};
use crate::store::{
    DaemonRequest, Filed, FiledRequest, OutputChunk, RequestReply, Store as _, StoreError,
};
use crate::time::Timestamp;

impl QuorumStore {
    pub(super) async fn file_on_nodes(
        &self,
        request: &DaemonRequest,
        deadline: Timestamp,
    ) -> Result<Filed, StoreError> {
        let nodes = &self.proposer.nodes;
        let replies = nodes.ask(0..nodes.len(), |node| {
            let request = request.clone();
            async move { node.store.file_request(&request, deadline).await }
        });
        let found = self.all_there(replies).await?;
        let kept = found.iter().filter(|it| **it == Filed::Kept).count();
        Ok(if kept >= nodes.quorum() {
            Filed::Kept
        } else if found.contains(&Filed::Full) {
            Filed::Full
        } else {
            Filed::Late
        })
    }

    pub(super) async fn merged_requests(
        &self,
        host: Option<&HostName>,
    ) -> Result<Vec<FiledRequest>, StoreError> {
        let nodes = &self.proposer.nodes;
        let replies = nodes.ask(0..nodes.len(), |node| {
            let host = host.cloned();
            async move { node.store.requests(host.as_ref()).await }
        });
        let mut merged: BTreeMap<RunId, FiledRequest> = BTreeMap::new();
        for filed in self.a_majority(replies).await?.into_iter().flatten() {
            match merged.get_mut(&filed.id) {
                Some(known) => known.merge(filed),
                None => {
                    merged.insert(filed.id.clone(), filed);
                }
            }
        }
        Ok(merged.into_values().collect())
    }

    pub(super) async fn take_on_nodes(&self, id: &RunId) -> Result<bool, StoreError> {
        let nodes = &self.proposer.nodes;
        let replies = nodes.ask(0..nodes.len(), |node| {
            let id = id.clone();
            async move { node.store.take_request(&id).await }
        });
        let found = self.all_there(replies).await?;
        let taken = found.into_iter().filter(|taken| *taken).count();
        Ok(taken >= nodes.quorum())
    }

    pub(super) async fn reply_on_nodes(
        &self,
        id: &RunId,
        reply: &RequestReply,
    ) -> Result<(), StoreError> {
        let nodes = &self.proposer.nodes;
        let replies = nodes.ask(0..nodes.len(), |node| {
            let (id, reply) = (id.clone(), reply.clone());
            async move { node.store.reply_to_request(&id, &reply).await }
        });
        self.a_majority(replies).await.map(drop)
    }

    /// Waits on one node: all of them announce a request. If that node is down, the wait is short, and
    /// the next one is on another node.
    pub(super) async fn request_filed_on_a_node(
        &self,
        host: &HostName,
        limit: Duration,
    ) -> Result<(), StoreError> {
        let first = self.proposer.nodes.order(host.as_str())[0];
        let node = self.proposer.nodes.get(first);
        node.store.request_filed(host, limit).await
    }

    pub(super) async fn send_output_to_nodes(
        &self,
        (run, number): (&RunId, u64),
        chunk: &OutputChunk,
    ) -> Result<u64, StoreError> {
        let nodes = &self.proposer.nodes;
        let replies = nodes.ask(0..nodes.len(), |node| {
            let (run, chunk) = (run.clone(), chunk.clone());
            async move { node.store.send_output(&run, number, &chunk).await }
        });
        let wanted = self.a_majority(replies).await?;
        Ok(wanted.into_iter().max().unwrap_or(number))
    }

    pub(super) async fn receive_output_from_nodes(
        &self,
        run: &RunId,
        from: u64,
    ) -> Result<Vec<(u64, OutputChunk)>, StoreError> {
        let nodes = &self.proposer.nodes;
        let replies = nodes.ask(0..nodes.len(), |node| {
            let run = run.clone();
            async move { node.store.receive_output(&run, from).await }
        });
        let found = self.all_there(replies).await?;
        let chunks: BTreeMap<u64, OutputChunk> = found.into_iter().flatten().collect();
        Ok(chunks.into_iter().collect())
    }
}
