//! Adds the records that a node lacks. They come from the histories of the other nodes.

use super::QuorumNode;
use super::history::{HistoryEntry, StreamId};
use crate::names::JobName;
use crate::store::redis::RESPONSE_TIMEOUT;
use crate::store::redis::codec::call::Call;
use crate::store::redis::codec::history::BALLOT;
use crate::store::redis::codec::keys::LockKeys;
use crate::store::redis::codec::record::pairs;
use crate::store::redis::codec::reply::integer;
use crate::store::{Lock, StoreError};

impl QuorumNode {
    /// Replaces the history of a job with `whole` (oldest first, positions ascending), or with `None`
    /// notes that it lacks nothing. Returns false, and changes nothing, if something was written since
    /// `newest` was the newest entry and `lacks` the mark.
    pub(in crate::store) async fn backfill(
        &self,
        (job, lock): (&JobName, &Lock),
        lacks: &str,
        newest: Option<StreamId>,
        whole: Option<&[HistoryEntry]>,
    ) -> Result<bool, StoreError> {
        let keys = LockKeys::of(self.store.prefix(), lock);
        let mut call = Call::default();
        call.key(&keys.job(job))
            .key(&keys.runs(job))
            .key(&keys.failures(job));
        call.arg(lacks)
            .arg(&newest.map(|id| id.to_string()).unwrap_or_default())
            .arg(&u8::from(whole.is_some()));
        for HistoryEntry { id, ballot, record } in whole.into_iter().flatten() {
            let mut fields = pairs(record);
            fields.extend(ballot.map(|number| (BALLOT, number.to_string().into())));
            call.arg(&id.to_string()).arg(&fields.len());
            for (name, value) in fields {
                call.arg(name).arg(&value);
            }
        }
        let script = &self.scripts.backfill;
        let reply = self.link.run(script, &call, RESPONSE_TIMEOUT).await?;
        Ok(integer(&reply)? == 1)
    }
}
