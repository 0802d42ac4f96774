//! The daemon: events, decisions, and the loop around them.
//!
//! [`core`] decides, purely; [`daemon`] carries events to it and its actions to tasks; [`run`]
//! drives one granted run; [`finisher`] brings verdicts to the store, [`spool`] keeps those that
//! could not be brought.

pub(crate) mod core;
pub(crate) mod daemon;
mod finisher;
mod message;
pub(crate) mod run;
pub(crate) mod spool;
