//! What hosts say of themselves, for tests.

use cronlatch::names::HostName;
use cronlatch::store::{Fingerprint, HostInfo};
use cronlatch::time::Timestamp;

/// What a daemon of this name says of itself that has nothing to report.
pub(crate) fn host_info(name: &str) -> HostInfo {
    HostInfo {
        host: HostName::parse(name).expect("a valid name"),
        config: Fingerprint("c0ffee".into()),
        version: "0.1.0".to_owned(),
        running: 0,
        pid: 42,
        draining: false,
        started_at: Timestamp::from_secs(1_700_000_000),
        clock_offset_ms: None,
        lacks: None,
        held_back: Vec::new(),
        nodes: None,
        waits: None,
        clock_wrong: None,
        up: None,
        namesake: None,
        output: None,
        http: None,
    }
}
