//! The report of `status`. Field names and their order are an interface (`status --json`).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;

use super::requests::RequestStatus;
use crate::config::Job;
use crate::ground::sorting::SortShort as _;
use crate::names::{HostName, JobName, Token};
use crate::preflight::{NOTABLE, OtherList};
use crate::store::protocol::LEAD;
use crate::store::{
    Condition, Fingerprint, HeldJob, HostReport, JobReport, KeyFault, Kind, ListDifference,
    LockHolder, NodeStanding, OpenRun, Outcome, Pause, Record, Unacknowledged,
};
use crate::time::Timestamp;

/// The whole report.
#[derive(Debug, Serialize)]
pub(in crate::cli) struct StatusReport {
    /// The store, without its password.
    pub(super) store: String,
    /// The store's clock.
    pub(super) now: Timestamp,
    /// The part of the store that is unreachable while the rest is reachable; otherwise omitted.
    /// Jobs kept there are `unreachable`, and so are the hosts if none is shown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(in crate::cli) away: Option<String>,
    /// Why the store takes no writes, so that nothing is claimed. Left out while it takes them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) takes_no_writes: Option<String>,
    /// When it lost data, or was first used without `init`; by its own clock.
    pub(super) lost_data_at: Option<Timestamp>,
    /// The store grants nothing before this, because it may have lost data.
    pub(super) recovering_until: Option<Timestamp>,
    /// Each node of a store with several nodes; otherwise omitted.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) nodes: Vec<NodeStatus>,
    pub(in crate::cli) hosts: Vec<HostStatus>,
    /// The hosts that vanished within a day. Left out when there are none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) vanished: Vec<VanishedHost>,
    pub(in crate::cli) jobs: Vec<JobStatus>,
    /// What people asked of daemons in the last hour, the newest first. Left out when there is nothing.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) requests: Vec<RequestStatus>,
}

/// Until when nothing is granted after a loss of data: the loss plus the longest known TTL.
pub(in crate::cli) fn recovering_until(
    condition: &Condition,
    now: Timestamp,
    jobs: &[Arc<Job>],
) -> Option<Timestamp> {
    let known = now.plus(condition.recovering);
    let longest = jobs
        .iter()
        .map(|job| job.lock.ttl)
        .max()
        .unwrap_or_default();
    let until = condition.lost_at?.plus(longest).max(known);
    (until > now).then_some(until)
}

/// One node among several of which a majority decides.
#[derive(Debug, Serialize)]
pub(super) struct NodeStatus {
    /// Its URL, without its password.
    pub(super) node: String,
    /// `counts`, `new`, `recovering`, `repairing` or `away`.
    pub(super) standing: &'static str,
    /// When it lost its data, if that matters yet; by its own clock.
    pub(super) lost_data_at: Option<Timestamp>,
    /// Until then it does not count, by the store's clock.
    pub(super) recovering_until: Option<Timestamp>,
    /// Of how many jobs of the list it does not know yet.
    pub(super) jobs_left: usize,
    /// Why it cannot be asked.
    pub(super) error: Option<String>,
    /// Its clock less the one that decides what is due; positive when it is ahead. `None` when it
    /// does not reply.
    pub(super) clock_offset_ms: Option<i64>,
    /// That is certainly more than a second.
    #[serde(skip)]
    pub(super) clock_is_off: bool,
    /// The jobs for which it does not count, because it cannot use one of their keys.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) damaged: Vec<NodeDamage>,
}

/// A key of a job that a node cannot use.
#[derive(Debug, Serialize)]
pub(super) struct NodeDamage {
    pub(super) job: String,
    /// `damaged` or `forbidden`.
    pub(super) kind: &'static str,
    pub(super) key: String,
    pub(super) detail: String,
    /// What to do about it.
    pub(super) repair: String,
}

impl NodeDamage {
    fn of((job, fault): &(JobName, KeyFault)) -> Self {
        Self {
            job: job.to_string(),
            kind: fault.kind.word(),
            key: fault.key.clone(),
            detail: fault.detail.to_string(),
            repair: fault.repair_on_node(),
        }
    }
}

