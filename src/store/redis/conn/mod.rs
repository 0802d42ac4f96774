//! Connections: how a server is connected to and asked, and when a connection is replaced.
//!
//! [`link`] keeps the connection over which scripts run, [`pubsub`] another one that receives messages,
//! and [`barrier`] a third one that waits for replicas.

mod arrival;
pub(super) mod barrier;
pub(super) mod connect;
mod exchange;
pub(super) mod hello;
pub(super) mod inspect;
mod known_scripts;
pub(super) mod link;
pub(super) mod other_encryption;
pub(super) mod presence;
pub(super) mod pubsub;
mod timed;
