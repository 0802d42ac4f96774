//! Leases: when each ends, and the watchdog thread that renews them.
//!
//! From the bottom up: `lost` is why a lease ends, `table` decides about renewals (pure), `command`
//! is what handles and thread send each other, `handle` is what a holder sees, `renewal_loop` is the
//! loop around the table, and `watchdog` the thread that runs it. Claiming is left to the holders;
//! the thread delivers the releases of what they dropped.

mod command;
mod handle;
mod lost;
mod renewal_loop;
#[doc(hidden)]
pub mod table;
#[cfg(test)]
mod tests;
mod watchdog;

pub(crate) use command::OnDrop;
pub use handle::{Lease, LeaseView};
pub use lost::LeaseLost;
pub use renewal_loop::ExtendRuns;
pub use watchdog::{Guarded, NewLease, Watchdog};
