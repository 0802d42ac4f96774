//! What the server's and the network's errors mean for the caller, and for the connection.

use redis::{ErrorKind, RedisError};

use crate::store::StoreError;

/// Why something failed. Unlike [`StoreError`] it can be handed to many who waited for one thing.
#[derive(Debug, Clone)]
pub(super) struct Failure {
    kind: Kind,
    text: String,
    rebuild: bool,
    demoted: bool,
    redirect: Option<Redirect>,
}

/// Where a server of a Cluster sends us. It did not do what it was asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Redirect {
    /// The slot is served there.
    Moved(String),
    /// For this once; the slot is on its way there.
    Ask(String),
    /// The slot is on its way, and part of its keys are here, part there.
    Again,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Unreachable,
    PartUnreachable,
    Refused,
    Corrupt,
}

impl Failure {
    pub(super) fn unreachable(text: String) -> Self {
        Self {
            kind: Kind::Unreachable,
            text,
            rebuild: true,
            demoted: false,
            redirect: None,
        }
    }

    /// The server answered; its replicas did not.
    pub(super) fn short_of_replicas(text: String) -> Self {
        Self {
            rebuild: false,
            ..Self::unreachable(text)
        }
    }

    /// The same, of a server that another one may have replaced: that one will answer.
    pub(super) fn of_replaced(self) -> Self {
        Self {
            kind: Kind::Unreachable,
            ..self
        }
    }

    pub(super) fn refused(text: String) -> Self {
        Self {
            kind: Kind::Refused,
            text,
            rebuild: false,
            redirect: None,
            demoted: false,
        }
    }

    pub(super) fn corrupt(text: String) -> Self {
        Self {
            kind: Kind::Corrupt,
            text,
            rebuild: false,
            redirect: None,
            demoted: false,
        }
    }

    /// Reads an error of the client library; `shown` is the server's URL without password.
    pub(super) fn of(shown: &str, error: &RedisError) -> Self {
        let said = match (error.code(), error.detail()) {
            (Some(code), Some(detail)) => format!("{shown}: {code} {detail}"),
            (Some(code), None) => format!("{shown}: {code}"),
            (None, Some(detail)) => format!("{shown}: {error} ({detail})"),
            (None, None) => format!("{shown}: {error}"),
        };
        let denied = error.code() == Some("NOPERM")
            || said.contains("can't run this command")
            || said.contains("can't access at least one of the keys");
        if denied {
            return Self::refused(format!(
                "{said} (the rights that cronlatch needs are listed in docs/operations.md)"
            ));
        }
        if let Some(redirect) = redirect(error) {
            return Self {
                // The connection is sound.
                rebuild: false,
                redirect: Some(redirect),
                ..Self::unreachable(said)
            };
        }
        match error.code() {
            // It will serve again by itself, or another server does under the same name.
            Some(
                "LOADING" | "MASTERDOWN" | "BUSY" | "CLUSTERDOWN" | "NOREPLICAS" | "UNBLOCKED",
            ) => Self::unreachable(said),
            // Demoted, or the password was changed: what a new connection finds may differ.
            Some(code @ ("READONLY" | "NOAUTH" | "WRONGPASS")) => Self {
                rebuild: true,
                demoted: code == "READONLY",
                ..Self::refused(said)
            },
            Some("CORRUPT" | "WRONGTYPE") => Self::corrupt(said),
            Some(_) => Self::refused(said),
            None => match error.kind() {
                ErrorKind::Io | ErrorKind::Parse | ErrorKind::Client => Self::unreachable(said),
                ErrorKind::UnexpectedReturnType => Self::corrupt(said),
                _ => Self::refused(said),
            },
        }
    }

    /// Whether the server says that it is a replica.
    pub(super) fn is_demotion(&self) -> bool {
        self.demoted
    }

    /// Whether the connection that said so must be given up.
    pub(super) fn wants_rebuild(&self) -> bool {
        self.rebuild
    }

    /// Whether the store is down, rather than unwilling.
    pub(super) fn is_outage(&self) -> bool {
        matches!(self.kind, Kind::Unreachable | Kind::PartUnreachable)
    }

    /// An outage that concerns one server of several.
    pub(super) fn in_part(self) -> Self {
        match self.kind {
            Kind::Unreachable => Self {
                kind: Kind::PartUnreachable,
                ..self
            },
            _ => self,
        }
    }

    /// Where a server of a Cluster sends us instead.
    pub(super) fn redirect(&self) -> Option<&Redirect> {
        self.redirect.as_ref()
    }

    pub(super) fn text(&self) -> &str {
        &self.text
    }
}

fn redirect(error: &RedisError) -> Option<Redirect> {
    let to = error.redirect_node().map(|(to, _)| to.to_owned());
    match (error.code()?, to) {
        ("MOVED", Some(to)) => Some(Redirect::Moved(to)),
        ("ASK", Some(to)) => Some(Redirect::Ask(to)),
        // In a pipeline the client library leaves out where to.
        ("MOVED" | "ASK" | "TRYAGAIN", _) => Some(Redirect::Again),
        _ => None,
    }
}

impl From<Failure> for StoreError {
    fn from(failure: Failure) -> Self {
        match failure.kind {
            Kind::Unreachable => Self::Unreachable(failure.text),
            Kind::PartUnreachable => Self::PartUnreachable(failure.text),
            Kind::Refused => Self::Refused(failure.text),
            Kind::Corrupt => Self::Corrupt(failure.text),
        }
    }
}
