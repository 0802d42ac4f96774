//! The fleet under test: three daemons, their store, and what is done to them.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use chrono::Utc;
use cronlatch::store::Record;
use nix::sys::signal::Signal;

use crate::checker::{Death, JobRule, Sighting, Span, Verdicts};
use crate::fault::JOINS;
use crate::ground::{Ground, Kind};
use crate::list::{self, Jobs, List};
use crate::net::Party;
use crate::support::{Daemon, RunLog, cronlatch, faketime, wait_for};
use crate::watch::Watch;

/// The hosts that are there from the start, and how many milliseconds their clocks are off; hosts that share a file share a clock.
pub(crate) const HOSTS: [(&str, i64); 3] = [("ahead", 700), ("true", 0), ("behind", -1_500)];

/// The same, and the host that joins and leaves ([`JOINS`]).
const ALL_HOSTS: [(&str, i64); 4] = [HOSTS[0], HOSTS[1], HOSTS[2], ("joins", 300)];
const _: () = assert!(ALL_HOSTS.len() == JOINS + 1);

#[derive(Debug, Default)]
struct Host {
    daemon: Option<Daemon>,
    /// What those before it logged.
    logs: String,
    /// How many there were before it.
    starts: usize,
}

/// The whole of it.
#[derive(Debug)]
pub(crate) struct Fleet {
    hosts: Vec<Host>,
    pub(super) ground: Ground,
    jobs: Jobs,
    log: RunLog,
    /// The list, for those who read the history, and the hosts' clocks.
    files: tempfile::TempDir,
    watch: Watch,
    deaths: Vec<Death>,
    /// The servers that are away because they were replicas.
    pub(super) vanished: Vec<usize>,
    /// The panics of commands.
    panicked: Vec<String>,
    /// Every record that was ever read, as it was read last.
    records: BTreeMap<Identity, Record>,
    /// What the newest complete reading said.
    reading: Vec<Record>,
    /// What was read before each fault of the store, and in the end.
    readings: Vec<Vec<Record>>,
    /// When the newest complete reading of the history began.
    read: i64,
    /// What no reading had seen when a fault of the store began.
    unread: Vec<Span>,
}

/// What identifies a record: job, occurrence, run.
type Identity = (String, Option<i64>, Option<String>);

/// The true clock, in milliseconds since the epoch.
pub(crate) fn now() -> i64 {
    Utc::now().timestamp_millis()
}

impl Fleet {
    /// Starts the daemons; all are ready, and their clocks are off as said.
    pub(crate) fn start(ground: Ground, jobs: Jobs) -> Self {
        let mut fleet = Self {
            hosts: ALL_HOSTS.map(|_| Host::default()).into(),
            ground,
            jobs,
            log: RunLog::new(),
            files: tempfile::tempdir().expect("a temporary directory"),
            watch: Watch::default(),
            deaths: Vec::new(),
            vanished: Vec::new(),
            panicked: Vec::new(),
            records: BTreeMap::new(),
            reading: Vec::new(),
            readings: Vec::new(),
            read: now(),
            unread: Vec::new(),
        };
        let list = fleet.list(List::Whole);
        std::fs::write(fleet.files.path().join("jobs.yaml"), list).expect("a writable directory");
        fleet.start_watch();
        for host in 0..HOSTS.len() {
            fleet.start_host(host);
        }
        for host in &mut fleet.hosts[..HOSTS.len()] {
            let daemon = host.daemon.as_mut().expect("it was just started");
            daemon.wait_ready();
        }
        fleet
    }

    fn list(&self, which: List) -> String {
        list::text(&self.ground.section(), &self.jobs, &self.log, which)
    }

    pub(crate) fn jobs(&self) -> &Jobs {
        &self.jobs
    }

    fn start_watch(&mut self) {
        let locks = list::locks(self.ground.kind());
        for (at, server) in self.ground.servers().iter().enumerate() {
            let name = format!("server {at}");
            self.watch
                .redis(&name, server.socket(), self.ground.clocks()[at], &locks);
        }
        if let Some(file) = self.ground.file() {
            self.watch.file(file, &locks);
        }
    }

    pub(crate) fn ground(&self) -> &Ground {
        &self.ground
    }

    pub(crate) fn log(&self) -> &RunLog {
        &self.log
    }

