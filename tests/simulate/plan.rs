//! What a simulated fleet is made of and what happens to it: everything that a run depends on.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use chrono_tz::Tz;
use cronlatch::config::{
    self, CatchUp, Job, JobPolicies, KillPlan, LockPolicy, OnCrash, OnLost, OnOverlap, OnStoreDown,
    Retry, Scope,
};
use cronlatch::names::{JobName, LockName};
use cronlatch::schedule::Schedule;
use cronlatch::store::Fingerprint;

use crate::chance;

/// A whole schedule of events. Two runs of one plan are the same to the millisecond.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Plan {
    /// Feeds every random choice that is left to the run: delays, durations, exit codes.
    pub(crate) seed: u64,
    /// The instant at which the simulation begins, in milliseconds since the epoch.
    pub(crate) start: i64,
    pub(crate) store: StoreKind,
    pub(crate) hosts: Vec<HostPlan>,
    /// The versions of the job list; acts say which host starts with which.
    pub(crate) lists: Vec<ListPlan>,
    /// What happens when, in milliseconds after the beginning, ascending.
    pub(crate) acts: Vec<(i64, Act)>,
    /// Nothing is done to the fleet from here on.
    pub(crate) calm: i64,
    /// The simulation ends here.
    pub(crate) end: i64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StoreKind {
    /// One server that may lose its data.
    Redis,
    /// A file that hosts on one machine share.
    Sqlite,
    /// So many independent servers, of which a majority decides.
    Quorum(usize),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct HostPlan {
    /// The host's wall clock less the true time, in milliseconds.
    pub(crate) offset: i64,
    /// The longest time that a message takes one way, in milliseconds.
    pub(crate) latency: i64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ListPlan {
    pub(crate) jobs: Vec<JobPlan>,
    pub(crate) max_running: Option<usize>,
    /// In milliseconds.
    pub(crate) spread: i64,
    /// In milliseconds.
    pub(crate) drain_timeout: i64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum When {
    /// Milliseconds between occurrences.
    Every(i64),
    Cron(&'static str, Tz),
}

/// One job; durations in milliseconds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct JobPlan {
    pub(crate) name: String,
    pub(crate) when: When,
    pub(crate) jitter: i64,
    pub(crate) ttl: i64,
    pub(crate) lock: Option<String>,
    pub(crate) scope: Scope,
    pub(crate) on_overlap: OnOverlap,
    pub(crate) start_deadline: i64,
    pub(crate) catch_up: CatchUp,
    pub(crate) catch_up_window: i64,
    pub(crate) on_crash: OnCrash,
    pub(crate) on_lost: OnLost,
    pub(crate) on_store_down: OnStoreDown,
    pub(crate) timeout: Option<i64>,
    /// Attempts in all, and the delay before the second.
    pub(crate) retry: Option<(u32, i64)>,
    pub(crate) enabled: bool,
    /// The hosts that may run it; empty means all.
    pub(crate) hosts: Vec<usize>,
    /// The shortest and the longest time that an attempt takes.
    pub(crate) work: (i64, i64),
    /// How many attempts of a hundred fail.
    pub(crate) fails: i64,
    /// Ends at SIGKILL alone.
    pub(crate) stubborn: bool,
}

/// What is done to the fleet; durations in milliseconds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Act {
    /// The daemon starts with a version of the list, unless it runs.
    Start { host: usize, list: usize },
    /// SIGTERM; the daemon starts again once it has ended, if a list is given.
    Drain { host: usize, then: Option<usize> },
    /// SIGHUP to the daemon, with this list.
    Reload { host: usize, list: usize },
    /// SIGKILL to the daemon; its guard ends the jobs.
    Kill { host: usize },
    /// The machine loses its power.
    Crash { host: usize },
    /// SIGSTOP to the daemon; guard and jobs go on.
    Pause { host: usize, lasts: i64 },
    /// The machine is suspended.
    Suspend { host: usize, lasts: i64 },
    /// The wall clock is stepped.
    Step { host: usize, by: i64 },
    /// Nothing passes between the host and the store.
    Cut { host: usize, lasts: i64 },
    /// Messages of the host are lost, late or repeated, so many of a hundred each.
    Net {
        host: usize,
        lasts: i64,
        loss: i64,
        late: i64,
        copies: i64,
    },
    /// The store is away; what is sent to it is refused at once, or unanswered.
    StoreDown { lasts: i64, refuses: bool },
    /// The store is paused; requests that were sent in the meantime are executed afterwards.
    StoreFreeze { lasts: i64 },
    /// The server starts again without its data.
    StoreWipe,
    /// The server writes its data down.
    StoreSnapshot,
    /// The server starts again from what was last written down, or from nothing.
    StoreRestore,
    /// The replica of the server receives nothing more from it.
    ReplicaStops,
    /// The server is gone for good, and its replica takes over with what it has.
    Failover,
    /// The host of a run is cut off, and at once the store loses its data: the run's lease cannot
    /// be renewed, and the store does not know of it. Looks for such a run for a while.
    LossUnderHolder { lasts: i64, left: Left },
    /// Each request takes the store so many microseconds, one after the other.
    StoreSlow { lasts: i64, each: i64 },
    /// Another program writes the key of a lock, whether or not it is held.
    Seize { lock: String, key: ForeignKey },
    /// Another program deletes that key.
    Unseize { lock: String },
    /// The machine lacks the resources to start processes.
    Short { host: usize, lasts: i64 },
    /// Something is done to one of several nodes.
    Node { node: usize, how: NodeAct },
    /// A person runs `trigger`.
    Trigger { host: usize, job: String },
    /// A person pauses a job, or resumes it; of a job with a ledger on each host, on this one.
    Order {
        host: usize,
        job: String,
        order: JobOrder,
    },
    /// SIGKILL to the `trigger` that runs longest, and to its guard's jobs.
    KillTrigger { host: usize },
}

/// What a person asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum JobOrder {
    /// A pause; it ends by itself after so many milliseconds.
    Pause {
        lasts: Option<i64>,
    },
    Resume,
    /// A pause that was asked for so many milliseconds ago, and was late on its way.
    LatePause {
        by: i64,
    },
}

/// What a store has left after a loss of data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Left {
    Nothing,
    /// What was last written down.
    Saved,
    /// What its replica has.
    Replica,
}

