//! The metrics: their names, kinds, meanings and labels. docs/metrics.md lists the same; a test compares
//! the two, and the alert rules and the dashboard under `deploy/`.

/// What a metric is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FamilyKind {
    /// It only grows while the daemon runs.
    Counter,
    /// A present value.
    Gauge,
    /// Durations in buckets.
    Histogram,
    /// A count and a sum of durations.
    Summary,
}

impl FamilyKind {
    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Histogram => "histogram",
            Self::Summary => "summary",
        }
    }
}

/// A metric.
#[derive(Debug, Clone, Copy)]
pub(super) struct Family {
    pub(super) name: &'static str,
    pub(super) kind: FamilyKind,
    pub(super) help: &'static str,
}

macro_rules! families {
    ($($id:ident $kind:ident $name:literal $help:literal)+) => {
        $(pub(super) const $id: Family = Family {
            name: concat!("cronlatch_", $name),
            kind: FamilyKind::$kind,
            help: $help,
        };)+

        /// All of them, in the order of a page.
        #[cfg(test)]
        pub(super) const ALL: &[Family] = &[$($id),+];
    };
}

families! {
    BUILD_INFO Gauge "build_info" "The version of the daemon, as a label; always 1."
    START_TIME Gauge "start_time_seconds" "When the daemon started."
    READY Gauge "ready" "1 if this host can run jobs, as /readyz reports, else 0."
    DRAINING Gauge "draining" "1 while the daemon waits for its runs in order to exit."
    STORE_UP Gauge "store_up" "1 if the store replies to the daemon, else 0."
    CLOCK_OFFSET Gauge "clock_offset_seconds" "The clock of this host less the clock of the store."
    LIST_INFO Gauge "job_list_info" "The fingerprint of the job list in force, as a label; always 1."
    LIST_REJECTED Gauge "job_list_rejected" "1 if the newest job list was rejected, and an earlier one is in force."
    JOBS Gauge "jobs" "The jobs that this host runs."
    JOBS_WITH_UNUSABLE_KEYS Gauge "jobs_on_hold" "Jobs that do not run because their keys cannot be used."
    JOBS_HELD_BACK Gauge "jobs_held_back" "Jobs that this host does not claim while their lock changes."
    IN_PROGRESS Gauge "runs_in_progress" "Runs of this host that have started and not ended."
    LATENESS Histogram "start_lateness_seconds" "How long after its instant a scheduled occurrence started, jitter excluded."
    RUN_DURATION Summary "run_duration_seconds" "How long the runs of this host took, retries included."
    VERDICTS Counter "verdicts_total" "Occurrences for which this host recorded a verdict."
    CLAIMS Counter "claims_total" "Claims of this host, by the reply of the store."
    RENEWALS Counter "renewals_total" "Renewals of leases, by the reply of the store."
    LEASES_LOST Counter "leases_lost_total" "Leases that were lost during a run, by the reason."
    STORE_REQUESTS Histogram "store_request_duration_seconds" "How long the store took for requests of the daemon."
    STORE_ERRORS Counter "store_errors_total" "Requests of the daemon that the store did not execute."
    FLEET_READ Gauge "fleet_read_success" "1 if the store could be read for the metrics that follow, else 0."
    HOSTS Gauge "hosts" "The live hosts of the fleet."
    LAST_SUCCESS Gauge "job_last_success_timestamp_seconds" "When a run of the job last succeeded, on any host."
    LAST_FAILURE Gauge "job_last_failure_timestamp_seconds" "When a run of the job last failed, on any host."
    FAILED Gauge "job_failed" "1 if the newest verdict of the job is a failure, else 0."
    LAST_DURATION Gauge "job_last_run_duration_seconds" "How long the newest run of the job took, on any host."
    NEXT Gauge "job_next_occurrence_timestamp_seconds" "When the job is due next."
    PAUSED Gauge "job_paused" "1 while the job is paused, else 0."
    EXPECTED Gauge "job_expect_success_within_seconds" "expect_success_within of the job."
    OVERDUE Gauge "job_overdue" "1 if the job has not succeeded for longer than expect_success_within."
}
