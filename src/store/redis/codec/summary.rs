//! The summary of a job as the scripts keep it (`scripts/summary.lua`).

use std::borrow::Cow;
use std::fmt::{self, Display};

use super::record::{blank, pairs, set};
use crate::names::{JobName, RunId};
use crate::store::{Outcome, RecentOutcome, Record, Retention, Summary};

const LETTERS: [(Outcome, &str); 9] = [
    (Outcome::Succeeded, "s"),
    (Outcome::Failed, "f"),
    (Outcome::TimedOut, "t"),
    (Outcome::LeaseLost, "l"),
    (Outcome::Stopped, "x"),
    (Outcome::Interrupted, "i"),
    (Outcome::Skipped, "k"),
    (Outcome::Missed, "m"),
    (Outcome::Unknown, "u"),
];

/// `RECORDS FAILURES AGE`, the age in milliseconds.
pub(in crate::store::redis) fn retention(keep: Retention) -> impl Display {
    RetentionWords(keep)
}

struct RetentionWords(Retention);

impl Display for RetentionWords {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Retention {
            records,
            failures,
            age,
        } = self.0;
        write!(f, "{records} {failures} {}", age.as_millis())
    }
}

/// Returns the text of a summary; empty without any record.
pub(in crate::store::redis) fn text(summary: &Summary) -> String {
    if *summary == Summary::default() {
        return String::new();
    }
    let words: Vec<String> = summary.recent.iter().map(word).collect();
    let mut text = words.join(" ") + "\n";
    let records = (summary.newest.iter().map(|it| ("n", it)))
        .chain(summary.last_success.iter().map(|it| ("s", it)))
        .chain(summary.failures.iter().map(|it| ("f", it)));
    for (tag, record) in records {
        text += tag;
        text += &line(&pairs(record));
    }
    text
}

/// Returns the line of a record without its tag. It has no output and no use of resources, as the rules
/// demand (`protocol::summarize`).
pub(super) fn line(pairs: &[(&str, Cow<'_, str>)]) -> String {
    let mut line = String::with_capacity(256);
    for (name, value) in pairs {
        if is_kept(name) {
            line.extend(["\t", *name, "="]);
            escape(value, &mut line);
        }
    }
    line.push('\n');
    line
}

fn is_kept(name: &str) -> bool {
    !matches!(name, "output_tail" | "usage")
}

/// Reads a summary. What cannot be read is left out, because nothing depends on it.
pub(in crate::store::redis) fn read(job: &JobName, text: &str) -> Summary {
    let mut lines = text.lines();
    let mut summary = Summary::default();
    let words = lines.next().unwrap_or_default().split_ascii_whitespace();
    summary.recent = words.filter_map(recent).collect();
    for line in lines {
        let mut parts = line.split('\t');
        let (tag, record) = (parts.next(), record(job, parts));
        match (tag, record) {
            (Some("n"), Some(record)) => summary.newest = Some(record),
            (Some("s"), Some(record)) => summary.last_success = Some(record),
            (Some("f"), Some(record)) => summary.failures.push(record),
            _ => {}
        }
    }
    summary
}

fn word(recent: &RecentOutcome) -> String {
    let known = LETTERS.iter().find(|(known, _)| *known == recent.outcome);
    let letter = known.map_or("u", |(_, letter)| letter);
    match &recent.provisional {
        Some(run_id) => format!("{letter}:{run_id}"),
        None => letter.to_owned(),
    }
}

fn recent(word: &str) -> Option<RecentOutcome> {
    let (letter, run_id) = match word.split_once(':') {
        Some((letter, run_id)) => (letter, Some(RunId::from_text(run_id))),
        None => (word, None),
    };
    let (outcome, _) = LETTERS.iter().find(|(_, known)| *known == letter)?;
    Some(RecentOutcome {
        outcome: *outcome,
        provisional: run_id,
    })
}

fn record<'a>(job: &JobName, fields: impl Iterator<Item = &'a str>) -> Option<Record> {
    let mut record = blank(job);
    for field in fields {
        let (name, value) = field.split_once('=')?;
        // An earlier version kept more.
        if is_kept(name) {
            set(&mut record, name, unescaped(value)).ok()?;
        }
    }
    Some(record)
}

/// Writes a value so that it contains no separator.
fn escape(value: &str, line: &mut String) {
    let mut rest = value;
    while let Some(at) = rest.find(['%', '\t', '\n', '\r']) {
        line.push_str(&rest[..at]);
        line.push_str(match rest.as_bytes()[at] {
            b'%' => "%25",
            b'\t' => "%09",
            b'\n' => "%0A",
            _ => "%0D",
        });
        rest = &rest[at + 1..];
    }
    line.push_str(rest);
}

fn unescaped(value: &str) -> String {
    // The percent sign last, so that what it stands before is not read twice.
    let text = value.replace("%09", "\t").replace("%0A", "\n");
    text.replace("%0D", "\r").replace("%25", "%")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::Timestamp;

    #[test]
    fn a_summary_is_read_as_it_was_written() {
        let job = JobName::parse("j").unwrap();
        let record = |outcome, reason: &str| Record {
            outcome,
            run_id: Some(RunId::from_text("r")),
            finished_at: Some(Timestamp::from_millis(7)),
            reason: Some(reason.to_owned()),
            attempts: 1,
            ..blank(&job)
        };
        let summary = Summary {
            recent: Outcome::ALL
                .into_iter()
                .map(|outcome| RecentOutcome {
                    outcome,
                    provisional: (outcome == Outcome::Unknown).then(|| RunId::from_text("r")),
                })
                .collect(),
            newest: Some(record(Outcome::Skipped, "")),
            last_success: Some(record(Outcome::Succeeded, "100%25\tof\r\nit")),
            failures: vec![
                record(Outcome::Interrupted, "%0A"),
                record(Outcome::Failed, "=\u{1F980}"),
            ],
        };
        assert_eq!(read(&job, &text(&summary)), summary);
        let earlier =
            text(&summary).replace("\tattempts=1", "\tattempts=1\tusage=1 2\toutput_tail=x");
        assert_ne!(earlier, text(&summary));
        assert_eq!(read(&job, &earlier), summary);
        assert_eq!(text(&Summary::default()), "");
        assert_eq!(read(&job, ""), Summary::default());
    }
}
