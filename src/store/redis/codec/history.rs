//! The command that reads a history, and its reply. It needs no script, because one command reads the
//! stream.

use redis::Cmd;
use redis::Value;

use super::record;
use super::reply::Items;
use crate::names::JobName;
use crate::store::History;
use crate::store::redis::failure::RedisFailure;

pub(in crate::store::redis) fn command(runs: &str, limit: usize) -> Cmd {
    let mut command = redis::cmd("XREVRANGE");
    command.arg(runs).arg("+").arg("-").arg("COUNT").arg(limit);
    command
}

/// Reads the history under the key `runs`. Entries that cannot be read are listed separately.
pub(in crate::store::redis) fn read(
    value: Value,
    job: &JobName,
    runs: &str,
) -> Result<History, RedisFailure> {
    let mut entries = Items::of(value)?;
    let mut history = History::default();
    while !entries.is_empty() {
        let entry = entries.next()?;
        let id = record::id_of(&entry);
        match record::read(job, entry) {
            Ok(record) => history.records.push(record),
            Err(failure) => {
                let fault = record::unreadable(runs, &id, &failure);
                history.unreadable.push(fault);
            }
        }
    }
    Ok(history)
}
