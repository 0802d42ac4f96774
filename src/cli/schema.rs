//! `cronlatch schema`: the JSON Schema of job lists, for editors.

use std::process::ExitCode;

use super::{Failure, output};

/// The schema; a test compares it with what `check` accepts.
pub(crate) const SCHEMA: &str = include_str!("../../jobs.schema.json");

/// Options of `schema`.
#[derive(Debug, clap::Args)]
pub(super) struct Args {}

pub(super) fn run(_: &Args) -> Result<ExitCode, Failure> {
    output::print(SCHEMA)?;
    Ok(ExitCode::SUCCESS)
}
