//! The clocks of the embedded store. Every transaction reads them once.

use std::time::{SystemTime, UNIX_EPOCH};

use crate::store::StoreError;
use crate::store::protocol::{Clock, Past};
use crate::time::BootInstant;

/// Differs for every boot, and is the same for all processes of one boot.
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";

/// An instant in UTC and in boot time, with the boot that the latter belongs to.
#[derive(Debug, Clone)]
pub(super) struct TransactionTime {
    pub(super) clock: Clock,
    /// Not before [`Self::clock`] was read.
    pub(super) read: BootInstant,
    pub(super) boot: String,
}

impl TransactionTime {
    /// Reads this machine's clocks.
    pub(super) fn read(boot: &str) -> Self {
        let utc = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        let read = BootInstant::now();
        let lease = read.to_duration();
        Self {
            clock: Clock {
                micros: u64::try_from(utc.as_micros()).unwrap_or(u64::MAX),
                lease: u64::try_from(lease.as_millis()).unwrap_or(u64::MAX),
                past: Past::default(),
            },
            read,
            boot: boot.to_owned(),
        }
    }
}

/// Returns the id of this boot. Without it the store does not work, because leases of an earlier boot
/// would seem valid.
pub(super) fn boot_id() -> Result<String, StoreError> {
    match std::fs::read_to_string(BOOT_ID) {
        Ok(id) if !id.trim().is_empty() => Ok(id.trim().to_owned()),
        Ok(_) => Err(StoreError::refused(format!("{BOOT_ID} is empty"))),
        Err(e) => Err(StoreError::refused_by(BOOT_ID, e)),
    }
}
