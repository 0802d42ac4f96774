//! What every part may use, and what uses no part itself: names, time, and the rules of a lease.

pub mod names;
pub mod time;
pub mod timing;

pub use timing::OnLost;
