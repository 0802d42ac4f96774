//! Faults that come alone. Most wait for their moment: without the mechanism that each of them is
//! aimed at, two runs of `long` live at once, or one occurrence runs twice.
//!
//! `long` is due each 3.6 s and takes about 5 s, its lease lasts 3 s and is renewed each second.

use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;

use crate::fleet::{self, Fleet, HOSTS};
use crate::list::TTL;
use crate::net::{Party, Way};

/// How long it may be until `long` begins somewhere, in milliseconds.
const PATIENCE: u64 = 9_500;

/// How long after its beginning a run is still one that has just begun, in milliseconds.
const FRESH: i64 = 500;

/// How long a partition lasts: another master is made after some 3 s, another TTL later it grants,
/// and `long` has had its time to run.
const PARTITION: u64 = 11_000;

/// How long no daemon runs.
const DARK: u64 = 8_500;

impl Fleet {
    /// Needs the deadlines of the guard: the daemon does not end its job, and its lease is over
    /// when the job is due again.
    pub(super) fn pause_holder(&self) {
        let Some((host, _)) = self.await_long() else {
            return;
        };
        self.signal(host, Signal::SIGSTOP);
        sleep(TTL.unsigned_abs() + 2_000);
        self.signal(host, Signal::SIGCONT);
    }

    /// Needs `catch_up`: while no daemon runs, each job comes due several times.
    pub(super) fn kill_all(&mut self) {
        for host in 0..HOSTS.len() {
            self.kill(host);
        }
        sleep(DARK);
        for host in 0..HOSTS.len() {
            self.start_host(host);
        }
    }

    /// Needs the wait after a loss: the holder cannot say that it holds anything, and what is due
    /// a second after the loss is granted again.
    pub(super) fn lose_under_holder(&mut self) {
        let Some((host, began)) = self.await_long() else {
            return;
        };
        // It was renewed twice: its lease outlasts the next instant of the job, which in turn is
        // more than a second away, so that the loss does not make it one of which nobody knows.
        sleep_until(began + 2_050);
        self.signal(host, Signal::SIGSTOP);
        self.collect_before_fault();
        // A restart rather than FLUSHALL: the other hosts notice at once, and with them the store.
        let server = &mut self.ground.servers_mut()[0];
        server.stop();
        server.forget_snapshot();
        server.crash_and_restart();
        self.ground.register();
        sleep(2_400);
        self.signal(host, Signal::SIGCONT);
    }

    /// Needs the wait for replicas: the old master alone would grant what the next one grants too.
    pub(super) fn split_holder(&mut self) {
        let Some((host, began)) = self.await_long() else {
            return;
        };
        let Some(master) = self.ground.master() else {
            return;
        };
        sleep_until(began + 2_300);
        self.collect_before_fault();
        self.part(host, master, Way::Late);
        sleep(PARTITION);
        self.part(host, master, Way::Open);
    }

    /// The host and the server on one side, all others on the other.
    fn part(&self, host: usize, server: usize, way: Way) {
        self.isolate(server, way);
        self.keep_to(host, server, way);
        let own = self.ground.doors_of(server);
        for other in (0..HOSTS.len()).filter(|other| *other != host) {
            self.ground.net().set(Party::Host(other), &own, way);
        }
    }

    /// The host on which `long` has just begun, and when; `None` when it does not begin.
    fn await_long(&self) -> Option<(usize, i64)> {
        let patience = Instant::now() + Duration::from_millis(PATIENCE);
        while Instant::now() < patience {
            let fresh = fleet::now() - FRESH;
            let entries = self.log().entries();
            let run = entries
                .iter()
                .find(|run| run.job == "long" && run.start > fresh && !run.ended);
            if let Some(run) = run {
                let host = HOSTS.iter().position(|(name, _)| *name == run.host);
                return Some((host.expect("it is one of ours"), run.start));
            }
            sleep(20);
        }
        None
    }
}

// What is aimed is a matter of time: these are no waits for something to happen.
fn sleep(millis: u64) {
    thread::sleep(Duration::from_millis(millis));
}

fn sleep_until(instant: i64) {
    sleep(u64::try_from(instant - fleet::now()).unwrap_or(0));
}
