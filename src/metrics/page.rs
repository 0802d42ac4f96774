//! Writes a page of metrics.

use std::sync::Arc;
use std::sync::PoisonError;
use std::time::Duration;

use tokio::sync::Mutex;
use tokio::time::{Instant, timeout_at};

use super::catalog;
use super::text::{PageText, TextFormat};
use super::{DaemonGauges, ListState, Metrics, Readiness, StoreReachability};
use crate::config::Job;
use crate::names::HostName;
use crate::store::{JobReport, Lock, Store, StoreError};
use crate::time::Timestamp;

/// How long the store may take. A scraper waits for ten seconds.
const READ_LIMIT: Duration = Duration::from_secs(3);
/// How long a reading of the store is used again, so that several scrapers cost one reading.
const FRESH: Duration = Duration::from_secs(5);

/// Makes pages.
#[derive(Debug)]
pub(crate) struct MetricsPage {
    metrics: Metrics,
    host: HostName,
    store: Arc<dyn Store>,
    fleet: Mutex<Option<(Instant, Arc<FleetReading>)>>,
}

/// What the store knows of the jobs, as far as it could be read.
#[derive(Debug, Default)]
struct FleetReading {
    /// Whether all of it could be read.
    is_whole: bool,
    jobs: Vec<(Arc<Job>, JobReport)>,
    hosts: Option<usize>,
}

impl MetricsPage {
    pub(crate) fn new(metrics: Metrics, host: HostName, store: Arc<dyn Store>) -> Self {
        Self {
            metrics,
            host,
            store,
            fleet: Mutex::new(None),
        }
    }

    /// Returns the page. If the store does not reply within a few seconds, what it knows is left out.
    pub(crate) async fn text(&self, format: TextFormat) -> String {
        let fleet = self.fleet().await;
        let mut page = PageText::new(format);
        let shared = &self.metrics.0;
        page.family(&catalog::BUILD_INFO)
            .count(&[("version", env!("CARGO_PKG_VERSION"))], 1);
        let daemon = shared.daemon.lock().unwrap_or_else(PoisonError::into_inner);
        let daemon = daemon.clone();
        if let Some(daemon) = &daemon {
            write_daemon(&mut page, daemon);
        }
        let jobs = u64::try_from(shared.jobs.len()).unwrap_or(u64::MAX);
        page.family(&catalog::JOBS).count(&[], jobs);
        self.write_runs(&mut page);
        self.write_store(&mut page);
        write_fleet(&mut page, &fleet, Timestamp::now());
        page.finish()
    }

    fn write_runs(&self, page: &mut PageText) {
        let shared = &self.metrics.0;
        let series = shared.jobs.series();
        let mut family = page.family(&catalog::IN_PROGRESS);
        for (job, series) in &series {
            let running = &series.in_progress;
            let running = running.load(std::sync::atomic::Ordering::Relaxed);
            family.count(&[("job_name", job)], running);
        }
        page.family(&catalog::LATENESS)
            .histogram(&[], &shared.lateness.read());
        let mut family = page.family(&catalog::RUN_DURATION);
        for (job, series) in &series {
            let durations = series.durations();
            if durations.count > 0 {
                family.summary(&[("job_name", job)], durations);
            }
        }
        let mut family = page.family(&catalog::VERDICTS);
        for (job, series) in &series {
            for (outcome, count) in series.verdicts() {
                family.count(&[("job_name", job), ("outcome", outcome)], count);
            }
        }
    }

    fn write_store(&self, page: &mut PageText) {
        let shared = &self.metrics.0;
        let mut family = page.family(&catalog::CLAIMS);
        for (reply, count) in shared.claims.read() {
            family.count(&[("reply", reply)], count);
        }
        let mut family = page.family(&catalog::RENEWALS);
        for (reply, count) in shared.renewals.read() {
            family.count(&[("reply", reply)], count);
        }
        let mut family = page.family(&catalog::LEASES_LOST);
        for (reason, count) in shared.losses.read() {
            family.count(&[("reason", reason)], count);
        }
        let mut family = page.family(&catalog::STORE_REQUESTS);
        for operation in &shared.requests {
            let labels = [("operation", operation.name)];
            family.histogram(&labels, &operation.latency.read());
        }
        let mut family = page.family(&catalog::STORE_ERRORS);
        for operation in &shared.requests {
            for (error, count) in operation.errors.read() {
                let labels = [("operation", operation.name), ("error", error)];
                family.count(&labels, count);
            }
        }
    }

    /// Returns what the store knows, read within the last few seconds.
    async fn fleet(&self) -> Arc<FleetReading> {
        let mut last = self.fleet.lock().await;
        if let Some((at, reading)) = &*last
            && at.elapsed() < FRESH
        {
            return Arc::clone(reading);
        }
        let mut reading = FleetReading::default();
        let until = Instant::now() + READ_LIMIT;
        // What was read before the limit counts.
        if timeout_at(until, self.read(&mut reading)).await.is_err() {
            reading.is_whole = false;
        }
        let reading = Arc::new(reading);
        *last = Some((Instant::now(), Arc::clone(&reading)));
        reading
    }

