//! Names, time and the timing of leases. Every part may use this module, and it uses no other part.

pub mod names;
pub mod time;
pub mod timing;

pub use timing::OnLost;
