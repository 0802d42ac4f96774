//! Messages as sentences.

use std::fmt::Write as _;

use super::digest::Digest;
use super::notice::{Notice, NoticeKind};
use super::notification::{Content, Notification};
use crate::config::JobEvent;
use crate::ground::sorting::SortShort as _;
use crate::store::{Outcome, Record};

/// The jobs that a digest names one by one.
const JOBS_NAMED: usize = 10;

/// What happened, in one line without markup.
pub(super) fn headline(message: &Notification) -> String {
    let mut text = match &message.content {
        Content::One(notice) => of_notice(notice),
        Content::Digest(digest) => of_digest(digest),
    };
    match message.undelivered {
        0 => {}
        1 => text += " (1 earlier message could not be delivered)",
        n => {
            let _ = write!(text, " ({n} earlier messages could not be delivered)");
        }
    }
    text
}

/// What happened in a few words: the subject of a mail.
pub(crate) fn subject(message: &Notification) -> String {
    match &message.content {
        Content::One(notice) => format!("[cronlatch] {}: {}", notice.job, notice.event.word()),
        Content::Digest(digest) => format!("[cronlatch] {}", counts(digest)),
    }
}

/// The last lines of output, if the message is about a run that has some.
pub(crate) fn output(message: &Notification) -> Option<&str> {
    let Content::One(notice) = &message.content else {
        return None;
    };
    let tail = notice.record.as_ref()?.output_tail.as_deref()?;
    Some(tail.trim_end()).filter(|tail| !tail.is_empty())
}

fn of_notice(notice: &Notice) -> String {
    let job = &notice.job;
    let mut text = match notice.kind {
        NoticeKind::Real => String::new(),
        NoticeKind::Sample => "sample message, nothing has happened: ".to_owned(),
    };
    text += &match (&notice.record, notice.event) {
        (Some(record), JobEvent::Recovered) => {
            let so_far = match notice.in_a_row {
                0 => String::new(),
                1 => " after 1 occurrence without success".to_owned(),
                n => format!(" after {n} occurrences without success"),
            };
            format!("{job} recovered: succeeded{}{so_far}", on(record))
        }
        (Some(record), _) => of_record(notice, record),
        (None, event) => {
            let what = match event {
                JobEvent::Started => "started",
                JobEvent::Late => "started late",
                JobEvent::Long => "is taking long",
                JobEvent::Overdue => "is overdue",
                other => other.word(),
            };
            let host = match event {
                JobEvent::Overdue => String::new(),
                _ => format!(" on {}", notice.host),
            };
            let detail = notice.detail.as_ref();
            let detail = detail.map_or_else(String::new, |detail| format!(": {detail}"));
            format!("{job} {what}{host}{detail}")
        }
    };
    text
}

fn on(record: &Record) -> String {
    let host = record.host.as_ref();
    host.map_or_else(String::new, |host| format!(" on {host}"))
}

fn of_record(notice: &Notice, record: &Record) -> String {
    let job = &notice.job;
    let mut text = match record.outcome {
        Outcome::Succeeded => format!("{job} succeeded{}", on(record)),
        Outcome::Failed => format!("{job} failed{}{}", on(record), exit(record)),
        Outcome::TimedOut => format!("{job} timed out{}", on(record)),
        Outcome::LeaseLost => format!("{job} lost its lease{}", on(record)),
        Outcome::Stopped => format!("{job} was stopped{}", on(record)),
        Outcome::Interrupted => format!("{job} was interrupted{}", on(record)),
        Outcome::Unknown => format!("the result of {job} is unknown"),
        Outcome::Skipped => format!("{job} was skipped"),
        Outcome::Missed => format!("{job} was missed"),
    };
    if notice.in_a_row > record.count.unwrap_or(1) {
        // A failure, a kill by a person and a miss are one row.
        let _ = match record.outcome {
            Outcome::Skipped => write!(text, ", {} times in a row", notice.in_a_row),
            _ => write!(
                text,
                ", {} occurrences in a row without success",
                notice.in_a_row
            ),
        };
    }
    if let Some(reason) = &record.reason {
        let _ = match record.outcome {
            // The reason is who asked for the run. Why it failed stands before: its exit.
            Outcome::Failed if !exit(record).is_empty() => write!(text, " ({reason})"),
            _ => write!(text, ": {reason}"),
        };
    }
    if let Some(by) = record
        .by
        .as_ref()
        .filter(|_| record.outcome == Outcome::Skipped)
    {
        let _ = write!(text, " by {by}");
    }
    match (record.scheduled_at, record.until, record.count) {
        (Some(from), Some(until), Some(count)) => {
            let _ = write!(text, " ({count} occurrences from {from} to {until})");
        }
        (Some(at), ..) => {
            let _ = write!(text, " (due at {at})");
        }
        (None, ..) => {}
    }
    text
}

fn exit(record: &Record) -> String {
    match (record.exit_code, record.signal) {
        (Some(code), _) => format!(" with exit code {code}"),
        (None, Some(signal)) => format!(" by signal {signal}"),
        (None, None) => String::new(),
    }
}

/// `995 failed, 5 missed`.
fn counts(digest: &Digest) -> String {
    let counts = digest.counts();
    let parts: Vec<String> = (counts.iter())
        .map(|(event, count)| format!("{count} {}", event.word()))
        .collect();
    parts.join(", ")
}

fn of_digest(digest: &Digest) -> String {
    let mut jobs: Vec<_> = (digest.jobs.iter())
        .map(|(job, events)| (events.values().sum::<u64>(), job, events))
        .collect();
    jobs.sort_short_by_key(|(count, ..)| std::cmp::Reverse(*count));
    let named: Vec<String> = (jobs.iter().take(JOBS_NAMED))
        .map(|(_, job, events)| {
            let events: Vec<String> = (events.iter())
                .map(|(event, count)| format!("{count} {}", event.word()))
                .collect();
            format!("{job} ({})", events.join(", "))
        })
        .collect();
    let more = match jobs.len().saturating_sub(JOBS_NAMED) {
        0 => String::new(),
        1 => " and 1 more job".to_owned(),
        n => format!(" and {n} more jobs"),
    };
    format!(
        "{} between {} and {}, as seen by {}: {}{more}",
        counts(digest),
        digest.first_at,
        digest.last_at,
        digest.host,
        named.join(", ")
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::names::{HostName, JobName};
    use crate::notify::notice::NoticeKind;
    use crate::store::Kind;
    use crate::time::Timestamp;

    /// The message about a run that failed, with this exit code and reason.
    fn of_failed(exit_code: Option<i32>, reason: &str) -> String {
        let job = JobName::parse("backup").expect("a name");
        let host = HostName::parse("web1").expect("a name");
        headline(&Notification::one(Notice {
            event: JobEvent::Failed,
            job: job.clone(),
            host: host.clone(),
            at: Timestamp::EPOCH,
            run_id: None,
            scheduled_at: None,
            in_a_row: 1,
            record: Some(Record {
                host: Some(host),
                exit_code,
                reason: Some(reason.to_owned()),
                ..Record::blank(job, Kind::Manual, Outcome::Failed)
            }),
            detail: None,
            kind: NoticeKind::Real,
        }))
    }

    #[test]
    fn the_reason_says_why_a_run_failed_that_did_not_start_and_is_a_remark_about_others() {
        assert_eq!(
            of_failed(Some(3), "triggered by alice"),
            "backup failed on web1 with exit code 3 (triggered by alice)"
        );
        assert_eq!(
            of_failed(None, "cannot start /bin/x: no such file"),
            "backup failed on web1: cannot start /bin/x: no such file"
        );
    }
}
