//! What `notify-test` sends.

use super::TRY;
use super::deliver::http::HttpClient;
use super::deliver::{Delivery, SendEnvironment};
use super::notice::{Notice, NoticeKind};
use super::notification::Notification;
use crate::config::{Channel, JobEvent, NotifyTarget, Template};
use crate::names::{HostName, JobName, RunId};
use crate::store::{Kind, Outcome, Record};
use crate::time::Timestamp;

/// Sends a sample to a target, once; blocks until it is delivered. The error is the reason.
pub(crate) fn send(
    target: &NotifyTarget,
    host: &HostName,
    environment: SendEnvironment,
) -> Result<(), String> {
    let delivery = Delivery::new(&target.channel, HttpClient::default(), environment);
    let run_id = RunId::new();
    for event in events(&target.channel) {
        let message = Notification::one(notice(*event, host, &run_id));
        let sent = delivery.deliver(&message, TRY);
        sent.map_err(|failure| failure.why)?;
    }
    Ok(())
}

/// A failure; where that opens an incident, also what closes it.
fn events(channel: &Channel) -> &'static [JobEvent] {
    match channel {
        Channel::Http(http) if matches!(http.template, Template::PagerDuty { .. }) => {
            &[JobEvent::Failed, JobEvent::Recovered]
        }
        _ => &[JobEvent::Failed],
    }
}

fn notice(event: JobEvent, host: &HostName, run_id: &RunId) -> Notice {
    let job = JobName::parse("notify-test").expect("letters and a hyphen are a name");
    let now = Timestamp::now();
    let (outcome, exit_code) = match event {
        JobEvent::Recovered => (Outcome::Succeeded, 0),
        _ => (Outcome::Failed, 1),
    };
    Notice {
        event,
        job: job.clone(),
        host: host.clone(),
        at: now,
        run_id: Some(run_id.clone()),
        scheduled_at: Some(now),
        in_a_row: 1,
        record: Some(Record {
            run_id: Some(run_id.clone()),
            scheduled_at: Some(now),
            started_at: Some(now),
            finished_at: Some(now),
            host: Some(host.clone()),
            exit_code: Some(exit_code),
            attempts: 1,
            fence: Some(1),
            output_tail: Some("the last lines of output stand here".to_owned()),
            ..Record::blank(job, Kind::Schedule, outcome)
        }),
        detail: None,
        kind: NoticeKind::Sample,
    }
}
