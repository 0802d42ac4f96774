//! The fleet under test: three daemons, each behind a proxy of its own, and their store.

use std::time::Duration;

use chrono::Utc;
use cronlatch::store::Record;
use nix::sys::signal::Signal;

use crate::checker::{JobRule, Span};
use crate::fault::Fault;
use crate::ground::Ground;
use crate::support::{Daemon, Mode, Proxy, RunLog, cronlatch, wait_for};

/// The hosts and how many milliseconds their clocks are off; hosts that share a file share a clock.
pub(crate) const HOSTS: [(&str, i64); 3] = [("ahead", 700), ("true", 0), ("behind", -1_500)];

/// What the jobs of the list are; the list itself is [`list`].
pub(crate) const JOBS: [JobRule; 5] = [
    rule("beat", "beat", 1_000, 0),
    rule("long", "long", 4_000, 0),
    rule("again", "again", 3_000, 3),
    rule("left", "pair", 2_000, 0),
    rule("right", "pair", 3_000, 0),
];

const fn rule(name: &'static str, lock: &'static str, interval: i64, reruns: u32) -> JobRule {
    JobRule {
        name,
        lock,
        interval,
        reruns,
    }
}

/// The job list. A TTL of 3 s, so that faults of a few seconds lie on both sides of it.
fn list(log: &RunLog) -> String {
    let short = log.job("0.05");
    let half = log.job("0.4");
    let sign = format!(
        "say sign $CRONLATCH_RUN_ID $CRONLATCH_ATTEMPT {}",
        "$(date +%s%3N)"
    );
    let long = format!(
        "{}; for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25; \
         do {sign}; sleep 0.1; done; {}",
        log.begin(),
        RunLog::end()
    );
    format!(
        "history: 100000
defaults:
  lock: {{ ttl: 3s }}
  kill_grace: 200ms
  start_deadline: 1m
jobs:
  - {{ name: beat, every: 1s, on_overlap: wait, command: '{short}' }}
  - {{ name: long, every: 4s, catch_up: all, command: '{long}' }}
  - {{ name: again, every: 3s, on_crash: rerun, command: '{half}' }}
  - {{ name: left, every: 2s, lock: {{ name: pair }}, command: '{half}' }}
  - {{ name: right, every: 3s, lock: {{ name: pair }}, on_overlap: queue, command: '{short}' }}
"
    )
}

#[derive(Debug)]
struct Host {
    /// One for each server that the host is told of; none where servers name one another.
    proxies: Vec<Proxy>,
    daemon: Option<Daemon>,
}

/// The whole of it.
#[derive(Debug)]
pub(crate) struct Fleet {
    hosts: Vec<Host>,
    ground: Ground,
    log: RunLog,
}

/// The true clock, in milliseconds since the epoch.
pub(crate) fn now() -> i64 {
    Utc::now().timestamp_millis()
}

impl Fleet {
    /// Starts the daemons; all are ready, and their clocks are off as said.
    pub(crate) fn start(ground: Ground) -> Self {
        let hosts = HOSTS.map(|_| Host {
            proxies: ground.proxies(),
            daemon: None,
        });
        let mut fleet = Self {
            hosts: Vec::from(hosts),
            ground,
            log: RunLog::new(),
        };
        for host in 0..HOSTS.len() {
            fleet.start_host(host);
        }
        for host in &mut fleet.hosts {
            let daemon = host.daemon.as_mut().expect("it was just started");
            daemon.wait_ready();
        }
        fleet
    }

    pub(crate) fn ground(&self) -> &Ground {
        &self.ground
    }

    pub(crate) fn log(&self) -> &RunLog {
        &self.log
    }

    fn start_host(&mut self, host: usize) {
        let (name, shift) = HOSTS[host];
        let url = self.ground.url(&self.hosts[host].proxies);
        let shift = if self.ground.is_one_machine() {
            0
        } else {
            shift
        };
        let daemon = Daemon::on(name, list(&self.log))
            .store(&url)
            .clock_shifted_by(shift)
            .spawn();
        self.hosts[host].daemon = Some(daemon);
    }

    fn daemon(&self, host: usize) -> &Daemon {
        let daemon = self.hosts[host].daemon.as_ref();
        daemon.expect("a host has one fault at a time")
    }

