//! An explanation, and what every one of them needs.

use std::time::Duration;

use serde::Serialize;

use super::facts::OccurrenceFacts;
use super::hosts::{HostDecision, decisions};
use crate::config::{show_duration, show_roughly};
use crate::names::HostName;
use crate::store::{Kind, Outcome, Record, RunUsage};
use crate::time::Timestamp;

/// The answer, in the order in which people read it. Its JSON form is an interface.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(in crate::cli) struct Explanation {
    pub(super) job: String,
    /// The instant that is explained.
    pub(super) at: Timestamp,
    /// The store's clock.
    pub(super) now: Timestamp,
    pub(super) answer: ExplainAnswer,
    /// The answer in one sentence.
    pub(super) text: String,
    /// What else is known, each a sentence.
    pub(super) details: Vec<String>,
    /// How long after its instant it started.
    pub(super) late_ms: Option<u64>,
    /// The record or the open run that the answer is about.
    pub(super) run: Option<RunFact>,
    /// The run that held the lock.
    pub(super) held_by: Option<RunFact>,
    /// The field of the schedule that does not match.
    pub(super) field: Option<&'static str>,
    /// What each live host decided.
    pub(super) hosts: Vec<HostDecision>,
    /// The occurrences before and after the instant.
    pub(super) previous_at: Option<Timestamp>,
    pub(super) next_at: Option<Timestamp>,
}

/// The words are an interface (`explain --json`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum ExplainAnswer {
    Ran,
    Running,
    Waiting,
    Skipped,
    Missed,
    Unknown,
    NotDue,
    Disabled,
    Paused,
    NoHost,
    BeforeFirstSeen,
    NotRecorded,
    Undecided,
    Future,
}

/// A run, as the history or the ledger has it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct RunFact {
    pub(super) job: String,
    pub(super) run_id: Option<String>,
    pub(super) host: Option<String>,
    pub(super) started_at: Option<Timestamp>,
    pub(super) finished_at: Option<Timestamp>,
    /// `None` while it runs.
    pub(super) outcome: Option<Outcome>,
    /// What it used, if that is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) usage: Option<RunUsage>,
}

impl RunFact {
    pub(super) fn of(record: &Record) -> Self {
        Self {
            job: record.job.to_string(),
            run_id: record.run_id.as_ref().map(ToString::to_string),
            host: record.host.as_ref().map(ToString::to_string),
            started_at: record.started_at,
            finished_at: record.finished_at,
            outcome: Some(record.outcome),
            usage: record.usage,
        }
    }

    /// The run in a sentence.
    pub(super) fn named(&self) -> String {
        let run = self.run_id.as_deref().unwrap_or("of unknown id");
        let host = self.host.as_deref().unwrap_or("an unknown host");
        format!("run {run} of job {} on host {host}", self.job)
    }
}

/// Returns an explanation without details.
pub(super) fn begin(
    facts: &OccurrenceFacts,
    at: Timestamp,
    answer: ExplainAnswer,
    text: String,
) -> Explanation {
    let schedule = &facts.job.schedule;
    Explanation {
        job: facts.job.name.to_string(),
        at,
        now: facts.now,
        answer,
        text,
        details: Vec::new(),
        late_ms: None,
        run: None,
        held_by: None,
        field: None,
        // At first as if no host had run it. An answer that knows who did replaces these.
        hosts: decisions(facts, at, None),
        previous_at: schedule.last_before(at),
        next_at: schedule.next_after(at),
    }
}

impl Explanation {
    /// How late it started, and why.
    pub(super) fn explain_delay(
        &mut self,
        facts: &OccurrenceFacts,
        (at, kind): (Timestamp, Kind),
        started: Option<Timestamp>,
    ) {
        let Some(started) = started else { return };
        let late = started.since(at);
        self.late_ms = u64::try_from(late.as_millis()).ok();
        let delay = facts.job.delay();
        let why = match kind {
            Kind::CatchUp => "no host could claim it in time, and it was caught up",
            Kind::Queue => "it waited for an earlier run under its lock to end",
            Kind::Rerun => "an earlier run of it did not end, and it was run again",
            Kind::Schedule | Kind::Manual if late <= delay + Duration::from_secs(1) => {
                if !delay.is_zero() {
                    let delay = show_duration(delay);
                    self.details.push(format!(
                        "it started on time, {delay} after its instant (jitter)"
                    ));
                }
                return;
            }
            Kind::Schedule | Kind::Manual => {
                "the store was unreachable or granted nothing (it was new, or had lost data), the \
                 hosts were full (max_running) or busy, or `spread` delayed their claims; the log of \
                 the host has more"
            }
        };
        self.details
            .push(format!("it started {} late: {why}", show_roughly(late)));
    }

    /// The run that held the lock when an occurrence was skipped.
    pub(super) fn add_holder(&mut self, facts: &OccurrenceFacts, skipped: &Record) {
        let when = skipped.finished_at.unwrap_or(self.at);
        let by = skipped.by.as_deref();
        let held = |record: &&Record| {
            record.run_id.is_some()
                && record.host.as_ref().map(HostName::as_str) == by
                && record.started_at.is_some_and(|from| from <= when)
                && record.finished_at.is_none_or(|to| when <= to)
        };
        let ended = facts.records.iter().chain(&facts.neighbours).find(held);
        let open = || {
            let mut open = std::iter::once(&facts.report).chain(&facts.open_neighbours);
            open.find_map(|report| {
                let run = report.open.as_ref()?;
                (Some(run.by.as_str()) == by && run.started_at <= when).then(|| RunFact {
                    job: report.job.to_string(),
                    run_id: Some(run.run_id.to_string()),
                    host: by.map(str::to_owned),
                    started_at: Some(run.started_at),
                    finished_at: None,
                    outcome: None,
                    usage: None,
                })
            })
        };
        self.held_by = ended.map(RunFact::of).or_else(open);
        let text = match &self.held_by {
            Some(run) => format!("{} held the lock", run.named()),
            None => format!(
                "{} held the lock; no record shows for which run",
                by.unwrap_or("another program")
            ),
        };
        self.details.push(text);
    }

    /// The run that holds the lock now.
    pub(super) fn add_current_holder(&mut self, facts: &OccurrenceFacts) {
        let mut reports = std::iter::once(&facts.report).chain(&facts.open_neighbours);
        let open = reports.find_map(|report| Some((report, report.open.as_ref()?)));
        if let Some((report, open)) = open {
            let run = RunFact {
                job: report.job.to_string(),
                run_id: Some(open.run_id.to_string()),
                host: Some(open.by.clone()),
                started_at: Some(open.started_at),
                finished_at: None,
                outcome: None,
                usage: None,
            };
            self.details.push(format!(
                "{} holds the lock since {}",
                run.named(),
                open.started_at
            ));
            self.held_by = Some(run);
        } else if let Some(holder) = &facts.report.holder {
            self.details.push(format!("{} holds the lock", holder.by));
        }
    }
}
