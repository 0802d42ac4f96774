//! Monitoring services that receive a request for each start and end of a run, and raise the alarm
//! themselves when none comes.

use std::collections::VecDeque;
use std::fmt::Write as _;
use std::time::{Duration, Instant};

use super::deliver::SendFailure;
use super::deliver::http::{HttpClient, Request};
use super::outbox::{Next, Pace};
use super::sender::Queue;
use crate::config::Ping;
use crate::names::{HostName, JobName, RunId};
use crate::store::{Outcome, Record};

/// How many requests wait for a service at most. The oldest are dropped.
const WAITING_MAX: usize = 10_000;
/// How many characters of output are sent.
const OUTPUT_MAX: usize = 1000;

/// What is reported to a service.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Signal<'a> {
    /// A run has started.
    Start,
    /// A run has ended.
    End(&'a Record),
}

/// A run, as it is reported to a service.
#[derive(Debug, Clone, Copy)]
pub(super) struct PingedRun<'a> {
    pub(super) job: &'a JobName,
    pub(super) run_id: &'a RunId,
    pub(super) host: &'a HostName,
}

/// One request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct PingRequest {
    /// What it reports, for the log.
    about: String,
    /// Where it goes; a secret.
    url: String,
    /// What is posted; `None` for a GET.
    body: Option<String>,
}

impl PingRequest {
    /// Returns the request that reports a signal; `None` if the service has none for it.
    pub(super) fn new(ping: &Ping, run: PingedRun<'_>, signal: Signal<'_>) -> Option<Self> {
        let word = match signal {
            Signal::Start => "start",
            Signal::End(record) if record.outcome == Outcome::Succeeded => "success",
            Signal::End(_) => "fail",
        };
        let base = ping.url().secret();
        let run_id = run.run_id.as_str();
        let (url, body) = match ping {
            Ping::Healthchecks(_) => {
                let path = match word {
                    "success" => String::new(),
                    word => format!("/{word}"),
                };
                let body = body(signal);
                (format!("{base}{path}?rid={run_id}"), Some(body))
            }
            Ping::Cronitor(_) => {
                let state = match word {
                    "start" => "run",
                    "success" => "complete",
                    word => word,
                };
                let host = encoded(run.host.as_str());
                let mut url = format!("{base}?state={state}&series={run_id}&host={host}");
                if let Signal::End(record) = signal {
                    if let Some(code) = record.exit_code {
                        let _ = write!(url, "&status_code={code}");
                    }
                    let message = encoded(&body(signal));
                    let _ = write!(url, "&message={message}");
                }
                (url, None)
            }
            Ping::Sentry(_) => {
                let status = match word {
                    "start" => "in_progress",
                    "success" => "ok",
                    _ => "error",
                };
                (format!("{base}?check_in_id={run_id}&status={status}"), None)
            }
            Ping::Url(_) if base.contains("{status}") => (base.replace("{status}", word), None),
            Ping::Url(_) if word == "success" => (base.to_owned(), None),
            Ping::Url(_) => return None,
        };
        Some(Self {
            about: format!("{word} of {} (run {run_id})", run.job),
            url,
            body,
        })
    }

    /// Sends it, once.
    pub(super) fn send(&self, client: &HttpClient, limit: Duration) -> Result<(), SendFailure> {
        let request = Request {
            url: &self.url,
            headers: Vec::new(),
            body: self.body.as_deref(),
        };
        client.send(&request, limit)
    }
}

/// Reason and output of a run that has ended.
fn body(signal: Signal<'_>) -> String {
    let Signal::End(record) = signal else {
        return String::new();
    };
    let mut text = record.outcome.word().to_owned();
    if let Some(reason) = &record.reason {
        let _ = write!(text, ": {reason}");
    }
    if let Some(output) = &record.output_tail {
        let skip = output.chars().count().saturating_sub(OUTPUT_MAX);
        text.push('\n');
        text.extend(output.chars().skip(skip));
    }
    text
}

/// A text as a value of a query.
fn encoded(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            encoded.push(char::from(byte));
        } else {
            let _ = write!(encoded, "%{byte:02X}");
        }
    }
    encoded
}

/// The requests that wait, in order.
#[derive(Debug, Default)]
pub(super) struct PingQueue {
    waiting: VecDeque<PingRequest>,
    left_out: u64,
}

impl PingQueue {
    /// Adds a request.
    pub(super) fn push(&mut self, request: PingRequest) {
        if self.waiting.len() == WAITING_MAX {
            self.waiting.pop_front();
            self.left_out += 1;
            if self.left_out.is_power_of_two() {
                match self.left_out {
                    1 => tracing::warn!("1 ping was left out: the service does not keep up"),
                    n => tracing::warn!("{n} pings were left out: the service does not keep up"),
                }
            }
        }
        self.waiting.push_back(request);
    }
}

