//! `cronlatch notify-test`: whether messages reach a target.

use std::process::ExitCode;
use std::sync::Arc;

use super::nearest::nearest_name;
use super::{Failure, Target, output};
use crate::config::{JobList, NotifyTarget};
use crate::names::TargetName;
use crate::notify;
use crate::run::inherited;

/// Options of `notify-test`.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The target, as `notify` of the job list names it
    #[arg(value_name = "TARGET")]
    name: TargetName,
    #[command(flatten)]
    target: Target,
}

pub(super) fn run(args: &Args) -> Result<ExitCode, Failure> {
    let list = args.target.list_to_run()?;
    let host = args.target.host()?;
    let target = find(&args.name, &list)?;
    let channel = &target.channel;
    let what = format!(
        "{} ({} at {})",
        target.name,
        channel.kind(),
        channel.shown()
    );
    let environment = Arc::new(inherited(&list.secret_variables));
    notify::send_sample(target, &host, environment)
        .map_err(|why| Failure::Unavailable(format!("cannot notify {what}: {why}")))?;
    output::print(&format!("sent a sample to {what}\n"))?;
    Ok(ExitCode::SUCCESS)
}

fn find<'a>(name: &TargetName, list: &'a JobList) -> Result<&'a NotifyTarget, Failure> {
    let targets = &list.notify;
    if let Some(target) = targets.iter().find(|target| target.name == *name) {
        return Ok(target);
    }
    let mut text = format!("no target {name} in `notify` of {}", list.path.display());
    let names: Vec<&str> = targets.iter().map(|target| target.name.as_str()).collect();
    match nearest_name(name.as_str(), names.iter().copied()) {
        Some(near) => text += &format!("\nhelp: did you mean {near}?"),
        None if names.is_empty() => {}
        None => text += &format!("\nhelp: its targets are {}", names.join(", ")),
    }
    Err(Failure::Usage(text))
}