impl NodeStatus {
    /// The nodes in the order in which the store names them.
    pub(super) fn all(condition: &Condition, now: Timestamp) -> Vec<Self> {
        condition
            .nodes
            .iter()
            .map(|node| {
                let mut status = Self {
                    node: node.node.clone(),
                    standing: "counts",
                    lost_data_at: None,
                    recovering_until: None,
                    jobs_left: 0,
                    error: None,
                    clock_offset_ms: node.clock.map(|clock| clock.offset_ms),
                    clock_is_off: node.clock.is_some_and(|clock| clock.exceeds(NOTABLE)),
                    damaged: node.unusable.iter().map(NodeDamage::of).collect(),
                };
                match &node.standing {
                    NodeStanding::Counts => {}
                    NodeStanding::New => status.standing = "new",
                    NodeStanding::Recovering { lost_at, remaining } => {
                        status.standing = "recovering";
                        status.lost_data_at = Some(*lost_at);
                        status.recovering_until = Some(now.plus(*remaining));
                    }
                    NodeStanding::Repairing { lost_at, jobs } => {
                        status.standing = "repairing";
                        status.lost_data_at = Some(*lost_at);
                        status.jobs_left = *jobs;
                    }
                    NodeStanding::Away { error } => {
                        status.standing = "away";
                        status.error = Some(error.clone());
                    }
                }
                status
            })
            .collect()
    }

    /// Whether it can be one of the majority that grants something.
    pub(super) fn counts(&self) -> bool {
        matches!(self.standing, "counts" | "repairing")
    }
}

/// A host whose daemon announced itself.
#[derive(Debug, Serialize)]
pub(in crate::cli) struct HostStatus {
    pub(super) name: String,
    pub(super) version: String,
    pub(super) pid: u32,
    /// How many runs it has in progress.
    pub(super) running: usize,
    pub(super) draining: bool,
    /// What it has run out of, so that it starts no jobs.
    pub(super) lacks: Option<String>,
    /// Why it claims nothing: another store is in use for its jobs. Left out while it
    /// claims.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) waits: Option<String>,
    /// Why it claims nothing that is due: its clock is too far from the store's. Left out while it claims.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) clock_wrong: Option<String>,
    /// Another live daemon that announces itself under the same name. Left out when there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) namesake: Option<String>,
    /// Jobs of which it claims nothing while other hosts use another lock. Left out when there are
    /// none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) held_back: Vec<HeldJob>,
    /// By its own clock.
    pub(super) started_at: Timestamp,
    /// How long it was up when it last reported. Earlier versions did not report it.
    #[serde(skip)]
    pub(super) up: Option<Duration>,
    /// By the store's clock.
    pub(super) seen_at: Timestamp,
    /// Its clock less the store's, when it last measured that; positive when it is ahead.
    pub(super) clock_offset_ms: Option<i64>,
    /// The fingerprint of its job list.
    pub(super) config: String,
    /// Its list is not the one given here; with none given here: hosts differ among themselves.
    pub(super) config_differs: bool,
    /// The jobs that differ. Left out if the list does not differ, or the store does not have its jobs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) differing_jobs: Option<DifferingJobs>,
}

/// How many names of each kind are listed.
const NAMES_LISTED: usize = 100;

/// The jobs in which a host's list differs from the one that it is compared with.
#[derive(Debug, Serialize)]
pub(super) struct DifferingJobs {
    /// Jobs that only the host's list has.
    pub(super) added: Vec<String>,
    /// Jobs that both have, with different definitions.
    pub(super) changed: Vec<String>,
    /// Jobs that the host's list lacks.
    pub(super) missing: Vec<String>,
    /// How many more there are: each list has at most a hundred names.
    pub(super) more: usize,
    /// The same for people.
    #[serde(skip)]
    pub(super) text: String,
}

impl DifferingJobs {
    fn of(difference: ListDifference) -> Self {
        let text = difference.text();
        let mut more = 0;
        let mut listed = |mut jobs: Vec<String>| {
            more += jobs.len().saturating_sub(NAMES_LISTED);
            jobs.truncate(NAMES_LISTED);
            jobs
        };
        let [added, changed, missing] =
            [difference.added, difference.changed, difference.missing].map(&mut listed);
        Self {
            added,
            changed,
            missing,
            more,
            text,
        }
    }
}

