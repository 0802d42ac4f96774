//! Every policy, without processes, stores and waiting.

mod ahead;
mod bench;
mod catch_up;
mod crash;
mod fleet;
mod order;
mod outage;
mod overlap;
mod pause;
mod places;
mod reload;
mod spread;
mod wrong_clock;
