//! What a look finds.

use serde::Serialize;

/// How bad it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Severity {
    /// As it should be.
    Ok,
    /// Could be better.
    Hint,
    /// Something can go wrong.
    Warning,
    /// A guarantee does not hold, or nothing will run.
    Danger,
}

impl Severity {
    /// As people read it.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Hint => "hint",
            Self::Warning => "warning",
            Self::Danger => "danger",
        }
    }
}

/// One fact, judged. Names and order of the fields are an interface (`doctor --json`).
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Finding {
    /// What was looked at; never changes its meaning.
    pub(crate) id: &'static str,
    /// How bad it is.
    pub(crate) severity: Severity,
    /// Whom it concerns: a server, a file, a job, this host.
    pub(crate) subject: String,
    /// What is there, and what can go wrong.
    pub(crate) text: String,
    /// How to fix it; empty when there is nothing to fix.
    pub(crate) fix: String,
}

/// The stable name of what is looked at.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Id(pub(crate) &'static str);

impl Id {
    fn found(self, severity: Severity, subject: &str, text: String, fix: String) -> Finding {
        Finding {
            id: self.0,
            severity,
            subject: subject.to_owned(),
            text,
            fix,
        }
    }

    pub(super) fn ok(self, subject: &str, text: impl Into<String>) -> Finding {
        self.found(Severity::Ok, subject, text.into(), String::new())
    }

    pub(super) fn hint(
        self,
        subject: &str,
        text: impl Into<String>,
        fix: impl Into<String>,
    ) -> Finding {
        self.found(Severity::Hint, subject, text.into(), fix.into())
    }

    pub(super) fn warning(
        self,
        subject: &str,
        text: impl Into<String>,
        fix: impl Into<String>,
    ) -> Finding {
        self.found(Severity::Warning, subject, text.into(), fix.into())
    }

    pub(super) fn danger(
        self,
        subject: &str,
        text: impl Into<String>,
        fix: impl Into<String>,
    ) -> Finding {
        self.found(Severity::Danger, subject, text.into(), fix.into())
    }
}

/// Every name there is; each has its line in `docs/operations.md`.
pub(crate) mod ids {
    use super::Id;

    pub(crate) const REACHABLE: Id = Id("store.reachable");
    pub(crate) const VERSION: Id = Id("store.version");
    pub(crate) const RIGHTS: Id = Id("store.rights");
    pub(crate) const EVICTION: Id = Id("store.eviction");
    pub(crate) const MEMORY: Id = Id("store.memory");
    pub(crate) const PERSISTENCE: Id = Id("store.persistence");
    pub(crate) const REPLICAS: Id = Id("store.replicas");
    pub(crate) const OLD_MASTER: Id = Id("store.old-master");
    pub(crate) const NODES: Id = Id("store.nodes");
    pub(crate) const SENTINELS: Id = Id("store.sentinels");
    pub(crate) const SLOTS: Id = Id("store.slots");
    pub(crate) const COVERAGE: Id = Id("store.coverage");
    pub(crate) const MIGRATION: Id = Id("store.migration");
    pub(crate) const FAILOVER: Id = Id("store.failover");
    pub(crate) const LATENCY: Id = Id("store.latency");
    pub(crate) const KEYS: Id = Id("store.keys");
    pub(crate) const LEDGER: Id = Id("store.ledger");
    pub(crate) const PLACE: Id = Id("store.place");
    pub(crate) const SPACE: Id = Id("disk.space");
    pub(crate) const STATE: Id = Id("disk.state");
    pub(crate) const FILES: Id = Id("host.files");
    pub(crate) const PROCESSES: Id = Id("host.processes");
    pub(crate) const NAMES: Id = Id("host.names");
    pub(crate) const LISTS: Id = Id("host.lists");
    pub(crate) const CLOCK: Id = Id("clock.offset");
    pub(crate) const NODE_CLOCKS: Id = Id("clock.nodes");
    pub(crate) const ZONE: Id = Id("clock.zone");
    pub(crate) const CONTAINMENT: Id = Id("jobs.containment");
    pub(crate) const USERS: Id = Id("jobs.users");
    pub(crate) const SECRETS: Id = Id("files.secrets");
    pub(crate) const VARIABLES: Id = Id("list.variables");
}
