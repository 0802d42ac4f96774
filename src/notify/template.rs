//! Messages as bodies of requests.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::{Value, json};

use super::notice::Notice;
use super::notification::{Content, Notification};
use super::text;
use crate::config::{JobEvent, Secret, Template};
use crate::names::RunId;
use crate::store::Record;
use crate::time::Timestamp;

/// A body, and the headers that belong to it.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Body {
    pub(super) text: String,
    pub(super) headers: Vec<(&'static str, String)>,
}

/// The longest tail of output in a chat.
const CHAT_OUTPUT: usize = 1500;
/// What Discord accepts as `content`, in characters.
const DISCORD_MAX: usize = 2000;
/// What `PagerDuty` accepts as `summary`, in characters.
const SUMMARY_MAX: usize = 1024;

/// The body of a request.
pub(super) fn body(template: &Template, message: &Notification) -> Body {
    let value = match template {
        Template::Slack => slack(message),
        Template::Discord => discord(message),
        Template::Teams => teams(message),
        Template::Ntfy => return ntfy(message),
        Template::PagerDuty { routing_key } => pagerduty(message, routing_key.as_ref()),
        Template::Json => return as_json(json_text(message)),
    };
    as_json(value.to_string())
}

fn as_json(text: String) -> Body {
    Body {
        text,
        headers: vec![("Content-Type", "application/json".to_owned())],
    }
}

/// The last characters of a text.
fn last(text: &str, limit: usize) -> &str {
    let from = text.char_indices().rev().nth(limit.saturating_sub(1));
    from.map_or(text, |(at, _)| &text[at..])
}

/// The first characters of a text.
fn first(text: &str, limit: usize) -> &str {
    let until = text.char_indices().nth(limit);
    until.map_or(text, |(at, _)| &text[..at])
}

/// Output that cannot end the block of code that it stands in.
fn code(message: &Notification) -> Option<String> {
    let output = text::output(message)?;
    Some(last(output, CHAT_OUTPUT).replace("```", "'''"))
}

fn is_good(message: &Notification) -> bool {
    matches!(&message.content, Content::One(notice) if notice.is_good())
}

fn slack(message: &Notification) -> Value {
    // Source: Slack's documentation, "Formatting text for app surfaces: escaping text".
    let escape = |text: &str| {
        let text = text.replace('&', "&amp;");
        text.replace('<', "&lt;").replace('>', "&gt;")
    };
    let sign = if is_good(message) {
        ":white_check_mark:"
    } else {
        ":warning:"
    };
    let mut text = format!("{sign} {}", escape(&text::headline(message)));
    if let Some(output) = code(message) {
        text += &format!("\n```{}```", escape(&output));
    }
    json!({ "text": text })
}

fn discord(message: &Notification) -> Value {
    let headline = text::headline(message);
    let mut content = first(&headline, DISCORD_MAX).to_owned();
    if let Some(output) = code(message) {
        let room = DISCORD_MAX.saturating_sub(content.chars().count() + 8);
        if room > 0 {
            content += &format!("\n```{}```", last(&output, room));
        }
    }
    json!({ "content": content, "allowed_mentions": { "parse": [] } })
}

fn teams(message: &Notification) -> Value {
    let mut body = vec![json!({
        "type": "TextBlock",
        "text": text::headline(message),
        "wrap": true,
        "weight": "Bolder",
        "color": if is_good(message) { "Good" } else { "Attention" },
    })];
    if let Some(output) = code(message) {
        body.push(json!({
            "type": "TextBlock", "text": output, "wrap": true, "fontType": "Monospace",
        }));
    }
    json!({
        "type": "message",
        "attachments": [{
            "contentType": "application/vnd.microsoft.card.adaptive",
            "content": {
                "$schema": "http://adaptivecards.io/schemas/adaptive-card.json",
                "type": "AdaptiveCard",
                "version": "1.4",
                "body": body,
            },
        }],
    })
}

fn ntfy(message: &Notification) -> Body {
    let mut text = text::headline(message);
    if let Some(output) = text::output(message) {
        text += "\n\n";
        text += last(output, CHAT_OUTPUT);
    }
    let (priority, tags) = if is_good(message) {
        ("default", "white_check_mark")
    } else {
        ("high", "warning")
    };
    Body {
        text,
        headers: vec![
            ("Content-Type", "text/plain; charset=utf-8".to_owned()),
            ("Title", text::subject(message)),
            ("Priority", priority.to_owned()),
            ("Tags", tags.to_owned()),
        ],
    }
}

