//! `notify:` at the top of a list, and the notifications of jobs.
//!
//! | file | story |
//! | --- | --- |
//! | `model` | targets, events and pings, validated |
//! | `secret`, `url` | keys and headers, and the URLs of targets, which are secrets |
//! | `target`, `fields` | one target of `notify:`, its fields and how secret ones are read |
//! | `http` | a target that is reached over HTTP |
//! | `job` | `notify`, `ping`, `late_after`, `long_after`, `expect_success_within` of a job |

mod fields;
mod http;
mod job;
mod model;
mod secret;
mod target;
mod url;

pub(super) use job::{AlertsPart, read as read_job, service_of_unset};
pub use model::{
    Alerts, Channel, HttpTarget, JobEvent, LATE_AFTER, MailTarget, NotifyTarget, Ping, Template,
};
pub use secret::Secret;
#[cfg(test)]
pub(super) use target::TARGET;
pub(super) use target::{is_address, is_in_identity};
pub use url::{HttpUrl, InvalidUrl};

use std::collections::HashSet;

use super::environment::Environment;
use super::node::{Node, Value, quoted};
use super::problem::{Problem, Problems, Warning};
use super::section::{Section, doubled};
use super::source::Span;
use super::suggest;
use crate::names::TargetName;

/// The targets of a list.
#[derive(Debug, Default)]
pub(super) struct TargetsPart {
    /// Those that can be used, in the order of the file.
    pub(super) targets: Vec<NotifyTarget>,
    /// Where each target is named, including targets that were refused.
    defined: Vec<NamedTarget>,
}

/// A target that a list names.
#[derive(Debug)]
pub(super) struct NamedTarget {
    pub(super) name: TargetName,
    pub(super) place: Span,
}

/// Reads the targets of a list.
pub(super) fn read(top: Section<'_>, problems: &mut Problems) -> TargetsPart {
    let mut part = TargetsPart::default();
    let Some(entry) = top.entry("notify") else {
        return part;
    };
    let fields = match &entry.value.value {
        Value::Map(fields) => fields,
        Value::Broken => return part,
        _ => {
            problems.add(not_targets(&entry.value));
            return part;
        }
    };
    for field in fields {
        let name = match TargetName::parse(&field.key) {
            Ok(name) => name,
            Err(error) => {
                problems.add(Problem::new(field.span, error.to_string()).secret());
                continue;
            }
        };
        if let Some(first) = part.defined.iter().find(|other| other.name == name) {
            problems.add(doubled(field, first.place).secret());
            continue;
        }
        part.defined.push(NamedTarget {
            name: name.clone(),
            place: field.span,
        });
        part.targets.extend(target::read(name, field, problems));
    }
    part
}

fn not_targets(node: &Node) -> Problem {
    Problem::new(
        node.span,
        format!("expected a mapping of targets, found {}", node.found()),
    )
    .help("write `notify: { ops: { slack: \"${SLACK_URL}\" } }`; a job names them: `notify: [ops]`")
}

impl TargetsPart {
    /// Returns a warning for each target whose `sendmail` this machine lacks.
    pub(super) fn machine_warnings(&self, environment: &Environment) -> Vec<Warning> {
        let mut warnings = Vec::new();
        for target in &self.targets {
            let Channel::Mail(mail) = &target.channel else {
                continue;
            };
            let sendmail = mail.sendmail.display().to_string();
            let defined = self.defined.iter().find(|it| it.name == target.name);
            if let (Some(defined), false) = (defined, environment.has_program(&sendmail)) {
                let message = format!(
                    "there is no {sendmail} on this machine: the target `{}` cannot send mails from \
                     here",
                    target.name
                );
                warnings.push(Warning::new(defined.place, message));
            }
        }
        warnings
    }

    /// Checks that every target exists that a job or `defaults:` names. Returns warnings about
    /// targets that no job names.
    pub(super) fn check<'a>(
        &self,
        named: impl Iterator<Item = &'a NamedTarget>,
        problems: &mut Problems,
    ) -> Vec<Warning> {
        let mut used = HashSet::new();
        for NamedTarget { name, place } in named {
            used.insert(name);
            if self.defined.iter().any(|defined| defined.name == *name) {
                continue;
            }
            let names = self.defined.iter().map(|defined| defined.name.as_str());
            let near = suggest::nearest(name.as_str(), names.clone());
            let help = match (near, names.collect::<Vec<_>>().as_slice()) {
                (Some(near), _) => format!("did you mean `{near}`?"),
                (None, []) => format!(
                    "define it at the top of the file: `notify: {{ {name}: {{ slack: … }} }}`"
                ),
                (None, names) => format!("the targets are {}", names.join(", ")),
            };
            let message = format!("there is no target {}", quoted(name.as_str()));
            problems.add(Problem::new(*place, message).help(help));
        }
        let defined = self.defined.iter();
        let unused = defined.filter(|target| !used.contains(&target.name));
        unused
            .map(|NamedTarget { name, place }| {
                let text = format!("no job names the target `{name}` of `notify`");
                Warning::new(*place, text)
            })
            .collect()
    }
}
