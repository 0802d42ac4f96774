//! What people asked of daemons (`trigger`, `kill`), and what else they did.

use std::collections::BTreeSet;

use serde::Serialize;

use crate::cli::output;
use crate::ground::sorting::SortShort as _;
use crate::names::RunId;
use crate::store::{FiledRequest, RequestOrder, RequestReply};
use crate::time::Timestamp;

/// A request to a daemon.
#[derive(Debug, Serialize)]
pub(super) struct RequestStatus {
    /// Its id; that of a `trigger` is the id of the run.
    pub(super) id: String,
    /// By the store's clock.
    pub(super) asked_at: Timestamp,
    pub(super) host: String,
    /// `trigger`, `kill`, `pause`, `resume`, `unlock` or `forget`; `null` if this version cannot read
    /// the request.
    pub(super) what: Option<&'static str>,
    pub(super) job: Option<String>,
    /// The run that was to be killed; `null`: all of the job.
    pub(super) run_id: Option<String>,
    /// The signal that was to be sent instead.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) signal: Option<String>,
    /// Who asked, and why; the reason may be empty.
    pub(super) by: Option<String>,
    pub(super) reason: Option<String>,
    /// `waiting`, `expired`, `taken`, `started`, `killing`, `killed`, `signalled`, `refused`
    /// or `done`, by the command itself.
    pub(super) state: &'static str,
    /// The runs that were killed, or got the signal. Left out without any.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) runs: Vec<String>,
    /// Why the daemon refused.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) refusal: Option<String>,
}

impl RequestStatus {
    /// The requests that a store keeps, the newest first; `running` has the ids of the runs in progress.
    pub(super) fn all(
        mut filed: Vec<FiledRequest>,
        running: &BTreeSet<&str>,
        now: Timestamp,
    ) -> Vec<Self> {
        filed.sort_short_by(|a, b| (a.age, &b.id).cmp(&(b.age, &a.id)));
        let of = |filed| Self::of(filed, running, now);
        filed.into_iter().map(of).collect()
    }

    fn of(filed: FiledRequest, running: &BTreeSet<&str>, now: Timestamp) -> Self {
        let sends_signal = filed.request.as_ref().is_some_and(|request| {
            matches!(
                &request.order,
                RequestOrder::Kill {
                    signal: Some(_),
                    ..
                }
            )
        });
        let is_note = (filed.request.as_ref())
            .is_some_and(|request| matches!(request.order, RequestOrder::Note { .. }));
        let mut killed = Vec::new();
        let (state, refusal) = match filed.reply {
            Some(RequestReply::Started { .. }) => ("started", None),
            Some(RequestReply::Signalled { runs }) => {
                killed = runs.iter().map(RunId::to_string).collect();
                match killed.iter().any(|run| running.contains(run.as_str())) {
                    _ if sends_signal => ("signalled", None),
                    true => ("killing", None),
                    false => ("killed", None),
                }
            }
            Some(RequestReply::Refused { reason, .. }) => ("refused", Some(reason)),
            None if is_note => ("done", None),
            None if filed.taken => ("taken", None),
            None if filed.left.is_zero() => ("expired", None),
            None => ("waiting", None),
        };
        let mut status = Self {
            id: filed.id.to_string(),
            asked_at: now.minus(filed.age),
            host: filed.host.to_string(),
            what: None,
            job: None,
            run_id: None,
            signal: None,
            by: None,
            reason: None,
            state,
            runs: killed,
            refusal,
        };
        if let Some(request) = filed.request {
            status.job = Some(request.subject().to_owned());
            status.by = Some(request.by);
            status.reason = Some(request.reason);
            match request.order {
                RequestOrder::Trigger { .. } => {
                    status.what = Some("trigger");
                    status.run_id = Some(status.id.clone());
                }
                RequestOrder::Kill { run, signal, .. } => {
                    status.what = Some("kill");
                    status.run_id = run.as_ref().map(RunId::to_string);
                    status.signal = signal;
                }
                RequestOrder::Note { done, .. } => status.what = Some(done.word()),
            }
        }
        status
    }
}

