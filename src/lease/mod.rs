//! Leases: the deadline of each, and the watchdog thread that renews them all.
//!
//! `book` decides (pure), `rounds` is the loop around it, `watchdog` the thread and its handle,
//! `handle` what a holder sees. Claiming and releasing is left to those who hold.

mod book;
mod handle;
mod rounds;
#[cfg(test)]
mod tests;
pub mod timing;
mod watchdog;

pub use handle::{Lease, LeaseView};
pub use watchdog::{Held, LeaseLost, Watchdog};
