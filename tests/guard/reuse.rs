//! A reaper that has served a run and serves the next one.

use std::time::Duration;

use cronlatch::guard::{Processes, SpawnError, Status};
use cronlatch::time::BootInstant;
use nix::errno::Errno;
use nix::sys::signal::Signal;
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;

use crate::places::new_cgroup;
use crate::support::{
    finish, guard, is_alive, on_runtime, reaper_of, shell, signal, wait_until, with_guard,
};

/// The output of a script.
async fn output_of(processes: &Processes, script: &str) -> Vec<String> {
    let running = processes.spawn(shell(script)).await.expect("it starts");
    let (lines, exit) = finish(running).await;
    assert_eq!(exit.status, Status::Code(0), "{lines:?}");
    lines
}

/// Fails if what this command changes is not as before for the next run, which prints it.
fn reaches_no_other_run(change: &str, shows: &str) {
    with_guard(async |processes| {
        let before = output_of(&processes, shows).await;
        // Its exit code is that of the command.
        let changed = reaper_of(&processes, &format!("echo $PPID; {change} >/dev/null")).await;
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
    let change = "echo 700 | tee /proc/$PPID/oom_score_adj";
    reaches_no_other_run(change, "cat /proc/self/oom_score_adj");
}

#[test]
fn a_control_group_that_a_command_moves_its_reaper_to_reaches_no_other_run() {
    let Some(group) = new_cgroup("reaper") else {
        eprintln!("not run: this process may not make a control group of version 2");
        return;
    };
    let change = format!("echo $PPID | tee {}/cgroup.procs", group.display());
    reaches_no_other_run(&change, "cat /proc/self/cgroup");
    wait_until("it can be removed", || std::fs::remove_dir(&group).is_ok());
}

/// A session keyring holds credentials.
#[test]
fn a_session_keyring_that_a_command_gives_its_reaper_reaches_no_other_run() {
    if let Err(errno) = keyctl(GET_KEYRING_ID, SESSION_KEYRING) {
        eprintln!("not run: no process has a session keyring here ({errno})");
        return;
    }
    let this = std::env::current_exe().expect("this binary");
    let command = |does| {
        let test = "--exact reuse::a_command_that_uses_keyrings --ignored --nocapture";
        format!("env {KEYRING}={does} '{}' {test}", this.display())
    };
    // The keyring goes to the parent of the process, so no shell may be in between.
    let change = format!("exec {}", command("give"));
    reaches_no_other_run(&change, &format!("{} | grep ^keyring", command("show")));
}

const KEYRING: &str = "GUARD_TEST_KEYRING";

// What `keyctl(2)` calls so.
const GET_KEYRING_ID: libc::c_int = 0;
const JOIN_SESSION_KEYRING: libc::c_int = 1;
const SESSION_TO_PARENT: libc::c_int = 18;
const SESSION_KEYRING: libc::c_int = -3;

fn keyctl(operation: libc::c_int, argument: libc::c_int) -> Result<libc::c_long, Errno> {
    // SAFETY: plain integers; 0 is a keyring without a name.
    Errno::result(unsafe { libc::syscall(libc::SYS_keyctl, operation, argument, 0) })
}

#[test]
#[ignore = "not a test: a command that another test starts"]
fn a_command_that_uses_keyrings() {
    match std::env::var(KEYRING).as_deref() {
        Ok("give") => {
            keyctl(JOIN_SESSION_KEYRING, 0).expect("a new keyring");
            keyctl(SESSION_TO_PARENT, 0).expect("its parent may have it");
        }
        Ok("show") => {
            let keyring = keyctl(GET_KEYRING_ID, SESSION_KEYRING).expect("it has one");
            println!("\nkeyring {keyring}");
        }
        _ => {}
    }
}

#[test]
fn a_reaper_serves_long_and_short_orders_one_after_another() {
    with_guard(async |processes| {
        let reaper_of_long = async |length: usize| {
            let mut spawn = shell("echo $PPID ${#LONG}");
            spawn.env.insert("LONG".into(), "x".repeat(length).into());
            let running = processes.spawn(spawn).await.expect("it starts");
            let (lines, _) = finish(running).await;
            let (reaper, found) = lines[0].split_once(' ').expect("two numbers");
            assert_eq!(found, length.to_string());
            reaper.to_owned()
        };
        loop {
            let first = reaper_of_long(100_000).await;
            let others = [
                reaper_of_long(10).await,
                reaper_of_long(20_000).await,
                reaper_of_long(110_000).await,
            ];
            // On a slow machine one may have ended meanwhile.
            if others.iter().all(|reaper| *reaper == first) {
                return;
            }
        }
    });
}

#[test]
fn a_guard_whose_priority_was_changed_uses_its_reapers_again() {
    on_runtime(async {
        let guard = guard();
        let pid = guard.pid();
        let processes = guard.serve().expect("on a runtime");
        // SAFETY: plain integers.
        let changed = unsafe { libc::setpriority(libc::PRIO_PROCESS, pid, 5) };
        assert_eq!(changed, 0);
        let reaper = async || reaper_of(&processes, "echo $PPID").await;
        while reaper().await != reaper().await {}
        assert_ne!(reaper().await, pid.cast_signed(), "it has no control group");
        assert_eq!(output_of(&processes, "nice").await, ["5"]);
    });
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
        let (reaper, refused) = loop {
            let reaper = reaper_of(&processes, "echo $PPID").await;
            if !hold(reaper) {
                continue;
            }
            let mut spawn = shell("exec sleep 600");
            spawn.deadline = Some(BootInstant::now().plus(Duration::from_millis(300)));
            spawn.grace = Duration::ZERO;
            let asking = processes.clone();
            let asked = tokio::spawn(async move { asking.spawn(spawn).await.map(finish) });
            // Its parent sees its end after the process that traces it.
            let mut end = None;
            wait_until("it is killed, or another one has the order", || {
                end = next_status(reaper);
                end.is_some() || asked.is_finished()
            });
            match (end, asked.await.expect("no panic")) {
                (Some(WaitStatus::Signaled(_, Signal::SIGKILL, _)), Err(refused)) => {
                    break (reaper, refused);
                }
                // It had been free for so long, on a slow machine, that it was to end.
                (None, Ok(exit)) => {
                    trace(libc::PTRACE_DETACH, reaper).expect("it is held");
                    exit.await;
                }
                (end, _) => panic!("its end is {end:?}"),
            }
        };
        assert!(matches!(refused, SpawnError::Killed), "{refused:?}");
        assert_ne!(reaper_of(&processes, "echo $PPID").await, reaper);
    });
}

