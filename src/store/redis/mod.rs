//! The store on Redis or Valkey: on one server, on the master that Sentinels name, or on a Cluster.
//!
//! Every operation is one call of a script, or one for each slot that it concerns. The rules are in
//! `scripts/*.lua`. [`store`] calls them over a [`route`], which finds the server; [`link`] holds
//! the connection to a server and rebuilds it; [`listen`] holds another one that receives messages.

mod barrier;
mod claim;
mod connect;
mod exchange;
mod failure;
mod finish;
mod forget;
mod inspect;
mod keys;
mod link;
mod listen;
mod manual;
pub(super) mod node;
mod presence;
mod reading;
mod record;
mod registry;
mod relocate;
mod reply;
mod route;
mod script;
mod store;
mod teach;
mod unacknowledged;

pub(crate) use inspect::{Inspector, NoAnswer};
pub(crate) use keys::check_raw_in_cluster;
pub(crate) use route::{Layout, layout_of, master_of};
pub(super) use store::RedisStore;

/// How many leases, or jobs, one script takes: longer ones would delay everybody else's.
const BATCH: usize = 500;
