//! `pause`: its call and its reply. The script is `scripts/pause.lua`.

use redis::Value;

use super::call::{Call, optional_instant};
use super::keys::{self, LockKeys};
use super::reply::Items;
use crate::names::Prefix;
use crate::store::redis::failure::RedisFailure;
use crate::store::{PauseOrder, PauseReply, PauseRequest};

pub(in crate::store::redis) fn call(prefix: &Prefix, request: &PauseRequest) -> Call {
    let keys = LockKeys::of(prefix, &request.lock);
    let mut call = Call::default();
    call.key(&keys.lock())
        .key(&keys::store(prefix))
        .key(&keys.job(&request.job));
    call.arg(&request.asked_at.millis()).arg(&request.by);
    match &request.order {
        PauseOrder::Resume => call.arg("resume"),
        PauseOrder::Pause { until, reason } => {
            call.arg("pause").arg(&optional_instant(*until)).arg(reason)
        }
    };
    call
}

pub(in crate::store::redis) fn read(
    prefix: &Prefix,
    value: Value,
) -> Result<PauseReply, RedisFailure> {
    let mut items = Items::of(value)?;
    Ok(match items.text()?.as_str() {
        "done" => PauseReply::Done,
        "not_paused" => PauseReply::NotPaused,
        "superseded" => PauseReply::Superseded,
        "absent" => PauseReply::Unknown,
        "recovering" => PauseReply::Recovering {
            remaining: items.duration()?,
        },
        "moved" => PauseReply::Moved {
            to: keys::lock_of(prefix, &items.text()?),
        },
        other => {
            return Err(RedisFailure::corrupt(format!(
                "the reply to a pause is {other:?}"
            )));
        }
    })
}
