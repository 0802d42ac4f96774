//! Requests to daemons: a run of a job now, or the end of a run.
//!
//! A request names jobs, runs and hosts only. What runs is what the daemon's own list has. The daemon
//! of the named host takes the request, once, and then writes its reply. The store keeps both for an
//! hour, so that `status` shows who asked for what, and why.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::lock::{Lock, LockRef};
use super::pause::IfPaused;
use crate::names::{HostName, JobName, RunId};

/// How long a daemon has to take a request. It never acts on a request after that.
pub const REQUEST_VALID_FOR: Duration = Duration::from_secs(10);
/// How long a store keeps a request.
pub(in crate::store) const REQUEST_KEPT_FOR: Duration = Duration::from_secs(3600);
/// The host of notes: no daemon has this name.
pub const NO_HOST: &str = "-";
/// Nothing is noted while a store keeps so many requests, so that there is room for those to daemons.
pub const NOTES_BELOW: usize = 250;
/// How many requests a store keeps. It refuses further ones.
pub(in crate::store) const REQUESTS_KEPT: usize = 500;
/// How long a store keeps the output of a run that nobody reads.
pub(in crate::store) const OUTPUT_KEPT_FOR: Duration = Duration::from_secs(300);

/// What a request asks a daemon to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RequestOrder {
    /// To run a job now, under its lock. The run has the id of the request.
    Trigger {
        /// The job.
        job: JobName,
        /// What happens if the job is paused.
        if_paused: IfPaused,
        /// Whether the output of the run is sent through the store.
        output: OutputWish,
    },
    /// To end runs that are in progress.
    Kill {
        /// The job.
        job: JobName,
        /// One of its runs; `None`: all of them.
        run: Option<RunId>,
        /// The name of a signal that the runs get instead of being ended, such as `HUP`.
        signal: Option<String>,
    },
    /// Nothing: a command has done this itself, and notes it for `status`.
    Note {
        /// What it has done.
        done: Intervention,
        /// To which jobs, or to which lock.
        subject: String,
    },
}

/// What a command does without a daemon.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Intervention {
    /// It pauses jobs.
    Pause,
    /// It ends the pauses of jobs.
    Resume,
    /// It releases a lock that another process has taken.
    Unlock,
    /// It deletes what the store has about a job.
    Forget,
}

impl Intervention {
    /// The command.
    pub fn word(self) -> &'static str {
        match self {
            Self::Pause => "pause",
            Self::Resume => "resume",
            Self::Unlock => "unlock",
            Self::Forget => "forget",
        }
    }
}

/// Whether the command that asks for a run wants its output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OutputWish {
    /// The output stays on the host.
    Keep,
    /// The output is sent through the store while the run goes on.
    Send,
}

/// A request to the daemon of one host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DaemonRequest {
    /// Its identity.
    pub id: RunId,
    /// The host whose daemon is asked.
    pub host: HostName,
    /// What is asked.
    pub order: RequestOrder,
    /// Who asks: `USER@HOST`.
    pub by: String,
    /// Why; may be empty.
    pub reason: String,
}

/// What a daemon replies to a request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RequestReply {
    /// The run is granted, and starts.
    Started {
        /// The lock under which its ledger and its history lie.
        lock: LockRef,
        /// See [`Lock::exclusive`].
        exclusive: bool,
    },
    /// These runs are being ended, or have got the signal.
    Signalled {
        /// The runs.
        runs: Vec<RunId>,
    },
    /// Nothing was done.
    Refused {
        /// What kind of reason it is.
        kind: RefusalKind,
        /// The reason, for people.
        reason: String,
    },
}

/// Why a daemon refuses a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RefusalKind {
    /// The host has no such job or run, or does not understand the request.
    Unknown,
    /// Not now: the lock is held, the job is paused, the daemon drains.
    Busy,
    /// The store does not reply.
    Store,
}

impl RequestReply {
    /// The reply to a granted run.
    pub fn started(lock: &Lock) -> Self {
        Self::Started {
            lock: LockRef::of(lock),
            exclusive: lock.exclusive,
        }
    }

