//! `notify:` and the notifications of jobs.

use std::time::Duration;

use super::{Environment, Source, errors, job, list, read_with};
use crate::config::{Alerts, Channel, Command, JobEvent, NotifyTarget, Ping, Template};

const SECRET: &str = "hunter2hunter2hunter2";

fn targets(fields: &str) -> Vec<NotifyTarget> {
    let names: Vec<&str> = (fields.lines())
        .filter_map(|line| line.split(':').next())
        .collect();
    let fields = format!("  {}\n", fields.trim_end().replace('\n', "\n  "));
    let job = job(&format!("notify: [{}]", names.join(", ")));
    let list = list(&format!("notify:\n{fields}{job}"));
    assert_eq!(list.warnings, Vec::<String>::new());
    list.notify
}

#[test]
fn every_kind_of_target_is_read() {
    let read = targets(
        "a: { slack: 'https://hooks.slack.com/services/T/B/x' }\n\
         b: { discord: 'https://discord.com/api/webhooks/1/x' }\n\
         c: { teams: 'https://example.org/workflows/x' }\n\
         d: { ntfy: 'https://ntfy.sh/topic', headers: { Authorization: 'Bearer x' } }\n\
         e: { pagerduty: 0123456789abcdef0123456789abcdef, on: [failed] }\n\
         f: { webhook: 'http://[::1]:8080/x', after: 3, repeat: 6h }\n\
         g: { command: [/usr/local/bin/tell, -v], on: [started, succeeded] }\n\
         h: { command: 'tell | logger' }\n\
         i: { mail: ops@example.org }\n\
         j: { mail: [a@example.org, root], from: cron@example.org, sendmail: /bin/sm }\n\
         k: { webhook: 'https://a/b', template: pagerduty, routing_key: x, repeat: none }",
    );
    let kinds: Vec<&str> = read.iter().map(|target| target.channel.kind()).collect();
    let expected = [
        "slack",
        "discord",
        "teams",
        "ntfy",
        "pagerduty",
        "webhook",
        "command",
        "command",
        "mail",
        "mail",
        "webhook",
    ];
    assert_eq!(kinds, expected);
    let http = |at: usize| match &read[at].channel {
        Channel::Http(http) => http,
        other => panic!("{other:?}"),
    };
    assert_eq!(http(0).template, Template::Slack);
    assert_eq!(http(3).headers[0].0, "Authorization");
    assert_eq!(http(3).headers[0].1.0, "Bearer x");
    assert!(matches!(
        &http(4).template,
        Template::PagerDuty {
            routing_key: Some(_)
        }
    ));
    assert_eq!(http(4).url.origin(), "https://events.pagerduty.com");
    assert_eq!(http(5).template, Template::Json);
    assert!(matches!(
        &http(10).template,
        Template::PagerDuty {
            routing_key: Some(_)
        }
    ));
    let default = [
        JobEvent::Failed,
        JobEvent::Recovered,
        JobEvent::Lost,
        JobEvent::Missed,
    ];
    assert_eq!(read[0].on, default.into());
    assert_eq!((read[0].after, read[0].repeat), (1, None));
    assert_eq!(read[4].on, [JobEvent::Failed].into());
    assert_eq!(
        (read[5].after, read[5].repeat),
        (3, Some(Duration::from_secs(6 * 3600)))
    );
    assert!(matches!(
        &read[7].channel,
        Channel::Command(Command::Shell { .. })
    ));
    match &read[9].channel {
        Channel::Mail(mail) => {
            assert_eq!(mail.to, ["a@example.org", "root"]);
            assert_eq!(mail.from.as_deref(), Some("cron@example.org"));
            assert_eq!(mail.sendmail.to_str(), Some("/bin/sm"));
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_job_has_its_own_targets_or_those_of_the_defaults() {
    let text = "\
notify: { ops: { mail: a }, pager: { mail: b } }
defaults: { notify: ops, long_after: 1h }
jobs:
  - { name: inherits, every: 1h, command: x }
  - { name: own, every: 1h, command: x, notify: [pager, ops, pager], long_after: none,
      late_after: 5m, expect_success_within: 26h }
  - { name: nobody, every: 1h, command: x, notify: none }
  - { name: empty, every: 1h, command: x, notify: [] }
";
    let jobs = list(text).jobs;
    let names = |at: usize| {
        let targets = jobs[at].alerts.targets.iter();
        targets
            .map(ToString::to_string)
            .collect::<Vec<_>>()
            .join(" ")
    };
    assert_eq!([0, 1, 2, 3].map(names), ["ops", "pager ops", "", ""]);
    assert_eq!(jobs[0].alerts.long_after, Some(Duration::from_secs(3600)));
    assert_eq!(jobs[1].alerts.long_after, None);
    assert_eq!(jobs[1].alerts.late_after, Duration::from_secs(300));
    assert_eq!(
        jobs[1].alerts.expect_success_within,
        Some(Duration::from_secs(26 * 3600))
    );
    assert_eq!(*list(&job("")).jobs[0].alerts, Alerts::default());
}

#[test]
fn pings_name_a_service_and_its_check() {
    let ping = |text: &str| {
        let list = list(&job(&format!("ping: '{text}'")));
        list.jobs[0].alerts.ping.clone().expect("a ping")
    };
    for (text, service, url) in [
        (
            "healthchecks:0b5d8a52-0000-4000-8000-000000000000",
            "healthchecks",
            "https://hc-ping.com/0b5d8a52-0000-4000-8000-000000000000",
        ),
        (
            "healthchecks:KEY/{job}",
            "healthchecks",
            "https://hc-ping.com/KEY/j",
        ),
        (
            "healthchecks:https://hc.example.org/ping/abc/",
            "healthchecks",
            "https://hc.example.org/ping/abc",
        ),
        (
            "cronitor:KEY/backup",
            "cronitor",
            "https://cronitor.link/p/KEY/backup",
        ),
        (
            "sentry:https://abc@o1.example.org/42",
            "sentry",
            "https://o1.example.org/api/42/cron/j/abc/",
        ),
        (
            "https://a.example/{status}",
            "url",
            "https://a.example/{status}",
        ),
    ] {
        let read = ping(text);
        assert_eq!(
            (read.service(), read.url().secret()),
            (service, url),
            "{text}"
        );
        assert!(
            !format!("{read:?} {}", read.shown()).contains(url),
            "{text}"
        );
    }
    assert_eq!(list(&job("ping: none")).jobs[0].alerts.ping, None);
}

#[test]
fn a_ping_needs_no_space_before_its_host() {
    // A URL in braces of its own is a YAML mapping; a plain one is not.
    assert!(matches!(
        list(&job("ping: https://a.example/x")).jobs[0].alerts.ping,
        Some(Ping::Url(_))
    ));
}

#[test]
fn what_is_wrong_with_targets_is_explained_without_a_secret() {
    let text = format!(
        "\
notify:
  no: https://example.org/{SECRET}
  two: {{ slack: 'https://a/{SECRET}', mail: root }}
  none: {{ on: [failed] }}
  kind: {{ slak: 'https://a/{SECRET}' }}
  url: {{ slack: 'hooks/{SECRET}' }}
  user: {{ webhook: 'https://me:{SECRET}@a/' }}
  events: {{ webhook: 'https://a/{SECRET}', on: [failed, recoverd], after: 0, repeat: 1s }}
  word: {{ webhook: 'https://a/{SECRET}', on: failed }}
  mail: {{ mail: 'a b', headers: {{ X: {SECRET} }} }}
  option: {{ mail: -oQ/tmp }}
  header:
    webhook: https://a/{SECRET}
    template: slck
    headers:
      X Y: {SECRET}
      Host: {SECRET}
  below:
    slack:
      ftp://a/{SECRET}
  key: {{ pagerduty: short }}
  'a b': {{ slack: https://a/{SECRET} }}
{}",
        job("notify: [opps, two]\nping: healthcheck:hunter2hunter2hunter2")
    );
    let text = errors(&text);
    assert!(!text.contains(SECRET), "{text}");
    insta::assert_snapshot!(text);
}

#[test]
fn a_target_that_does_not_exist_is_an_error_with_its_line() {
    let text = "\
notify: { ops: { mail: root }, pager: { mail: root } }
defaults: { notify: [ops] }
jobs:
  - name: a
    every: 1h
    command: x
    notify: [ops, pagr]
  - name: b
    every: 1h
    command: x
    notify: nobody
";
    insta::assert_snapshot!(errors(text));
    let none = errors(&job("notify: [ops]"));
    assert!(none.contains("define it at the top of the file"), "{none}");
    let unused = list(&format!("notify: {{ ops: {{ mail: root }} }}\n{}", job("")));
    assert_eq!(unused.warnings.len(), 1, "{:?}", unused.warnings);
}

#[test]
fn a_machine_without_sendmail_is_warned_of() {
    let text = |sendmail: &str| {
        let target = format!("{{ mail: root, sendmail: {sendmail} }}");
        format!("notify: {{ post: {target} }}\n{}", job("notify: post"))
    };
    assert_eq!(list(&text("/bin/sm")).warnings, Vec::<String>::new());
    let warnings = list(&text("/bin/missing")).warnings;
    let [warning] = warnings.as_slice() else {
        panic!("{warnings:?}");
    };
    assert!(
        warning.ends_with("1:11: there is no /bin/missing on this machine: the target `post` cannot send mails from here"),
        "{warning}"
    );
}

#[test]
fn the_variables_of_targets_and_pings_are_kept_from_jobs() {
    let text = format!(
        "notify: {{ ops: {{ slack: '${{SLACK}}', headers: {{ A: '${{KEY}}' }} }} }}\n{}",
        job("notify: ops\nping: healthchecks:${CHECK}\nenv: { X: '${OTHER}' }")
    );
    let variables = [
        ("SLACK", "https://a/hunter2"),
        ("KEY", "hunter2"),
        ("CHECK", "hunter2"),
        ("OTHER", "1"),
    ];
    let list = read_with(&text, &variables).expect("a list");
    let secret: Vec<&str> = list.secret_variables.iter().map(String::as_str).collect();
    assert_eq!(secret, ["CHECK", "KEY", "SLACK"]);
    assert!(!format!("{list:?}").contains("hunter2"));
}

#[test]
fn a_command_that_starts_no_job_does_without_the_secrets_of_notifications() {
    let text = format!(
        "notify:\n  ops: {{ slack: '${{SLACK}}', headers: {{ A: '${{KEY}}' }} }}\n  post: {{ mail: root }}\n{}",
        job("notify: [ops, post]\nping: healthchecks:${CHECK}")
    );
    let path = std::path::Path::new("jobs.yaml");
    let read = |variables: &[(&str, &str)]| {
        let source = Source::new(path, text.clone());
        let environment = Environment::of(variables).without_secrets();
        list::read(path, &[source], &environment).expect("a list")
    };
    let all = [("SLACK", "https://a/b"), ("KEY", "k"), ("CHECK", "c")];
    let whole = read_with(&text, &all).expect("a list");
    let with = read(&all);
    assert_eq!(with.known_fingerprint(), Some(&whole.fingerprint));
    assert!(with.unset_variables.is_empty());
    let without = read(&[("SLACK", "https://a/b")]);
    assert_eq!(without.known_fingerprint(), Some(&whole.fingerprint));
    let unset: Vec<&str> = without.unset_variables.iter().map(String::as_str).collect();
    assert_eq!(unset, ["CHECK", "KEY"]);
    assert_eq!(without.jobs[0].alerts.targets.len(), 2);
    assert_eq!(without.jobs[0].alerts.ping, None);
    let kinds: Vec<&str> = without.notify.iter().map(|it| it.channel.kind()).collect();
    assert_eq!(kinds, ["slack", "mail"]);
    assert!(matches!(without.notify[0].channel, Channel::Unset("slack")));
    let refused = errors(&text);
    assert!(
        refused.contains("the variable `KEY` is not set"),
        "{refused}"
    );
}

/// The daemon's list and the one read without the variable `X`, which has this value for the daemon.
#[track_caller]
fn fingerprints(text: &str, value: &str) -> [Option<String>; 2] {
    let path = std::path::Path::new("jobs.yaml");
    let daemon = read_with(text, &[("X", value)]).expect("a list");
    let source = Source::new(path, text.to_owned());
    let environment = Environment::of(&[]).without_secrets();
    let without = list::read(path, &[source], &environment).expect("a list");
    assert_eq!(without.unset_variables, ["X".to_owned()].into());
    [daemon, without].map(|list| list.known_fingerprint().map(|it| it.0.to_string()))
}

#[test]
fn a_list_read_without_secrets_has_the_fingerprint_of_the_daemons_list() {
    let target = |target: &str| format!("notify: {{ ops: {target} }}\n{}", job("notify: ops"));
    let ping = |ping: &str| job(&format!("ping: '{ping}'"));
    let key = "0123456789abcdef0123456789abcdef";
    for (text, value) in [
        (
            target("{ slack: '${X}', on: [failed], after: 2 }"),
            "https://a/b",
        ),
        (target("{ webhook: 'https://a/${X}', repeat: 6h }"), "b"),
        (target("{ ntfy: 'https://a', headers: { A: '${X}' } }"), "b"),
        (target("{ pagerduty: '${X}' }"), key),
        (
            target("{ webhook: 'https://a', template: pagerduty, routing_key: '${X}' }"),
            "b",
        ),
        (target("{ mail: '${X}' }"), "ops@example.org"),
        (target("{ command: [/bin/tell, '${X}'] }"), "b"),
        (ping("healthchecks:${X}"), "u-u-i-d"),
        (ping("healthchecks:${X}"), "https://a/b"),
        (ping("cronitor:${X}/backup"), "key"),
        (ping("sentry:https://${X}@o1.example/4"), "key"),
        (ping("https://example.org/${X}"), "b"),
        (ping("${X:-}${X}"), "https://example.org/"),
    ] {
        let [daemon, without] = fingerprints(&text, value);
        if text.contains(":-") {
            // Nothing before the variable tells which service it is.
            assert_eq!(without, None, "{text}");
        } else {
            assert_eq!(without, daemon, "{text}");
        }
    }
    // What it receives is part of what a target is.
    let [daemon, without] = fingerprints(&target("{ mail: root, on: ['${X}'] }"), "failed");
    assert!(daemon.is_some() && without.is_none());
}

#[test]
fn a_command_that_starts_no_job_needs_the_other_variables() {
    let path = std::path::Path::new("jobs.yaml");
    for fields in [
        "command: '${COMMAND}'",
        "command: x, env: { A: '${VALUE}' }",
    ] {
        let text = format!("jobs: [{{ name: j, every: 1h, {fields} }}]");
        let source = Source::new(path, text);
        let environment = Environment::of(&[]).without_secrets();
        let read = list::read(path, &[source], &environment);
        assert!(read.is_err(), "{fields}");
    }
}
