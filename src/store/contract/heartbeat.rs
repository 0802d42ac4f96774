//! The announcement of a host in its stored form, JSON. Redis and `SQLite` keep the same text.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::lock::Fingerprint;
use super::nodes::StoreNodes;
use super::registry::HeldJob;
use super::request::HostInfo;
use crate::names::{HostName, InvalidName};
use crate::time::Timestamp;

/// The stored form of [`HostInfo`].
#[derive(Debug, Serialize, Deserialize)]
pub(in crate::store) struct HostHeartbeat {
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
    #[serde(default, skip_serializing_if = "Option::is_none")]
    lacks: Option<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    held_back: Vec<HeldJob>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    nodes: Option<StoreNodes>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    waits: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    clock_wrong: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    up_ms: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    namesake: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    output: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    http: Option<String>,
}

impl HostHeartbeat {
    pub(in crate::store) fn of(info: &HostInfo) -> Self {
        Self {
            host: info.host.to_string(),
            config: info.config.0.to_string(),
            version: info.version.clone(),
            running: info.running,
            pid: info.pid,
            draining: info.draining,
            started_at: info.started_at,
            clock_offset_ms: info.clock_offset_ms,
            lacks: info.lacks.clone(),
            held_back: info.held_back.clone(),
            nodes: info.nodes.clone(),
            waits: info.waits.clone(),
            clock_wrong: info.clock_wrong.clone(),
            up_ms: (info.up).map(|up| u64::try_from(up.as_millis()).unwrap_or(u64::MAX)),
            namesake: info.namesake.clone(),
            output: info.output.clone(),
            http: info.http.clone(),
        }
    }

    /// Whether the daemon that `info` is about made this announcement.
    pub(in crate::store) fn is_by(&self, info: &HostInfo) -> bool {
        (self.pid, self.started_at) == (info.pid, info.started_at)
    }

    pub(in crate::store) fn into_info(self) -> Result<HostInfo, InvalidName> {
        Ok(HostInfo {
            host: HostName::parse(&self.host)?,
            config: Fingerprint(self.config.into()),
            version: self.version,
            running: self.running,
            pid: self.pid,
            draining: self.draining,
            started_at: self.started_at,
            clock_offset_ms: self.clock_offset_ms,
            lacks: self.lacks,
            held_back: self.held_back,
            nodes: self.nodes,
            waits: self.waits,
            clock_wrong: self.clock_wrong,
            up: self.up_ms.map(Duration::from_millis),
            namesake: self.namesake,
            output: self.output,
            http: self.http,
        })
    }
}
