//! Notes of manual runs: the calls and replies of `scripts/manual.lua`. One script writes, deletes
//! and lists them.

use redis::Value;

use super::call::{Call, millis};
use super::keys;
use super::reply::Items;
use crate::names::{Prefix, RunId};
use crate::store::contract::NOTED_FOR;
use crate::store::redis::failure::RedisFailure;
use crate::store::{ManualNote, ManualRun};

pub(in crate::store::redis) fn note_call(prefix: &Prefix, run: &ManualRun) -> Call {
    let mut call = list_call(prefix);
    call.arg(&millis(NOTED_FOR));
    call.arg(&run.run_id).arg(&run.text());
    call
}

pub(in crate::store::redis) fn forget_call(prefix: &Prefix, runs: &[RunId]) -> Call {
    let mut call = list_call(prefix);
    call.arg(&millis(NOTED_FOR));
    for run in runs {
        call.arg(run).arg("");
    }
    call
}

pub(in crate::store::redis) fn list_call(prefix: &Prefix) -> Call {
    let mut call = Call::default();
    call.key(&keys::manual(prefix));
    call
}

pub(in crate::store::redis) fn list_read(value: Value) -> Result<Vec<ManualNote>, RedisFailure> {
    let mut replies = Items::of(value)?;
    let mut notes = Vec::new();
    while !replies.is_empty() {
        let mut items = Items::of(replies.next()?)?;
        let (run_id, age) = (items.text()?, items.duration()?);
        let run = ManualRun::parse(&run_id, &items.text()?);
        notes.extend(run.map(|run| ManualNote { run, age }));
    }
    Ok(notes)
}
