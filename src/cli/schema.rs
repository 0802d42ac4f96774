//! `cronlatch schema`: the JSON Schema of job lists, for editors, and of what commands print.

use std::process::ExitCode;

use super::{Failure, output};

/// The schema of job lists; a test compares it with what `check` accepts.
pub(crate) const SCHEMA: &str = include_str!("../../jobs.schema.json");

/// The schema of what commands print; tests compare it with what they print.
const OUTPUT: &str = include_str!("../../docs/json.schema.json");

/// Options of `schema`.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// What the schema describes
    #[arg(value_name = "WHAT", default_value = "list")]
    of: SchemaOf,
}

/// What a schema describes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum SchemaOf {
    /// Job lists
    List,
    /// What commands print with `--json`, and the API over HTTP
    Output,
}

pub(super) fn run(args: &Args) -> Result<ExitCode, Failure> {
    output::print(match args.of {
        SchemaOf::List => SCHEMA,
        SchemaOf::Output => OUTPUT,
    })?;
    Ok(ExitCode::SUCCESS)
}
