//! The guard: a process that spawns the commands of jobs and kills their process trees in time.
//!
//! A small single-threaded child process, the guard, owns every job process: it spawns them, kills
//! them when their deadline passes, and kills them all when the daemon is gone. This module does not
//! know schedules and stores.
//!
//! # Guarantees
//!
//! - The guard does no name look-ups, no network, no logging, takes no locks and waits for no
//!   other process: a daemon that is stopped, starved or dead does not change the deadlines it has.
//! - Every spawn may carry an absolute deadline on `CLOCK_BOOTTIME`. The tree receives its first
//!   signal one grace before the deadline, and SIGKILL at the deadline. A deadline that has passed
//!   starts nothing and extends nothing.
//! - [`ProcessEvent::Exited`] comes when the main process has ended **and** nothing of its tree is left.
//!   What a main process leaves behind gets a tenth of a second to end by itself (the `tee` of a
//!   pipeline has its last lines to write), then the first signal, the grace, SIGKILL.
//! - Every run has a control group of its own (where systemd delegated one, `Delegate=yes`), or
//!   else a reaper: a small process between guard and command, the sub-reaper of this run alone until
//!   nothing of it is left. Either holds all that descends from the command, whatever that did to its
//!   session, its parent and its environment, and shows when nothing of it is left.
//! - What escaped both (a process moved to another control group, a command that killed its own
//!   reaper) becomes a child of the guard, itself a sub-reaper. Such a process belongs to the run
//!   that its environment names in `CRONLATCH_RUN_ID`, or in whose process group it is; else it
//!   ends as soon as no other run it can come from is left.
//! - If the daemon is gone (its socket closes, however it died), every tree is killed, with a grace of at
//!   most ten seconds and never beyond its deadline; then the guard exits. Processes that have left
//!   the daemon's delegated control group are killed at once, because systemd may kill the guard at
//!   any moment; `cronlatch sweep`, which the unit runs afterwards, kills those that are left.
//! - If the guard is gone, the kernel kills the main processes that are its children (parent-death
//!   signal), each reaper kills its tree, and the daemon, a sub-reaper itself, kills the rest and
//!   reports [`EndedBy::GuardGone`].
//!
//! # Input, output and the terminal
//!
//! With [`Stdio::Capture`] a command leads a process group of its own, reads an empty input and
//! has no terminal. With [`Stdio::Inherit`] under [`Session::Callers`] it behaves as under
//! `flock`: it stays in the caller's session and process group, so that it can read the terminal
//! and that Ctrl-C and Ctrl-Z reach caller and command alike. (While both are stopped nobody
//! renews the lease, so the guard, which is in a group of its own, ends the command at its
//! deadline.) Under [`Session::Own`] it can read the terminal but has no control over it.
//!
//! # Known limits
//!
//! - Guard, daemon and reapers killed together outside systemd: main processes die by their
//!   parent-death signal, descendants that survive their parents live on. (systemd ends the whole
//!   cgroup.)
//! - A program with the setuid bit forgets the parent-death signal, and an unprivileged daemon may
//!   not kill what has become another user: counted in [`Exit::survivors`], not waited for. A
//!   *main* process of that kind is waited for until it ends.
//! - A process in uninterruptible sleep (a dead file server) dies only when it wakes; until then
//!   its run has not ended.
//! - Under systemd, a process that left the control group of the unit, its session and its
//!   environment survives if systemd kills the guard before the guard has seen the daemon's death.
//! - A process that another service manager moves out of the tree (`systemd-run`, `at`, a
//!   container engine) was never a descendant.
//!
//! # Files
//!
//! In the daemon: `launch` starts the guard, `client` is what callers hold, and `service` is the task
//! that talks to the guard. `crowd` decides how many commands of one instant wait for it as processes, and `tasks`
//! finds how many processes there may be. `output` turns bytes into lines, `refusal` explains why a command was not
//! started, `orphans` kills what a dead guard left and `sweep` what a dead unit left.
//!
//! In the guard: `event_loop`, with `event_loop::reaper` for what a reaper does, `event_loop::reapers`
//! for which of them are free, and `event_loop::slots` for how a new one gets its socket.
//!
//! In both: `wire` is the protocol between them and `channel` the socket; `tree` and `cgroup` find
//! processes, and `sys` wraps system calls.

mod cgroup;
mod channel;
mod client;
mod crowd;
mod event_loop;
mod launch;
mod orphans;
mod output;
mod process;
mod programs;
mod refusal;
mod service;
mod sweep;
mod sys;
mod tasks;
mod tree;
mod wire;

pub(crate) use cgroup::{NoCgroup, delegated};
#[cfg(test)]
pub(crate) use client::ScriptedGuard;
pub use client::{Deadlines, Processes, Running, SpawnTurn};
pub use launch::{Guard, GuardOptions, Session};
pub use output::{CUT_MARK, LINE_MAX};
pub use process::{
    Credentials, EndedBy, Exit, Lack, OutputSink, ProcessEvent, Spawn, SpawnError, Status, Stdio,
    Stream, Usage,
};
pub(crate) use programs::Program;
pub(crate) use sweep::{INVOCATION, INVOCATION_OF_RUN, Swept, sweep};
pub(crate) use tasks::{TaskLimit, task_limit, user_limit};

/// Acts as the guard when this process was started as one; `None` when it was not.
///
/// Must be called first thing in `main`, before there are threads.
pub fn guard_main() -> Option<std::process::ExitCode> {
    event_loop::main()
}
