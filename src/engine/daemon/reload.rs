//! Reads the job list again while the daemon runs (SIGHUP, `run --watch`).
//!
//! A task reads the list, and the loop applies it as a whole or not at all. A list with errors, or
//! that names another store, is rejected, and the daemon continues with the list it has. What the
//! new list means for each job is decided in [`super::replace`].

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;

use super::Daemon;
use super::list_source::{ListErrors, ListRead, ListSource, LoadedList, ReloadCause};
use super::message::Message;
use super::shutdown::counted;
use crate::config::{JobList, Revision};
use crate::ground::tasks;
use crate::schedule::ticker::{Firing, Ticker};
use crate::store::StoreSettings;
use crate::time::{BootInstant, Timestamp};

/// The list is read at most this often; one reading serves all requests in between.
const READ_EVERY: Duration = Duration::from_secs(1);
/// How often `run --watch` looks at the files.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// How many errors of a refused list are logged.
const ERRORS_SHOWN: usize = 20;

/// What the daemon knows of its list as a file.
#[derive(Debug)]
pub(super) struct Reloads {
    source: Arc<dyn ListSource>,
    /// What the daemon has started with.
    settings: StoreSettings,
    strict: bool,
    /// The files of the list that was read last.
    revision: Revision,
    /// Its warnings, which are in the log.
    warnings: BTreeSet<String>,
    /// A task reads the list.
    is_reading: bool,
    /// The list is to be read (again).
    wanted: Option<ReloadCause>,
    not_before: BootInstant,
    /// A list that was read and is to be judged.
    read: Option<ListRead>,
    /// Why the newest list was refused, if it was.
    refused: Option<String>,
}

impl Reloads {
    pub(super) fn new(
        source: Arc<dyn ListSource>,
        list: &JobList,
        settings: &StoreSettings,
        revision: Revision,
    ) -> Self {
        Self {
            source,
            settings: settings.clone(),
            strict: list.strict,
            revision,
            warnings: list.warnings.iter().cloned().collect(),
            is_reading: false,
            wanted: None,
            not_before: BootInstant::now(),
            read: None,
            refused: None,
        }
    }

    /// The store that the daemon has started with.
    pub(super) fn settings(&self) -> &StoreSettings {
        &self.settings
    }

    /// Whether other machines, with clocks of their own, use the store.
    pub(super) fn is_shared(&self) -> bool {
        !matches!(self.settings, StoreSettings::Sqlite { .. })
    }

    /// When the list is to be read, if it is.
    pub(super) fn due(&self) -> Option<BootInstant> {
        (self.wanted.is_some() && !self.is_reading).then_some(self.not_before)
    }

    /// The list that was read, if it is still to be judged.
    pub(super) fn take_read(&mut self) -> Option<ListRead> {
        self.read.take()
    }

    /// Why the newest list was refused, if it was.
    pub(super) fn refused(&self) -> Option<&str> {
        self.refused.as_deref()
    }

    /// Notes that the list is to be read.
    fn want(&mut self, cause: ReloadCause) {
        // Each signal gets a line in the log.
        if self.wanted != Some(ReloadCause::Signal) {
            self.wanted = Some(cause);
        }
    }

    /// Refuses a list that names another store: half of it would be in force, and the rest after the
    /// next restart.
    fn judge(&self, read: Result<LoadedList, ListErrors>) -> Result<LoadedList, NotApplied> {
        let loaded = read.map_err(NotApplied::Errors)?;
        if loaded.settings == self.settings {
            return Ok(loaded);
        }
        let (now, then) = (self.settings.shown(), loaded.settings.shown());
        let what = if now == then {
            format!("changes the settings of the store {now}")
        } else {
            format!("changes the store from {now} to {then}")
        };
        Err(NotApplied::OtherStore(what))
    }
}

/// Why a list that was read is not applied.
#[derive(Debug)]
enum NotApplied {
    /// It has these errors.
    Errors(ListErrors),
    /// It is correct, but names another store than the daemon was started with. What it does, as text.
    OtherStore(String),
}

/// Has the loop read the list again whenever its files have changed and are written no more.
pub(super) async fn watch(
    source: Arc<dyn ListSource>,
    mut known: Revision,
    inbox: mpsc::UnboundedSender<Message>,
) {
    let mut before = known.clone();
    while !inbox.is_closed() {
        tokio::time::sleep(LOOK_EVERY).await;
        let source = Arc::clone(&source);
        // A network file system may take its time.
        let Ok(now) = tokio::task::spawn_blocking(move || source.revision()).await else {
            return;
        };
        if now != known && now == before {
            known = now.clone();
            let _ = inbox.send(Message::ListChanged);
        }
        before = now;
    }
}

