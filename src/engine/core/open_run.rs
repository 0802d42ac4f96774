//! The open run of another host that a lane watches.

use crate::names::RunId;
use crate::time::{BootInstant, Timestamp};

/// The open run of another host, which this lane settles or reruns when its lease is over.
#[derive(Debug)]
pub(super) struct OpenRunWatch {
    /// Its occurrence; `None` for a manual run, which is never run again.
    pub(super) at: Option<Timestamp>,
    pub(super) run_id: RunId,
    /// When its lease is over, unless renewed.
    pub(super) fire: BootInstant,
    pub(super) due: bool,
}
