//! `cronlatch init`: initialises a new, empty store.

use std::process::ExitCode;

use super::{Failure, Target, output};
use crate::store;

/// Options of `init`.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Do not check for connected daemons. Make sure first that no job, `exec` command or program
    /// with a lock is still running
    #[arg(long)]
    force: bool,
    #[command(flatten)]
    target: Target,
}

/// The result of `init`.
enum InitResult {
    New,
    /// The store has this many keys of cronlatch already.
    NotEmpty(u64),
    /// These daemons are connected.
    InUse(Vec<String>),
}

pub(super) fn run(args: &Args) -> Result<ExitCode, Failure> {
    let list = args.target.list_if_any()?;
    let settings = args.target.settings(list.as_ref())?;
    args.target.warn_about_store(&settings);
    let result = output::ask(async {
        let store = store::open(&settings)?;
        if !args.force {
            let live = store.daemons().await?;
            if !live.is_empty() {
                return Ok(InitResult::InUse(live));
            }
        }
        Ok(store
            .init()
            .await?
            .map_or(InitResult::New, InitResult::NotEmpty))
    })?;
    match result {
        InitResult::InUse(live) => Err(Failure::Config(format!(
            "{} is in use: {} connected ({}), and nothing was written\n\
             help: if the store has just lost its data, jobs may be running that it no longer \
             knows, and after `init` they would start a second time. Wait instead: the daemons \
             re-acquire their locks, and new runs start when the longest TTL has passed. \
             Otherwise stop the daemons first, or use `--force`",
            settings.shown(),
            if live.len() == 1 {
                "a daemon is".to_owned()
            } else {
                format!("{} daemons are", live.len())
            },
            live.join(", "),
        ))),
        InitResult::New => {
            output::print(&format!(
                "{} is ready for its first run\n",
                settings.shown()
            ))?;
            Ok(ExitCode::SUCCESS)
        }
        InitResult::NotEmpty(count) => Err(Failure::Config(format!(
            "{} is not empty: {count} {} of cronlatch {} there already, and nothing was written\n\
             help: a store that has been in use needs no `init`",
            settings.shown(),
            if count == 1 { "entry" } else { "entries" },
            if count == 1 { "is" } else { "are" },
        ))),
    }
}
