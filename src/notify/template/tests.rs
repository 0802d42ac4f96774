use super::*;
use crate::names::{HostName, JobName};
use crate::notify::digest::Digest;
use crate::notify::notice::NoticeKind;
use crate::store::{Kind, Outcome};

const RUN: &str = "01a20cae-4fc0-7634-8e8c-78babf836149";

fn notice(event: JobEvent, outcome: Outcome) -> Notice {
    let at = Timestamp::from_secs(1_767_225_600);
    let job = JobName::parse("backup").expect("a name");
    let host = HostName::parse("web1").expect("a name");
    let run_id = Some(RunId::from_text(RUN));
    Notice {
        event,
        job: job.clone(),
        host: host.clone(),
        at,
        run_id: run_id.clone(),
        scheduled_at: Some(at),
        in_a_row: 3,
        record: Some(Record {
            run_id,
            scheduled_at: Some(at),
            started_at: Some(at),
            finished_at: Some(at),
            host: Some(host),
            exit_code: Some(1),
            attempts: 1,
            fence: Some(7),
            output_tail: Some("a <b> & c\n```\n".to_owned()),
            ..Record::blank(job, Kind::Schedule, outcome)
        }),
        detail: None,
        kind: NoticeKind::Real,
    }
}

fn failed() -> Notification {
    Notification {
        undelivered: 2,
        ..Notification::one(notice(JobEvent::Failed, Outcome::Failed))
    }
}

fn recovered() -> Notification {
    Notification::one(notice(JobEvent::Recovered, Outcome::Succeeded))
}

fn storm() -> Notification {
    let mut digest = Digest::of(&notice(JobEvent::Failed, Outcome::Failed));
    for n in 0..12 {
        digest.add(&Notice {
            job: JobName::parse(&format!("job-{n}")).expect("a name"),
            ..notice(JobEvent::Missed, Outcome::Missed)
        });
    }
    Notification {
        content: Content::Digest(Box::new(digest)),
        undelivered: 0,
    }
}

/// The bodies of a failure, a recovery and a storm.
fn bodies(template: &Template) -> String {
    let mut text = String::new();
    for message in [failed(), recovered(), storm()] {
        let Body {
            text: body,
            headers,
        } = body(template, &message);
        for (name, value) in headers {
            text += &format!("{name}: {value}\n");
        }
        let pretty = serde_json::from_str::<Value>(&body)
            .and_then(|value| serde_json::to_string_pretty(&value));
        text += &format!("\n{}\n\n", pretty.unwrap_or(body));
    }
    text
}

#[test]
fn slack_messages() {
    insta::assert_snapshot!(bodies(&Template::Slack));
}

#[test]
fn discord_messages() {
    insta::assert_snapshot!(bodies(&Template::Discord));
}

#[test]
fn teams_messages() {
    insta::assert_snapshot!(bodies(&Template::Teams));
}

#[test]
fn ntfy_messages() {
    insta::assert_snapshot!(bodies(&Template::Ntfy));
}

#[test]
fn pagerduty_messages() {
    let routing_key = Some(Secret("0123456789abcdef".to_owned()));
    insta::assert_snapshot!(bodies(&Template::PagerDuty { routing_key }));
}

#[test]
fn json_messages() {
    insta::assert_snapshot!(bodies(&Template::Json));
}

#[test]
fn long_output_is_cut_to_what_the_receiver_accepts() {
    let mut notice = notice(JobEvent::Failed, Outcome::Failed);
    if let Some(record) = &mut notice.record {
        record.output_tail = Some("ä".repeat(4000));
        record.reason = Some("ö".repeat(4000));
    }
    let message = Notification::one(notice);
    let content = discord(&message);
    let content = content["content"].as_str().expect("a text");
    assert!(content.chars().count() <= DISCORD_MAX);
    let pagerduty = pagerduty(&message, None);
    let summary = pagerduty["payload"]["summary"].as_str().expect("a text");
    assert_eq!(summary.chars().count(), SUMMARY_MAX);
}

#[test]
fn a_run_that_a_person_ended_is_not_said_to_have_been_ended_three_times() {
    let stopped = Notification::one(notice(JobEvent::Failed, Outcome::Stopped));
    assert_eq!(
        text::headline(&stopped),
        "backup was stopped on web1, 3 occurrences in a row without success (due at \
         2026-01-01T00:00:00Z)"
    );
}
