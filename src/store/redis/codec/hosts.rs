//! `announce` and `hosts`: their calls and replies. Hosts announce themselves in a hash, as JSON.

use std::time::Duration;

use redis::Value;

use super::call::{Call, millis};
use super::fields::log_replaced;
use super::keys;
use super::reply::each;
use crate::ground::sorting::SortShort as _;
use crate::names::Prefix;
use crate::store::contract::{HostHeartbeat, VANISHED_FOR};
use crate::store::redis::failure::RedisFailure;
use crate::store::{ErrorDetail, HostInfo, HostReport};

/// `longest` is the longest TTL of the host's job list: a store that loses its data grants nothing for at
/// least that long.
pub(in crate::store::redis) fn announce_call(
    prefix: &Prefix,
    info: &HostInfo,
    valid_for: Duration,
    longest: Duration,
) -> Result<Call, RedisFailure> {
    let json = serde_json::to_string(&HostHeartbeat::of(info))
        .map_err(|e| RedisFailure::refused(ErrorDetail::of("a heartbeat cannot be written", e)))?;
    // Zero removes the announcement; `millis` would make it one millisecond.
    let valid_for = match valid_for {
        Duration::ZERO => 0,
        some => millis(some),
    };
    let mut call = Call::default();
    call.key(&keys::hosts(prefix)).key(&keys::store(prefix));
    call.arg(&info.host)
        .arg(&valid_for)
        .arg(&json)
        .arg(&longest.as_millis())
        .arg(&millis(VANISHED_FOR));
    Ok(call)
}

/// Logs the entries of other hosts that an announcement removed because they cannot be read.
pub(in crate::store::redis) fn announce_read(
    prefix: &Prefix,
    value: Value,
) -> Result<(), RedisFailure> {
    each(value, |mut items| {
        let (host, value) = (items.text()?, items.text()?);
        // The whole key was of another type.
        if host.is_empty() {
            log_replaced(keys::hosts(prefix));
            return Ok(());
        }
        tracing::warn!(
            entry = ?host,
            ?value,
            "removed an unreadable entry from the announced hosts"
        );
        Ok(())
    })
    .map(drop)
}

pub(in crate::store::redis) fn call(prefix: &Prefix) -> Call {
    let mut call = Call::default();
    call.key(&keys::hosts(prefix));
    call
}

/// Asks for the hosts whose announcements have expired.
pub(in crate::store::redis) fn vanished_call(prefix: &Prefix) -> Call {
    let mut call = call(prefix);
    call.arg(&millis(VANISHED_FOR));
    call
}

pub(in crate::store::redis) fn read(value: Value) -> Result<Vec<HostReport>, RedisFailure> {
    let hosts = each(value, |mut items| {
        let seen_at = items.timestamp()?;
        let heartbeat = serde_json::from_str::<HostHeartbeat>(&items.text()?).ok();
        // One entry that cannot be read does not hide the others.
        let info = heartbeat.and_then(|heartbeat| heartbeat.into_info().ok());
        Ok(info.map(|info| HostReport { info, seen_at }))
    })?;
    let mut hosts: Vec<HostReport> = hosts.into_iter().flatten().collect();
    hosts.sort_short_by(|a, b| a.info.host.cmp(&b.info.host));
    Ok(hosts)
}
