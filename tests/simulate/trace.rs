//! What really happened, by the true clock: the judge's input in addition to the history.

use cronlatch::names::JobName;
use cronlatch::store::protocol::Waiting;
use cronlatch::store::{Pause, Record};

/// A stretch of true time, in milliseconds: the first included, the last not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Span {
    pub(crate) from: i64,
    pub(crate) until: i64,
}

impl Span {
    pub(crate) fn holds(self, at: i64) -> bool {
        self.from <= at && at < self.until
    }

    pub(crate) fn meets(self, other: Self) -> bool {
        self.from < other.until && other.from < self.until
    }
}

/// How a process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ended {
    /// By itself, with this exit code.
    Itself(i32),
    /// By the guard, for its lease was about to end.
    AtDeadline,
    /// On the daemon's request.
    OnRequest,
    /// The daemon was killed, and the guard ended it.
    WithDaemon,
    /// With its machine.
    WithMachine,
}

/// One attempt: a process that was started.
#[derive(Debug, Clone)]
pub(crate) struct Start {
    pub(crate) job: String,
    pub(crate) lock: String,
    pub(crate) host: usize,
    pub(crate) run_id: String,
    /// The occurrence; `None` for a manual run.
    pub(crate) at: Option<i64>,
    /// `CRONLATCH_ATTEMPT`.
    pub(crate) attempt: u32,
    /// Without one the store was not asked.
    pub(crate) fence: Option<u64>,
    pub(crate) begin: i64,
    pub(crate) end: Option<i64>,
    pub(crate) ended: Option<Ended>,
}

/// A record as it was added, before rows of equal verdicts were merged.
#[derive(Debug, Clone)]
pub(crate) struct Added {
    pub(crate) at: i64,
    pub(crate) lock: String,
    pub(crate) record: Record,
    /// On several nodes, the number of the proposal that it came with.
    pub(crate) ballot: Option<u64>,
    /// The store lost it with its data.
    pub(crate) lost: bool,
    /// It stood for a run until its host reported the result, or was overtaken by another decision.
    pub(crate) replaced: bool,
}

/// One of several nodes took the result of a run.
#[derive(Debug, Clone)]
pub(crate) struct Told {
    pub(crate) at: i64,
    pub(crate) lock: String,
    pub(crate) run_id: String,
    /// The number of the proposal that it came with.
    pub(crate) ballot: u64,
}

/// A daemon from its start to its end.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Life {
    pub(crate) host: usize,
    pub(crate) list: usize,
    pub(crate) from: i64,
    pub(crate) until: Option<i64>,
    /// No new claims from here on.
    pub(crate) drains: Option<i64>,
    /// Its end came without a drain.
    pub(crate) killed: bool,
    /// From here on it knows the store's clock, as measured by itself or by one before it.
    pub(crate) measured: Option<i64>,
}

/// The store has taken a request to pause or to resume a job.
#[derive(Debug, Clone)]
pub(crate) struct Ordered {
    pub(crate) at: i64,
    pub(crate) lock: String,
    pub(crate) job: String,
    /// The pauses that the ledger keeps from then on.
    pub(crate) pauses: Vec<Pause>,
}

/// A daemon replaced its job list.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Reloaded {
    pub(crate) at: i64,
    /// Its place in the lives of the trace: another daemon of the host may start at that instant.
    pub(crate) life: usize,
    pub(crate) list: usize,
}

/// A host was told what the store knows of a job: from then on the store knows the host's schedule.
#[derive(Debug, Clone)]
pub(crate) struct Admitted {
    pub(crate) at: i64,
    pub(crate) host: usize,
    pub(crate) job: String,
}

/// The holder of a lock from one change to the next.
#[derive(Debug, Clone)]
pub(crate) struct Held {
    pub(crate) at: i64,
    pub(crate) lock: String,
    pub(crate) token: Option<String>,
    pub(crate) until: i64,
    /// Whether it keeps others out; a job without a lock does not.
    pub(crate) exclusive: bool,
}

