//! Opening a store for the library.

use std::io;
use std::path::PathBuf;

use super::Latch;
use crate::config;
use crate::lease::Watchdog;
use crate::names::{HostName, InvalidName, Prefix};
use crate::store::{self, StoreError, StoreSettings};

/// How to open a store; see [`Latch::builder`].
#[derive(Debug, Clone)]
pub struct LatchBuilder {
    url: String,
    prefix: Option<String>,
    password_file: Option<PathBuf>,
    ca_file: Option<PathBuf>,
    host: Option<String>,
}

/// Why a store cannot be opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The URL is wrong; the text says how, and shows no password.
    #[error("{0}")]
    Url(String),
    /// The prefix or the host's name is not made of letters, digits, `.`, `_` and `-`.
    #[error(transparent)]
    Name(#[from] InvalidName),
    /// The option is not one of this kind of store.
    #[error("the embedded store has no {0}")]
    NotForSqlite(&'static str),
    /// This machine's host name cannot be used: name one with [`LatchBuilder::host`].
    #[error("{0}")]
    Host(String),
    /// Not called within a tokio runtime.
    #[error("a latch must be opened within a tokio runtime")]
    NoRuntime,
    /// The store cannot be opened.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The thread that renews leases cannot be started.
    #[error("cannot start the thread that renews leases: {0}")]
    Watchdog(#[source] io::Error),
}

impl LatchBuilder {
    pub(super) fn new(url: &str) -> Self {
        Self {
            url: url.to_owned(),
            prefix: None,
            password_file: None,
            ca_file: None,
            host: None,
        }
    }

    /// What every key in Redis begins with; `cronlatch` unless said otherwise.
    #[must_use]
    pub fn prefix(mut self, prefix: &str) -> Self {
        self.prefix = Some(prefix.to_owned());
        self
    }

    /// A file with the Redis password, read at every connect.
    #[must_use]
    pub fn password_file(mut self, path: impl Into<PathBuf>) -> Self {
        self.password_file = Some(path.into());
        self
    }

    /// A PEM file with the authorities to trust for `rediss://`, instead of the system's.
    #[must_use]
    pub fn ca_file(mut self, path: impl Into<PathBuf>) -> Self {
        self.ca_file = Some(path.into());
        self
    }

    /// How this host is called in tokens, for people to read; its host name unless said otherwise.
    #[must_use]
    pub fn host(mut self, name: &str) -> Self {
        self.host = Some(name.to_owned());
        self
    }

    /// Opens the store, and starts the thread that renews leases.
    pub fn open(self) -> Result<Latch, OpenError> {
        tokio::runtime::Handle::try_current().map_err(|_| OpenError::NoRuntime)?;
        let host = match &self.host {
            Some(name) => HostName::parse(name)?,
            None => config::machine_host_name().map_err(OpenError::Host)?,
        };
        let settings = self.settings()?;
        let store = store::open(&settings)?;
        let watchdog = Watchdog::start(&settings, None).map_err(OpenError::Watchdog)?;
        Ok(Latch {
            store,
            watchdog,
            host,
        })
    }

    fn settings(self) -> Result<StoreSettings, OpenError> {
        let mut settings = store::check_url(&self.url).map_err(OpenError::Url)?;
        if let StoreSettings::Sqlite { .. } = settings {
            let given = [
                (self.prefix.is_some(), "key prefix"),
                (self.password_file.is_some(), "password"),
                (self.ca_file.is_some(), "certificates"),
            ];
            if let Some((_, what)) = given.iter().find(|(given, _)| *given) {
                return Err(OpenError::NotForSqlite(what));
            }
        }
        for server in settings.servers_mut() {
            if let Some(prefix) = &self.prefix {
                server.prefix = Prefix::parse(prefix)?;
            }
            server.password_file.clone_from(&self.password_file);
            // Refused later, where nothing speaks TLS.
            server.ca_file.clone_from(&self.ca_file);
        }
        if let Some(path) = &self.ca_file {
            settings.set_ca_file(path);
        }
        Ok(settings)
    }
}
