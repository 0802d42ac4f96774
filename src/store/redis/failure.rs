//! What the server's and the network's errors mean for the caller, and for the connection.

use redis::{ErrorKind, RedisError};

use crate::store::{ErrorDetail, KeyFault, KeyFaultKind, StoreError};

/// Why something failed. Unlike [`StoreError`] it can be handed to many who waited for one thing.
#[derive(Debug, Clone)]
pub(super) struct RedisFailure {
    kind: FailureKind,
    detail: ErrorDetail,
    rebuild: bool,
    demoted: bool,
    unknown_script: bool,
    redirect: Option<Redirect>,
    about: Option<About>,
}

/// What a failure is about.
#[derive(Debug, Clone)]
enum About {
    /// A script named it by its place among its keys, counted from one.
    Place(usize),
    /// The server denied something; whether that was a key is not known yet.
    Denied,
    /// This one.
    Key(KeyFault),
    /// None: the server did what it was asked, and too few replicas acknowledged it.
    Replicas(Shortfall),
}

/// How many replicas of a server acknowledged something.
#[derive(Debug, Clone)]
pub(super) struct Shortfall {
    /// Its URL, without password.
    pub(super) server: String,
    pub(super) acknowledged: u32,
    /// `wait_replicas`.
    pub(super) wanted: u32,
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
enum FailureKind {
    Unreachable,
    PartUnreachable,
    Refused,
    Replica,
    Corrupt,
}

impl RedisFailure {
    pub(super) fn unreachable(detail: impl Into<ErrorDetail>) -> Self {
        Self {
            kind: FailureKind::Unreachable,
            detail: detail.into(),
            rebuild: true,
            demoted: false,
            unknown_script: false,
            redirect: None,
            about: None,
        }
    }

    /// The server answered; its replicas did not.
    pub(super) fn short_of_replicas(shortfall: Shortfall, detail: impl Into<ErrorDetail>) -> Self {
        Self {
            rebuild: false,
            about: Some(About::Replicas(shortfall)),
            ..Self::unreachable(detail)
        }
    }

    /// How many replicas acknowledged, if the server did what it was asked and they were too few.
    pub(super) fn shortfall(&self) -> Option<&Shortfall> {
        match &self.about {
            Some(About::Replicas(shortfall)) => Some(shortfall),
            _ => None,
        }
    }

    /// The same, of a server that another one may have replaced: that one will answer.
    pub(super) fn of_replaced(self) -> Self {
        Self {
            kind: FailureKind::Unreachable,
            ..self
        }
    }

    pub(super) fn refused(detail: impl Into<ErrorDetail>) -> Self {
        Self {
            kind: FailureKind::Refused,
            detail: detail.into(),
            rebuild: false,
            redirect: None,
            demoted: false,
            unknown_script: false,
            about: None,
        }
    }

    /// The server is a replica where a master is wanted.
    pub(super) fn replica(detail: impl Into<ErrorDetail>) -> Self {
        Self {
            kind: FailureKind::Replica,
            ..Self::refused(detail)
        }
    }

    pub(super) fn corrupt(detail: impl Into<ErrorDetail>) -> Self {
        Self {
            kind: FailureKind::Corrupt,
            detail: detail.into(),
            rebuild: false,
            redirect: None,
            demoted: false,
            unknown_script: false,
            about: None,
        }
    }

    /// One key is at fault.
    pub(super) fn of_key(fault: KeyFault) -> Self {
        let failure = Self::corrupt(fault.to_string());
        Self {
            about: Some(About::Key(fault)),
            ..failure
        }
    }

    /// What this key holds cannot be read.
    pub(super) fn damaged(key: &str, detail: impl Into<ErrorDetail>) -> Self {
        Self::of_key(KeyFault {
            key: key.to_owned(),
            kind: KeyFaultKind::Damaged,
            detail: detail.into(),
        })
    }

    /// If an answer could not be read: it was made from what this key holds.
    pub(super) fn attributed_to(self, key: &str) -> Self {
        match (self.kind, &self.about) {
            (FailureKind::Corrupt, None) => Self::damaged(key, self.detail),
            _ => self,
        }
    }

    /// Whether the server denied something, which may or may not have been a key.
    pub(super) fn may_deny_a_key(&self) -> bool {
        matches!(self.about, Some(About::Denied))
    }

    /// The user has no right to this key.
    pub(super) fn denied(self, key: &str) -> Self {
        Self::of_key(KeyFault {
            key: key.to_owned(),
            kind: KeyFaultKind::Forbidden,
            detail: self.detail,
        })
    }

