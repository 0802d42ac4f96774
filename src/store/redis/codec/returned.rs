//! Occurrences that hosts return undecided: the channel on which they are announced, and the call.
//! The messages only shorten the wait of other hosts.

use super::call::Call;
use crate::names::{JobName, Prefix};

/// Returns the channel on which hosts announce the jobs whose occurrences they return undecided.
pub(in crate::store::redis) fn channel(prefix: &Prefix) -> String {
    format!("{prefix}:returned")
}

/// Returns the call that announces a job on this channel.
pub(in crate::store::redis) fn call(prefix: &Prefix, job: &JobName) -> Call {
    let mut call = Call::default();
    call.arg(&channel(prefix)).arg(job.as_str());
    call
}
