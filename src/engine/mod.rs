//! The daemon: events, decisions, and the loop around them.
//!
//! [`core`] decides, purely; [`daemon`] carries events to it and its actions to tasks;
//! [`finisher`] delivers results to the store, and [`spool`] keeps those that could not be
//! delivered.

mod ahead;
pub(crate) mod core;
pub(crate) mod daemon;
mod finisher;
mod reporter;
mod requests;
pub(crate) mod spool;
mod turns;

/// What decides in a daemon, for the simulated fleets (`tests/simulate`), which bring their own
/// time, store, network and processes.
#[doc(hidden)]
pub mod simulated {
    pub use super::ahead::claims_ahead;
    pub use super::core::{
        Action, ClaimContext, ClaimId, ClaimSpec, Core, DropSpec, Event, JobIx, LaneChange,
        ListedJob, NewList, Now, OccurrenceNotice, Policy,
    };
    pub use super::daemon::{ClockTrust, Epoch, HostClock, StoreClock};
    pub use super::requests::Requests;
    pub use crate::preflight::Offset;
}