/// A host whose daemon reported, and neither does any more nor has stopped in an orderly way.
#[derive(Debug, Serialize)]
pub(super) struct VanishedHost {
    pub(super) name: String,
    pub(super) version: String,
    /// When it last reported, by the store's clock.
    pub(super) seen_at: Timestamp,
}

impl VanishedHost {
    pub(super) fn of(report: &HostReport) -> Self {
        Self {
            name: report.info.host.to_string(),
            version: report.info.version.clone(),
            seen_at: report.seen_at,
        }
    }
}

impl HostStatus {
    /// How long it has been up, whatever its clock shows.
    pub(super) fn up_at(&self, now: Timestamp) -> Duration {
        match self.up {
            Some(up) => up + now.since(self.seen_at),
            None => now.since(self.started_at),
        }
    }

    /// The hosts by name, each compared with this command's own list, if it has one.
    pub(super) fn all(
        hosts: &[HostReport],
        config: Option<&Fingerprint>,
        others: Vec<OtherList>,
    ) -> Vec<Self> {
        let differences = others
            .into_iter()
            .filter_map(|it| Some((it.host, it.difference?)));
        let mut differences: BTreeMap<HostName, ListDifference> = differences.collect();
        let lists: BTreeSet<_> = hosts.iter().map(|host| &host.info.config).collect();
        let differs = |theirs: &Fingerprint| match config {
            Some(ours) => theirs != ours,
            None => lists.len() > 1,
        };
        let mut all: Vec<_> = hosts
            .iter()
            .map(|HostReport { info, seen_at }| Self {
                name: info.host.to_string(),
                version: info.version.clone(),
                pid: info.pid,
                running: info.running,
                draining: info.draining,
                lacks: info.lacks.clone(),
                waits: info.waits.clone(),
                clock_wrong: info.clock_wrong.clone(),
                up: info.up,
                namesake: info.namesake.clone(),
                held_back: info.held_back.clone(),
                started_at: info.started_at,
                seen_at: *seen_at,
                clock_offset_ms: info.clock_offset_ms,
                config: info.config.0.to_string(),
                config_differs: differs(&info.config),
                differing_jobs: differences.remove(&info.host).map(DifferingJobs::of),
            })
            .collect();
        all.sort_short_by(|a, b| a.name.cmp(&b.name));
        all
    }
}

/// A job of the list.
#[derive(Debug, Serialize)]
pub(in crate::cli) struct JobStatus {
    pub(in crate::cli) name: String,
    pub(super) enabled: bool,
    /// There are live hosts, and `hosts` of the job matches none of them. Left out when it matches one.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(super) matches_no_host: bool,
    /// Those of its `hosts` that match neither a live host nor one that vanished within a day, while others
    /// match. Left out when there are none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) unmatched_hosts: Vec<String>,
    /// The next occurrence of its schedule.
    pub(super) next_at: Option<Timestamp>,
    /// The part of the store that keeps it does not reply, so what follows is not known. Left out
    /// when it does.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(super) unreachable: bool,
    /// A key of the job cannot be used, and the job does not run until it is repaired. Left out
    /// when all is well.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) damaged: Option<DamageStatus>,
    /// Too few replicas acknowledge its claims, so nothing of it starts. Left out when all is well.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) unacknowledged: Option<UnacknowledgedStatus>,
    /// The pause that is in force. Left out without one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) paused: Option<PauseStatus>,
    /// Its open run.
    pub(super) running: Option<RunningStatus>,
    /// The occurrences that the ledger has accepted and that are still to run, in that order.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) waiting: Vec<WaitingStatus>,
    /// How far the ledger is ahead of the store's clock, which was wrong once: until the clock has
    /// caught up, nothing of the job runs. Left out when all is well.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) ledger_ahead_ms: Option<u64>,
    /// The newest record, without output.
    pub(super) last: Option<Record>,
    /// The last run that succeeded, without output.
    pub(super) last_success: Option<Record>,
    /// The last run that failed, timed out, lost its lease or was interrupted, without output.
    pub(super) last_failure: Option<Record>,
    /// The newest outcomes, oldest first.
    pub(super) recent: Vec<Outcome>,
    /// Since when it is overdue: it has not succeeded for longer than `expect_success_within`. Left out
    /// when it is not, or when it has not succeeded yet.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) overdue_since: Option<Timestamp>,
    /// Up to here its occurrences are decided; `None` for a job no daemon has seen yet.
    pub(super) decided_until: Option<Timestamp>,
    /// Who holds its lock; `None` when it is free.
    pub(super) lock: Option<LockStatus>,
    /// The last fencing token given out.
    pub(super) fence: u64,
    /// The same for each host, if each host has the occurrences for itself (`scope: host` or `none`).
    /// What is above is then that of the host that the command names. Left out for other jobs.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) on_hosts: Vec<JobOnHost>,
}