    /// Puts the key in place of its number, if a script named one.
    pub(super) fn located(self, keys: &[String]) -> Self {
        let Some(About::Place(place)) = self.about else {
            return self;
        };
        match place.checked_sub(1).and_then(|at| keys.get(at)) {
            Some(key) => Self::damaged(key, self.detail),
            None => self,
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
        let detail = |said: String| ErrorDetail::from(said).caused_by(error.clone());
        // A script of Redis 7.0 that calls what its user may not reports this as a general error,
        // without a code of its own; the match only adds a hint to the message.
        let denied = error.code() == Some("NOPERM")
            || said.contains("can't run this command")
            || said.contains("can't access at least one of the keys");
        if denied {
            let denied =
                format!("{said} (the rights that cronlatch needs are listed in docs/stores.md)");
            return Self {
                about: (error.code() == Some("NOPERM")).then_some(About::Denied),
                ..Self::refused(detail(denied))
            };
        }
        if error.code() == Some("DAMAGED") {
            let (place, what) = error
                .detail()
                .and_then(|detail| detail.split_once(' '))
                .unwrap_or_default();
            return Self {
                about: place.parse().ok().map(About::Place),
                ..Self::corrupt(detail(without_place_in_script(what).to_owned()))
            };
        }
        if let Some(redirect) = redirect(error) {
            return Self {
                // The connection is sound.
                rebuild: false,
                redirect: Some(redirect),
                ..Self::unreachable(detail(said))
            };
        }
        match error.code() {
            // It will serve again by itself, or another server does under the same name.
            Some(
                "LOADING" | "MASTERDOWN" | "BUSY" | "CLUSTERDOWN" | "NOREPLICAS" | "UNBLOCKED",
            ) => Self::unreachable(detail(said)),
            // Demoted, or the password was changed: what a new connection finds may differ.
            Some(code @ ("READONLY" | "NOAUTH" | "WRONGPASS")) => Self {
                rebuild: true,
                demoted: code == "READONLY",
                ..Self::refused(detail(said))
            },
            Some("NOSCRIPT") => Self {
                unknown_script: true,
                ..Self::refused(detail(said))
            },
            Some("CORRUPT") => {
                let what = without_place_in_script(error.detail().unwrap_or_default());
                Self::corrupt(detail(format!("{shown}: {what}")))
            }
            Some("WRONGTYPE") => Self::corrupt(detail(said)),
            Some(_) => Self::refused(detail(said)),
            None => match error.kind() {
                ErrorKind::Io | ErrorKind::Parse | ErrorKind::Client => {
                    Self::unreachable(detail(said))
                }
                ErrorKind::UnexpectedReturnType => Self::corrupt(detail(said)),
                _ => Self::refused(detail(said)),
            },
        }
    }

    /// Whether the server says that it is a replica.
    pub(super) fn is_demotion(&self) -> bool {
        self.demoted
    }

    /// Whether the server does not know the script by its digest. It did nothing.
    pub(super) fn is_unknown_script(&self) -> bool {
        self.unknown_script
    }

    /// Whether the connection that said so must be given up.
    pub(super) fn wants_rebuild(&self) -> bool {
        self.rebuild
    }

    /// Whether the store is down, rather than unwilling.
    pub(super) fn is_outage(&self) -> bool {
        matches!(
            self.kind,
            FailureKind::Unreachable | FailureKind::PartUnreachable
        )
    }

    /// An outage that concerns one server of several.
    pub(super) fn in_part(self) -> Self {
        match self.kind {
            FailureKind::Unreachable => Self {
                kind: FailureKind::PartUnreachable,
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
        &self.detail
    }

    /// The text, and the error behind it.
    pub(super) fn detail(&self) -> &ErrorDetail {
        &self.detail
    }
}

/// What a script said. Since version 7 the server adds where in the script it happened.
fn without_place_in_script(said: &str) -> &str {
    said.rsplit_once(" script: ").map_or(said, |(what, _)| what)
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

impl From<RedisFailure> for StoreError {
    fn from(failure: RedisFailure) -> Self {
        if let Some(About::Key(fault)) = failure.about {
            return Self::Key(fault);
        }
        match failure.kind {
            FailureKind::Unreachable => Self::Unreachable(failure.detail),
            FailureKind::PartUnreachable => Self::PartUnreachable(failure.detail),
            FailureKind::Refused => Self::Refused(failure.detail),
            FailureKind::Replica => Self::Replica(failure.detail),
            FailureKind::Corrupt => Self::Corrupt(failure.detail),
        }
    }
}