/// Stops a process that is free. Returns false if it has ended before, as it does after a while.
fn hold(pid: i32) -> bool {
    match trace(libc::PTRACE_SEIZE, pid) {
        Ok(()) => {}
        Err(Errno::ESRCH) => return false,
        Err(errno) => panic!("only ptrace can hold a reaper, and this system refuses it: {errno}"),
    }
    // If that comes too late, the status is its end.
    let _ = trace(libc::PTRACE_INTERRUPT, pid);
    let mut status = None;
    wait_until("it is held", || {
        status = next_status(pid);
        status.is_some()
    });
    matches!(status, Some(WaitStatus::PtraceEvent(..)))
}

fn trace(request: libc::c_uint, pid: i32) -> Result<(), Errno> {
    // SAFETY: plain integers, and no memory.
    Errno::result(unsafe { libc::ptrace(request, pid, 0, 0) }).map(drop)
}

/// What has become of a process that this thread traces, if that is news.
fn next_status(pid: i32) -> Option<WaitStatus> {
    let flags = WaitPidFlag::__WALL | WaitPidFlag::WNOHANG;
    let status = waitpid(Pid::from_raw(pid), Some(flags)).expect("this thread traces it");
    Some(status).filter(|status| *status != WaitStatus::StillAlive)
}