impl Daemon {
    /// The list is to be read again: now, or a moment after it was read last.
    pub(super) fn reload_wanted(&mut self, cause: ReloadCause) {
        if self.shutdown.is_some() {
            tracing::info!("the job list is not read again: the daemon is stopping");
            return;
        }
        self.reloads.want(cause);
    }

    /// Reads the list in a task of its own.
    pub(super) fn read_list(&mut self) {
        let Some(cause) = self.reloads.wanted.take() else {
            return;
        };
        self.reloads.is_reading = true;
        self.reloads.not_before = BootInstant::now().plus(READ_EVERY);
        if self.is_ready {
            self.manager.reloading("reading the job list again");
        }
        let source = Arc::clone(&self.reloads.source);
        let inbox = self.link.inbox.clone();
        tasks::spawn(async move {
            let read = tokio::task::spawn_blocking(move || source.load()).await;
            let result = read.unwrap_or_else(|error| {
                Err(ListErrors(vec![format!("the list was not read: {error}")]))
            });
            let _ = inbox.send(Message::ListRead(Box::new(ListRead { cause, result })));
        });
    }

    /// A task has read the list.
    pub(super) fn list_was_read(&mut self, read: ListRead) {
        self.reloads.is_reading = false;
        self.reloads.read = Some(read);
    }

    /// Applies a list that was read, or refuses it.
    pub(super) fn apply_list(
        &mut self,
        read: ListRead,
        ticker: &Ticker,
        firings: &mut mpsc::UnboundedReceiver<Firing>,
    ) {
        if self.shutdown.is_some() {
            return;
        }
        let ListRead { cause, result } = read;
        match self.reloads.judge(result) {
            Ok(loaded) => {
                // The log has the refusal, so it must have its end as well.
                let was_refused = self.reloads.refused.take().is_some();
                let is_known = self.reloads.revision == loaded.revision;
                self.reloads.revision = loaded.revision;
                if cause == ReloadCause::Signal || !is_known || was_refused {
                    self.report_warnings(&loaded.list);
                    self.replace_list(loaded.list, ticker, firings);
                }
            }
            Err(NotApplied::Errors(errors)) => self.refuse_list(&errors),
            Err(NotApplied::OtherStore(what)) => self.refuse_other_store(&what),
        }
        if self.is_ready {
            self.said_status = self.status_text();
            self.manager.ready(&self.said_status);
        }
    }

    fn refuse_list(&mut self, ListErrors(errors): &ListErrors) {
        for error in errors.iter().take(ERRORS_SHOWN) {
            tracing::error!(host = %self.host, "error in the new job list: {error}");
        }
        let path = self.reloads.source.shown_path();
        let n = counted(errors.len(), "error");
        tracing::error!(
            host = %self.host,
            "reload refused: the new job list {path} has {n}; the daemon continues with the list \
             it has. Correct the list (`cronlatch check` shows each error with its line), then \
             reload again"
        );
        let first = errors.first().map_or("", String::as_str);
        let more = match errors.len() {
            0 | 1 => String::new(),
            n => format!(" (and {} more)", n - 1),
        };
        self.note_refusal(&format!("{first}{more}"));
    }

    fn refuse_other_store(&mut self, what: &str) {
        let path = self.reloads.source.shown_path();
        tracing::error!(
            host = %self.host,
            "reload refused: the new job list {path} {what}; the daemon continues with the list it \
             has. Restart the daemon to change the store (docs/stores.md, \"Moving to another store\")"
        );
        self.note_refusal(&format!("it {what}, which takes a restart"));
    }

    /// Keeps, for the status of the service, why the list was refused.
    fn note_refusal(&mut self, why: &str) {
        let at = Timestamp::now();
        self.reloads.refused = Some(format!("new job list refused at {at}: {why}"));
    }

    /// Logs the warnings that the list before had not.
    fn report_warnings(&mut self, list: &JobList) {
        let warnings: BTreeSet<String> = list.warnings.iter().cloned().collect();
        for warning in warnings.difference(&self.reloads.warnings) {
            tracing::warn!("{warning}");
        }
        self.reloads.warnings = warnings;
    }

    /// Names what is in force only after a restart.
    pub(super) fn report_restart_needed(&mut self, list: &JobList) {
        if list.strict != self.reloads.strict {
            tracing::warn!(
                host = %self.host,
                "strict was changed: it concerns the start of the daemon, so it takes effect at \
                 the next restart; the rest of the list is in force"
            );
            self.reloads.strict = list.strict;
        }
    }
}