    /// The lock of the run, if one was started.
    pub fn lock(&self) -> Option<Lock> {
        match self {
            Self::Started { lock, exclusive } => Some(Lock {
                exclusive: *exclusive,
                ..lock.lock()
            }),
            Self::Signalled { .. } | Self::Refused { .. } => None,
        }
    }

    /// What a store keeps.
    pub(in crate::store) fn text(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }
}

/// A request as a store keeps it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FiledRequest {
    /// Its identity.
    pub id: RunId,
    /// The host whose daemon is asked.
    pub host: HostName,
    /// How long ago it was filed.
    pub age: Duration,
    /// How long the daemon may still take it; zero when that time is over.
    pub left: Duration,
    /// Whether the daemon has taken it.
    pub taken: bool,
    /// The request; `None` if it cannot be read, because another version of cronlatch wrote it.
    pub request: Option<DaemonRequest>,
    /// The reply, once there is one.
    pub reply: Option<RequestReply>,
}

/// What a store does with a new request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Filed {
    /// It keeps the request, now or since an earlier copy.
    Kept,
    /// The request came too late for the daemon to take it.
    Late,
    /// The store has as many requests as it keeps.
    Full,
}

/// A part of the output of a run, on its way through the store.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OutputChunk {
    /// The lines, each with its stream: true for standard error.
    pub lines: Vec<(bool, String)>,
    /// How many lines before these were dropped, because nobody read fast enough.
    #[serde(default)]
    pub dropped: u64,
    /// Whether this is the last part.
    #[serde(default)]
    pub last: bool,
}

impl OutputChunk {
    /// What a store keeps.
    pub(in crate::store) fn text(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }

    /// Parses what a store keeps.
    pub(in crate::store) fn parse(text: &str) -> Option<Self> {
        serde_json::from_str(text).ok()
    }
}

/// The stored form of a request, without its id and its host. A field or an order that this version
/// does not know makes it unreadable: the daemon then refuses it instead of doing a part of it.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct StoredRequest {
    by: String,
    reason: String,
    order: StoredOrder,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
enum StoredOrder {
    Trigger {
        job: String,
        even_if_paused: bool,
        output: bool,
    },
    Kill {
        job: String,
        run: Option<RunId>,
        signal: Option<String>,
    },
    Note {
        done: Intervention,
        subject: String,
    },
}

impl DaemonRequest {
    /// What a store keeps.
    pub(in crate::store) fn text(&self) -> String {
        let order = match &self.order {
            RequestOrder::Trigger {
                job,
                if_paused,
                output,
            } => StoredOrder::Trigger {
                job: job.to_string(),
                even_if_paused: *if_paused == IfPaused::Run,
                output: *output == OutputWish::Send,
            },
            RequestOrder::Kill { job, run, signal } => StoredOrder::Kill {
                job: job.to_string(),
                run: run.clone(),
                signal: signal.clone(),
            },
            RequestOrder::Note { done, subject } => StoredOrder::Note {
                done: *done,
                subject: subject.clone(),
            },
        };
        let stored = StoredRequest {
            by: self.by.clone(),
            reason: self.reason.clone(),
            order,
        };
        serde_json::to_string(&stored).unwrap_or_default()
    }

    fn parse(id: &RunId, host: &HostName, text: &str) -> Option<Self> {
        let stored = serde_json::from_str::<StoredRequest>(text).ok()?;
        let order = match stored.order {
            StoredOrder::Trigger {
                job,
                even_if_paused,
                output,
            } => RequestOrder::Trigger {
                job: JobName::parse(&job).ok()?,
                if_paused: if even_if_paused {
                    IfPaused::Run
                } else {
                    IfPaused::Refuse
                },
                output: if output {
                    OutputWish::Send
                } else {
                    OutputWish::Keep
                },
            },
            StoredOrder::Kill { job, run, signal } => RequestOrder::Kill {
                job: JobName::parse(&job).ok()?,
                run,
                signal,
            },
            StoredOrder::Note { done, subject } => RequestOrder::Note { done, subject },
        };
        Some(Self {
            id: id.clone(),
            host: host.clone(),
            order,
            by: stored.by,
            reason: stored.reason,
        })
    }

