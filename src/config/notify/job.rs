//! The notifications of a job: `notify`, `ping`, `late_after`, `long_after` and
//! `expect_success_within`.

use std::time::Duration;

use super::NamedTarget;
use super::fields::{secret, url};
use super::model::{Alerts, LATE_AFTER, Ping};
use super::url::HttpUrl;
use crate::config::node::{Node, Value};
use crate::config::problem::Problems;
use crate::config::section::{Section, ValueError};
use crate::config::values;
use crate::names::{JobName, TargetName};

/// The notifications of a job, and where it names its targets.
#[derive(Debug, Default)]
pub(in crate::config) struct AlertsPart {
    pub(in crate::config) alerts: Alerts,
    pub(in crate::config) named: Vec<NamedTarget>,
}

/// Reads the fields of a job, or of `defaults:` without the name of a job.
pub(in crate::config) fn read(
    section: Section<'_>,
    job: Option<&JobName>,
    problems: &mut Problems,
) -> AlertsPart {
    let least = Duration::from_secs(1);
    let long = |node: &_| values::duration_in(node, least..=Duration::MAX, "");
    let named = named(section, problems);
    let late_after = section.read("late_after", problems, long);
    let alerts = Alerts {
        targets: named.iter().map(|target| target.name.clone()).collect(),
        ping: ping(section, job, problems),
        unset_ping: section
            .entry("ping")
            .and_then(|entry| service_of_unset(&entry.value)),
        late_after: late_after.unwrap_or(LATE_AFTER),
        long_after: section.read_or_none("long_after", problems, long),
        expect_success_within: section.read_or_none("expect_success_within", problems, long),
    };
    AlertsPart { alerts, named }
}

/// The targets that `notify:` names, each once.
fn named(section: Section<'_>, problems: &mut Problems) -> Vec<NamedTarget> {
    let read = section.read_or_none("notify", problems, |node| {
        let mut named: Vec<NamedTarget> = Vec::new();
        if matches!(node.value, Value::Map(_)) {
            return Err(ValueError::new(
                "expected a list of names, found a mapping",
                "targets are defined by `notify:` at the top of the file; a job names them: \
                 `notify: [ops]`",
            ));
        }
        let items = match &node.value {
            Value::List(items) => items.as_slice(),
            _ => std::slice::from_ref(node),
        };
        let items = (items.iter()).filter(|item| !matches!(item.value, Value::Broken));
        let names = ValueError::of_each(items, |item| {
            let name: TargetName = values::name(item).map_err(|error| error.with_item(item))?;
            Ok((name, item))
        })?;
        for (name, item) in names {
            if !named.iter().any(|other| other.name == name) {
                named.push(NamedTarget {
                    name,
                    place: item.span,
                });
            }
        }
        Ok(named)
    });
    read.unwrap_or_default()
}

/// The service of a ping that has a variable which is not set, if what comes before the variable tells.
pub(in crate::config) fn service_of_unset(ping: &Node) -> Option<&'static str> {
    const BEGINNINGS: [(&str, &str); 5] = [
        ("healthchecks:", "healthchecks"),
        ("cronitor:", "cronitor"),
        ("sentry:", "sentry"),
        ("https://", "url"),
        ("http://", "url"),
    ];
    let Value::Unset(written) = &ping.value else {
        return None;
    };
    let begins = |(beginning, _): &&(&str, &str)| written.trim_start().starts_with(beginning);
    let (_, service) = BEGINNINGS.iter().find(begins)?;
    Some(service)
}

const PING: &str = "write `healthchecks:UUID`, `cronitor:KEY/MONITOR`, `sentry:DSN` or a URL";

fn ping(section: Section<'_>, job: Option<&JobName>, problems: &mut Problems) -> Option<Ping> {
    if section.entry("ping")?.value.text() == Some("none") {
        return None;
    }
    secret(section, "ping", problems, |text| {
        let job = job.map_or("job", JobName::as_str);
        let text = text.replace("{job}", job);
        let is_url = |text: &str| text.starts_with("https://") || text.starts_with("http://");
        match text.split_once(':') {
            _ if is_url(&text) => Ok(Ping::Url(url(&text)?)),
            Some(("healthchecks", own)) if is_url(own) => {
                Ok(Ping::Healthchecks(url(own.trim_end_matches('/'))?))
            }
            Some(("healthchecks", check)) if is_path(check, 1..=2) => Ok(Ping::Healthchecks(url(
                &format!("https://hc-ping.com/{check}"),
            )?)),
            Some(("healthchecks", _)) => Err(ValueError::new(
                "this names no check of healthchecks.io",
                "write `healthchecks:UUID`, or the URL of a check: `healthchecks:https://…`",
            )),
            Some(("cronitor", monitor)) if is_path(monitor, 2..=2) => Ok(Ping::Cronitor(url(
                &format!("https://cronitor.link/p/{monitor}"),
            )?)),
            Some(("cronitor", _)) => Err(ValueError::new(
                "this names no monitor of Cronitor",
                "write `cronitor:KEY/MONITOR`",
            )),
            Some(("sentry", dsn)) => sentry(dsn, job),
            _ => Err(ValueError::new("this is not a monitoring service", PING)),
        }
    })
}

/// Whether a text has this number of words of letters, digits, `.`, `_` and `-`, separated by `/`.
fn is_path(text: &str, words: std::ops::RangeInclusive<usize>) -> bool {
    let is_word = |word: &str| {
        let fits = |b: u8| b.is_ascii_alphanumeric() || b"._-".contains(&b);
        !word.is_empty() && word.bytes().all(fits)
    };
    words.contains(&text.split('/').count()) && text.split('/').all(is_word)
}

/// The check-in URL of a DSN, `https://KEY@HOST/PROJECT`, for the monitor with the job's name.
/// Source: the documentation of Sentry, "Crons: HTTP".
fn sentry(dsn: &str, job: &str) -> Result<Ping, ValueError> {
    let parts = || {
        let (scheme, rest) = dsn.split_once("://")?;
        let (key, rest) = rest.split_once('@')?;
        let (host, project) = rest.rsplit_once('/')?;
        let key = key.split(':').next().unwrap_or_default();
        if !is_path(key, 1..=1) || !is_path(project, 1..=1) {
            return None;
        }
        // A slug of Sentry has small letters, digits, `_` and `-`.
        let slug = job.to_ascii_lowercase().replace('.', "-");
        let url = format!("{scheme}://{host}/api/{project}/cron/{slug}/{key}/");
        HttpUrl::parse(&url).ok()
    };
    parts().map(Ping::Sentry).ok_or_else(|| {
        ValueError::new(
            "this is not a DSN of Sentry",
            "write `sentry:https://KEY@HOST/PROJECT`, as the settings of the project show it",
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dsn_names_the_monitor_with_the_jobs_name() {
        let ping = sentry("https://abc@o1.ingest.sentry.io/42", "Nightly.Backup");
        let url = match ping {
            Ok(Ping::Sentry(url)) => url,
            other => panic!("{other:?}"),
        };
        let expected = "https://o1.ingest.sentry.io/api/42/cron/nightly-backup/abc/";
        assert_eq!(url.secret(), expected);
        for wrong in [
            "",
            "https://o1.ingest.sentry.io/42",
            "abc@o1/42",
            "https://@a/1",
        ] {
            assert!(sentry(wrong, "j").is_err(), "{wrong}");
        }
    }
}