/// A job on one of the hosts that have its occurrences for themselves.
#[derive(Debug, Serialize)]
pub(in crate::cli) struct JobOnHost {
    pub(super) host: String,
    /// Its daemon reports.
    pub(super) live: bool,
    #[serde(flatten)]
    pub(super) job: JobStatus,
}

/// An occurrence that waits: for the lock, or to be run again.
#[derive(Debug, Serialize)]
pub(super) struct WaitingStatus {
    pub(super) scheduled_at: Timestamp,
    /// How its run will be recorded: `queue`, `catch_up`, `rerun` or `schedule`.
    pub(super) kind: Kind,
    /// When it is too late to start it.
    pub(super) deadline: Timestamp,
}

/// A pause: nothing of the job starts.
#[derive(Debug, Serialize)]
pub(super) struct PauseStatus {
    pub(super) since: Timestamp,
    /// When it ends by itself; `None` until somebody resumes the job.
    pub(super) until: Option<Timestamp>,
    /// Who paused the job.
    pub(super) by: String,
    /// Why; empty if no reason was given.
    pub(super) reason: String,
}

impl PauseStatus {
    fn of(pause: &Pause) -> Self {
        Self {
            since: pause.since,
            until: pause.until,
            by: pause.by.clone(),
            reason: pause.reason.clone(),
        }
    }
}

/// A key that cannot be used.
#[derive(Debug, Serialize)]
pub(super) struct DamageStatus {
    pub(super) key: String,
    /// `damaged` or `forbidden`.
    pub(super) kind: &'static str,
    /// What was found.
    pub(super) detail: String,
    /// What a person can do about it.
    pub(super) repair: String,
}

/// Claims that too few replicas acknowledged (`wait_replicas`).
#[derive(Debug, Serialize)]
pub(super) struct UnacknowledgedStatus {
    /// Whose replicas they are.
    pub(super) server: String,
    /// How many replicas acknowledged the newest claim.
    pub(super) acknowledged: u32,
    /// How many must.
    pub(super) wanted: u32,
    /// The first occurrence that was not granted.
    pub(super) since: Timestamp,
    /// When the newest claim was returned, by the store's clock.
    pub(super) at: Timestamp,
}

/// An open run.
#[derive(Debug, Serialize)]
pub(in crate::cli) struct RunningStatus {
    pub(super) host: String,
    pub(super) run_id: String,
    pub(super) scheduled_at: Option<Timestamp>,
    pub(super) started_at: Timestamp,
    pub(super) attempt: u32,
    /// How long its lease lasts unless renewed.
    pub(super) lease_remaining_ms: u64,
    /// Its lease is over, and nobody has settled it yet: its host is gone.
    pub(super) orphaned: bool,
    /// Replicas have not acknowledged its claim yet, as they did not the one before: it has not
    /// started. Left out once they have.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(super) unacknowledged: bool,
}

/// A lock that is held.
#[derive(Debug, Serialize)]
pub(super) struct LockStatus {
    /// The host, or what another program wrote.
    pub(super) held_by: String,
    /// The value of the key; a token of cronlatch without its random part.
    pub(super) value: String,
    /// How long it lasts unless renewed.
    pub(super) remaining_ms: Option<u64>,
    /// It never ends by itself: a person must look at it.
    pub(super) without_ttl: bool,
    /// Not by the job's own open run: another job, `exec`, or another program.
    pub(super) by_another: bool,
}

