//! The names that cronlatch tells apart: jobs, locks, hosts, key prefixes, runs and tokens.
//!
//! Each is a type of its own, so that a lock can never be passed where a job is meant. Parsing
//! is the only way in; what a name may contain is said once, here.

use std::fmt;
use std::sync::Arc;

/// A name that breaks the rule `[A-Za-z0-9._-]+`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{what} {text:?} {problem}: use letters, digits, '.', '_' and '-' only")]
pub struct InvalidName {
    what: &'static str,
    text: String,
    problem: &'static str,
}

/// The longest name accepted, in bytes.
pub const NAME_MAX: usize = 200;

fn check(what: &'static str, text: &str) -> Result<(), InvalidName> {
    let problem = if text.is_empty() {
        "is empty"
    } else if text.len() > NAME_MAX {
        "is longer than 200 characters"
    } else if !text
        .bytes()
        .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-'))
    {
        "has a character that is not allowed"
    } else {
        return Ok(());
    };
    Err(InvalidName {
        what,
        text: text.to_owned(),
        problem,
    })
}

macro_rules! name {
    ($(#[$doc:meta])* $type:ident, $what:literal) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $type(Arc<str>);

        impl $type {
            /// Reads a name; it may hold letters, digits, `.`, `_` and `-`, at most 200 bytes.
            pub fn parse(text: &str) -> Result<Self, InvalidName> {
                check($what, text)?;
                Ok(Self(Arc::from(text)))
            }

            /// The name as text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(&self.0)
            }
        }

        impl fmt::Debug for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Debug::fmt(&*self.0, f)
            }
        }

        impl std::str::FromStr for $type {
            type Err = InvalidName;

            fn from_str(text: &str) -> Result<Self, InvalidName> {
                Self::parse(text)
            }
        }
    };
}

name!(
    /// The name of a job in the YAML list.
    JobName,
    "job name"
);
name!(
    /// The name of a lock; jobs that exclude one another share it.
    LockName,
    "lock name"
);
name!(
    /// The name of a host, as `--host` or the machine gives it.
    HostName,
    "host name"
);
name!(
    /// What every key in Redis begins with; `cronlatch` by default.
    Prefix,
    "key prefix"
);

impl Default for Prefix {
    fn default() -> Self {
        Self(Arc::from("cronlatch"))
    }
}

/// The identity of one run: a UUID of version 7, so that ids sort by time.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RunId(Arc<str>);

impl RunId {
    /// A new id, unlike any other.
    pub fn new() -> Self {
        Self(Arc::from(uuid::Uuid::now_v7().to_string()))
    }

    /// An id as another process wrote it; any text without `:` and white space.
    pub fn from_text(text: &str) -> Self {
        Self(Arc::from(text))
    }

    /// The id as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Default for RunId {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Display for RunId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

impl fmt::Debug for RunId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&*self.0, f)
    }
}

/// The value that marks a lease as ours: `HOST:PID:RUN_ID:<128 random bits in hex>`.
///
/// A person who reads it in Redis learns who holds the lock; nobody can guess it.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Token(Arc<str>);

impl Token {
    /// A new token for a run of this process on `host`.
    ///
    /// # Panics
    ///
    /// When the operating system has no randomness to give; nothing safe can be done without.
    pub fn new(host: &HostName, run_id: &RunId) -> Self {
        let mut random = [0_u8; 16];
        getrandom::fill(&mut random).expect("the kernel's random source answers once booted");
        let random = u128::from_ne_bytes(random);
        let pid = std::process::id();
        Self(Arc::from(format!("{host}:{pid}:{run_id}:{random:032x}")))
    }

    /// A token as the store gave it back.
    pub fn from_text(text: &str) -> Self {
        Self(Arc::from(text))
    }

    /// The token as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The host that made the token, or the whole text when another program made it.
    pub fn holder(&self) -> &str {
        self.0.split(':').next().unwrap_or(&self.0)
    }
}

impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&*self.0, f)
    }
}
