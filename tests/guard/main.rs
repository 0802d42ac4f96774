//! The guard and its processes: real commands, real signals, real deaths.

mod support;

#[path = "../support/seccomp.rs"]
mod seccomp;

mod basics;
mod cost;
mod deadlines;
mod deaths;
mod files;
mod helper;
mod instants;
mod output;
mod places;
mod reapers;
mod reuse;
mod surroundings;
mod trees;