/// What another program writes into the key of a lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ForeignKey {
    /// Milliseconds; `None`: the key has no end.
    pub(crate) ttl: Option<i64>,
    /// No string, such as a hash.
    pub(crate) other_type: bool,
}

/// How long the host of a run is looked for, in milliseconds.
pub(crate) const LOOKS_FOR: i64 = 8_000;

/// The longest lead of a host, in milliseconds.
const LONGEST_LEAD: u64 = 50;
/// The largest step by which it grows with each job of an instant, in milliseconds.
const LONGEST_LEAD_IN_A_CROWD: u64 = 300;

impl Plan {
    /// The longest TTL of all lists, in milliseconds.
    pub(crate) fn longest_ttl(&self) -> i64 {
        let jobs = self.lists.iter().flat_map(|list| &list.jobs);
        jobs.map(|job| job.ttl).max().unwrap_or(0).max(1_000)
    }

    /// How long before their instants hosts claim, in milliseconds.
    pub(crate) fn lead(&self) -> i64 {
        let draw = chance::hash(&[&self.seed.to_be_bytes(), b"lead"]);
        i64::try_from(draw % (LONGEST_LEAD + 1)).unwrap_or(0)
    }

    /// How much earlier than that a host claims for each further job that shares an instant, in milliseconds.
    pub(crate) fn lead_in_a_crowd(&self) -> i64 {
        let draw = chance::hash(&[&self.seed.to_be_bytes(), b"crowd"]);
        i64::try_from(draw % (LONGEST_LEAD_IN_A_CROWD + 1)).unwrap_or(0)
    }

    /// Whether a loss of data under a holder comes between grant and instant of its run.
    pub(crate) fn loses_before_the_instant(&self) -> bool {
        self.lead() >= 10 && self.lead() % 2 == 0
    }
}

impl Act {
    /// The host that it happens to; `None` for the store.
    pub(crate) fn host(&self) -> Option<usize> {
        match self {
            Self::Start { host, .. }
            | Self::Drain { host, .. }
            | Self::Reload { host, .. }
            | Self::Kill { host }
            | Self::Crash { host }
            | Self::Pause { host, .. }
            | Self::Suspend { host, .. }
            | Self::Step { host, .. }
            | Self::Cut { host, .. }
            | Self::Net { host, .. }
            | Self::Trigger { host, .. }
            | Self::Order { host, .. }
            | Self::Short { host, .. }
            | Self::KillTrigger { host } => Some(*host),
            Self::StoreDown { .. }
            | Self::StoreFreeze { .. }
            | Self::StoreWipe
            | Self::StoreSnapshot
            | Self::StoreRestore
            | Self::ReplicaStops
            | Self::Failover
            | Self::LossUnderHolder { .. }
            | Self::StoreSlow { .. }
            | Self::Seize { .. }
            | Self::Unseize { .. }
            | Self::Node { .. } => None,
        }
    }

    /// How long it lasts.
    pub(crate) fn lasts(&self) -> i64 {
        match self {
            Self::Pause { lasts, .. }
            | Self::Suspend { lasts, .. }
            | Self::Cut { lasts, .. }
            | Self::Net { lasts, .. }
            | Self::StoreDown { lasts, .. }
            | Self::StoreSlow { lasts, .. }
            | Self::Short { lasts, .. }
            | Self::StoreFreeze { lasts } => *lasts,
            Self::LossUnderHolder { lasts, .. } => lasts + LOOKS_FOR,
            Self::Seize { key, .. } => key.ttl.unwrap_or(0),
            Self::Node { how, .. } => how.lasts(),
            _ => 0,
        }
    }
}

