//! Failures of requests to a server: what an error means for the caller and for the connection.
//!
//! The kind of a failure follows from error codes. [`RedisFailure::of`] names the one exception.

use redis::{ErrorKind, RedisError};

use crate::store::{ErrorDetail, KeyFault, KeyFaultKind, StoreError};

/// Why a request failed. Unlike [`StoreError`] it can be given to many tasks that waited for one
/// connection.
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

/// What a failure affects.
#[derive(Debug, Clone)]
enum About {
    /// A key that a script named by its position among the keys of the call, counted from one.
    Place(usize),
    /// The server denied access; it is not known yet whether to a key.
    Denied,
    /// This key.
    Key(KeyFault),
    /// No key: the server executed the request, but too few replicas acknowledged it.
    Replicas(Shortfall),
}

/// How many replicas of a server acknowledged a request.
#[derive(Debug, Clone)]
pub(super) struct Shortfall {
    /// The URL of the server, without password.
    pub(super) server: String,
    pub(super) acknowledged: u32,
    /// `wait_replicas`.
    pub(super) wanted: u32,
}

/// Where a server of a Cluster redirects a request that it did not execute.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Redirect {
    /// That server serves the slot.
    Moved(String),
    /// That server serves this request only; the slot is migrating to it.
    Ask(String),
    /// The slot is migrating, and its keys are on both servers.
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
    /// A failure of this kind, after which the connection is still usable.
    fn new(kind: FailureKind, detail: impl Into<ErrorDetail>) -> Self {
        Self {
            kind,
            detail: detail.into(),
            rebuild: false,
            demoted: false,
            unknown_script: false,
            redirect: None,
            about: None,
        }
    }

    pub(super) fn unreachable(detail: impl Into<ErrorDetail>) -> Self {
        Self {
            rebuild: true,
            ..Self::new(FailureKind::Unreachable, detail)
        }
    }

    /// The server replied, but its replicas did not acknowledge.
    pub(super) fn short_of_replicas(shortfall: Shortfall, detail: impl Into<ErrorDetail>) -> Self {
        Self {
            rebuild: false,
            about: Some(About::Replicas(shortfall)),
            ..Self::unreachable(detail)
        }
    }

    /// Returns how many replicas acknowledged, if the server executed the request and they were too
    /// few.
    pub(super) fn shortfall(&self) -> Option<&Shortfall> {
        match &self.about {
            Some(About::Replicas(shortfall)) => Some(shortfall),
            _ => None,
        }
    }

    /// Turns the failure into an outage, because another server may have replaced this one.
    pub(super) fn of_replaced(self) -> Self {
        Self {
            kind: FailureKind::Unreachable,
            ..self
        }
    }

    pub(super) fn refused(detail: impl Into<ErrorDetail>) -> Self {
        Self::new(FailureKind::Refused, detail)
    }

    /// The server is a replica, but must be a master.
    pub(super) fn replica(detail: impl Into<ErrorDetail>) -> Self {
        Self::new(FailureKind::Replica, detail)
    }

    pub(super) fn corrupt(detail: impl Into<ErrorDetail>) -> Self {
        Self::new(FailureKind::Corrupt, detail)
    }

    /// The failure is the fault of one key.
    pub(super) fn of_key(fault: KeyFault) -> Self {
        let failure = Self::corrupt(fault.to_string());
        Self {
            about: Some(About::Key(fault)),
            ..failure
        }
    }

    /// The value of this key cannot be read.
    pub(super) fn damaged(key: &str, detail: impl Into<ErrorDetail>) -> Self {
        Self::of_key(KeyFault {
            key: key.to_owned(),
            kind: KeyFaultKind::Damaged,
            detail: detail.into(),
        })
    }

    /// Attributes a reply that could not be read to the key that it was made from.
    pub(super) fn attributed_to(self, key: &str) -> Self {
        match (self.kind, &self.about) {
            (FailureKind::Corrupt, None) => Self::damaged(key, self.detail),
            _ => self,
        }
    }

    /// Whether the server denied access, possibly to a key.
    pub(super) fn may_deny_a_key(&self) -> bool {
        matches!(self.about, Some(About::Denied))
    }

    /// The user may not access this key.
    pub(super) fn denied(self, key: &str) -> Self {
        Self::of_key(KeyFault {
            key: key.to_owned(),
            kind: KeyFaultKind::Forbidden,
            detail: self.detail,
        })
    }

    /// Replaces the position of a key with the key, if a script named one.
    pub(super) fn located(self, keys: &[&str]) -> Self {
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
        // Redis 7.0 has no code for this: if a script calls a command or accesses a key that its user
        // may not, the reply is a general ERR with one of these two sentences. Later versions reply
        // NOPERM. The match on the sentence only adds a hint to the message: without it the failure
        // has the same kind.
        let denied = error.code() == Some("NOPERM")
            || said.contains("can't run this command")
            || said.contains("can't access at least one of the keys");
        // A whole command, which no right to a key allows.
        let of_command = said.contains("permissions to run the");
        if denied {
            let denied =
                format!("{said} (the rights that cronlatch needs are listed in docs/stores.md)");
            return Self {
                about: (error.code() == Some("NOPERM") && !of_command).then_some(About::Denied),
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
                // The connection is still usable.
                rebuild: false,
                redirect: Some(redirect),
                ..Self::unreachable(detail(said))
            };
        }
        Self::of_code(shown, error, detail(said))
    }

    fn of_code(shown: &str, error: &RedisError, detail: ErrorDetail) -> Self {
        match error.code() {
            // The server recovers by itself, or another server takes its place.
            Some("LOADING" | "MASTERDOWN" | "BUSY" | "CLUSTERDOWN" | "UNBLOCKED") => {
                Self::unreachable(detail)
            }
            // An outage as well: nobody can renew a lease or report a result meanwhile.
            Some("NOREPLICAS") => {
                let said = format!(
                    "{shown} rejects every claim and renewal, because fewer of its replicas are in \
                     step than min-replicas-to-write demands: bring the replicas back, or lower \
                     min-replicas-to-write"
                );
                let said = ErrorDetail::from(said).caused_by(error.clone());
                Self::unreachable(said.of_rejected_writes())
            }
            Some("MISCONF") => {
                // There is one code for both files; its own sentence says which one it is.
                let own = without_place_in_script(error.detail().unwrap_or_default());
                let said = format!(
                    "{shown} rejects every claim and renewal, because it cannot write its snapshot or \
                     its append-only file: look at its log and its disk; after a failed snapshot, send \
                     it BGSAVE once the disk can be written to ({own})"
                );
                let said = ErrorDetail::from(said).caused_by(error.clone());
                Self::unreachable(said.of_rejected_writes())
            }
            // Demoted, or the password was changed. A new connection may succeed.
            Some(code @ ("READONLY" | "NOAUTH" | "WRONGPASS")) => Self {
                rebuild: true,
                demoted: code == "READONLY",
                ..Self::refused(detail)
            },
            Some("OOM") => {
                let said = format!(
                    "{shown} has reached its maxmemory and rejects writes: raise maxmemory, or delete \
                     other data"
                );
                let said = ErrorDetail::from(said).caused_by(error.clone());
                Self::refused(said.of_rejected_writes())
            }
            Some("NOSCRIPT") => Self {
                unknown_script: true,
                ..Self::refused(detail)
            },
            Some("CORRUPT") => {
                let what = without_place_in_script(error.detail().unwrap_or_default());
                let what = ErrorDetail::from(format!("{shown}: {what}"));
                Self::corrupt(what.caused_by(error.clone()))
            }
            Some("WRONGTYPE") => Self::corrupt(detail),
            Some(_) => Self::refused(detail),
            None => match error.kind() {
                ErrorKind::Io | ErrorKind::Parse | ErrorKind::Client => Self::unreachable(detail),
                ErrorKind::UnexpectedReturnType => Self::corrupt(detail),
                _ => Self::refused(detail),
            },
        }
    }

    /// Whether the server says that it is a replica.
    pub(super) fn is_demotion(&self) -> bool {
        self.demoted
    }

    /// Whether the server is a master that takes no writes for now: its memory is full, it lacks replicas,
    /// or it cannot save its data.
    pub(super) fn rejects_writes(&self) -> bool {
        self.detail.is_of_rejected_writes()
    }

    /// Whether the server does not know the script by its digest. It executed nothing.
    pub(super) fn is_unknown_script(&self) -> bool {
        self.unknown_script
    }

    /// Whether the connection must be given up.
    pub(super) fn wants_rebuild(&self) -> bool {
        self.rebuild
    }

    /// Whether the store is unreachable. If not, it rejected the request.
    pub(super) fn is_outage(&self) -> bool {
        matches!(
            self.kind,
            FailureKind::Unreachable | FailureKind::PartUnreachable
        )
    }

    /// Turns an outage into one that affects only one of several servers.
    pub(super) fn in_part(self) -> Self {
        match self.kind {
            FailureKind::Unreachable => Self {
                kind: FailureKind::PartUnreachable,
                ..self
            },
            _ => self,
        }
    }

    /// Where a server of a Cluster redirects the request.
    pub(super) fn redirect(&self) -> Option<&Redirect> {
        self.redirect.as_ref()
    }

    pub(super) fn text(&self) -> &str {
        &self.detail
    }

    /// The text and the error that caused it.
    pub(super) fn detail(&self) -> &ErrorDetail {
        &self.detail
    }
}

/// Returns the message of a script without the position in the script, which version 7 and later add.
fn without_place_in_script(said: &str) -> &str {
    said.rsplit_once(" script: ").map_or(said, |(what, _)| what)
}

fn redirect(error: &RedisError) -> Option<Redirect> {
    let to = error.redirect_node().map(|(to, _)| to.to_owned());
    match (error.code()?, to) {
        ("MOVED", Some(to)) => Some(Redirect::Moved(to)),
        ("ASK", Some(to)) => Some(Redirect::Ask(to)),
        // In a pipeline the client library omits the address.
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
