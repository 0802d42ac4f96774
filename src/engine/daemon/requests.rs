//! Requests of people, which reach the daemon through the store: a run of a job now, or the end of runs.
//!
//! The daemon takes a request in the store before it acts, so that no request is acted on twice: not by
//! two daemons, not by the next daemon of this host, and not if it arrives twice. A request that was
//! taken by a daemon that then died is lost, and the command that asked reports that.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use nix::sys::signal::Signal;

use super::Daemon;
use super::agreement::Agreement;
use super::message::ClaimedByRequest;
use super::request_tasks::send_output;
use super::runs::{DaemonRun, RunOrigin};
use crate::config::Job;
use crate::ground::tasks;
use crate::names::{HostName, JobName, RunId};
use crate::notify::RunBegan;
use crate::observe::run_log;
use crate::run::{Cause, ManualClaim, RunControl, RunOrder, Tools};
use crate::store::{
    DaemonRequest, FiledRequest, IfPaused, OutputWish, RefusalKind, RequestOrder, RequestReply,
};

/// A job of the list that this host does not schedule.
#[derive(Debug)]
pub(super) enum UnscheduledJob {
    /// It is disabled, and may be run by hand.
    Disabled(Arc<Job>),
    /// It is for other hosts: the globs of its `hosts`.
    OfOthers(Vec<String>),
}

/// The jobs of the list that this host does not schedule.
#[derive(Debug, Default)]
pub(super) struct UnscheduledJobs(HashMap<JobName, UnscheduledJob>);

impl UnscheduledJobs {
    /// Separates them from the jobs that the host schedules.
    pub(super) fn apart(list: Vec<Arc<Job>>, host: &HostName) -> (Vec<Arc<Job>>, Self) {
        let (mut scheduled, mut others) = (Vec::new(), HashMap::new());
        for job in list {
            if !job.policies.hosts.matches(host) {
                let hosts = UnscheduledJob::OfOthers(job.policies.hosts.0.clone());
                others.insert(job.name.clone(), hosts);
            } else if job.enabled {
                scheduled.push(job);
            } else {
                let name = job.name.clone();
                others.insert(name, UnscheduledJob::Disabled(job));
            }
        }
        (scheduled, Self(others))
    }

    /// Why this host does not schedule a job, if the list has it.
    pub(super) fn get(&self, job: &JobName) -> Option<&UnscheduledJob> {
        self.0.get(job)
    }

    /// The scheduled jobs and those that may be run by hand: what becomes of a run is reported for both.
    pub(super) fn with_scheduled(&self, scheduled: &[Arc<Job>]) -> Vec<Arc<Job>> {
        let disabled = self.0.values().filter_map(|job| match job {
            UnscheduledJob::Disabled(job) => Some(Arc::clone(job)),
            UnscheduledJob::OfOthers(_) => None,
        });
        scheduled.iter().cloned().chain(disabled).collect()
    }
}

/// What this daemon has done with requests.
#[derive(Debug)]
pub(super) struct ReceivedRequests {
    /// What may be run by hand, and why the rest may not, beside the scheduled jobs.
    unscheduled: UnscheduledJobs,
    /// Those that it has tried to take.
    seen: HashSet<RunId>,
    /// How many runs are being claimed.
    claiming: usize,
}

impl ReceivedRequests {
    /// No requests yet, for a list with these jobs beside the scheduled ones.
    pub(super) fn of(unscheduled: UnscheduledJobs) -> Self {
        Self {
            unscheduled,
            seen: HashSet::new(),
            claiming: 0,
        }
    }

    /// How many jobs of the list this host does not schedule.
    pub(super) fn unscheduled_jobs(&self) -> usize {
        self.unscheduled.0.len()
    }

    /// A new list is in force.
    pub(super) fn relist(&mut self, unscheduled: UnscheduledJobs) -> UnscheduledJobs {
        std::mem::replace(&mut self.unscheduled, unscheduled)
    }

    /// The jobs of the list that this host does not schedule.
    pub(super) fn unscheduled(&self) -> &UnscheduledJobs {
        &self.unscheduled
    }