impl JobStatus {
    /// What the list and the store know of a job; without a report the store cannot be asked, or a
    /// key of the job cannot be used.
    pub(super) fn new(
        job: &Job,
        (report, fault): (Option<&JobReport>, Option<&KeyFault>),
        now: Timestamp,
    ) -> Self {
        let summary = report.map(|report| report.summary.clone());
        let summary = summary.unwrap_or_default();
        let open = report.and_then(|report| report.open.as_ref());
        let short = report.and_then(|report| report.unacknowledged.as_ref());
        let holder = report.and_then(|report| report.holder.as_ref());
        let lock = holder.map(|holder| LockStatus::of(holder, open));
        Self {
            name: job.name.to_string(),
            enabled: job.enabled,
            matches_no_host: false,
            unmatched_hosts: Vec::new(),
            next_at: job.enabled.then(|| job.schedule.next_after(now)).flatten(),
            unreachable: report.is_none() && fault.is_none(),
            damaged: fault.map(|fault| DamageStatus {
                key: fault.key.clone(),
                kind: fault.kind.word(),
                detail: fault.detail.to_string(),
                repair: fault.repair(Some(job.name.as_str())),
            }),
            unacknowledged: short.map(UnacknowledgedStatus::of),
            paused: report
                .and_then(|report| report.pauses.last())
                .filter(|pause| pause.is_in_force(now))
                .map(PauseStatus::of),
            running: open.map(|open| RunningStatus::of(open, short)),
            waiting: (report.iter().flat_map(|report| &report.waiting))
                .map(|head| WaitingStatus {
                    scheduled_at: head.scheduled_at,
                    kind: head.kind,
                    deadline: head.deadline,
                })
                .collect(),
            ledger_ahead_ms: report
                .and_then(|report| report.last)
                .filter(|last| *last > now.plus(LEAD))
                .map(|last| millis(last.since(now))),
            last: summary.newest,
            overdue_since: overdue_since(job, summary.last_success.as_ref(), now),
            last_success: summary.last_success,
            last_failure: summary.failures.into_iter().next(),
            recent: summary.recent.iter().map(|it| it.outcome).collect(),
            decided_until: report.and_then(|report| report.last),
            lock,
            fence: report.map_or(0, |report| report.fence),
            on_hosts: Vec::new(),
        }
    }

    /// Its open runs, on all hosts.
    pub(in crate::cli) fn runs(&self) -> Vec<&RunningStatus> {
        if self.on_hosts.is_empty() {
            return self.running.iter().collect();
        }
        let hosts = self.on_hosts.iter();
        hosts.filter_map(|it| it.job.running.as_ref()).collect()
    }
}

impl UnacknowledgedStatus {
    fn of(short: &Unacknowledged) -> Self {
        Self {
            server: short.server.clone(),
            acknowledged: short.acknowledged,
            wanted: short.wanted,
            since: short.since,
            at: short.at,
        }
    }
}

impl RunningStatus {
    fn of(open: &OpenRun, short: Option<&Unacknowledged>) -> Self {
        Self {
            host: open.by.clone(),
            run_id: open.run_id.to_string(),
            scheduled_at: open.scheduled_at,
            started_at: open.started_at,
            attempt: open.attempt,
            lease_remaining_ms: millis(open.remaining),
            orphaned: open.remaining.is_zero(),
            unacknowledged: (short.zip(open.scheduled_at))
                .is_some_and(|(short, at)| short.since <= at),
        }
    }
}

impl LockStatus {
    fn of(holder: &LockHolder, open: Option<&OpenRun>) -> Self {
        Self {
            held_by: holder.by.clone(),
            value: Token::from_text(&holder.value).redacted(),
            remaining_ms: holder.remaining.map(millis),
            without_ttl: holder.remaining.is_none(),
            by_another: !open.is_some_and(|open| names(&holder.value, open)),
        }
    }
}

/// Since when a job has not succeeded as often as its list expects.
fn overdue_since(job: &Job, success: Option<&Record>, now: Timestamp) -> Option<Timestamp> {
    let due = success?
        .finished_at?
        .plus(job.alerts.expect_success_within?);
    (job.enabled && due < now).then_some(due)
}

/// Whether the token is the run's.
fn names(token: &str, open: &OpenRun) -> bool {
    token.split(':').any(|part| part == open.run_id.as_str())
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
