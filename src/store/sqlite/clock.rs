//! The clocks of the embedded store.

use std::time::{SystemTime, UNIX_EPOCH};

use crate::store::StoreError;
use crate::store::protocol::{Clock, Past};
use crate::time::BootInstant;

/// Differs at every boot, and is the same for all processes between two.
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";

/// An instant: UTC, and boot time with the boot that it counts from.
#[derive(Debug, Clone)]
pub(super) struct TransactionTime {
    pub(super) clock: Clock,
    pub(super) boot: String,
}

impl TransactionTime {
    /// This machine's clocks.
    pub(super) fn read(boot: &str) -> Self {
        let utc = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        let lease = BootInstant::now().to_duration();
        Self {
            clock: Clock {
                micros: u64::try_from(utc.as_micros()).unwrap_or(u64::MAX),
                lease: u64::try_from(lease.as_millis()).unwrap_or(u64::MAX),
                past: Past::default(),
            },
            boot: boot.to_owned(),
        }
    }
}

/// The id of this boot.
///
/// Without it the store refuses to work: leases of an earlier boot would seem alive.
pub(super) fn boot_id() -> Result<String, StoreError> {
    match std::fs::read_to_string(BOOT_ID) {
        Ok(id) if !id.trim().is_empty() => Ok(id.trim().to_owned()),
        Ok(_) => Err(StoreError::refused(format!("{BOOT_ID} is empty"))),
        Err(e) => Err(StoreError::refused_by(BOOT_ID, e)),
    }
}
