//! The black-box and fault tests: real daemons, real servers, one binary.

#![expect(clippy::unwrap_used, reason = "a test panics where it fails")]

mod support;

#[path = "../../benches/instructions/counts.rs"]
#[expect(dead_code, reason = "the benchmark uses the rest")]
mod bench_counts;
mod check;
mod cluster;
mod commands;
mod contract;
mod daemon;
mod damage;
mod deploy;
mod docs;
mod doctor;
mod exec;
mod explain;
mod faults;
mod fencing;
mod health;
mod http;
mod import;
mod instructions;
mod json;
mod library;
mod mixed;
mod next;
mod notify;
mod output;
mod packages;
#[path = "../support/acceptor.rs"]
mod plain_acceptor;
mod processes;
mod redis;
mod redlock;
mod shells;
mod soak;
mod sqlite;
mod status;
#[path = "../support/steps.rs"]
#[expect(dead_code, reason = "no test uses all of it")]
mod steps;
mod systemd;
mod terminal;
mod ticker;
mod unlock;
