//! `cronlatch doctor`: what can go wrong, before it does.

use std::io::{IsTerminal as _, stderr};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use serde::Serialize;

use super::page::{Page, Tone};
use super::{Failure, Target, output};
use crate::preflight::{self, Finding, PreflightReport, Severity, Subject};

/// How often a line at a terminal reports that the checks take time.
const SAY_EVERY: Duration = Duration::from_secs(2);

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
    let report = output::ask(async { Ok(look(&subject).await) })?;
    if args.json {
        output::print(&output::json_lines([Diagnosis {
            store,
            findings: &report.findings,
        }])?)?;
    } else {
        output::print_page(&for_people(&store, &report.findings))?;
    }
    if let Some(error) = report.unreachable {
        return Err(error.into());
    }
    Ok(match report.dangers().next() {
        Some(_) => ExitCode::FAILURE,
        None => ExitCode::SUCCESS,
    })
}

/// Looks at the store and this host. Servers that do not reply take seconds, and at a terminal a line
/// says that the command waits for them.
async fn look(subject: &Subject) -> PreflightReport {
    let began = Instant::now();
    let mut looking = Box::pin(preflight::look(subject));
    loop {
        match tokio::time::timeout(SAY_EVERY, &mut looking).await {
            Ok(report) => return report,
            Err(_) if stderr().is_terminal() => output::report(&format!(
                "still checking, for {}: {} is slow, or does not reply",
                output::short(began.elapsed()),
                subject.settings.shown()
            )),
            Err(_) => {}
        }
    }
}

/// The worst first; below each what it means, and how to fix it.
fn for_people(store: &str, findings: &[Finding]) -> Page {
    let mut page = Page::default();
    page.push_toned(Tone::Heading, "store");
    page.push(format!("  {store}\n\n"));
    for finding in findings {
        let Finding { id, subject, .. } = finding;
        page.push_toned(tone(finding.severity), finding.severity.word());
        let indent = " ".repeat(7_usize.saturating_sub(finding.severity.word().len()));
        page.push(format!("{indent}  {id}  {subject}\n"));
        page.push(format!("         {}\n", finding.text));
        if !finding.fix.is_empty() {
            page.push_toned(Tone::Faint, "         -> ");
            page.push(format!("{}\n", finding.fix));
        }
    }
    let counts = [
        (Severity::Danger, "danger"),
        (Severity::Warning, "warning"),
        (Severity::Hint, "hint"),
    ];
    for (index, (severity, word)) in counts.into_iter().enumerate() {
        page.push(if index == 0 { "\n" } else { ", " });
        let n = findings.iter().filter(|f| f.severity == severity).count();
        let tone = if n == 0 { Tone::Plain } else { tone(severity) };
        let plural = if n == 1 { "" } else { "s" };
        page.push_toned(tone, format!("{n} {word}{plural}"));
    }
    page.push("\n");
    page
}

fn tone(severity: Severity) -> Tone {
    match severity {
        Severity::Danger => Tone::Bad,
        Severity::Warning => Tone::Doubtful,
        Severity::Hint => Tone::Heading,
        Severity::Ok => Tone::Good,
    }
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
        let page = for_people("redis://ops:***@10.0.0.5:6379", &findings);
        insta::assert_snapshot!(page.text());
    }
}
