//! `cronlatch init`: declares an empty store new.

use std::process::ExitCode;

use super::{Failure, Target, output};
use crate::store;

/// Options of `init`.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    target: Target,
}

pub(super) fn run(args: &Args) -> Result<ExitCode, Failure> {
    let list = args.target.list_if_any()?;
    let settings = args.target.settings(list.as_ref())?;
    args.target.warn_of(&settings);
    let there = output::ask(async { Ok(store::open(&settings)?.init().await?) })?;
    match there {
        None => {
            output::print(&format!(
                "{} is ready for its first run\n",
                settings.shown()
            ))?;
            Ok(ExitCode::SUCCESS)
        }
        Some(count) => Err(Failure::Config(format!(
            "{} is not empty: {count} {} of cronlatch {} there already, and nothing was written\n\
             help: a store that is in use needs no `init`",
            settings.shown(),
            if count == 1 { "entry" } else { "entries" },
            if count == 1 { "is" } else { "are" },
        ))),
    }
}
