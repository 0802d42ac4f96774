//! The store, the list and the host of a command.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::{Failure, output};
use crate::config::{self, ConfigErrors, JobList};
use crate::names::{HostName, Prefix};
use crate::store::{self, Store, StoreSettings, check_key_in_cluster, check_url};

const DEFAULT_CONFIG: &str = "/etc/cronlatch/jobs.yaml";

/// What to do if the store was not named, and is not that of the daemons.
const GUESSED_HELP: &str =
    "help: name the list of the daemons with -c/--config, or their store with --store";

/// The options that commands share.
#[derive(Debug, Clone, clap::Args)]
pub struct Target {
    /// The job list (file or directory of *.yaml) [default: /etc/cronlatch/jobs.yaml]
    #[arg(short, long, env = "CRONLATCH_CONFIG", value_name = "FILE")]
    pub config: Option<PathBuf>,
    #[command(flatten)]
    pub(super) place: StoreArgs,
}

/// Store and host, for commands that name their list otherwise.
#[derive(Debug, Clone, clap::Args)]
pub(super) struct StoreArgs {
    /// The store: `redis://`, `rediss://`, `redis+unix://`, `redis+sentinel://`,
    /// `redis+cluster://` or `sqlite:PATH`. Repeat it, or separate URLs by commas, for a majority of
    /// independent servers (Redlock). Overrides the store of the list,
    /// except its `prefix`
    #[arg(
        long,
        env = "CRONLATCH_STORE",
        value_name = "URL",
        hide_env_values = true,
        hide_short_help = true,
        help_heading = "Store and host"
    )]
    pub store: Vec<String>,
    /// This host's name [default: the machine's host name]
    #[arg(
        long,
        env = "CRONLATCH_HOST",
        value_name = "NAME",
        hide_short_help = true,
        help_heading = "Store and host"
    )]
    pub host: Option<String>,
}

impl Target {
    /// The list in this file, or at the default place; store and host are the default ones.
    pub(super) fn with_config(config: Option<PathBuf>) -> Self {
        let place = StoreArgs {
            store: Vec::new(),
            host: None,
        };
        Self { config, place }
    }

    /// The job list, for a command that starts no job; it must be there. Variables that only
    /// notifications and pings need may be unset.
    pub fn list(&self) -> Result<JobList, Failure> {
        self.read_list(config::load_without_secrets)
    }

    /// The job list, for a command that starts jobs or notifies; it must be there.
    pub(super) fn list_to_run(&self) -> Result<JobList, Failure> {
        self.read_list(config::load)
    }

    fn read_list(
        &self,
        load: impl FnOnce(&Path) -> Result<JobList, ConfigErrors>,
    ) -> Result<JobList, Failure> {
        let default = Path::new(DEFAULT_CONFIG);
        if self.config.is_none() && !default.exists() {
            return Err(Failure::Config(format!(
                "no job list was found: name a file or a directory of *.yaml files with \
                 -c/--config or CRONLATCH_CONFIG (`cronlatch run FILE` takes it as its argument), \
                 or put it at {DEFAULT_CONFIG}"
            )));
        }
        Ok(load(self.path())?)
    }

    /// Where the job list is.
    pub(super) fn path(&self) -> &Path {
        let default = Path::new(DEFAULT_CONFIG);
        self.config.as_deref().unwrap_or(default)
    }

    /// The job list, or `None` when none was named and the default one is not there.
    pub fn list_if_any(&self) -> Result<Option<JobList>, Failure> {
        if self.config.is_none() && !Path::new(DEFAULT_CONFIG).exists() {
            return Ok(None);
        }
        self.list().map(Some)
    }

    /// The store that the options, else the list, else the default name.
    pub fn settings(&self, list: Option<&JobList>) -> Result<StoreSettings, Failure> {
        self.place.settings(list)
    }

    /// Warns on standard error about settings of a store from the options that are valid but
    /// probably unintended. For a store in the list, `check` warns.
    pub fn warn_about_store(&self, settings: &StoreSettings) {
        if !self.place.store.is_empty() {
            for warning in settings.warnings() {
                output::report(&format!("warning: {warning}"));
            }
        }
    }

    /// Opens the store. An embedded one that does not exist is not created: its path may be mistyped, so this
    /// warns, and the command finds an empty store.
    pub(super) fn open_existing(
        &self,
        list: Option<&JobList>,
        settings: &StoreSettings,
    ) -> Result<Arc<dyn Store>, Failure> {
        if !store::is_absent(settings) {
            return Ok(store::open(settings)?);
        }
        let absent = format!(
            "there is no store {}: no daemon has used this path",
            settings.shown()
        );
        output::report(&if self.is_guessed(list) {
            format!("warning: no job list was found, and {absent}\n{GUESSED_HELP}")
        } else {
            format!("warning: {absent}")
        });
        Ok(store::open_empty()?)
    }

    /// Whether neither a list nor a store was named or found, so that the store is the embedded one.
    pub(super) fn is_guessed(&self, list: Option<&JobList>) -> bool {
        list.is_none() && self.place.store.is_empty()
    }

    /// Warns on standard error if the store was not named. For a command that has found nothing there. Of a store
    /// that does not exist, [`Self::open_existing`] has warned.
    pub(super) fn warn_if_guessed(&self, list: Option<&JobList>, settings: &StoreSettings) {
        if self.is_guessed(list) && !store::is_absent(settings) {
            output::report(&format!(
                "warning: no job list was found, so this looked in {}\n{GUESSED_HELP}",
                settings.shown()
            ));
        }
    }

    /// The name of this host.
    pub fn host(&self) -> Result<HostName, Failure> {
        self.place.host()
    }
}

impl StoreArgs {
    /// The store that the options, else the list, else the default name. Options replace where the store
    /// is; a `prefix` of the list stays.
    pub(super) fn settings(&self, list: Option<&JobList>) -> Result<StoreSettings, Failure> {
        match (self.store.as_slice(), list.and_then(|l| l.store.clone())) {
            ([], Some(settings)) => Ok(settings),
            ([], None) => config::embedded_store().map_err(Failure::Config),
            (urls, _) => {
                let mut settings = check_url(&urls.join(",")).map_err(Failure::Usage)?;
                if let Some(prefix) = list.and_then(prefix) {
                    for server in settings.servers_mut() {
                        server.prefix = prefix.clone();
                    }
                }
                check_keys(&settings, list)?;
                Ok(settings)
            }
        }
    }

    /// The name of this host.
    pub(super) fn host(&self) -> Result<HostName, Failure> {
        match &self.host {
            Some(name) => HostName::parse(name).map_err(|e| Failure::Usage(e.to_string())),
            None => config::machine_host_name().map_err(Failure::Usage),
        }
    }
}

/// The prefix of the list, which is part of what the list means and not of where its store is: hosts that
/// reach one store under different names must find the same keys.
fn prefix(list: &JobList) -> Option<Prefix> {
    let settings = list.store.as_ref()?;
    let first = settings.servers().into_iter().next();
    first.map(|server| server.prefix.clone())
}

/// A list is checked against the store it names; against another one, here.
fn check_keys(settings: &StoreSettings, list: Option<&JobList>) -> Result<(), Failure> {
    if !matches!(settings, StoreSettings::Cluster(_)) {
        return Ok(());
    }
    for job in list.iter().flat_map(|list| &list.jobs) {
        let key = job.lock.key.as_deref().map_or(Ok(()), check_key_in_cluster);
        key.map_err(|why| Failure::Config(format!("job {}: {why}", job.name)))?;
    }
    Ok(())
}
