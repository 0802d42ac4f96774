//! `cronlatch doctor`: what can go wrong, before it does.

use std::process::ExitCode;

use serde::Serialize;

use super::{Failure, Target, output};
use crate::preflight::{self, Finding, Severity, Subject};

/// Options of `doctor`.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Print one JSON object
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    target: Target,
}

/// `doctor --json`.
#[derive(Debug, Serialize)]
struct Diagnosis<'a> {
    /// The store, without its password.
    store: String,
    findings: &'a [Finding],
}

pub(super) fn run(args: &Args) -> Result<ExitCode, Failure> {
    let list = args.target.list_if_any()?;
    let settings = args.target.settings(list.as_ref())?;
    let store = settings.shown();
    let subject = Subject {
        list,
        settings,
        host: args.target.host()?,
    };
    let report = output::ask(async { Ok(preflight::look(&subject).await) })?;
    output::print(&if args.json {
        output::json_lines([Diagnosis {
            store,
            findings: &report.findings,
        }])?
    } else {
        for_people(&store, &report.findings)
    })?;
    if let Some(error) = report.unreachable {
        return Err(error.into());
    }
    Ok(match report.dangers().next() {
        Some(_) => ExitCode::FAILURE,
        None => ExitCode::SUCCESS,
    })
}

/// The worst first; below each what it means, and how to fix it.
fn for_people(store: &str, findings: &[Finding]) -> String {
    let mut text = format!("store  {store}\n\n");
    for finding in findings {
        let Finding { id, subject, .. } = finding;
        text += &format!("{:<7}  {id}  {subject}\n", finding.severity.word());
        text += &format!("         {}\n", finding.text);
        if !finding.fix.is_empty() {
            text += &format!("         -> {}\n", finding.fix);
        }
    }
    let count = |severity| findings.iter().filter(|f| f.severity == severity).count();
    let plural = |n: usize, word: &str| format!("{n} {word}{}", if n == 1 { "" } else { "s" });
    text += &format!(
        "\n{}, {}, {}\n",
        plural(count(Severity::Danger), "danger"),
        plural(count(Severity::Warning), "warning"),
        plural(count(Severity::Hint), "hint"),
    );
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn people_see_the_worst_first_and_what_to_do() {
        let finding = |id, severity, fix: &str| Finding {
            id,
            severity,
            subject: "redis://ops:***@10.0.0.5:6379".to_owned(),
            text: "something, and what comes of it".to_owned(),
            fix: fix.to_owned(),
        };
        let findings = [
            finding("store.eviction", Severity::Danger, "set it"),
            finding("store.version", Severity::Ok, ""),
        ];
        insta::assert_snapshot!(for_people("redis://ops:***@10.0.0.5:6379", &findings));
    }
}