impl Queue for PingQueue {
    type Item = PingRequest;

    fn next(&mut self, _now: Instant, _pace: Pace) -> Next<PingRequest> {
        self.waiting.pop_front().map_or(Next::Idle, Next::Send)
    }

    fn len(&self) -> u64 {
        self.waiting.len() as u64
    }

    fn events(_: &PingRequest) -> u64 {
        1
    }

    fn describe(request: &PingRequest) -> String {
        request.about.clone()
    }

    fn gave_up(&mut self, _: &PingRequest) {}
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::HttpUrl;
    use crate::store::Kind;

    fn record(outcome: Outcome, output: &str) -> Record {
        Record {
            run_id: Some(RunId::from_text("R")),
            exit_code: Some(3),
            attempts: 1,
            output_tail: Some(output.to_owned()),
            ..Record::blank(
                JobName::parse("backup").expect("a name"),
                Kind::Schedule,
                outcome,
            )
        }
    }

    fn request(ping: &Ping, signal: Signal<'_>) -> Option<(String, Option<String>)> {
        let job = JobName::parse("backup").expect("a name");
        let host = HostName::parse("web1").expect("a name");
        let run_id = RunId::from_text("R");
        let run = PingedRun {
            job: &job,
            run_id: &run_id,
            host: &host,
        };
        PingRequest::new(ping, run, signal).map(|request| (request.url, request.body))
    }

    /// The URLs for a start, a success and a failure.
    fn urls(ping: &Ping) -> [Option<String>; 3] {
        let (good, bad) = (
            record(Outcome::Succeeded, "x"),
            record(Outcome::Failed, "x"),
        );
        [Signal::Start, Signal::End(&good), Signal::End(&bad)]
            .map(|signal| request(ping, signal).map(|(url, _)| url))
    }

    fn url(text: &str) -> HttpUrl {
        HttpUrl::parse(text).expect("a URL")
    }

    #[test]
    fn each_service_has_its_own_requests() {
        let some = |urls: [&str; 3]| urls.map(|url| Some(url.to_owned()));
        assert_eq!(
            urls(&Ping::Healthchecks(url("https://hc-ping.com/U"))),
            some([
                "https://hc-ping.com/U/start?rid=R",
                "https://hc-ping.com/U?rid=R",
                "https://hc-ping.com/U/fail?rid=R",
            ])
        );
        let p = "https://cronitor.link/p/K/M";
        assert_eq!(
            urls(&Ping::Cronitor(url(p))),
            [
                format!("{p}?state=run&series=R&host=web1"),
                format!(
                    "{p}?state=complete&series=R&host=web1&status_code=3&message=succeeded%0Ax"
                ),
                format!("{p}?state=fail&series=R&host=web1&status_code=3&message=failed%0Ax"),
            ]
            .map(Some)
        );
        assert_eq!(
            urls(&Ping::Sentry(url("https://o1.example/api/4/cron/b/k/"))),
            some([
                "https://o1.example/api/4/cron/b/k/?check_in_id=R&status=in_progress",
                "https://o1.example/api/4/cron/b/k/?check_in_id=R&status=ok",
                "https://o1.example/api/4/cron/b/k/?check_in_id=R&status=error",
            ])
        );
        assert_eq!(
            urls(&Ping::Url(url("https://example.org/{status}"))),
            some([
                "https://example.org/start",
                "https://example.org/success",
                "https://example.org/fail",
            ])
        );
        let alone = url("https://example.org/ok");
        let ok = Some("https://example.org/ok".to_owned());
        assert_eq!(urls(&Ping::Url(alone)), [None, ok, None]);
    }

    #[test]
    fn the_end_of_a_long_output_goes_along() {
        let bad = record(Outcome::Failed, &"ä".repeat(5000));
        let ping = Ping::Healthchecks(url("https://hc-ping.com/U"));
        let (_, body) = request(&ping, Signal::End(&bad)).expect("a request");
        let expected = format!("failed\n{}", "ä".repeat(OUTPUT_MAX));
        assert_eq!(body, Some(expected));
    }

    #[test]
    fn a_service_that_does_not_keep_up_misses_the_oldest() {
        let mut queue = PingQueue::default();
        for n in 0..=WAITING_MAX {
            queue.push(PingRequest {
                about: n.to_string(),
                url: String::new(),
                body: None,
            });
        }
        assert_eq!((queue.len(), queue.left_out), (WAITING_MAX as u64, 1));
        let next = queue.next(Instant::now(), Pace::Steady);
        assert!(matches!(next, Next::Send(request) if request.about == "1"));
    }
}
