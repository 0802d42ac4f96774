//! Decides which events follow from a verdict, for one target. Pure: the job's history is the only memory,
//! so the result is the same on every host.

use std::time::Duration;

use crate::config::{Channel, JobEvent, NotifyTarget, Template};
use crate::store::{Outcome, Record};
use crate::time::Timestamp;

/// What a target wants to know about a job.
#[derive(Debug, Clone, Copy)]
pub(super) struct NotifyRule<'a> {
    /// The target.
    pub(super) target: &'a NotifyTarget,
    /// `expect_success_within` of the job.
    pub(super) expected: Option<Duration>,
}

/// The verdicts of a job before the one in question, newest first.
#[derive(Debug, Clone, Copy)]
pub(super) struct Earlier<'a> {
    /// What shares the record of the verdict: skips and misses in a row have one record.
    pub(super) merged: Option<Merged>,
    /// The records before that.
    pub(super) records: &'a [Record],
    /// Whether there were more that are not known.
    pub(super) reach: Reach,
}

/// Verdicts of the same kind that share one record with a later one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Merged {
    /// How many.
    pub(super) count: u64,
    /// About when the last was recorded.
    pub(super) last_at: Timestamp,
}

/// How far known records go back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reach {
    /// To the job's first.
    Whole,
    /// Older ones were not read, or are gone, or nothing could be read.
    Part,
}

/// An event to be sent, and how many verdicts of its kind there were in a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Decided {
    pub(super) event: JobEvent,
    pub(super) in_a_row: u64,
}

/// The event of a verdict; `None` for what concerns no occurrence.
pub(super) fn event_of(record: &Record) -> Option<JobEvent> {
    if record.is_correction() {
        return None;
    }
    Some(match record.outcome {
        Outcome::Succeeded => JobEvent::Succeeded,
        Outcome::Failed | Outcome::TimedOut | Outcome::Stopped => JobEvent::Failed,
        Outcome::LeaseLost | Outcome::Interrupted | Outcome::Unknown => JobEvent::Lost,
        Outcome::Skipped => JobEvent::Skipped,
        Outcome::Missed => JobEvent::Missed,
    })
}

/// The events after which a success is `recovered`.
const BAD: [JobEvent; 3] = [JobEvent::Failed, JobEvent::Lost, JobEvent::Missed];

/// Events that a success ends and that leave no bad verdict in the history.
const UNRECORDED: [JobEvent; 4] = [
    JobEvent::Late,
    JobEvent::Long,
    JobEvent::Overdue,
    JobEvent::Skipped,
];

