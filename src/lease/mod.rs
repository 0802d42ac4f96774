//! Leases: the deadline of each, and the watchdog thread that renews them all.
//!
//! `table` decides (pure), `renewal_loop` is the loop around it, `watchdog` the thread and its handle,
//! `handle` what a holder sees. Claiming is left to those who hold; the thread releases what its
//! holder dropped (`finish`).

mod finish;
mod handle;
mod renewal_loop;
#[doc(hidden)]
pub mod table;
#[cfg(test)]
mod tests;
mod watchdog;

pub(crate) use finish::finish_until;
pub use handle::{Lease, LeaseView};
pub(crate) use watchdog::Keepsake;
pub use watchdog::{ExtendRuns, GrantedLease, LeaseLost, Watchdog};