/// A run whose host died stands in the waiting list of its job, to be repeated.
#[derive(Debug, Clone)]
pub(crate) struct PutBack {
    /// Since when.
    pub(crate) at: i64,
    pub(crate) job: String,
    pub(crate) run_id: String,
    /// Its occurrence.
    pub(crate) due: i64,
}

/// A key that another program wrote.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Foreign {
    pub(crate) span: Span,
    /// It was deleted without an announcement.
    pub(crate) deleted: bool,
}

/// How a host was hindered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Hindered {
    /// No message got through.
    Network,
    /// Some messages did not get through, or late, or twice.
    Lossy,
    /// The daemon stood still; guard and jobs went on.
    Stopped,
    /// The whole machine stood still.
    Suspended,
    /// It could start no processes.
    Short,
    /// The store had more to do than it could at its pace.
    Slow,
}

/// A host was hindered.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Trouble {
    pub(crate) host: usize,
    pub(crate) span: Span,
    pub(crate) how: Hindered,
}

/// The wall clock of a host is set.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ClockStep {
    /// When, by the true clock.
    pub(crate) at: i64,
    pub(crate) host: usize,
    /// How far the wall clock is ahead of the true clock from then on.
    pub(crate) ahead: i64,
}

/// Everything that is noted during a run.
#[derive(Debug, Default)]
pub(crate) struct Trace {
    pub(crate) starts: Vec<Start>,
    pub(crate) added: Vec<Added>,
    pub(crate) lives: Vec<Life>,
    /// Ascending.
    pub(crate) reloads: Vec<Reloaded>,
    pub(crate) held: Vec<Held>,
    pub(crate) told: Vec<Told>,
    /// A claim reached one of several nodes: when, its lock, its token.
    pub(crate) reached: Vec<(i64, String, String)>,
    /// Another program had a lock's key.
    pub(crate) foreign: Vec<(String, Foreign)>,
    pub(crate) troubles: Vec<Trouble>,
    /// The store was away or stood still.
    pub(crate) outages: Vec<Span>,
    /// The store lost data: the span of what may be forgotten, until it grants again.
    pub(crate) losses: Vec<Span>,
    /// Ascending. Each host has one from its start.
    pub(crate) clocks: Vec<ClockStep>,
    pub(crate) ordered: Vec<Ordered>,
    /// Ascending.
    pub(crate) admitted: Vec<Admitted>,
    /// Runs whose hosts died and that stand in a waiting list, to be repeated.
    pub(crate) put_back: Vec<PutBack>,
    /// A lease was changed that is another's.
    pub(crate) trespasses: Vec<(i64, String)>,
    /// The job of a manual run was refused though it takes no lock.
    pub(crate) refused: Vec<(i64, String)>,
    /// The simulation did not come past this instant: something is repeated for ever.
    pub(crate) endless: Option<i64>,
    /// For people; empty unless wanted.
    pub(crate) lines: Vec<(i64, String)>,
    pub(crate) wants_lines: bool,
}

impl Trace {
    /// The lists of a daemon from its start on: since when it has had which.
    pub(crate) fn lists_of(&self, life: usize) -> Vec<(i64, usize)> {
        let reloads = self.reloads.iter().filter(|it| it.life == life);
        let life = &self.lives[life];
        std::iter::once((life.from, life.list))
            .chain(reloads.map(|it| (it.at, it.list)))
            .collect()
    }

    /// Notes the runs in the waiting list of a job that are to be repeated.
    pub(crate) fn note_waiting(&mut self, at: i64, job: &JobName, waiting: &[Waiting]) {
        for entry in waiting {
            let Some(crashed) = &entry.crashed else {
                continue;
            };
            let run_id = crashed.run_id.as_str();
            if !self.put_back.iter().any(|known| known.run_id == run_id) {
                self.put_back.push(PutBack {
                    at,
                    job: job.to_string(),
                    run_id: run_id.to_owned(),
                    due: entry.scheduled_at.millis(),
                });
            }
        }
    }

    /// Notes a line for the report, if there is to be one.
    pub(crate) fn line(&mut self, at: i64, text: impl FnOnce() -> String) {
        if self.wants_lines {
            self.lines.push((at, text()));
        }
    }
}
