//! What `pause` and `resume` print.

use serde::{Serialize, Serializer};

use crate::names::JobName;
use crate::store::{OpenRun, Pause};
use crate::time::Timestamp;

/// What became of an order for one job.
#[derive(Debug)]
pub(super) struct Changed {
    pub(super) job: JobName,
    /// The pause now in force; `None` after a resume.
    pub(super) pause: Option<Pause>,
    /// The pause that was in force before.
    pub(super) before: Option<Pause>,
    /// Whether a ledger was changed: false if there was nothing to resume.
    pub(super) done: bool,
    /// Who asked.
    pub(super) by: String,
    /// The runs that continue.
    pub(super) running: Vec<OpenRun>,
}

/// The names of the jobs that were changed, the first ones; `None` if none was.
pub(super) fn changed_jobs(all: &[Changed]) -> Option<String> {
    const NAMED: usize = 3;
    let changed = all.iter().filter(|it| it.done).map(|it| it.job.as_str());
    let names: Vec<&str> = changed.collect();
    let more = names.len().saturating_sub(NAMED);
    let named = names[..names.len() - more].join(", ");
    match (names.len(), more) {
        (0, _) => None,
        (_, 0) => Some(named),
        _ => Some(format!("{named} and {more} more")),
    }
}

/// `pause --json` and `resume --json`.
#[derive(Serialize)]
struct Shown<'a> {
    job: &'a str,
    paused: bool,
    changed: bool,
    by: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    since: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    until: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<&'a str>,
    /// The ids of the runs that continue.
    running: Vec<&'a str>,
}

impl Serialize for Changed {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let pause = self.pause.as_ref();
        Shown {
            job: self.job.as_str(),
            paused: pause.is_some(),
            changed: self.done,
            by: &self.by,
            since: pause.map(|pause| pause.since),
            until: pause.and_then(|pause| pause.until),
            reason: pause
                .map(|pause| pause.reason.as_str())
                .filter(|reason| !reason.is_empty()),
            running: self.running.iter().map(|run| run.run_id.as_str()).collect(),
        }
        .serialize(to)
    }
}

pub(super) fn for_people(changed: &Changed) -> String {
    let job = &changed.job;
    let mut text = match (&changed.pause, &changed.before) {
        (Some(pause), before) => {
            let again = before.as_ref().map_or_else(String::new, |before| {
                let by = &before.by;
                match before.reason.as_str() {
                    reason if reason.is_empty() || reason == pause.reason => {
                        format!(" (it was paused by {by} already)")
                    }
                    reason => {
                        format!(
                            " (it was paused by {by} already; its reason {reason:?} is replaced)"
                        )
                    }
                }
            });
            match pause.until {
                Some(until) => format!("job {job}: paused until {until}{again}"),
                None => format!("job {job}: paused{again}"),
            }
        }
        (None, Some(before)) if changed.done => {
            format!(
                "job {job}: resumed; it was paused by {} since {}",
                before.by, before.since
            )
        }
        (None, _) => format!("job {job}: it was not paused"),
    };
    for run in &changed.running {
        text += &format!("; run {} on {} continues", run.run_id, run.by);
    }
    text.push('\n');
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn paused(by: &str, reason: &str) -> Pause {
        Pause {
            asked_at: Timestamp::EPOCH,
            since: Timestamp::EPOCH,
            until: None,
            by: by.to_owned(),
            resumed_by: None,
            reason: reason.to_owned(),
        }
    }

    #[test]
    fn a_pause_that_replaces_the_reason_of_another_says_so() {
        let again = |reason: &str| {
            for_people(&Changed {
                job: JobName::parse("backup").expect("a name"),
                pause: Some(paused("me", reason)),
                before: Some(paused("you", "db work")),
                done: true,
                by: "me".to_owned(),
                running: Vec::new(),
            })
        };
        let replaced = "job backup: paused (it was paused by you already; its reason \"db work\" is \
                        replaced)\n";
        assert_eq!(again(""), replaced);
        assert_eq!(again("disk"), replaced);
        let same = "job backup: paused (it was paused by you already)\n";
        assert_eq!(again("db work"), same);
    }
}
