//! The store on Redis or Valkey: on one server, on the master that Sentinels name, or on a Cluster.
//!
//! Every operation is one call of a script, or one for each slot that it concerns. The rules are in
//! `scripts/*.lua`; [`codec`] writes the calls and reads the replies, [`conn`] connects, [`route`] finds
//! the server, and [`store`] puts these together. [`node`] is one server of several in a majority.

mod codec;
mod conn;
mod failure;
#[doc(hidden)]
pub mod measured;
mod missing_replicas;
pub(super) mod node;
mod route;
mod script;
mod store;

use std::time::Duration;

pub(crate) use codec::keys::check_raw_in_cluster;
pub(crate) use conn::inspect::{Inspector, NoAnswer};
pub(crate) use route::{Layout, layout_of, master_of};
pub(super) use store::RedisStore;

/// How many leases, or jobs, one script takes: longer ones would delay everybody else's.
const BATCH: usize = 500;

/// How long a server may send nothing while a request is in flight.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(1);