/// What is done to one of several nodes; durations in milliseconds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum NodeAct {
    Down {
        lasts: i64,
        refuses: bool,
    },
    Freeze {
        lasts: i64,
    },
    /// It starts again, with all its data.
    Restart,
    /// It starts again without its data.
    Wipe,
    /// It writes its data down.
    Snapshot,
    /// It starts again from what was last written down, or from nothing.
    Restore,
    /// Its clock is so far from the true time.
    Clock {
        offset: i64,
    },
    /// Nothing passes between it and a host.
    Cut {
        host: usize,
        lasts: i64,
    },
}

impl NodeAct {
    /// How long it lasts.
    pub(crate) fn lasts(&self) -> i64 {
        match self {
            Self::Down { lasts, .. } | Self::Freeze { lasts } | Self::Cut { lasts, .. } => *lasts,
            _ => 0,
        }
    }
}

/// Milliseconds as a duration.
pub(crate) fn millis(n: i64) -> Duration {
    Duration::from_millis(u64::try_from(n).unwrap_or(0))
}

/// The name of a host.
pub(crate) fn host_name(host: usize) -> String {
    format!("host-{host}")
}

impl JobPlan {
    /// Every field as a list has it that names only a schedule, but for a short TTL.
    pub(crate) fn plain(name: &str, every: i64) -> Self {
        Self {
            name: name.to_owned(),
            when: When::Every(every),
            jitter: 0,
            ttl: 3_000,
            lock: None,
            scope: Scope::Fleet,
            on_overlap: OnOverlap::Skip,
            start_deadline: 300_000,
            catch_up: CatchUp::Latest,
            catch_up_window: 3_600_000,
            on_crash: OnCrash::Ignore,
            on_lost: OnLost::Kill,
            on_store_down: OnStoreDown::Wait,
            timeout: None,
            retry: None,
            enabled: true,
            hosts: Vec::new(),
            work: (100, 100),
            fails: 0,
            stubborn: false,
        }
    }

    /// What the config module takes for the name of its lock.
    pub(crate) fn lock_name(&self) -> &str {
        let shared = self.lock.as_ref().filter(|_| self.scope != Scope::None);
        shared.unwrap_or(&self.name)
    }

    pub(crate) fn schedule(&self) -> Schedule {
        match &self.when {
            When::Every(period) => Schedule::every(millis(*period)).expect("a period of seconds"),
            When::Cron(text, zone) => Schedule::cron(text, *zone).expect("an expression"),
        }
    }

    fn policies(&self) -> JobPolicies {
        let usual = &template().policies;
        let hosts = self.hosts.iter().map(|host| host_name(*host)).collect();
        JobPolicies {
            on_overlap: self.on_overlap,
            start_deadline: millis(self.start_deadline),
            catch_up: self.catch_up,
            catch_up_window: millis(self.catch_up_window),
            on_crash: self.on_crash,
            on_lost: self.on_lost,
            on_store_down: self.on_store_down,
            timeout: self.timeout.map(millis),
            kill: KillPlan {
                grace: millis(self.ttl) / 4,
                ..usual.kill
            },
            retry: self.retry.map(|(attempts, delay)| Retry {
                attempts,
                delay: millis(delay),
                max_delay: millis(delay * 4),
                jitter: false,
            }),
            success_exit_codes: usual.success_exit_codes.clone(),
            hosts: config::HostPatterns(hosts),
        }
    }

    /// The job as the config module would make it.
    pub(crate) fn job(&self) -> Job {
        let schedule = self.schedule();
        let lock = self.lock_name();
        let mut job = Job {
            name: JobName::parse(&self.name).expect("a name"),
            jitter: millis(self.jitter),
            lock: LockPolicy {
                name: LockName::parse(lock).expect("a name"),
                is_named: self.lock.is_some(),
                key: None,
                scope: self.scope,
                ttl: millis(self.ttl),
            },
            policies: self.policies().into(),
            enabled: self.enabled,
            schedule,
            ..template().clone()
        };
        let delay = job.delay().as_millis();
        let instants = format!("{} {} {delay}", job.schedule, job.schedule.zone());
        job.fingerprint = Fingerprint(instants.into());
        job
    }
}

/// A job with every field at its default, read from a list once.
fn template() -> &'static Job {
    static TEMPLATE: OnceLock<Arc<Job>> = OnceLock::new();
    TEMPLATE.get_or_init(|| {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("jobs.yaml");
        let text = "jobs:\n  - { name: job, every: 5s, command: 'true' }\n";
        std::fs::write(&path, text).expect("it can be written");
        let mut list = config::load(&path).expect("the list is right");
        list.jobs.remove(0)
    })
}
