//! `keep`, which extends the lifetime of the keys of listed jobs: its call. Its reply is empty. The script is `scripts/keep.lua`.

use super::call::{Call, millis};
use super::keys::LockKeys;
use crate::names::Prefix;
use crate::store::Keeping;

pub(in crate::store::redis) fn call(prefix: &Prefix, jobs: &[Keeping]) -> Call {
    let mut call = Call::default();
    for kept in jobs {
        let keys = LockKeys::of(prefix, &kept.lock);
        call.key(&keys.state())
            .key(&keys.job(&kept.job))
            .key(&keys.runs(&kept.job))
            .key(&keys.failures(&kept.job))
            .arg(&millis(kept.span));
    }
    call
}