    /// Whether a run that somebody asked for is being claimed.
    pub(super) fn is_claiming(&self) -> bool {
        self.claiming > 0
    }
}

/// Why nothing is done, for the one who asked.
struct Refusal(RefusalKind, String);

/// What was asked, and by whom.
fn described(request: &DaemonRequest) -> String {
    let by = &request.by;
    match &request.order {
        RequestOrder::Trigger { job, .. } => format!("`trigger {job}` of {by}"),
        RequestOrder::Kill { job, .. } => format!("`kill {job}` of {by}"),
        RequestOrder::Note { .. } => format!("a note of {by}"),
    }
}

impl Daemon {
    /// Takes the requests that it has not seen yet.
    pub(super) fn requests_found(&mut self, filed: Vec<FiledRequest>) {
        let listed: HashSet<&RunId> = filed.iter().map(|it| &it.id).collect();
        self.requests.seen.retain(|id| listed.contains(id));
        let new = |it: &FiledRequest| !it.taken && !it.left.is_zero();
        for filed in filed.into_iter().filter(new) {
            if self.requests.seen.insert(filed.id.clone()) {
                tasks::spawn(self.link.clone().take_request(filed));
            }
        }
    }

    /// Does what was asked. The request is taken: nobody else acts on it.
    pub(super) fn request_taken(&mut self, id: RunId, request: Option<DaemonRequest>) {
        let asked = request
            .as_ref()
            .map_or_else(|| "a request".to_owned(), described);
        let done = match request {
            None => Err(Refusal(
                RefusalKind::Unknown,
                format!(
                    "the daemon of {} (version {}) does not understand this request, which another \
                     version of cronlatch made; nothing was done",
                    self.host,
                    env!("CARGO_PKG_VERSION")
                ),
            )),
            Some(request) => self.do_request(request),
        };
        let reply = match done {
            Ok(None) => return,
            Ok(Some(reply)) => reply,
            Err(Refusal(kind, reason)) => {
                let (host, line) = (&self.host, first_line(&reason));
                tracing::warn!(%host, request = %id, "refused {asked}: {line}");
                RequestReply::Refused { kind, reason }
            }
        };
        self.reply_to(id, reply);
    }

    fn reply_to(&self, id: RunId, reply: RequestReply) {
        tasks::spawn(self.link.clone().reply_to_request(id, reply));
    }

    fn do_request(&mut self, request: DaemonRequest) -> Result<Option<RequestReply>, Refusal> {
        let cause = Cause {
            by: request.by.clone(),
            reason: request.reason.clone(),
        };
        match request.order {
            RequestOrder::Trigger {
                job,
                if_paused,
                output,
            } => {
                let claim = self.manual_claim(&job, (request.id, if_paused), cause)?;
                self.requests.claiming += 1;
                tasks::spawn(self.link.clone().claim_by_request(claim, output));
                Ok(None)
            }
            RequestOrder::Kill { job, run, signal } => {
                let runs = self.order_runs(&job, run.as_ref(), (signal.as_deref(), cause))?;
                Ok(Some(RequestReply::Signalled { runs }))
            }
            // It is addressed to no host.
            RequestOrder::Note { .. } => Ok(None),
        }
    }

    fn manual_claim(
        &self,
        name: &JobName,
        (run_id, if_paused): (RunId, IfPaused),
        cause: Cause,
    ) -> Result<ManualClaim, Refusal> {
        let host = &self.host;
        let busy = |why: String| {
            let reason = format!("job {name}: {why}; nothing was started");
            Err(Refusal(RefusalKind::Busy, reason))
        };
        if self.shutdown.is_some() {
            return busy(format!("the daemon of {host} is draining"));
        }
        if let Agreement::Waits(_) = &self.agreement {
            return busy(format!(
                "another store is in use for the jobs of {host}, so its daemon starts nothing"
            ));
        }
        if let Some(lack) = self.resources.lack() {
            return busy(format!("host {host} lacks {lack} to start jobs"));
        }
        let scheduled = self.names.get(name).and_then(|place| self.jobs.get(place));
        let job = match (scheduled, self.requests.unscheduled.0.get(name)) {
            (Some(job), _) | (None, Some(UnscheduledJob::Disabled(job))) => Arc::clone(job),
            (None, Some(UnscheduledJob::OfOthers(hosts))) => {
                let hosts = hosts.join(", ");
                return Err(Refusal(
                    RefusalKind::Unknown,
                    format!("job {name} is not for host {host}: its hosts are {hosts}"),
                ));
            }
            (None, None) => {
                return Err(Refusal(
                    RefusalKind::Unknown,
                    format!("the job list of host {host} has no job {name}"),
                ));
            }
        };
        Ok(ManualClaim {
            job,
            host: host.clone(),
            run_id,
            if_paused,
            keep: self.settings.history,
            cause,
        })
    }

