//! The text forms of single fields of a ledger: the terms of a run, the waiting list, the pauses, and the
//! decided occurrences beyond the watermark. The Lua scripts use the same forms (`scripts/job.lua`).

use crate::names::{RunId, Token};
use crate::store::contract::{Crashed, Kind, Pause, RunTerms, Waiting};
use crate::time::Timestamp;

/// `DEADLINE WINDOW MAX_RERUNS MAX_ATTEMPTS RERUNS YIELDS`: milliseconds and numbers.
pub fn terms_text(terms: &RunTerms) -> String {
    format!(
        "{} {} {} {} {} {}",
        terms.deadline.millis(),
        terms.rerun_window.as_millis(),
        terms.max_reruns,
        terms.max_attempts,
        terms.reruns,
        u8::from(terms.yields),
    )
}

/// Parses [`terms_text`]; `None` if the text is not valid.
pub fn terms_of_text(text: &str) -> Option<RunTerms> {
    let mut words = text.split(' ');
    let terms = RunTerms {
        deadline: Timestamp::from_millis(words.next()?.parse().ok()?),
        rerun_window: std::time::Duration::from_millis(words.next()?.parse().ok()?),
        max_reruns: words.next()?.parse().ok()?,
        max_attempts: words.next()?.parse().ok()?,
        reruns: words.next()?.parse().ok()?,
        yields: flag(words.next()?)?,
    };
    words.next().is_none().then_some(terms)
}

/// Instants in milliseconds, separated by spaces.
pub fn decided_beyond_text(beyond: &[Timestamp]) -> String {
    let words: Vec<String> = beyond.iter().map(|at| at.millis().to_string()).collect();
    words.join(" ")
}

/// Parses [`decided_beyond_text`]; `None` if the text is not valid.
pub fn decided_beyond_of_text(text: &str) -> Option<Vec<Timestamp>> {
    let words = text.split(' ').filter(|word| !word.is_empty());
    let instants = words.map(|word| word.parse().ok().map(Timestamp::from_millis));
    instants.collect()
}

/// One line for each entry, its fields separated by tabs: `scheduled_at`, kind, deadline, yields,
/// attempts, reruns; then of a crashed run: run id, token, kind, fence, `started_at`, host.
pub fn waiting_text(waiting: &[Waiting]) -> String {
    let line = |entry: &Waiting| {
        let mut fields = vec![
            entry.scheduled_at.millis().to_string(),
            entry.kind.word().to_owned(),
            entry.deadline.millis().to_string(),
            u8::from(entry.yields).to_string(),
            entry.attempts.to_string(),
            entry.reruns.to_string(),
        ];
        if let Some(crashed) = &entry.crashed {
            fields.extend([
                crashed.run_id.to_string(),
                crashed.token.as_str().to_owned(),
                crashed.kind.word().to_owned(),
                crashed.fence.to_string(),
                crashed.started_at.millis().to_string(),
                crashed.host.clone(),
            ]);
        }
        fields.join("\t") + "\n"
    };
    waiting.iter().map(line).collect()
}

/// Parses [`waiting_text`]; `None` if the text is not valid.
pub fn waiting_of_text(text: &str) -> Option<Vec<Waiting>> {
    text.lines().map(entry_of_line).collect()
}

fn entry_of_line(line: &str) -> Option<Waiting> {
    let mut fields = line.split('\t');
    let mut entry = Waiting {
        scheduled_at: instant(fields.next()?)?,
        kind: Kind::of_word(fields.next()?)?,
        deadline: instant(fields.next()?)?,
        yields: flag(fields.next()?)?,
        attempts: fields.next()?.parse().ok()?,
        reruns: fields.next()?.parse().ok()?,
        crashed: None,
    };
    if let Some(run_id) = fields.next() {
        entry.crashed = Some(Crashed {
            run_id: RunId::from_text(run_id),
            token: Token::from_text(fields.next()?),
            kind: Kind::of_word(fields.next()?)?,
            fence: fields.next()?.parse().ok()?,
            started_at: instant(fields.next()?)?,
            host: fields.next()?.to_owned(),
        });
    }
    fields.next().is_none().then_some(entry)
}

