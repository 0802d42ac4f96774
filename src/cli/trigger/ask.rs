//! A run in a daemon: which daemon is asked, and what it replies.

use std::collections::BTreeSet;

use crate::cli::Failure;
use crate::cli::nearest::nearest_name;
use crate::cli::pause::known_jobs;
use crate::cli::request::{self, Done, FollowedRun, LinePrinter};
use crate::config::JobList;
use crate::ground::sorting::SortShort as _;
use crate::names::{HostName, JobName, RunId};
use crate::store::{
    DaemonRequest, HostReport, IfPaused, Listing, OutputWish, Record, RequestOrder, Standing,
    Store, retry,
};
use crate::time::Timestamp;

/// A run that is asked of a daemon.
#[derive(Debug)]
pub(super) struct TriggerRequest<'a> {
    pub(super) job: &'a JobName,
    /// The host whose daemon is to run the job; `None`: one that has the job.
    pub(super) on: Option<&'a HostName>,
    pub(super) if_paused: IfPaused,
    pub(super) by: String,
    pub(super) reason: String,
    /// Where its output is printed, if somebody waits for the run.
    pub(super) follow: Option<LinePrinter>,
}

/// What errors of a request name.
#[derive(Debug, Clone, Copy)]
pub(super) struct TriggerContext<'a> {
    /// The list whose jobs they suggest.
    pub(super) list: Option<&'a JobList>,
    /// The store.
    pub(super) store: &'a str,
    /// The host that asks. Its daemon is preferred.
    pub(super) host: &'a HostName,
}

/// A run that was started.
#[derive(Debug)]
pub(super) struct TriggeredRun {
    pub(super) run_id: RunId,
    pub(super) host: HostName,
    pub(super) waited: Waited,
}

/// Whether somebody waited for the end of a run.
#[derive(Debug)]
pub(super) enum Waited {
    No,
    /// To the end: the record.
    Ended(Box<Record>),
    /// Ctrl-C ended the wait; the run continues.
    Interrupted,
}

impl TriggerRequest<'_> {
    /// Has a daemon run the job.
    pub(super) async fn ask(
        &self,
        store: &dyn Store,
        context: TriggerContext<'_>,
    ) -> Result<TriggeredRun, Failure> {
        // A daemon starts nothing then, and does not even take the request.
        if let Some(why) = store.takes_no_writes().await {
            return Err(Failure::Unavailable(format!("nothing was started: {why}")));
        }
        let host = self.choose_host(store, context).await?;
        let output = match self.follow {
            Some(_) => OutputWish::Send,
            None => OutputWish::Keep,
        };
        let request = DaemonRequest {
            id: RunId::new(),
            host: host.clone(),
            order: RequestOrder::Trigger {
                job: self.job.clone(),
                if_paused: self.if_paused,
                output,
            },
            by: self.by.clone(),
            reason: self.reason.clone(),
        };
        let reply = match request::send(store, &request).await? {
            Done::Started(reply) => reply,
            Done::Refused(_, failure) => return Err(failure),
            Done::Signalled(_) => return Err(unexpected(&host)),
        };
        let lock = reply.lock().ok_or_else(|| unexpected(&host))?;
        let run = FollowedRun {
            job: self.job.clone(),
            lock,
            run_id: request.id,
            host,
        };
        let waited = match self.follow {
            // Both are cancel-safe: the run is its daemon's.
            Some(printer) => tokio::select! {
                record = run.follow(store, printer) => Waited::Ended(Box::new(record?)),
                Ok(()) = tokio::signal::ctrl_c() => Waited::Interrupted,
            },
            None => Waited::No,
        };
        Ok(TriggeredRun {
            run_id: run.run_id,
            host: run.host,
            waited,
        })
    }

    /// This host if its daemon has the job. Otherwise one that has it: preferably one that can start jobs now, and
    /// of those the one with the fewest runs.
    async fn choose_host(
        &self,
        store: &dyn Store,
        context: TriggerContext<'_>,
    ) -> Result<HostName, Failure> {
        let here = context.host;
        let live = retry(request::ASKING, || store.peers()).await?;
        if let Some(host) = self.on {
            request::check_live(host, &live)?;
            return Ok(host.clone());
        }
        let names = std::slice::from_ref(self.job);
        let listings = retry(request::ASKING, || store.listings(names)).await?;
        let now = retry(request::ASKING, || store.now()).await?;
        let listing = listings.into_iter().next().unwrap_or_default();
        let has = |report: &&HostReport| has_job(&listing, &report.info.host, now);
        let ready = live.iter().filter(|report| !report.info.draining);
        let mut hosts: Vec<&HostReport> = ready.filter(has).collect();
        hosts.sort_short_by_key(|report| {
            let info = &report.info;
            (info.host != *here, info.lacks.is_some(), info.running)
        });
        if let Some(report) = hosts.first() {
            return Ok(report.info.host.clone());
        }
        if live.is_empty() {
            return Err(Failure::Unavailable(format!(
                "no daemon reports to {}: none is up, or none can write to it; nothing was \
                 started\nhelp: `cronlatch doctor` looks at the store; start a daemon with this \
                 store (`cronlatch run`), or run the job in this process with --here",
                context.store
            )));
        }
        let draining = live.iter().filter(has);
        let draining: Vec<&str> = draining.map(|it| it.info.host.as_str()).collect();
        if !draining.is_empty() {
            return Err(self.all_are_draining(&draining));
        }
        // The daemon of this host may have the job disabled.
        if live.iter().any(|report| report.info.host == *here) {
            return Ok(here.clone());
        }
        Err(self.no_host_has_it(&known_jobs(store, context.list).await?))
    }

    /// The error if each host that has the job is draining.
    fn all_are_draining(&self, draining: &[&str]) -> Failure {
        let are = if draining.len() == 1 { "is" } else { "are" };
        Failure::Usage(format!(
            "no daemon can start job {} now: {} {are} draining; nothing was started\n\
             help: try again when a daemon has started, or run the job in this process with \
             --here",
            self.job,
            draining.join(", ")
        ))
    }

    /// The error if no host that reports has the job. `known` are the jobs whose names it may suggest.
    fn no_host_has_it(&self, known: &BTreeSet<JobName>) -> Failure {
        let job = self.job.as_str();
        let others = known.iter().map(JobName::as_str);
        let nearest = nearest_name(job, others).filter(|_| !known.contains(self.job));
        let mut text = format!(
            "no daemon that reports has job {}; nothing was started\nhelp: ",
            self.job
        );
        text += &match nearest {
            Some(name) => format!("did you mean {name}?"),
            None => {
                "--on HOST asks a host that has the job disabled, and --here runs the job in this \
                     process"
                    .to_owned()
            }
        };
        Failure::Usage(text)
    }
}

/// Whether the list of the host has the job enabled.
fn has_job(listing: &Listing, host: &HostName, now: Timestamp) -> bool {
    let entry = listing.entries.get(host);
    entry.is_some_and(|entry| entry.standing == Standing::Uses && entry.is_listed(now))
}

fn unexpected(host: &HostName) -> Failure {
    Failure::Internal(format!(
        "the daemon of host {host} returned an unexpected reply to a request for a run"
    ))
}