/// The incident of a job: what its failures open, its success closes.
fn pagerduty(message: &Notification, routing_key: Option<&Secret>) -> Value {
    let headline = text::headline(message);
    let (key, action, severity) = match &message.content {
        Content::One(notice) => (
            format!("cronlatch/{}", notice.job),
            if notice.is_good() {
                "resolve"
            } else {
                "trigger"
            },
            severity(notice.event),
        ),
        Content::Digest(_) => ("cronlatch".to_owned(), "trigger", "error"),
    };
    let mut event = json!({
        "event_action": action,
        "dedup_key": key,
        "client": "cronlatch",
        "payload": {
            "summary": first(&headline, SUMMARY_MAX),
            "source": host(message),
            "severity": severity,
            "component": job(message),
            "custom_details": serde_json::from_str::<Value>(&json_text(message))
                .unwrap_or(Value::Null),
        },
    });
    if let (Some(key), Some(event)) = (routing_key, event.as_object_mut()) {
        event.insert("routing_key".to_owned(), json!(key.0));
    }
    event
}

fn severity(event: JobEvent) -> &'static str {
    match event {
        JobEvent::Failed | JobEvent::Lost | JobEvent::Missed | JobEvent::Overdue => "error",
        JobEvent::Long | JobEvent::Late | JobEvent::Skipped => "warning",
        JobEvent::Started | JobEvent::Succeeded | JobEvent::Recovered => "info",
    }
}

fn host(message: &Notification) -> &str {
    match &message.content {
        Content::One(notice) => notice.host.as_str(),
        Content::Digest(digest) => digest.host.as_str(),
    }
}

fn job(message: &Notification) -> Option<&str> {
    match &message.content {
        Content::One(notice) => Some(notice.job.as_str()),
        Content::Digest(_) => None,
    }
}

/// cronlatch's own JSON. Field names and their order are an interface (docs/notifications.md).
#[derive(Serialize)]
struct NoticeJson<'a> {
    version: u32,
    id: String,
    event: &'a str,
    text: String,
    job: &'a str,
    host: &'a str,
    at: Timestamp,
    run_id: Option<&'a str>,
    scheduled_at: Option<Timestamp>,
    in_a_row: u64,
    sample: bool,
    undelivered: u64,
    record: Option<&'a Record>,
}

/// The same of a digest.
#[derive(Serialize)]
struct DigestJson<'a> {
    version: u32,
    event: &'a str,
    text: String,
    host: &'a str,
    first_at: Timestamp,
    last_at: Timestamp,
    events: u64,
    counts: BTreeMap<&'a str, u64>,
    jobs: BTreeMap<&'a str, BTreeMap<&'a str, u64>>,
    undelivered: u64,
}

/// The message as one JSON object.
pub(super) fn json_text(message: &Notification) -> String {
    let text = text::headline(message);
    let undelivered = message.undelivered;
    let json = match &message.content {
        Content::One(notice) => serde_json::to_string(&one(notice, text, undelivered)),
        Content::Digest(digest) => {
            let words = |counts: &BTreeMap<JobEvent, u64>| {
                let words = counts.iter();
                words.map(|(event, count)| (event.word(), *count)).collect()
            };
            let jobs = digest.jobs.iter();
            serde_json::to_string(&DigestJson {
                version: 1,
                event: "digest",
                text,
                host: digest.host.as_str(),
                first_at: digest.first_at,
                last_at: digest.last_at,
                events: digest.events(),
                counts: words(&digest.counts()),
                jobs: jobs
                    .map(|(job, events)| (job.as_str(), words(events)))
                    .collect(),
                undelivered,
            })
        }
    };
    // Texts, numbers and maps with text keys always have a JSON form.
    json.unwrap_or_default()
}

fn one(notice: &Notice, text: String, undelivered: u64) -> NoticeJson<'_> {
    NoticeJson {
        version: 1,
        id: notice.id(),
        event: notice.event.word(),
        text,
        job: notice.job.as_str(),
        host: notice.host.as_str(),
        at: notice.at,
        run_id: notice.run_id.as_ref().map(RunId::as_str),
        scheduled_at: notice.scheduled_at,
        in_a_row: notice.in_a_row,
        sample: notice.kind == super::notice::NoticeKind::Sample,
        undelivered,
        record: notice.record.as_ref(),
    }
}

#[cfg(test)]
mod tests;
