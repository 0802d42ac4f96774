//! A reaper that has served a run and serves the next one.

use cronlatch::guard::{Processes, Status};

use crate::reapers::reaper_of;
use crate::support::{finish, shell, with_guard};

/// The output of a script.
async fn output_of(processes: &Processes, script: &str) -> Vec<String> {
    let running = processes.spawn(shell(script)).await.expect("it starts");
    let (lines, exit) = finish(running).await;
    assert_eq!(exit.status, Status::Code(0), "{lines:?}");
    lines
}

/// Fails if what this script changes is not as before for the next run, which prints it.
fn reaches_no_other_run(change: &str, shows: &str) {
    with_guard(async |processes| {
        let before = output_of(&processes, shows).await;
        let changed = reaper_of(&processes, &format!("{change} >/dev/null; echo $PPID")).await;
        assert_eq!(output_of(&processes, shows).await, before);
        assert_ne!(reaper_of(&processes, "echo $PPID").await, changed);
    });
}

#[test]
fn a_priority_that_a_command_gives_its_reaper_reaches_no_other_run() {
    reaches_no_other_run("renice -n 19 -p $PPID", "nice");
}

#[test]
fn an_affinity_that_a_command_gives_its_reaper_reaches_no_other_run() {
    reaches_no_other_run("taskset -p 1 $PPID", "taskset -p $$ | sed 's/.*: //'");
}

#[test]
fn limits_that_a_command_gives_its_reaper_reach_no_other_run() {
    let change = "prlimit --pid $PPID --nofile=8 --fsize=1048576";
    reaches_no_other_run(change, "ulimit -f; ulimit -n");
}

#[test]
fn what_a_command_makes_its_reaper_worth_to_the_oom_killer_reaches_no_other_run() {
    let change = "echo 700 >/proc/$PPID/oom_score_adj;";
    reaches_no_other_run(change, "cat /proc/self/oom_score_adj");
}

#[test]
fn a_run_is_not_charged_with_what_an_earlier_one_has_used() {
    with_guard(async |processes| {
        // `tail` keeps the line that it has not seen the end of.
        let large = "head -c 60000000 /dev/zero | tail -n 1 >/dev/null; echo $PPID";
        let used = async |script: &str| {
            let running = processes.spawn(shell(script)).await.expect("it starts");
            let (lines, exit) = finish(running).await;
            let usage = exit.usage.expect("its reaper knows");
            (lines, usage.peak_memory)
        };
        loop {
            let (reaper, of_large) = used(large).await;
            assert!(of_large > 60_000_000);
            let (same, of_small) = used("echo $PPID").await;
            // On a slow machine the first reaper may have ended meanwhile.
            if reaper == same {
                assert!(of_small < 60_000_000);
                return;
            }
        }
    });
}
