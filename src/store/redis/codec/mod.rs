//! The codec: for each operation, the call of its script and the reading of its reply.
//!
//! One file for each operation. The header of each `scripts/*.lua` describes the same arguments and
//! replies.

pub(super) mod already_claimed;
pub(super) mod attempt;
pub(super) mod begin;
pub(super) mod call;
pub(super) mod claim;
pub(super) mod condition;
pub(super) mod daemon_request;
pub(super) mod fields;
pub(super) mod finish;
pub(super) mod forget;
pub(super) mod history;
pub(super) mod hosts;
pub(super) mod jobs;
pub(super) mod keep;
pub(super) mod keys;
pub(super) mod ledger;
pub(super) mod listed_jobs;
pub(super) mod manual;
pub(super) mod pause;
pub(super) mod record;
pub(super) mod register;
pub(super) mod registry;
pub(super) mod renew;
pub(super) mod reply;
pub(super) mod returned;
pub(super) mod settle;
pub(super) mod summary;
pub(super) mod unacknowledged;
