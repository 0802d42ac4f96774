//! Targets, events and pings, validated.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Duration;

use super::secret::Secret;
use super::url::HttpUrl;
use crate::config::program::Command;
use crate::names::TargetName;

/// What happened to a job or to one of its runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum JobEvent {
    /// The command of a run was started.
    Started,
    /// A run succeeded.
    Succeeded,
    /// A run failed, ran into its time-out, or was stopped.
    Failed,
    /// A run succeeded after others had not.
    Recovered,
    /// A run lost its lease or its host, or its result is unknown.
    Lost,
    /// An occurrence was not started in time.
    Missed,
    /// An occurrence was not started, by policy.
    Skipped,
    /// A run started later than `late_after` after it was due.
    Late,
    /// A run has been running for longer than `long_after`.
    Long,
    /// The job has not succeeded for `expect_success_within`.
    Overdue,
}

impl JobEvent {
    /// All events, by name.
    pub const WORDS: [(&'static str, Self); 10] = [
        ("started", Self::Started),
        ("succeeded", Self::Succeeded),
        ("failed", Self::Failed),
        ("recovered", Self::Recovered),
        ("lost", Self::Lost),
        ("missed", Self::Missed),
        ("skipped", Self::Skipped),
        ("late", Self::Late),
        ("long", Self::Long),
        ("overdue", Self::Overdue),
    ];

    /// The name in lists and messages.
    pub fn word(self) -> &'static str {
        let found = Self::WORDS.iter().find(|(_, event)| *event == self);
        found.map_or("", |(word, _)| word)
    }
}

/// One entry of `notify:`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NotifyTarget {
    /// Its name, by which jobs refer to it.
    pub name: TargetName,
    /// How messages reach it.
    pub channel: Channel,
    /// The events that it receives.
    pub on: BTreeSet<JobEvent>,
    /// How many verdicts in a row are needed before the first message; at least 1. Those of `failed`, `lost` and
    /// `missed` count together, as far as they are in `on`; others count by event.
    pub after: u32,
    /// The shortest time between two messages of one row, which a success ends; `None`: each verdict is sent.
    pub repeat: Option<Duration>,
}

/// How messages reach a target.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Channel {
    /// A POST request.
    Http(HttpTarget),
    /// A program that reads the message as JSON from its standard input.
    Command(Command),
    /// A mail, handed to `sendmail`.
    Mail(MailTarget),
    /// A target of this kind whose address has a variable that is not set. Only commands that send
    /// nothing read such a list.
    Unset(&'static str),
}

impl Channel {
    /// The kind of the target, for people.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Http(http) => http.kind,
            Self::Command(_) => "command",
            Self::Mail(_) => "mail",
            Self::Unset(kind) => kind,
        }
    }

    /// Where messages go, without secrets.
    pub fn shown(&self) -> String {
        match self {
            Self::Http(http) => http.url.shown(),
            Self::Command(Command::Argv(argv)) => argv.first().cloned().unwrap_or_default(),
            Self::Command(Command::Shell { shell, .. }) => format!("{} -c …", shell.display()),
            Self::Mail(mail) => mail.to.join(", "),
            Self::Unset(_) => "its variables are not set".to_owned(),
        }
    }
}

/// A target that is reached over HTTP.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HttpTarget {
    /// The field that named it: `slack`, `webhook`, …
    pub kind: &'static str,
    /// Where requests go.
    pub url: HttpUrl,
    /// Further headers.
    pub headers: Vec<(String, Secret)>,
    /// The form of the body.
    pub template: Template,
}

/// The form of a request's body.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Template {
    /// A Slack incoming webhook; Mattermost and Rocket.Chat understand it as well.
    Slack,
    /// A Discord webhook.
    Discord,
    /// A Microsoft Teams workflow (an adaptive card).
    Teams,
    /// A topic of ntfy.
    Ntfy,
    /// The events API of `PagerDuty`, version 2.
    PagerDuty {
        /// The integration key. `None`: the receiver knows it by a header.
        routing_key: Option<Secret>,
    },
    /// cronlatch's own JSON, as a command gets it.
    Json,
}

/// A target that is reached by mail.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MailTarget {
    /// The addresses; at least one.
    pub to: Vec<String>,
    /// The sender; `None`: what `sendmail` makes of the daemon's user.
    pub from: Option<String>,
    /// The program that takes the mail.
    pub sendmail: PathBuf,
}

/// The notifications of a job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Alerts {
    /// The targets of its events.
    pub targets: Vec<TargetName>,
    /// A monitoring service that receives starts and ends.
    pub ping: Option<Ping>,
    /// The service of a `ping` that has a variable which is not set; `ping` is then `None`. Only commands
    /// that send nothing read such a list.
    pub unset_ping: Option<&'static str>,
    /// From which delay on a start is `late`.
    pub late_after: Duration,
    /// From which duration on a run is `long`.
    pub long_after: Option<Duration>,
    /// How long the job may be without a success.
    pub expect_success_within: Option<Duration>,
}

/// The default of `late_after`.
pub const LATE_AFTER: Duration = Duration::from_secs(60);

impl Default for Alerts {
    fn default() -> Self {
        Self {
            targets: Vec::new(),
            ping: None,
            unset_ping: None,
            late_after: LATE_AFTER,
            long_after: None,
            expect_success_within: None,
        }
    }
}

/// `ping:` of a job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ping {
    /// healthchecks.io, or an instance of one's own: the URL of the check.
    Healthchecks(HttpUrl),
    /// cronitor.io: the telemetry URL of the monitor.
    Cronitor(HttpUrl),
    /// Sentry: the check-in URL of the monitor.
    Sentry(HttpUrl),
    /// Any URL: requested after a success, or with `{status}` in it for each of `start`, `success`
    /// and `fail`.
    Url(HttpUrl),
}

impl Ping {
    /// The URL that all requests begin with.
    pub fn url(&self) -> &HttpUrl {
        match self {
            Self::Healthchecks(url) | Self::Cronitor(url) | Self::Sentry(url) | Self::Url(url) => {
                url
            }
        }
    }

    /// The service, for people.
    pub fn service(&self) -> &'static str {
        match self {
            Self::Healthchecks(_) => "healthchecks",
            Self::Cronitor(_) => "cronitor",
            Self::Sentry(_) => "sentry",
            Self::Url(_) => "url",
        }
    }

    /// The service and its host, without what is secret.
    pub fn shown(&self) -> String {
        format!("{} at {}", self.service(), self.url().shown())
    }
}