/// The newest requests as a table; empty without any.
pub(super) fn for_people(requests: &[RequestStatus], now: Timestamp) -> String {
    const SHOWN: usize = 10;
    if requests.is_empty() {
        return String::new();
    }
    let row = |request: &RequestStatus| {
        let what = match (request.what, &request.signal) {
            (Some(what), Some(signal)) => format!("{what} --signal {signal}"),
            (Some(what), None) => what.to_owned(),
            (None, _) => "not readable".to_owned(),
        };
        // A long refusal is for `--json`; its first line has the reason.
        let refusal = request.refusal.as_deref().unwrap_or_default();
        let refusal = refusal.lines().next().unwrap_or_default();
        [
            what,
            request.job.clone().unwrap_or_else(|| "-".to_owned()),
            request.host.clone(),
            format!("{} ago", output::short(now.since(request.asked_at))),
            request.by.clone().unwrap_or_else(|| "-".to_owned()),
            request.reason.clone().unwrap_or_default(),
            match refusal {
                "" => request.state.to_owned(),
                refusal => format!("{}: {refusal}", request.state),
            },
        ]
    };
    let header = ["REQUEST", "JOB", "HOST", "ASKED", "BY", "WHY", "RESULT"];
    let mut text = format!(
        "\n{}",
        output::table(header, requests.iter().take(SHOWN).map(row))
    );
    if let more @ 1.. = requests.len().saturating_sub(SHOWN) {
        text += &format!("{more} more in the last hour: see --json\n");
    }
    text
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::names::{HostName, JobName};
    use crate::store::{DaemonRequest, RefusalKind};

    fn kill(id: &str, age: u64) -> FiledRequest {
        let host = HostName::parse("web1").expect("a name");
        let request = DaemonRequest {
            id: RunId::from_text(id),
            host: host.clone(),
            order: RequestOrder::Kill {
                job: JobName::parse("backup").expect("a name"),
                run: None,
                signal: None,
            },
            by: "alice@web2".to_owned(),
            reason: "it hangs".to_owned(),
        };
        FiledRequest {
            id: request.id.clone(),
            host,
            age: Duration::from_secs(age),
            left: Duration::ZERO,
            taken: true,
            request: Some(request),
            reply: None,
        }
    }

    #[test]
    fn people_see_who_asked_for_what_and_why() {
        let now = Timestamp::from_secs(10_000);
        let refused = FiledRequest {
            reply: Some(RequestReply::Refused {
                kind: RefusalKind::Busy,
                reason: "the daemon drains\nhelp: wait".to_owned(),
            }),
            ..kill("2", 60)
        };
        let unreadable = FiledRequest {
            request: None,
            taken: false,
            ..kill("1", 90)
        };
        let all = RequestStatus::all(
            vec![unreadable, kill("3", 5), refused],
            &BTreeSet::new(),
            now,
        );
        let text = for_people(&all, now);
        let expected = "
REQUEST       JOB     HOST  ASKED       BY          WHY       RESULT
kill          backup  web1  5.0s ago    alice@web2  it hangs  taken
kill          backup  web1  1m ago      alice@web2  it hangs  refused: the daemon drains
not readable  -       web1  1m 30s ago  -                     expired
";
        assert_eq!(text, expected);
        let many = (0..12).map(|n| kill(&n.to_string(), n)).collect();
        let text = for_people(&RequestStatus::all(many, &BTreeSet::new(), now), now);
        assert!(
            text.ends_with("\n2 more in the last hour: see --json\n"),
            "{text}"
        );
        assert_eq!(for_people(&[], now), "");
    }
    #[test]
    fn a_kill_shows_whether_its_run_has_ended() {
        let now = Timestamp::from_secs(10_000);
        let replied = |signal: Option<&str>| {
            let mut filed = kill("1", 5);
            let request = filed.request.as_mut().expect("a request");
            if let RequestOrder::Kill { signal: order, .. } = &mut request.order {
                *order = signal.map(str::to_owned);
            }
            let runs = vec![RunId::from_text("run-1")];
            filed.reply = Some(RequestReply::Signalled { runs });
            filed
        };
        let state = |signal, running: &[&str]| {
            let running = running.iter().copied().collect();
            let status = RequestStatus::of(replied(signal), &running, now);
            assert_eq!(status.runs, ["run-1"]);
            status.state
        };
        assert_eq!(state(None, &["run-0", "run-1"]), "killing");
        assert_eq!(state(None, &["run-0"]), "killed");
        assert_eq!(state(Some("HUP"), &["run-1"]), "signalled");
        assert_eq!(state(Some("HUP"), &[]), "signalled");
    }
}
