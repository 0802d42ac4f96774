//! The figures of the README, each next to a lower bound measured in the same run.
//!
//! `cargo bench` runs all, `cargo bench -- claim renew` some. Every figure uses a Redis server of
//! its own, on this machine; the ones about the daemon start the optimised binary.

mod burst;
mod claim;
mod crowd;
mod idle;
mod latency;
mod mark;
mod renew;
mod requests;
mod scripts;
mod surroundings;

use std::process::ExitCode;

/// What a figure takes to be measured.
type Measure = fn() -> Result<(), String>;

const FIGURES: [(&str, Measure); 8] = [
    ("claim", claim::measure),
    ("scripts", scripts::measure),
    ("latency", latency::measure),
    ("burst", burst::thousand),
    ("burst-5000", burst::five_thousand),
    ("fleet", burst::fleet),
    ("idle", idle::measure),
    ("renew", renew::measure),
];

fn main() -> ExitCode {
    // First of all: as a job, this program only says when it began.
    if mark::main() {
        return ExitCode::SUCCESS;
    }
    let args: Vec<String> = std::env::args().skip(1).collect();
    if !args.iter().any(|arg| arg == "--bench") {
        say("run me with `cargo bench`");
        return ExitCode::SUCCESS;
    }
    let wanted: Vec<&String> = args.iter().filter(|arg| !arg.starts_with('-')).collect();
    let mut failed = false;
    for (name, measure) in FIGURES {
        if !wanted.is_empty() && wanted.iter().all(|wanted| *wanted != name) {
            continue;
        }
        if let Err(error) = measure() {
            say(&format!("{name}: {error}"));
            failed = true;
        }
    }
    ExitCode::from(u8::from(failed))
}

/// A line for the reader.
#[expect(clippy::print_stdout, reason = "figures are what this program is for")]
fn say(line: &str) {
    println!("{line}");
}