    fn net(&self, host: usize, mode: Mode) {
        for proxy in &self.hosts[host].proxies {
            proxy.set(mode);
        }
    }

    pub(crate) fn begin(&mut self, fault: Fault) {
        match fault {
            Fault::PauseHost(host) => self.daemon(host).signal(Signal::SIGSTOP),
            Fault::KillHost(host) => {
                // Only the daemon: its guard must see to the rest.
                let daemon = self.hosts[host]
                    .daemon
                    .as_mut()
                    .expect("one fault at a time");
                daemon.kill();
            }
            Fault::RestartHost(host) => self.daemon(host).signal(Signal::SIGTERM),
            Fault::CutOff(host) => self.net(host, Mode::DropAll),
            Fault::LoseReplies(host) => self.net(host, Mode::DropReplies),
            Fault::Refuse(host) => self.net(host, Mode::Refuse),
            Fault::Slow(host) => self.net(host, Mode::Delay(Duration::from_millis(120))),
            Fault::CutReply(host) => self.net(host, Mode::CutReply),
            Fault::PauseServer(at) => self.ground.servers()[at].pause(),
            Fault::KillClients(at) => self.ground.servers()[at].kill_clients(),
            Fault::ForgetScripts(at) => {
                self.ground.servers()[at].command(&["SCRIPT", "FLUSH"]);
            }
            Fault::LoseServer(at) => self.ground.servers_mut()[at].stop(),
        }
    }

    pub(crate) fn end(&mut self, fault: Fault) {
        match fault {
            Fault::PauseHost(host) => self.daemon(host).signal(Signal::SIGCONT),
            Fault::KillHost(host) => self.start_host(host),
            Fault::RestartHost(host) => {
                let daemon = self.hosts[host]
                    .daemon
                    .as_mut()
                    .expect("one fault at a time");
                let exit = daemon.wait_exit();
                assert!(exit.success(), "the drain ended with {exit}");
                self.start_host(host);
            }
            Fault::CutOff(host)
            | Fault::LoseReplies(host)
            | Fault::Refuse(host)
            | Fault::Slow(host)
            | Fault::CutReply(host) => self.net(host, Mode::Pass),
            Fault::PauseServer(at) => self.ground.servers()[at].resume(),
            Fault::KillClients(_) | Fault::ForgetScripts(_) => {}
            Fault::LoseServer(at) => self.ground.servers_mut()[at].lose(),
        }
    }

    /// Waits until each job has a verdict for an occurrence at or after `at`; answers up to
    /// where all are decided.
    pub(crate) fn wait_decided(&self, at: i64) -> i64 {
        wait_for("every job is decided past the faults", || {
            let records = self.history();
            let newest = |job: &JobRule| {
                let of_job = records.iter().filter(|r| r.job.as_str() == job.name);
                of_job
                    .filter_map(|record| record.until.or(record.scheduled_at))
                    .map(cronlatch::time::Timestamp::millis)
                    .max()
            };
            let least = JOBS.iter().map(newest).min()??;
            (least >= at).then_some(least)
        })
    }

    /// Drains every host.
    pub(crate) fn stop(&mut self) {
        for host in &self.hosts {
            host.daemon
                .as_ref()
                .expect("all run")
                .signal(Signal::SIGTERM);
        }
        for host in &mut self.hosts {
            let exit = host.daemon.as_mut().expect("all run").wait_exit();
            assert!(exit.success(), "the drain ended with {exit}");
        }
    }

    /// What the history says of every job.
    pub(crate) fn history(&self) -> Vec<Record> {
        let list = self.daemon(0).list();
        let said = cronlatch(&[
            "history",
            "--json",
            "--limit",
            "100000",
            "--config",
            &list.display().to_string(),
            "--store",
            &self.ground.url(&[]),
        ]);
        if said.code() != 0 {
            // The store may be away for a moment; who waits for something asks again.
            return Vec::new();
        }
        let lines = said.stdout.lines();
        lines
            .map(|line| serde_json::from_str(line).expect("a record a line"))
            .collect()
    }
}

/// What a fault troubles: a span in which nothing is asked of a host, with what follows it.
pub(crate) fn trouble(span: Span) -> Span {
    Span {
        from: span.from - 6_000,
        until: span.until + 6_000,
    }
}