    pub(super) fn start_host(&mut self, host: usize) {
        let (name, shift) = ALL_HOSTS[host];
        // Each start of a host changes its list.
        let which = [List::First, List::Changed][self.hosts[host].starts % 2];
        self.hosts[host].starts += 1;
        // It delivers what the daemon before it has kept.
        let state = self.state_of(host);
        std::fs::create_dir_all(&state).expect("a writable directory");
        let state = state.to_str().expect("UTF-8").to_owned();
        let mut daemon = Daemon::on(name, self.list(which)).env("STATE_DIRECTORY", state);
        if self.ground.kind() != Kind::Sqlite {
            daemon = daemon.clock_shifted_by(shift).clock_in(self.clock(host));
        }
        let daemon = daemon.spawn();
        let net = self.ground.net();
        net.register(daemon.pid(), Party::Host(host));
        self.hosts[host].daemon = Some(daemon);
    }

    /// The state directory of a host.
    fn state_of(&self, host: usize) -> PathBuf {
        let name = ALL_HOSTS[host].0;
        self.files.path().join(format!("state-{name}"))
    }

    fn clock(&self, host: usize) -> PathBuf {
        self.files.path().join(ALL_HOSTS[host].0)
    }

    /// Sets a host's clock so far on from where it usually is.
    pub(super) fn step_clock(&self, host: usize, step: i64) {
        faketime::set(&self.clock(host), ALL_HOSTS[host].1 + step);
    }

    fn daemon(&self, host: usize) -> &Daemon {
        let daemon = self.hosts[host].daemon.as_ref();
        daemon.expect("a host has one fault at a time")
    }

    pub(super) fn signal(&self, host: usize, signal: Signal) {
        self.daemon(host).signal(signal);
    }

    /// Kills the daemon alone: its guard must see to the rest.
    pub(super) fn kill(&mut self, host: usize) {
        let daemon = self.hosts[host].daemon.as_mut();
        daemon.expect("a host has one fault at a time").kill();
        self.bury(host);
    }

    /// Waits until a drain that was asked for is over.
    pub(super) fn await_exit(&mut self, host: usize) {
        let daemon = self.hosts[host].daemon.as_mut();
        let exit = daemon.expect("a host has one fault at a time").wait_exit();
        let ready = self
            .daemon(host)
            .notices()
            .iter()
            .any(|n| n.contains("READY=1"));
        // Before it is ready, the signal may find nobody who has learned to drain yet.
        assert!(exit.success() || !ready, "the drain ended with {exit}");
        self.bury(host);
    }

    /// Notes the death of a daemon, and keeps what it logged.
    fn bury(&mut self, host: usize) {
        let Some(daemon) = self.hosts[host].daemon.take() else {
            return;
        };
        self.deaths.push(Death {
            host: ALL_HOSTS[host].0.to_owned(),
            pid: daemon.pid(),
            at: now(),
        });
        self.hosts[host].logs += &daemon.log();
    }

    /// Waits until each job has a verdict for an occurrence at or after `at`; answers up to
    /// where all are decided.
    pub(crate) fn wait_decided(&mut self, at: i64) -> i64 {
        wait_for("every job is decided past the faults", || {
            self.collect();
            let newest = |job: &JobRule| {
                let of_job = self.records.values().filter(|r| r.job.as_str() == job.name);
                of_job
                    .filter_map(|record| record.until.or(record.scheduled_at))
                    .map(cronlatch::time::Timestamp::millis)
                    .max()
            };
            let read = self
                .jobs
                .rules
                .iter()
                .filter(|job| job.verdicts == Verdicts::All);
            let least = read.map(newest).min()??;
            (least >= at).then_some(least)
        })
    }

    /// Starts and drains the host that joins and leaves once more, if it has left. It delivers the results that it
    /// kept because it could not deliver them before it left.
    pub(crate) fn deliver_kept(&mut self) {
        if self.hosts[JOINS].starts > 0 {
            self.start_host(JOINS);
            let daemon = self.hosts[JOINS].daemon.as_mut();
            daemon.expect("it was just started").wait_ready();
            self.signal(JOINS, Signal::SIGTERM);
            self.await_exit(JOINS);
        }
    }

    /// Drains every host. By now each has delivered all results, also those that it had kept.
    pub(crate) fn stop(&mut self) {
        for host in 0..HOSTS.len() {
            self.signal(host, Signal::SIGTERM);
        }
        for host in 0..HOSTS.len() {
            let daemon = self.hosts[host].daemon.as_mut();
            let exit = daemon.expect("all run").wait_exit();
            assert!(exit.success(), "the drain ended with {exit}");
        }
        let kept = self.kept_results();
        assert!(kept.is_empty(), "not delivered: {kept:#?}");
        wait_for("the history can be read after the drain", || {
            self.collect().then_some(())
        });
        self.keep_reading();
    }

