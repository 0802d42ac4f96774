//! Opening a store for the library.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use super::error::OpenError;
use super::queue::Queues;
use super::shared::LatchShared;
use super::tally::LatchCounts;
use super::{Latch, blocking};
use crate::lease::Watchdog;
use crate::names::{HostName, Prefix};
use crate::store::{self, StoreSettings};

/// How to open a store. See [`Latch::builder`].
#[derive(Clone)]
#[must_use = "a builder does nothing until `open` is called"]
pub struct LatchBuilder {
    url: String,
    prefix: Option<String>,
    password_file: Option<PathBuf>,
    ca_file: Option<PathBuf>,
    host: Option<String>,
}

/// Without the password that the URL may contain.
impl fmt::Debug for LatchBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LatchBuilder")
            .field("url", &store::shown_url(&self.url))
            .field("prefix", &self.prefix)
            .field("password_file", &self.password_file)
            .field("ca_file", &self.ca_file)
            .field("host", &self.host)
            .finish()
    }
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

    /// The prefix of every key in Redis: letters, digits, `.`, `_` and `-`; `cronlatch` by default.
    /// Programs and daemons that are to exclude each other use the same one.
    pub fn prefix(mut self, prefix: &str) -> Self {
        self.prefix = Some(prefix.to_owned());
        self
    }

    /// A file with the Redis password, read again for every connection. It wins over a password in
    /// the URL.
    pub fn password_file(mut self, path: impl Into<PathBuf>) -> Self {
        self.password_file = Some(path.into());
        self
    }

    /// A PEM file with the certificate authorities to trust for `rediss://`, instead of the system's.
    pub fn ca_file(mut self, path: impl Into<PathBuf>) -> Self {
        self.ca_file = Some(path.into());
        self
    }

    /// The name of this host in tokens, for people to read; by default the machine's host name.
    pub fn host(mut self, name: &str) -> Self {
        self.host = Some(name.to_owned());
        self
    }

    /// Opens the store on the current tokio runtime, and starts the thread that renews leases.
    /// Does not connect.
    pub fn open(self) -> Result<Latch, OpenError> {
        tokio::runtime::Handle::try_current().map_err(|_| OpenError::NoRuntime)?;
        let host = match &self.host {
            Some(name) => HostName::parse(name)?,
            None => HostName::of_machine().map_err(OpenError::Host)?,
        };
        let settings = self.settings()?;
        let store = store::open(&settings)?;
        let watchdog = Watchdog::start(&settings, None).map_err(OpenError::Watchdog)?;
        Ok(Latch {
            shared: Arc::new(LatchShared {
                store,
                watchdog,
                host,
                queues: Queues::default(),
                tally: LatchCounts::new(),
                shown: settings.shown(),
            }),
        })
    }

    /// As [`open`](Self::open), for programs without a runtime.
    pub fn open_blocking(self) -> Result<blocking::Latch, OpenError> {
        blocking::Latch::open_with(self)
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
            // Rejected later if its URL does not use TLS.
            server.ca_file.clone_from(&self.ca_file);
        }
        if let Some(path) = &self.ca_file {
            settings.set_ca_file(path);
        }
        Ok(settings)
    }
}