/// One line for each pause, its fields separated by blanks: `asked_at`, `since`, `until`, `by`,
/// `resumed_by`, and the reason as the rest of the line; `-` for `None`.
pub fn pauses_text(pauses: &[Pause]) -> String {
    let line = |pause: &Pause| {
        let until = pause.until.map(|until| until.millis().to_string());
        format!(
            "{} {} {} {} {} {}\n",
            pause.asked_at.millis(),
            pause.since.millis(),
            until.as_deref().unwrap_or("-"),
            pause.by,
            pause.resumed_by.as_deref().unwrap_or("-"),
            pause.reason,
        )
    };
    pauses.iter().map(line).collect()
}

/// Parses [`pauses_text`]; `None` if the text is not valid.
pub fn pauses_of_text(text: &str) -> Option<Vec<Pause>> {
    let lines = text.split_terminator('\n');
    lines.map(pause_of_line).collect()
}

fn pause_of_line(line: &str) -> Option<Pause> {
    let mut fields = line.splitn(6, ' ');
    Some(Pause {
        asked_at: instant(fields.next()?)?,
        since: instant(fields.next()?)?,
        until: match fields.next()? {
            "-" => None,
            until => Some(instant(until)?),
        },
        by: fields.next()?.to_owned(),
        resumed_by: Some(fields.next()?)
            .filter(|by| *by != "-")
            .map(str::to_owned),
        reason: fields.next()?.to_owned(),
    })
}

fn instant(text: &str) -> Option<Timestamp> {
    text.parse().ok().map(Timestamp::from_millis)
}

fn flag(text: &str) -> Option<bool> {
    match text {
        "0" => Some(false),
        "1" => Some(true),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_again() {
        let terms = RunTerms {
            deadline: Timestamp::from_millis(1_700_000_000_123),
            rerun_window: std::time::Duration::from_secs(3600),
            max_reruns: 3,
            max_attempts: 0,
            reruns: 1,
            yields: true,
        };
        assert_eq!(terms_of_text(&terms_text(&terms)), Some(terms));
        let plain = Waiting {
            scheduled_at: Timestamp::from_millis(5),
            kind: Kind::Queue,
            deadline: Timestamp::from_millis(7),
            yields: false,
            attempts: 0,
            reruns: 0,
            crashed: None,
        };
        let rerun = Waiting {
            kind: Kind::Rerun,
            attempts: 2,
            reruns: 1,
            crashed: Some(Crashed {
                run_id: RunId::from_text("run"),
                token: Token::from_text("a:1:run:ff"),
                kind: Kind::CatchUp,
                fence: 9,
                started_at: Timestamp::from_millis(6),
                host: "a".to_owned(),
            }),
            ..plain.clone()
        };
        let list = vec![rerun, plain];
        assert_eq!(waiting_of_text(&waiting_text(&list)), Some(list));
        assert_eq!(waiting_of_text(""), Some(Vec::new()));
        assert_eq!(waiting_of_text("5\tqueue\n"), None);
    }

    #[test]
    fn pauses_are_read_as_they_were_written() {
        let open = Pause {
            asked_at: Timestamp::from_millis(1_700_000_000_123),
            since: Timestamp::from_millis(1_700_000_000_000),
            until: None,
            by: "alice@web1".to_owned(),
            resumed_by: None,
            reason: String::new(),
        };
        let ended = Pause {
            until: Some(Timestamp::from_millis(1_700_000_000_123)),
            resumed_by: Some("bob@web2".to_owned()),
            reason: "a new disk,  - and more".to_owned(),
            ..open.clone()
        };
        let both = vec![ended, open];
        assert_eq!(pauses_of_text(&pauses_text(&both)), Some(both));
        assert_eq!(pauses_of_text(""), Some(Vec::new()));
        assert_eq!(pauses_of_text("5 5 - alice@web1 -\n"), None);
    }
}