    async fn read(&self, reading: &mut FleetReading) {
        let listed = self.metrics.0.jobs.listed();
        let asked = |job: &Arc<Job>| (job.name.clone(), job.lock_on(&self.host));
        let wanted: Vec<(_, Lock)> = listed.iter().map(asked).collect();
        match self.store.jobs(&wanted).await {
            Ok(reports) => {
                reading.is_whole = true;
                reading.jobs = listed.into_iter().zip(reports).collect();
            }
            // The keys of one job, or one server, cannot be used: each is asked for alone.
            Err(StoreError::Key(_) | StoreError::PartUnreachable(_)) => {
                for (job, wanted) in listed.into_iter().zip(wanted) {
                    let report = self.store.jobs(std::slice::from_ref(&wanted)).await;
                    let report = report.ok().and_then(|mut reports| reports.pop());
                    reading.jobs.extend(report.map(|report| (job, report)));
                }
            }
            Err(error) => tracing::debug!("cannot read the store for metrics: {error}"),
        }
        if let Ok(hosts) = self.store.hosts().await {
            reading.hosts = Some(hosts.len());
        }
    }
}

fn write_daemon(page: &mut PageText, daemon: &DaemonGauges) {
    page.family(&catalog::START_TIME)
        .value(&[], seconds(daemon.started_at));
    page.family(&catalog::READY)
        .flag(&[], daemon.readiness == Readiness::Ready);
    page.family(&catalog::DRAINING)
        .flag(&[], daemon.readiness == Readiness::Draining);
    page.family(&catalog::STORE_UP)
        .flag(&[], daemon.store == StoreReachability::Up);
    if let Some(offset) = daemon.clock_offset_ms {
        let offset = Timestamp::from_millis(offset);
        page.family(&catalog::CLOCK_OFFSET)
            .value(&[], seconds(offset));
    }
    page.family(&catalog::LIST_INFO)
        .count(&[("fingerprint", &daemon.list.0)], 1);
    page.family(&catalog::LIST_REJECTED)
        .flag(&[], daemon.newest_list == ListState::Rejected);
    page.family(&catalog::JOBS_WITH_UNUSABLE_KEYS)
        .count(&[], daemon.unusable_keys as u64);
    page.family(&catalog::JOBS_HELD_BACK)
        .count(&[], daemon.held_back as u64);
}

fn write_fleet(page: &mut PageText, fleet: &FleetReading, now: Timestamp) {
    page.family(&catalog::FLEET_READ).flag(&[], fleet.is_whole);
    if let Some(hosts) = fleet.hosts {
        page.family(&catalog::HOSTS).count(&[], hosts as u64);
    }
    let facts: Vec<JobFacts<'_>> = fleet
        .jobs
        .iter()
        .map(|(job, report)| JobFacts::of(job, report, now))
        .collect();
    for (family, value) in JobFacts::GAUGES {
        let mut family = page.family(family);
        for facts in &facts {
            if let Some(value) = value(facts) {
                family.value(&[("job_name", facts.job)], value);
            }
        }
    }
}

/// What is shown of one job.
struct JobFacts<'a> {
    job: &'a str,
    last_success: Option<Timestamp>,
    last_failure: Option<Timestamp>,
    has_failed: bool,
    last_duration: Option<Duration>,
    next: Option<Timestamp>,
    is_paused: bool,
    expected: Option<Duration>,
    overdue: Option<bool>,
}

type JobGauge = (&'static catalog::Family, fn(&JobFacts<'_>) -> Option<f64>);

impl<'a> JobFacts<'a> {
    const GAUGES: [JobGauge; 8] = [
        (&catalog::LAST_SUCCESS, |it| it.last_success.map(seconds)),
        (&catalog::LAST_FAILURE, |it| it.last_failure.map(seconds)),
        (&catalog::FAILED, |it| Some(flag(it.has_failed))),
        (&catalog::LAST_DURATION, |it| {
            it.last_duration.map(|it| it.as_secs_f64())
        }),
        (&catalog::NEXT, |it| it.next.map(seconds)),
        (&catalog::PAUSED, |it| Some(flag(it.is_paused))),
        (&catalog::EXPECTED, |it| {
            it.expected.map(|it| it.as_secs_f64())
        }),
        (&catalog::OVERDUE, |it| it.overdue.map(flag)),
    ];

    fn of(job: &'a Job, report: &JobReport, now: Timestamp) -> Self {
        let summary = &report.summary;
        let finished = |record: &crate::store::Record| record.finished_at;
        let last_success = summary.last_success.as_ref().and_then(finished);
        let newest = summary.newest.as_ref();
        let expected = job.alerts.expect_success_within;
        Self {
            job: job.name.as_str(),
            last_success,
            last_failure: summary.last_failure().and_then(finished),
            has_failed: newest.is_some_and(|newest| newest.outcome.is_failure()),
            last_duration: newest.and_then(|newest| {
                newest.run_id.as_ref()?;
                Some(newest.finished_at?.since(newest.started_at?))
            }),
            next: job.schedule.next_after(now),
            is_paused: (report.pauses.last()).is_some_and(|pause| pause.is_in_force(now)),
            expected,
            overdue: (last_success.zip(expected)).map(|(at, within)| at.plus(within) < now),
        }
    }
}

fn flag(holds: bool) -> f64 {
    f64::from(u8::from(holds))
}

/// An instant in seconds since the epoch.
#[expect(clippy::cast_precision_loss, reason = "milliseconds of our age")]
fn seconds(at: Timestamp) -> f64 {
    at.millis() as f64 / 1e3
}
