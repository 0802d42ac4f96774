//! Requests to daemons: the calls and replies of `scripts/requests.lua`, and those of
//! `scripts/output.lua` for the output of triggered runs.

use redis::Value;

use super::call::{Call, millis};
use super::keys;
use super::reply::{Items, each, integer, text};
use crate::ground::sorting::SortShort as _;
use crate::names::{HostName, Prefix, RunId};
use crate::store::contract::{OUTPUT_KEPT_FOR, REQUEST_KEPT_FOR, REQUESTS_KEPT, StoredParts};
use crate::store::redis::failure::RedisFailure;
use crate::store::{DaemonRequest, Filed, FiledRequest, OutputChunk, RequestReply};
use crate::time::Timestamp;

/// Returns the channel on which requests to the daemon of this host are announced.
pub(in crate::store::redis) fn channel(prefix: &Prefix, host: &HostName) -> String {
    format!("{prefix}:requests:{host}")
}

fn request_call(prefix: &Prefix, order: &str) -> Call {
    let mut call = Call::default();
    call.key(&keys::requests(prefix)).arg(order);
    call
}

pub(in crate::store::redis) fn file_call(
    prefix: &Prefix,
    request: &DaemonRequest,
    deadline: Timestamp,
) -> Call {
    let mut call = request_call(prefix, "file");
    call.arg(&request.id)
        .arg(&request.host)
        .arg(&deadline.millis())
        .arg(&request.text())
        .arg(&millis(REQUEST_KEPT_FOR))
        .arg(&REQUESTS_KEPT)
        .arg(&channel(prefix, &request.host));
    call
}

pub(in crate::store::redis) fn file_read(value: Value) -> Result<Filed, RedisFailure> {
    match text(value)?.as_str() {
        "kept" => Ok(Filed::Kept),
        "late" => Ok(Filed::Late),
        "full" => Ok(Filed::Full),
        other => Err(RedisFailure::corrupt(format!(
            "the reply to a request to a daemon is {other:?}"
        ))),
    }
}

pub(in crate::store::redis) fn take_call(prefix: &Prefix, id: &RunId) -> Call {
    let mut call = request_call(prefix, "take");
    call.arg(id);
    call
}

pub(in crate::store::redis) fn take_read(value: &Value) -> Result<bool, RedisFailure> {
    Ok(integer(value)? == 1)
}

pub(in crate::store::redis) fn reply_call(
    prefix: &Prefix,
    id: &RunId,
    reply: &RequestReply,
) -> Call {
    let mut call = request_call(prefix, "reply");
    call.arg(id).arg(&reply.text());
    call
}

pub(in crate::store::redis) fn list_call(prefix: &Prefix, host: Option<&HostName>) -> Call {
    let mut call = request_call(prefix, "list");
    call.arg(host.map_or("", HostName::as_str));
    call
}

pub(in crate::store::redis) fn list_read(value: Value) -> Result<Vec<FiledRequest>, RedisFailure> {
    let filed = each(value, |mut items: Items| {
        let (id, host) = (items.text()?, items.text()?);
        let (age, left) = (items.duration()?, items.duration()?);
        let taken = items.integer()? == 1;
        let (request, reply) = (items.text()?, items.text()?);
        Ok(FiledRequest::parse(&StoredParts {
            id: &id,
            host: &host,
            age,
            left,
            taken,
            request: &request,
            reply: &reply,
        }))
    })?;
    Ok(filed.into_iter().flatten().collect())
}

fn output_call(prefix: &Prefix, run: &RunId, number: u64) -> Call {
    let mut call = Call::default();
    call.key(&keys::output(prefix, run))
        .arg(&number)
        .arg(&millis(OUTPUT_KEPT_FOR));
    call
}

pub(in crate::store::redis) fn send_call(
    prefix: &Prefix,
    (run, number): (&RunId, u64),
    chunk: &OutputChunk,
) -> Call {
    let mut call = output_call(prefix, run, number);
    call.arg(&chunk.text());
    call
}

pub(in crate::store::redis) fn send_read(value: &Value) -> Result<u64, RedisFailure> {
    Ok(u64::try_from(integer(value)?).unwrap_or(0))
}

pub(in crate::store::redis) fn receive_call(prefix: &Prefix, run: &RunId, from: u64) -> Call {
    output_call(prefix, run, from)
}

/// A part that cannot be read is left out: it is output, and the whole of it is on the host.
pub(in crate::store::redis) fn receive_read(
    value: Value,
) -> Result<Vec<(u64, OutputChunk)>, RedisFailure> {
    let chunks = each(value, |mut items: Items| {
        let number = u64::try_from(items.integer()?).unwrap_or(0);
        Ok(OutputChunk::parse(&items.text()?).map(|chunk| (number, chunk)))
    })?;
    let mut chunks: Vec<_> = chunks.into_iter().flatten().collect();
    chunks.sort_short_by_key(|(number, _)| *number);
    Ok(chunks)
}
