//! Records in the history of a node. Besides the record, an entry has its position in the stream and the
//! proposal that added it.

use crate::store::Record;

/// A record in the history of a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HistoryEntry {
    /// Where it lies in the stream: milliseconds, and a number among those.
    pub id: (u64, u64),
    /// The number of the proposal that added it; `None` if the node does not know.
    pub ballot: Option<u64>,
    pub record: Record,
}