    /// A run that somebody asked for was claimed: starts it, or reports why not.
    pub(super) fn claimed_by_request(&mut self, claimed: ClaimedByRequest) {
        self.requests.claiming -= 1;
        let assignment = match claimed.claimed {
            Ok(assignment) if self.shutdown.is_none() => assignment,
            Ok(assignment) => {
                self.deliver(Some(assignment.finish(None, self.settings.history)));
                let host = &self.host;
                let job = &assignment.job.name;
                let reason =
                    format!("job {job}: the daemon of {host} is draining; nothing was started");
                let kind = RefusalKind::Busy;
                return self.reply_to(claimed.request, RequestReply::Refused { kind, reason });
            }
            Err(refusal) => {
                if let RequestReply::Refused { reason, .. } = &refusal {
                    let (host, reason) = (&self.host, first_line(reason));
                    let asked = &claimed.asked;
                    tracing::warn!(%host, request = %claimed.request, "refused {asked}: {reason}");
                }
                return self.reply_to(claimed.request, refusal);
            }
        };
        let fields = assignment.fields();
        if let Some(cause) = &assignment.cause {
            run_log!(info, fields, "triggered by {cause}");
        }
        let (lock, _) = assignment.lock_and_token();
        self.reply_to(claimed.request, RequestReply::started(lock));
        let watch = self.link.reporter.notifier.watch(RunBegan {
            job: assignment.job.name.clone(),
            run_id: assignment.run_id().clone(),
            scheduled_at: None,
        });
        let tools = Tools {
            starts: self.tools.starts.of_run(watch),
            ..self.tools.clone()
        };
        let mut control = RunControl::of(self.stop.subscribe());
        if claimed.output == OutputWish::Send {
            let (followed, lines) = control.with_follower();
            control = followed;
            let store = Arc::clone(&self.link.store);
            tasks::spawn(send_output(store, assignment.run_id().clone(), lines));
        }
        let run = DaemonRun {
            origin: RunOrigin::Request,
            assignment,
        };
        self.runs.start(run, tools, control);
    }

    /// Has runs of a job killed or signalled. Returns which ones.
    fn order_runs(
        &self,
        job: &JobName,
        run: Option<&RunId>,
        (signal, cause): (Option<&str>, Cause),
    ) -> Result<Vec<RunId>, Refusal> {
        let unknown = |reason: String| Err(Refusal(RefusalKind::Unknown, reason));
        let cause = Arc::new(cause);
        let order = match signal {
            None => RunOrder::Kill(cause),
            Some(name) => match format!("SIG{name}").parse::<Signal>() {
                Ok(signal) => RunOrder::Signal(signal, cause),
                Err(_) => {
                    return unknown(format!("host {} knows no signal {name}", self.host));
                }
            },
        };
        let runs = self.runs.order(job, run, &order);
        if !runs.is_empty() {
            return Ok(runs);
        }
        let host = &self.host;
        unknown(match run {
            Some(run) => format!(
                "the daemon of {host} has no run {run} of job {job} in progress: it has just \
                 ended, or `trigger --here` runs it"
            ),
            None => format!("the daemon of {host} has no run of job {job} in progress"),
        })
    }
}

/// Returns what happened without the help below it, which is for the one who asked.
fn first_line(reason: &str) -> &str {
    reason.lines().next().unwrap_or_default()
}
