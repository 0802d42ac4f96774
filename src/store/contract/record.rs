//! Records: how an occurrence, or a range of them, ended. Their JSON form is that of `history --json`
//! and of the embedded store.

use serde::{Deserialize, Serialize};

use super::key_fault::KeyFault;
use crate::names::{HostName, JobName, RunId};
use crate::time::Timestamp;

/// How a run came to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// At its scheduled instant.
    Schedule,
    /// Late, by `catch_up`.
    CatchUp,
    /// Again, after its first holder crashed.
    Rerun,
    /// By `trigger`.
    Manual,
    /// After waiting for an earlier run (`on_overlap: queue` or `wait`).
    Queue,
}

impl Kind {
    const WORDS: [(Self, &'static str); 5] = [
        (Self::Schedule, "schedule"),
        (Self::CatchUp, "catch_up"),
        (Self::Rerun, "rerun"),
        (Self::Manual, "manual"),
        (Self::Queue, "queue"),
    ];

    /// The word for it in the history and in the ledger.
    pub fn word(self) -> &'static str {
        let found = Self::WORDS.iter().find(|(kind, _)| *kind == self);
        found.map_or("schedule", |(_, word)| word)
    }

    /// Returns the kind with this name.
    pub fn of_word(word: &str) -> Option<Self> {
        let found = Self::WORDS.iter().find(|(_, known)| *known == word);
        found.map(|(kind, _)| *kind)
    }
}

/// How it ended. These words are an interface (`history --json`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// Exit code in `success_exit_codes`.
    Succeeded,
    /// Any other exit, or the command could not be started (`reason`).
    Failed,
    /// Ended by `timeout`.
    TimedOut,
    /// Ended because its lease was lost or could not be renewed in time.
    LeaseLost,
    /// Ended by a drain that ran out of time, or by a person.
    Stopped,
    /// Its host died, so it is unknown how far it came.
    Interrupted,
    /// Not started, by policy.
    Skipped,
    /// Not started: it was too late, or no host was up.
    Missed,
    /// It cannot be known what happened.
    Unknown,
}

impl Outcome {
    /// All of them.
    pub const ALL: [Self; 9] = [
        Self::Succeeded,
        Self::Failed,
        Self::TimedOut,
        Self::LeaseLost,
        Self::Stopped,
        Self::Interrupted,
        Self::Skipped,
        Self::Missed,
        Self::Unknown,
    ];

    /// Whether a run failed: `failed`, `timed_out`, `lease_lost` or `interrupted`.
    pub fn is_failure(self) -> bool {
        matches!(
            self,
            Self::Failed | Self::TimedOut | Self::LeaseLost | Self::Interrupted
        )
    }

    /// The outcome that a word of the interfaces names.
    pub fn of_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|outcome| outcome.word() == word)
    }

    /// The word of the interfaces.
    pub fn word(self) -> &'static str {
        match self {
            Self::Succeeded => "succeeded",
            Self::Failed => "failed",
            Self::TimedOut => "timed_out",
            Self::LeaseLost => "lease_lost",
            Self::Stopped => "stopped",
            Self::Interrupted => "interrupted",
            Self::Skipped => "skipped",
            Self::Missed => "missed",
            Self::Unknown => "unknown",
        }
    }

    /// The outcome in a sentence.
    pub fn text(self) -> &'static str {
        match self {
            Self::TimedOut => "timed out",
            Self::LeaseLost => "lease lost",
            _ => self.word(),
        }
    }
}

/// Several occurrences with one verdict.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Range {
    /// The first.
    pub from: Timestamp,
    /// The last.
    pub until: Timestamp,
    /// How many.
    pub count: u64,
}

