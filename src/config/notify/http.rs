//! A target that is reached over HTTP: its URL, headers and template.

use super::fields::{KINDS, secret, url};
use super::model::{HttpTarget, Template};
use super::secret::Secret;
use super::url::HttpUrl;
use crate::config::node::{Value, quoted};
use crate::config::problem::{Problem, Problems};
use crate::config::section::{Section, ValueError};
use crate::config::values;

/// Where `PagerDuty` takes events.
const PAGERDUTY: &str = "https://events.pagerduty.com/v2/enqueue";

/// Reads a target of this kind.
pub(super) fn read(key: &str, section: Section<'_>, problems: &mut Problems) -> Option<HttpTarget> {
    let kind = KINDS.iter().copied().find(|kind| *kind == key)?;
    let headers = headers(section, problems);
    if kind == "pagerduty" {
        let key = secret(section, kind, problems, |key| {
            let fits = key.bytes().all(|b| b.is_ascii_alphanumeric()) && key.len() >= 16;
            fits.then(|| Secret(key.to_owned()))
                .ok_or_else(|| ValueError::new("this is not an integration key of PagerDuty", ""))
        })?;
        let routing_key = Some(key);
        return Some(HttpTarget {
            kind,
            url: HttpUrl::parse(PAGERDUTY).ok()?,
            headers,
            template: Template::PagerDuty { routing_key },
        });
    }
    let routing_key = secret(section, "routing_key", problems, |key| {
        Ok(Secret(key.to_owned()))
    });
    let template = match kind {
        "slack" => Template::Slack,
        "discord" => Template::Discord,
        "teams" => Template::Teams,
        "ntfy" => Template::Ntfy,
        _ => template(section, problems, routing_key),
    };
    let url = secret(section, kind, problems, url);
    Some(HttpTarget {
        kind,
        url: url?,
        headers,
        template,
    })
}

/// `template:` of a webhook.
fn template(
    section: Section<'_>,
    problems: &mut Problems,
    routing_key: Option<Secret>,
) -> Template {
    const WORDS: [(&str, usize); 6] = [
        ("json", 0),
        ("slack", 1),
        ("discord", 2),
        ("teams", 3),
        ("ntfy", 4),
        ("pagerduty", 5),
    ];
    let chosen = section.read("template", problems, |n| values::word(n, &WORDS));
    if let (Some(entry), Some(0..=4) | None) = (section.entry("routing_key"), chosen) {
        let message = "`routing_key` is for `template: pagerduty`";
        problems.add(Problem::new(entry.span, message).secret());
    }
    match chosen {
        Some(1) => Template::Slack,
        Some(2) => Template::Discord,
        Some(3) => Template::Teams,
        Some(4) => Template::Ntfy,
        Some(5) => Template::PagerDuty { routing_key },
        _ => Template::Json,
    }
}

fn headers(section: Section<'_>, problems: &mut Problems) -> Vec<(String, Secret)> {
    let Some(entry) = section.entry("headers") else {
        return Vec::new();
    };
    let fields = match &entry.value.value {
        Value::Map(fields) => fields,
        Value::Broken => return Vec::new(),
        _ => {
            problems.add(
                Problem::new(entry.span, "`headers` is not a mapping")
                    .help("write `headers: { Authorization: \"${KEY}\" }`")
                    .secret(),
            );
            return Vec::new();
        }
    };
    let mut headers: Vec<(String, Secret)> = Vec::new();
    for field in fields {
        let text = field.value.text().unwrap_or_default();
        let message = if matches!(field.value.value, Value::Broken) {
            continue;
        } else if !is_header_name(&field.key) {
            format!("{} cannot be the name of a header", quoted(&field.key))
        } else if is_set_by_us(&field.key) {
            format!("{} is set by cronlatch", quoted(&field.key))
        } else if headers
            .iter()
            .any(|(name, _)| name.eq_ignore_ascii_case(&field.key))
        {
            format!("{} is given twice", quoted(&field.key))
        } else if text.is_empty() {
            format!("{} has no value", quoted(&field.key))
        } else if !text.bytes().all(|b| (b' '..=b'~').contains(&b)) {
            "the value of a header is one line of ASCII characters".to_owned()
        } else {
            headers.push((field.key.clone(), Secret(text.to_owned())));
            continue;
        };
        problems.add(Problem::new(field.span, message).secret());
    }
    headers
}

fn is_header_name(name: &str) -> bool {
    let fits = |b: u8| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b);
    !name.is_empty() && name.bytes().all(fits)
}

fn is_set_by_us(name: &str) -> bool {
    let ours = ["host", "content-length", "transfer-encoding", "connection"];
    ours.iter().any(|ours| name.eq_ignore_ascii_case(ours))
}
