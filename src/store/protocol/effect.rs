//! The effects of an operation besides the new states: records, and the release of the lock. The
//! store executes them in the same atomic step.

use crate::store::contract::{Record, Retention};
use crate::time::Timestamp;

/// What a store must do after an operation, besides storing the new states.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Effect {
    /// Adds a record to the history of the record's job.
    Append {
        /// The record.
        record: Box<Record>,
        /// How many records the history keeps; `None` if the request does not say.
        keep: Option<Retention>,
        /// The watermark that the recorded verdict moved. It shows whether the verdict follows the
        /// newest record without a gap. See [`merge`](super::merge).
        follows: Option<Timestamp>,
        /// Whether this record may replace another one ([`is_replaced_by`](super::is_replaced_by)), because a
        /// host has reported the result of a run that the ledger no longer has open.
        replaces: bool,
    },
    /// Notifies the hosts that wait for the lock.
    Released,
}