/// One line of the history. Field names and order are an interface (`history --json`).
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Record {
    /// The job.
    #[serde(with = "as_text")]
    pub job: JobName,
    /// The run; `None` when nothing ran.
    #[serde(with = "as_option")]
    pub run_id: Option<RunId>,
    /// How it came to be.
    pub kind: Kind,
    /// Its occurrence, or the first of a range; `None` for a manual run.
    pub scheduled_at: Option<Timestamp>,
    /// The last occurrence of a range.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<Timestamp>,
    /// How many occurrences a range has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub count: Option<u64>,
    /// When the process of the first attempt started, by the clock of the store as the host knew it.
    pub started_at: Option<Timestamp>,
    /// When it ended or was decided.
    pub finished_at: Option<Timestamp>,
    /// The host that ran or decided it.
    #[serde(with = "as_option")]
    pub host: Option<HostName>,
    /// How it ended.
    pub outcome: Outcome,
    /// Why, in plain words, where the outcome leaves that open.
    pub reason: Option<String>,
    /// Who stood in the way: the holder of the lock for a skip. For a run that was interrupted: the
    /// host whose claim recorded that.
    pub by: Option<String>,
    /// The exit code of the last attempt.
    pub exit_code: Option<i32>,
    /// The signal that ended the last attempt.
    pub signal: Option<i32>,
    /// How many times the command was started.
    pub attempts: u32,
    /// The fencing token.
    pub fence: Option<u64>,
    /// The last lines of output.
    pub output_tail: Option<String>,
    /// What the run used; `None` if nothing ran, or it is not known. Earlier versions did not measure it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usage: Option<RunUsage>,
}

/// What the processes of a run used, in all its attempts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct RunUsage {
    /// The CPU time of all its processes, in milliseconds.
    pub cpu_ms: u64,
    /// In a control group that counts memory, the most memory that all processes had at once; otherwise
    /// the most that one of them had in RAM. In bytes.
    pub peak_memory_bytes: u64,
}

impl Record {
    /// Returns a record of which no more is known: every other field is absent, and no attempt was made.
    pub fn blank(job: JobName, kind: Kind, outcome: Outcome) -> Self {
        Self {
            job,
            run_id: None,
            kind,
            scheduled_at: None,
            until: None,
            count: None,
            started_at: None,
            finished_at: None,
            host: None,
            outcome,
            reason: None,
            by: None,
            exit_code: None,
            signal: None,
            attempts: 0,
            fence: None,
            output_tail: None,
            usage: None,
        }
    }

    /// Whether this says that the ledger was ahead of the store's clock and was set back. It names
    /// no occurrence and no run.
    pub fn is_correction(&self) -> bool {
        self.outcome == Outcome::Unknown && self.scheduled_at.is_none() && self.run_id.is_none()
    }
}

/// What a store returns of a job's history.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct History {
    /// The records that can be read, newest first.
    pub records: Vec<Record>,
    /// The entries that cannot be read. The others are not affected by them.
    pub unreadable: Vec<KeyFault>,
}

mod as_text {
    use serde::{Deserialize as _, Deserializer, Serializer, de::Error as _};

    use crate::names::JobName;

    pub(super) fn serialize<S: Serializer>(name: &JobName, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(name.as_str())
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<JobName, D::Error> {
        let text = String::deserialize(from)?;
        JobName::parse(&text).map_err(D::Error::custom)
    }
}

mod as_option {
    use serde::{Deserialize as _, Deserializer, Serializer, de::Error as _};

    use crate::names::{HostName, RunId};

    pub(super) trait Name: Sized {
        fn text(&self) -> &str;
        fn read(text: &str) -> Result<Self, String>;
    }

    impl Name for HostName {
        fn text(&self) -> &str {
            self.as_str()
        }

        fn read(text: &str) -> Result<Self, String> {
            Self::parse(text).map_err(|e| e.to_string())
        }
    }

    impl Name for RunId {
        fn text(&self) -> &str {
            self.as_str()
        }

        fn read(text: &str) -> Result<Self, String> {
            Ok(Self::from_text(text))
        }
    }

    #[expect(clippy::ref_option, reason = "serde hands the field over like this")]
    pub(super) fn serialize<N: Name, S: Serializer>(
        name: &Option<N>,
        to: S,
    ) -> Result<S::Ok, S::Error> {
        match name {
            Some(name) => to.serialize_some(name.text()),
            None => to.serialize_none(),
        }
    }

    pub(super) fn deserialize<'de, N: Name, D: Deserializer<'de>>(
        from: D,
    ) -> Result<Option<N>, D::Error> {
        Option::<String>::deserialize(from)?
            .map(|text| N::read(&text).map_err(D::Error::custom))
            .transpose()
    }
}

#[cfg(test)]
mod tests {
    use super::Outcome;

    #[test]
    fn the_words_of_outcomes_are_those_of_the_json() {
        for outcome in Outcome::ALL {
            let json = serde_json::to_value(outcome).expect("a word");
            assert_eq!(json, outcome.word());
        }
    }
}
