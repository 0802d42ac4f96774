//! A reaper that has served a run and serves the next one.

use std::time::Duration;

use cronlatch::guard::{Processes, SpawnError, Status};
use cronlatch::time::BootInstant;

use crate::support::{finish, is_alive, reaper_of, shell, signal, wait_until, with_guard};

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

#[test]
fn a_reaper_that_is_stopped_while_it_is_free_serves_on_and_ends() {
    with_guard(async |processes| {
        let reaper = reaper_of(&processes, "echo $PPID").await;
        signal(reaper, libc::SIGSTOP);
        let last = reaper_of(&processes, "echo $PPID").await;
        signal(last, libc::SIGSTOP);
        wait_until("neither is left", || {
            ![reaper, last].into_iter().any(is_alive)
        });
    });
}

/// Whoever traces a process holds it in a way that SIGCONT does not end.
#[test]
fn a_reaper_that_never_reads_its_order_costs_its_run_only() {
    with_guard(async |processes| {
        let reaper = reaper_of(&processes, "echo $PPID").await;
        if !hold(reaper) {
            // It has ended already, or this system does not let processes be traced.
            return;
        }
        let mut spawn = shell("exec sleep 600");
        spawn.deadline = Some(BootInstant::now().plus(Duration::from_millis(300)));
        spawn.grace = Duration::ZERO;
        let asking = processes.clone();
        let waiting = tokio::spawn(async move { asking.spawn(spawn).await });
        // Its parent sees its end after the process that traces it.
        assert_eq!(wait_for(reaper), libc::SIGKILL, "it is killed");
        let refused = waiting.await.expect("no panic");
        assert!(matches!(refused, Err(SpawnError::Killed)), "{refused:?}");
        assert_ne!(reaper_of(&processes, "echo $PPID").await, reaper);
    });
}

fn hold(pid: i32) -> bool {
    // SAFETY: plain integers, and no memory.
    let held = unsafe {
        libc::ptrace(libc::PTRACE_SEIZE, pid, 0, 0) == 0
            && libc::ptrace(libc::PTRACE_INTERRUPT, pid, 0, 0) == 0
    };
    held && {
        wait_for(pid);
        true
    }
}

/// The status of a process that this thread traces.
fn wait_for(pid: i32) -> i32 {
    let mut status = 0;
    // SAFETY: the status goes to a local of the right type.
    let waited = unsafe { libc::waitpid(pid, &raw mut status, libc::__WALL) };
    assert_eq!(waited, pid);
    status
}