    /// The job that the request is about; for a note the jobs or the lock.
    pub fn subject(&self) -> &str {
        match &self.order {
            RequestOrder::Trigger { job, .. } | RequestOrder::Kill { job, .. } => job.as_str(),
            RequestOrder::Note { subject, .. } => subject,
        }
    }

    /// Who asked, and why.
    pub fn cause(&self) -> String {
        match self.reason.as_str() {
            "" => self.by.clone(),
            reason => format!("{}: {reason}", self.by),
        }
    }
}

/// A request as a store's row or field has it.
pub(in crate::store) struct StoredParts<'a> {
    pub(in crate::store) id: &'a str,
    pub(in crate::store) host: &'a str,
    pub(in crate::store) age: Duration,
    pub(in crate::store) left: Duration,
    pub(in crate::store) taken: bool,
    pub(in crate::store) request: &'a str,
    pub(in crate::store) reply: &'a str,
}

impl FiledRequest {
    /// Parses what a store keeps. Returns `None` if not even the host can be read.
    pub(in crate::store) fn parse(parts: &StoredParts<'_>) -> Option<Self> {
        let (id, host) = (
            RunId::from_text(parts.id),
            HostName::parse(parts.host).ok()?,
        );
        Some(Self {
            request: DaemonRequest::parse(&id, &host, parts.request),
            id,
            host,
            age: parts.age,
            left: parts.left,
            taken: parts.taken,
            reply: serde_json::from_str(parts.reply).ok(),
        })
    }

    /// The same request as another node keeps it, in one: it is taken if any node says so.
    pub(in crate::store) fn merge(&mut self, other: Self) {
        self.taken |= other.taken;
        self.left = self.left.max(other.left);
        self.age = self.age.min(other.age);
        self.reply = self.reply.take().or(other.reply);
        self.request = self.request.take().or(other.request);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name<T: std::str::FromStr>(text: &str) -> T {
        text.parse().ok().expect("a name")
    }

    fn filed(request: &str) -> FiledRequest {
        FiledRequest::parse(&StoredParts {
            id: "r",
            host: "web1",
            age: Duration::ZERO,
            left: Duration::ZERO,
            taken: false,
            request,
            reply: "",
        })
        .expect("a host")
    }

    #[test]
    fn a_request_is_read_as_it_was_written() {
        let job: JobName = name("j");
        let orders = [
            RequestOrder::Trigger {
                job: job.clone(),
                if_paused: IfPaused::Run,
                output: OutputWish::Send,
            },
            RequestOrder::Kill {
                job,
                run: Some(RunId::from_text("x")),
                signal: Some("HUP".to_owned()),
            },
        ];
        for order in orders {
            let request = DaemonRequest {
                id: RunId::from_text("r"),
                host: name("web1"),
                order,
                by: "alice@web2".to_owned(),
                reason: "because \"of\"\n it".to_owned(),
            };
            assert_eq!(filed(&request.text()).request, Some(request));
        }
    }

    #[test]
    fn a_request_of_another_version_is_not_done_in_part() {
        let known =
            r#"{"by":"a","reason":"","order":{"kill":{"job":"j","run":null,"signal":null}}}"#;
        assert!(filed(known).request.is_some());
        for unknown in [
            &known.replace("\"run\":null", "\"run\":null,\"only_if\":1"),
            &known.replace("kill", "freeze"),
            &known.replace("\"by\"", "\"when\":1,\"by\""),
            "",
        ] {
            assert_eq!(filed(unknown).request, None, "{unknown}");
        }
    }

    #[test]
    fn nodes_are_read_as_one() {
        let mut one = filed("");
        let lock = Lock {
            exclusive: false,
            ..Lock::raw("app:{x}")
        };
        let reply = RequestReply::started(&lock);
        assert_eq!(reply.lock(), Some(lock));
        one.merge(FiledRequest {
            taken: true,
            reply: Some(reply.clone()),
            ..filed("")
        });
        assert!(one.taken);
        assert_eq!(one.reply, Some(reply));
    }
}