    /// The results that hosts have kept on disk, one a line.
    fn kept_results(&self) -> Vec<String> {
        let states = (0..ALL_HOSTS.len()).map(|host| self.state_of(host));
        let file = self.ground.file();
        let beside = file.as_deref().and_then(Path::parent).map(Path::to_owned);
        // A host that never joined has no directory.
        let dirs = states.chain(beside).filter_map(|dir| dir.read_dir().ok());
        let paths = dirs.flatten().flatten().map(|entry| entry.path());
        let is_spool = |path: &PathBuf| {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            name.starts_with("undelivered-") && name.ends_with(".jsonl")
        };
        let spools = paths.filter(is_spool);
        let texts = spools.map(|path| std::fs::read_to_string(path).expect("a readable file"));
        let lines = texts.map(|text| text.lines().map(str::to_owned).collect::<Vec<_>>());
        lines.flatten().collect()
    }

    fn keep_reading(&mut self) {
        self.readings.push(std::mem::take(&mut self.reading));
    }

    /// Reads the history: what a store has on record now may be lost with its data. Returns whether
    /// the store told all of it.
    pub(crate) fn collect(&mut self) -> bool {
        let began = now();
        let list = self.files.path().join("jobs.yaml");
        let said = cronlatch(&[
            "history",
            "--json",
            "--limit",
            "100000",
            "--config",
            &list.display().to_string(),
        ]);
        if said.stderr.contains("panicked at") {
            self.panicked.push(format!("history: {}", said.stderr));
        }
        if said.code() != 0 {
            // The store may be away for a moment; who waits for something asks again.
            return false;
        }
        let lines = said.stdout.lines();
        let read = |line: &str| serde_json::from_str(line).expect("a record a line");
        self.reading = lines.map(read).collect();
        for record in self.reading.iter().cloned() {
            let run = record.run_id.as_ref().map(|run| run.as_str().to_owned());
            let at = record.scheduled_at.map(cronlatch::time::Timestamp::millis);
            let identity = (record.job.as_str().to_owned(), at, run);
            self.records.insert(identity, record);
        }
        self.read = began;
        true
    }

    /// Reads the history before a fault of the store. While an earlier fault keeps it from being
    /// read, what was recorded since the reading before may be lost unseen.
    pub(super) fn collect_before_fault(&mut self) {
        if self.collect() {
            self.keep_reading();
        } else {
            self.unread.push(Span {
                from: self.read,
                until: now(),
            });
        }
    }

    /// What the history said at once, oldest first.
    pub(crate) fn readings(&mut self) -> Vec<Vec<Record>> {
        std::mem::take(&mut self.readings)
    }

    /// What may have been lost before anybody had read it.
    pub(crate) fn unread(&self) -> &[Span] {
        &self.unread
    }

    /// The panics of the network and of all daemons, guards and commands.
    pub(crate) fn panics(&self) -> Vec<String> {
        let mut panics = self.ground.net().panics();
        for (host, (name, _)) in self.hosts.iter().zip(ALL_HOSTS) {
            let now = host.daemon.as_ref().map(Daemon::log).unwrap_or_default();
            let lines = host.logs.lines().chain(now.lines());
            let panicked = lines.filter(|line| line.contains("panicked at"));
            panics.extend(panicked.map(|line| format!("{name}: {line}")));
        }
        panics.extend_from_slice(&self.panicked);
        panics
    }

    /// What became of it all: the records, what was seen of the locks, and who died.
    pub(crate) fn ended(&mut self) -> (Vec<Record>, Vec<Sighting>, Vec<Death>) {
        (
            self.records.values().cloned().collect(),
            self.watch.end(),
            std::mem::take(&mut self.deaths),
        )
    }

    /// What all daemons logged, host by host, around an instant (by their clocks).
    pub(crate) fn logs_around(&self, at: i64) -> String {
        let mut text = String::new();
        for (host, (name, shift)) in self.hosts.iter().zip(ALL_HOSTS) {
            let now = host.daemon.as_ref().map(Daemon::log).unwrap_or_default();
            text += &format!("--- log of {name} ---\n");
            let near = |line: &&str| {
                faketime::instant_of(line).is_none_or(|written| {
                    let written = written.timestamp_millis() - shift;
                    (at - 10_000..at + 5_000).contains(&written)
                })
            };
            for line in host.logs.lines().chain(now.lines()).filter(near) {
                text += line;
                text.push('\n');
            }
        }
        text
    }
}
