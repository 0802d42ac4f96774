//! Names, time, the timing of leases, tasks, work in parts and sorting. Every part may use this module, and it uses
//! no other part.

pub mod names;
pub(crate) mod parallel;
pub(crate) mod sorting;
pub(crate) mod tasks;
pub mod time;
pub mod timing;

pub use timing::OnLost;
