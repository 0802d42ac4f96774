//! The guard and its processes: real commands, real signals, real deaths.

mod support;

mod basics;
mod deadlines;
mod deaths;
mod helper;
mod output;
mod places;
mod surroundings;
mod trees;
