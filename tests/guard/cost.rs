//! What a run costs: `cargo test --release --test guard cost -- --ignored --nocapture`.
//!
//! `GUARD_PROGRAM` names another program to be the guard, to compare two versions.

use std::time::{Duration, Instant};

use cronlatch::guard::{GuardOptions, Processes};

use crate::support::{children, command, finish, on_runtime};

const RUNS: usize = 1000;

#[test]
#[ignore = "prints figures"]
fn memory_and_latency_of_a_run() {
    on_runtime(async {
        let default = env!("CARGO_BIN_EXE_cronlatch");
        let program = std::env::var("GUARD_PROGRAM").unwrap_or_else(|_| default.to_owned());
        let guard = GuardOptions::default().program(program).start();
        let guard = guard.expect("it starts");
        let pid = guard.pid().cast_signed();
        let processes = guard.serve().expect("on a runtime");
        println!("start of one run, median: {:?}", latency(&processes).await);
        for round in 1..=3 {
            let begin = Instant::now();
            let mut all = tokio::task::JoinSet::new();
            for _ in 0..RUNS {
                let processes = processes.clone();
                all.spawn(async move { processes.spawn(command(&["sleep", "600"])).await });
            }
            let runs = all.join_all().await;
            println!(
                "{round}: {RUNS} at once, the last started after {:?}",
                begin.elapsed()
            );
            let reapers = children(pid);
            let reapers: Vec<i32> = reapers.into_iter().filter(|pid| is_reaper(*pid)).collect();
            let sum: u64 = reapers.iter().map(|pid| proportional_kib(*pid)).sum();
            println!(
                "   {} reapers with {} KiB each (PSS); the guard has {} KiB",
                reapers.len(),
                sum.checked_div(reapers.len() as u64).unwrap_or(0),
                proportional_kib(pid),
            );
            let begin = Instant::now();
            for run in &runs {
                run.as_ref().expect("it starts").end();
            }
            for run in runs {
                finish(run.expect("it started")).await;
            }
            println!("   all ended after {:?}", begin.elapsed());
        }
    });
}

async fn latency(processes: &Processes) -> Duration {
    let mut all = Vec::new();
    for _ in 0..300 {
        let begin = Instant::now();
        let run = processes
            .spawn(command(&["true"]))
            .await
            .expect("it starts");
        all.push(begin.elapsed());
        finish(run).await;
    }
    all.sort();
    all[all.len() / 2]
}

fn is_reaper(pid: i32) -> bool {
    let name = std::fs::read_to_string(format!("/proc/{pid}/comm"));
    name.is_ok_and(|name| name.trim() == "cronlatch-run")
}

fn proportional_kib(pid: i32) -> u64 {
    let rollup = std::fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).unwrap_or_default();
    let line = rollup.lines().find_map(|line| line.strip_prefix("Pss:"));
    let number = line.and_then(|line| line.trim().strip_suffix("kB")?.trim().parse().ok());
    number.unwrap_or(0)
}