impl NotifyRule<'_> {
    /// Whether the history is needed to decide about such an event.
    pub(super) fn needs_history(&self, event: JobEvent) -> bool {
        match event {
            JobEvent::Succeeded => self.sends_recovery(),
            event => self.target.on.contains(&event),
        }
    }

    /// The events that follow from a verdict.
    pub(super) fn verdict(&self, record: &Record, earlier: Earlier<'_>) -> Vec<Decided> {
        let Some(event) = event_of(record) else {
            return Vec::new();
        };
        if event == JobEvent::Succeeded {
            return self.success(record, earlier);
        }
        if !self.target.on.contains(&event) {
            return Vec::new();
        }
        let row = Row::before(earlier, |other| self.is_alike(event, other));
        let in_a_row = row.count + record.count.unwrap_or(1);
        let due = self.is_due(&row, record, in_a_row);
        due.then_some(Decided { event, in_a_row })
            .into_iter()
            .collect()
    }

    fn success(&self, record: &Record, earlier: Earlier<'_>) -> Vec<Decided> {
        let mut decided = Vec::new();
        if self.target.on.contains(&JobEvent::Succeeded) {
            decided.push(Decided {
                event: JobEvent::Succeeded,
                in_a_row: 1,
            });
        }
        if !self.sends_recovery() {
            return decided;
        }
        let row = Row::before(earlier, |other| self.counts_as_bad(other));
        let in_a_row = row.count;
        let is_long = in_a_row >= u64::from(self.target.after) || row.reach == Reach::Part;
        let was_sent = in_a_row > 0 && is_long;
        if was_sent || self.was_overdue(record, earlier) || self.may_have_open_incident() {
            decided.push(Decided {
                event: JobEvent::Recovered,
                in_a_row,
            });
        }
        decided
    }

    /// Whether a verdict of that event belongs to the same row as one of this.
    fn is_alike(&self, event: JobEvent, other: JobEvent) -> bool {
        if BAD.contains(&event) {
            self.counts_as_bad(other)
        } else {
            event == other
        }
    }

    fn counts_as_bad(&self, event: JobEvent) -> bool {
        let on = &self.target.on;
        let none = !BAD.iter().any(|bad| on.contains(bad));
        BAD.contains(&event) && (none || on.contains(&event))
    }

    fn is_due(&self, row: &Row, record: &Record, in_a_row: u64) -> bool {
        let after = u64::from(self.target.after);
        if in_a_row < after {
            // Rather a message too many than none: the row may have begun before what is known.
            return row.reach == Reach::Part;
        }
        let Some(repeat) = self.target.repeat else {
            return true;
        };
        let at = record.finished_at.unwrap_or_else(Timestamp::now);
        if row.reach == Reach::Part || row.is_merged {
            // When the last message was sent is not known: one for each stretch of `repeat`.
            let stretch = |at: Timestamp| at.millis() / millis(repeat);
            let before = row.times.first().map(|(at, _)| stretch(*at));
            let is_first = row.reach == Reach::Whole && row.count < after;
            return is_first || before.is_none_or(|before| before != stretch(at));
        }
        // Oldest first: the message of the verdict that made the row long enough, then one
        // whenever `repeat` has passed since the last.
        let mut count = 0;
        let mut sent: Option<Timestamp> = None;
        for (earlier, times) in row.times.iter().rev() {
            count += times;
            if count >= after && sent.is_none_or(|sent| earlier.since(sent) >= repeat) {
                sent = Some(*earlier);
            }
        }
        sent.is_none_or(|sent| at.since(sent) >= repeat)
    }

    /// Whether the job was overdue until this success.
    fn was_overdue(&self, record: &Record, earlier: Earlier<'_>) -> bool {
        let (true, Some(expected)) = (self.target.on.contains(&JobEvent::Overdue), self.expected)
        else {
            return false;
        };
        let mut before = earlier.records.iter();
        let before = before.find(|other| other.outcome == Outcome::Succeeded);
        match (before.and_then(|it| it.finished_at), record.finished_at) {
            (Some(before), Some(now)) => now.since(before) > expected,
            _ => false,
        }
    }

    /// Whether a success is to be sent that follows something bad.
    fn sends_recovery(&self) -> bool {
        self.target.on.contains(&JobEvent::Recovered) || self.has_incidents()
    }

    /// Whether messages open incidents that a success must close.
    fn has_incidents(&self) -> bool {
        matches!(&self.target.channel, Channel::Http(http)
            if matches!(http.template, Template::PagerDuty { .. }))
    }

    /// Whether an incident may be open of which the history knows nothing.
    fn may_have_open_incident(&self) -> bool {
        let on = &self.target.on;
        self.has_incidents() && UNRECORDED.iter().any(|event| on.contains(event))
    }
}

/// The verdicts of one kind before the one in question, without a success between them.
struct Row {
    count: u64,
    /// When each was recorded, newest first, and how many occurrences it stands for.
    times: Vec<(Timestamp, u64)>,
    /// Whether some share the record of the verdict in question.
    is_merged: bool,
    /// Whether the row may have begun before what is known.
    reach: Reach,
}

impl Row {
    fn before(earlier: Earlier<'_>, is_alike: impl Fn(JobEvent) -> bool) -> Self {
        let mut row = Self {
            count: 0,
            times: Vec::new(),
            is_merged: earlier.merged.is_some(),
            reach: earlier.reach,
        };
        if let Some(merged) = earlier.merged {
            row.count += merged.count;
            row.times.push((merged.last_at, merged.count));
        }
        for record in earlier.records {
            match event_of(record) {
                Some(JobEvent::Succeeded) => {
                    row.reach = Reach::Whole;
                    break;
                }
                Some(event) if is_alike(event) => {
                    let count = record.count.unwrap_or(1);
                    row.count += count;
                    row.times.extend(record.finished_at.map(|at| (at, count)));
                }
                _ => {}
            }
        }
        row
    }
}

fn millis(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis())
        .unwrap_or(i64::MAX)
        .max(1)
}

#[cfg(test)]
mod tests;
