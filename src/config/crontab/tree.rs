//! A crontab as the tree of a job list, so that it runs as it is. Each value has its place in the
//! crontab.

use std::path::Path;

use super::model::{CrontabJob, Crontabs, FieldValue, MailboxTarget, ReadOptions};
use crate::config::environment::Environment;
use crate::config::expand;
use crate::config::node::{KeyValue, Node, Text, Value};
use crate::config::problem::{Problem, Problems, Warning};
use crate::config::source::{Source, Span};

/// The top-level fields of a list, and warnings with their places.
type ListAndWarnings = (Vec<KeyValue>, Vec<Warning>);

/// Returns the fields of a list with the jobs of this crontab, and what to warn of. A crontab in a
/// file for YAML is an error.
pub(in crate::config) fn read_as_list(
    source: &Source,
    file: usize,
    environment: &Environment,
) -> Result<ListAndWarnings, Problem> {
    if is_yaml(&source.path) {
        return Err(crontab_in_yaml(source, file));
    }
    let mut crontabs = Crontabs::in_environment(environment);
    crontabs.add(&source.path, &source.text, &ReadOptions::default());
    let jobs = crontabs
        .jobs
        .iter()
        .map(|job| node_of(job, file, source, environment))
        .collect();
    let span = Span::of_file(file);
    let jobs = Node {
        span,
        value: Value::List(jobs),
    };
    let mut root = vec![entry("jobs", jobs)];
    root.extend(targets_of(&crontabs, span));
    let warnings = crontabs.remarks.into_iter().map(|remark| {
        let line = remark.line.line;
        let column = usize::from(line > 0);
        let place = Span {
            line,
            column,
            ..span
        };
        Warning::new(place, remark.text)
    });
    Ok((root, warnings.collect()))
}

fn is_yaml(path: &Path) -> bool {
    path.extension()
        .is_some_and(|extension| extension == "yaml" || extension == "yml")
}

fn crontab_in_yaml(source: &Source, file: usize) -> Problem {
    let is_comment = |line: &str| line.trim().is_empty() || line.trim_start().starts_with('#');
    let first = source.text.lines().position(|line| !is_comment(line));
    let line = first.map_or(1, |index| index + 1);
    let span = Span {
        file,
        line,
        column: 1,
        width: source.line(line).trim_end().chars().count().max(1),
    };
    Problem::new(span, "this is a crontab, not a job list")
        .help(format!(
            "`cronlatch import {}` writes a job list and reports what needs a look",
            source.path.display()
        ))
        .help("`run` and `check` read a crontab as it is from a file without .yaml or .yml")
}

/// The targets of `notify:`, if there are any.
fn targets_of(crontabs: &Crontabs, span: Span) -> Option<KeyValue> {
    let map = |fields: Vec<KeyValue>| Node {
        span,
        value: Value::Map(fields),
    };
    let target = |target: &MailboxTarget| {
        let fields = target.fields();
        let fields = fields
            .iter()
            .map(|(name, value)| key_value(name, span, value));
        entry(&target.name, map(fields.collect()))
    };
    let targets: Vec<KeyValue> = crontabs.targets.iter().map(target).collect();
    (!targets.is_empty()).then(|| entry("notify", map(targets)))
}

fn entry(key: &str, value: Node) -> KeyValue {
    KeyValue {
        key: key.to_owned(),
        span: value.span,
        value,
    }
}

fn node_of(job: &CrontabJob, file: usize, source: &Source, environment: &Environment) -> Node {
    let (schedule, command) = job.columns;
    let span = |column: usize, width: usize| Span {
        file,
        line: job.line.line,
        column,
        width: width.max(1),
    };
    let length = source.line(job.line.line).trim_end().chars().count();
    let whole = span(schedule, (length + 1).saturating_sub(schedule));
    let name = FieldValue::text(&job.name);
    let mut fields = vec![key_value("name", whole, &name)];
    for (name, value) in &job.fields {
        let span = match (*name, value) {
            ("schedule", FieldValue::Text(text)) => span(schedule, text.chars().count()),
            ("timezone", _) => job
                .zone_line
                .map_or(whole, |line| Span { line, ..span(1, 1) }),
            ("command", _) => span(command, (length + 1).saturating_sub(command)),
            _ => whole,
        };
        let mut field = key_value(name, span, value);
        if matches!(value, FieldValue::Expanded(_)) {
            // Each has a default, so nothing can be missing.
            expand::apply(&mut field.value, environment, &mut Problems::default());
        }
        fields.push(field);
    }
    Node {
        span: whole,
        value: Value::Map(fields),
    }
}

fn key_value(name: &str, span: Span, value: &FieldValue) -> KeyValue {
    let text = |value: &str| Node {
        span,
        value: Value::Text(Text {
            value: value.to_owned(),
            written: None,
        }),
    };
    let value = match value {
        FieldValue::Text(value) => text(value),
        FieldValue::Expanded(written) => text(written),
        FieldValue::List(items) => Node {
            span,
            value: Value::List(items.iter().map(|item| text(item)).collect()),
        },
        FieldValue::Map(map) => {
            let entries = map.iter().map(|(key, value)| entry(key, text(value)));
            Node {
                span,
                value: Value::Map(entries.collect()),
            }
        }
    };
    entry(name, value)
}
