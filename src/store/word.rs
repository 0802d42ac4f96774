//! What a host says of itself, as the stores keep it: JSON.

use serde::{Deserialize, Serialize};

use super::{Fingerprint, HostInfo};
use crate::names::{HostName, InvalidName};
use crate::time::Timestamp;

/// [`HostInfo`] in writing.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Word {
    host: String,
    config: String,
    version: String,
    running: usize,
    pid: u32,
    draining: bool,
    started_at: Timestamp,
    /// Earlier versions did not measure it.
    #[serde(default)]
    clock_offset_ms: Option<i64>,
}

impl Word {
    pub(super) fn of(info: &HostInfo) -> Self {
        Self {
            host: info.host.to_string(),
            config: info.config.0.clone(),
            version: info.version.clone(),
            running: info.running,
            pid: info.pid,
            draining: info.draining,
            started_at: info.started_at,
            clock_offset_ms: info.clock_offset_ms,
        }
    }

    pub(super) fn into_info(self) -> Result<HostInfo, InvalidName> {
        Ok(HostInfo {
            host: HostName::parse(&self.host)?,
            config: Fingerprint(self.config),
            version: self.version,
            running: self.running,
            pid: self.pid,
            draining: self.draining,
            started_at: self.started_at,
            clock_offset_ms: self.clock_offset_ms,
        })
    }
}
