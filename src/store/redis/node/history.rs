//! Records in the history of a node. Besides the record, an entry has its position in the stream and the
//! proposal that added it.

use crate::store::Record;
pub use crate::store::redis::codec::history::StreamId;

/// A record in the history of a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HistoryEntry {
    /// Where it lies in the stream.
    pub id: StreamId,
    /// The number of the proposal that added it; `None` if the node does not know.
    pub ballot: Option<u64>,
    pub record: Record,
}
