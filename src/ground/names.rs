//! Names: jobs, locks, hosts, key prefixes, runs and tokens.
//!
//! Each has its own type, so a lock cannot be passed where a job is meant. A name can only be
//! created by parsing, so the rules for names are all here.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A name that is empty, too long, or has a character that is not allowed. Its text says which, and
/// what is allowed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{what} {text:?} {problem}: {rule}")]
pub struct InvalidName {
    what: &'static str,
    text: String,
    problem: &'static str,
    rule: &'static str,
}

/// The longest name accepted, in bytes.
pub const NAME_MAX: usize = 200;
/// The longest raw key accepted, in bytes.
pub const KEY_MAX: usize = 1024;

const PLAIN: &str = "use letters, digits, '.', '_' and '-' only";
const WITH_COLON: &str = "use letters, digits, '.', '_', '-' and ':' only";

fn check(what: &'static str, text: &str, rule: &'static str) -> Result<(), InvalidName> {
    let problem = if text.is_empty() {
        "is empty"
    } else if text.len() > NAME_MAX {
        "is longer than 200 characters"
    } else if !text.bytes().all(|b| {
        b.is_ascii_alphanumeric()
            || matches!(b, b'.' | b'_' | b'-')
            || b == b':' && rule == WITH_COLON
    }) {
        "has a character that is not allowed"
    } else {
        return Ok(());
    };
    Err(InvalidName {
        what,
        text: text.to_owned(),
        problem,
        rule,
    })
}

macro_rules! name {
    ($(#[$doc:meta])* $type:ident, $what:literal, $rule:expr, $allowed:literal) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $type(Arc<str>);

        impl $type {
            #[doc = concat!("Reads a name: ", $allowed, ", from 1 to 200 bytes.")]
            pub fn parse(text: &str) -> Result<Self, InvalidName> {
                check($what, text, $rule)?;
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
    "job name",
    PLAIN,
    "letters, digits, `.`, `_` and `-`"
);
name!(
    /// The name of a lock; jobs that exclude one another share it.
    LockName,
    "lock name",
    WITH_COLON,
    "letters, digits, `.`, `_`, `-` and `:`"
);
name!(
    /// The name of a host, as `--host` or the machine gives it.
    HostName,
    "host name",
    PLAIN,
    "letters, digits, `.`, `_` and `-`"
);
name!(
    /// The name of a target of notifications.
    TargetName,
    "target name",
    PLAIN,
    "letters, digits, `.`, `_` and `-`"
);
name!(
    /// What every key in Redis begins with; `cronlatch` by default.
    Prefix,
    "key prefix",
    PLAIN,
    "letters, digits, `.`, `_` and `-`"
);

impl LockName {
    /// The lock of a job that names none: the names of jobs are names of locks, too.
    pub(crate) fn of_job(job: &JobName) -> Self {
        Self(Arc::clone(&job.0))
    }

    /// The name as text that is shared, not copied.
    pub(crate) fn shared(&self) -> Arc<str> {
        Arc::clone(&self.0)
    }
}

impl Default for Prefix {
    fn default() -> Self {
        Self(Arc::from("cronlatch"))
    }
}

impl HostName {
    /// This machine's host name; characters that a name cannot have become `-`. The error says
    /// what is wrong with it.
    pub fn of_machine() -> Result<Self, String> {
        let name = nix::unistd::gethostname()
            .map_err(|e| format!("the machine's host name cannot be read: {e}"))?;
        Self::made_fit(&name.to_string_lossy())
    }

    fn made_fit(name: &str) -> Result<Self, String> {
        let plain: String = name
            .trim()
            .chars()
            .map(|c| match c {
                c if c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-') => c,
                _ => '-',
            })
            .take(NAME_MAX)
            .collect();
        Self::parse(&plain).map_err(|_| "the machine has no host name".to_owned())
    }
}

/// The key of a lock that applications take themselves: any text from 1 to 1024 bytes.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct RawKey(Arc<str>);

impl RawKey {
    /// Reads a key.
    pub fn parse(text: &str) -> Result<Self, InvalidName> {
        let problem = match text.len() {
            0 => "is empty",
            1..=KEY_MAX => return Ok(Self(Arc::from(text))),
            _ => "is longer than 1024 bytes",
        };
        Err(InvalidName {
            what: "key",
            text: text.to_owned(),
            problem,
            rule: "use from 1 to 1024 bytes",
        })
    }

    /// The key as text.
    pub fn as_str(&self) -> &str {
        &self.0
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

impl Serialize for RunId {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for RunId {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer).map(|text| Self::from_text(&text))
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
/// A person who reads it in Redis sees who holds the lock; nobody can guess it.
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

    /// The token as people and programs may see it: without its random part, because the whole token
    /// releases the lock. What another program wrote is shown as it is.
    pub fn redacted(&self) -> String {
        let known = |(_, random): &(&str, &str)| {
            random.len() == 32 && random.bytes().all(|byte| byte.is_ascii_hexdigit())
        };
        match self.0.rsplit_once(':').filter(known) {
            Some((head, _)) if head.split(':').count() == 3 => format!("{head}:***"),
            _ => self.0.to_string(),
        }
    }

    /// The host that made the token, or the whole text when another program made it.
    pub fn holder(&self) -> &str {
        self.0.split(':').next().unwrap_or(&self.0)
    }
}

impl Serialize for Token {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for Token {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer).map(|text| Self::from_text(&text))
    }
}

// Without `Display`, so that no message contains a token by mistake.
impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.redacted(), f)
    }
}

#[cfg(test)]
mod tests {
    use super::{HostName, JobName, LockName, NAME_MAX, RawKey, RunId, Token};

    #[test]
    fn a_host_name_is_made_fit() {
        let name = |text: &str| HostName::made_fit(text).map(|n| n.to_string());
        assert_eq!(name("web1.example.org"), Ok("web1.example.org".to_owned()));
        assert_eq!(name("my host/ä"), Ok("my-host--".to_owned()));
        assert_eq!(name(&"x".repeat(300)).map(|n| n.len()), Ok(NAME_MAX));
        assert!(name("").is_err());
    }

    #[test]
    fn a_lock_may_have_a_colon_in_its_name_and_a_job_may_not() {
        assert!(LockName::parse("user:42").is_ok());
        let refused = JobName::parse("user:42").expect_err("a colon").to_string();
        assert!(refused.ends_with("use letters, digits, '.', '_' and '-' only"));
        let refused = LockName::parse("user/42").expect_err("a slash").to_string();
        assert!(refused.ends_with("'_', '-' and ':' only"), "{refused}");
    }

    #[test]
    fn the_random_part_of_a_token_is_not_shown_and_what_another_program_wrote_is() {
        let host = HostName::parse("web1").expect("a name");
        let token = Token::new(&host, &RunId::from_text("01a2"));
        let pid = std::process::id();
        assert_eq!(token.redacted(), format!("web1:{pid}:01a2:***"));
        for other in ["deploy", "deploy:7:x:1", &format!("a:{:032x}", 7)] {
            assert_eq!(Token::from_text(other).redacted(), other);
        }
    }

    #[test]
    fn a_key_has_from_1_to_1024_bytes() {
        assert!(RawKey::parse("app:{x}/ä").is_ok());
        assert!(RawKey::parse("").is_err());
        assert!(RawKey::parse(&"x".repeat(1024)).is_ok());
        assert!(RawKey::parse(&"x".repeat(1025)).is_err());
    }
}
