//! The names of the keys in Redis.
//!
//! All keys of a lock share a hash tag, `PREFIX:{LOCK}:…`, so that in a Cluster one script can access
//! them. For a lock under an application's own key it is the hash tag of that key, or else the whole
//! key. Several such keys may share a hash tag, so the name of the state contains the whole key
//! (`PREFIX:{TAG}:state:KEY`): different locks never share a state.

use std::fmt::{self, Display};

use super::call::Call;
use crate::names::{HostName, JobName, Prefix, RunId};
use crate::store::{Fingerprint, Lock, LockKey, LockRef};

/// A key. It is written where it is needed, usually into a [`Call`].
#[derive(Debug, Clone, Copy)]
pub(in crate::store::redis) struct Key<'a> {
    /// `None`: the key of an application.
    prefix: Option<&'a Prefix>,
    /// The hash tag, if all keys of a lock share it.
    tag: Option<&'a str>,
    /// What follows, in parts.
    rest: [&'a str; 2],
}

impl Display for Key<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(prefix) = self.prefix {
            f.write_str(prefix.as_str())?;
        }
        if let Some(tag) = self.tag {
            f.write_str(":{")?;
            f.write_str(tag)?;
            f.write_str("}")?;
        }
        self.rest.iter().try_for_each(|part| f.write_str(part))
    }
}

/// Returns the key that is the prefix with this after it.
fn key<'a>(prefix: &'a Prefix, rest: [&'a str; 2]) -> Key<'a> {
    Key {
        prefix: Some(prefix),
        tag: None,
        rest,
    }
}

/// The keys of one lock.
#[derive(Debug, Clone, Copy)]
pub(in crate::store::redis) struct LockKeys<'a> {
    prefix: &'a Prefix,
    lock: &'a Lock,
}

impl<'a> LockKeys<'a> {
    pub(in crate::store::redis) fn of(prefix: &'a Prefix, lock: &'a Lock) -> Self {
        Self { prefix, lock }
    }

    fn tagged(&self, rest: [&'a str; 2]) -> Key<'a> {
        let tag = match &self.lock.key {
            LockKey::Named => &self.lock.name,
            LockKey::Raw(key) => hash_tag(key),
        };
        Key {
            tag: Some(tag),
            ..key(self.prefix, rest)
        }
    }

    /// The lock itself: a string that holds the token.
    pub(in crate::store::redis) fn lock(&self) -> Key<'a> {
        match &self.lock.key {
            LockKey::Named => self.tagged([":lock", ""]),
            LockKey::Raw(key) => Key {
                prefix: None,
                tag: None,
                rest: [key, ""],
            },
        }
    }

    /// Fence, token, lease end, run, and the tokens that finished.
    pub(in crate::store::redis) fn state(&self) -> Key<'a> {
        match &self.lock.key {
            LockKey::Named => self.tagged([":state", ""]),
            LockKey::Raw(key) => self.tagged([":state:", key]),
        }
    }

    /// The channel on which releases are announced.
    pub(in crate::store::redis) fn released(&self) -> Key<'a> {
        self.tagged([":released", ""])
    }

    /// The ledger of a job under this lock.
    pub(in crate::store::redis) fn job(&self, job: &'a JobName) -> Key<'a> {
        self.tagged([":job:", job.as_str()])
    }

    /// The failures in that history.
    pub(in crate::store::redis) fn failures(&self, job: &'a JobName) -> Key<'a> {
        self.tagged([":failures:", job.as_str()])
    }

    /// The history of a job under this lock.
    pub(in crate::store::redis) fn runs(&self, job: &'a JobName) -> Key<'a> {
        self.tagged([":runs:", job.as_str()])
    }
}

/// Adds the keys of a job to a call that may record a failure.
pub(in crate::store::redis) fn job_keys(
    call: &mut Call,
    (keys, job): (LockKeys<'_>, &JobName),
    all_failures: Option<Key<'_>>,
) {
    call.key(&keys.job(job))
        .key(&keys.runs(job))
        .key(&keys.failures(job));
    if let Some(all) = all_failures {
        call.key(&all);
    }
}

/// Returns the lock of a key: a lock of cronlatch, or else a raw one.
pub(super) fn lock_of(prefix: &Prefix, key: &str) -> LockRef {
    let own = key
        .strip_prefix(&format!("{prefix}:{{"))
        .and_then(|rest| rest.strip_suffix("}:lock"));
    LockRef {
        name: own.unwrap_or(key).to_owned(),
        raw: own.is_none(),
    }
}

/// Returns an error if a raw key cannot be a lock in a Cluster, because its other keys would be in other
/// slots and no script could access them all.
pub(crate) fn check_raw_in_cluster(key: &str) -> Result<(), String> {
    let tag = hash_tag(key);
    if hash_tag(&format!("{{{tag}}}")) == tag {
        Ok(())
    } else {
        Err(spread(key))
    }
}

/// Returns the error of [`check_raw_in_cluster`].
pub(in crate::store::redis) fn spread(key: &str) -> String {
    format!(
        "the key {key:?} cannot be a lock in a Redis Cluster: it has a '}}' that ends no hash tag, \
         so that the data that cronlatch keeps for it would be on other servers; use a key without \
         '}}', or with a hash tag, as in app:{{backup}}:lock"
    )
}

/// The marker of the store: `{format, run_id, replid, since}`.
pub(in crate::store::redis) fn store(prefix: &Prefix) -> Key<'_> {
    key(prefix, [":store", ""])
}

/// The marker of one node among several: `{format, server, replid, lost_at, until,
/// longest}`.
pub(in crate::store::redis) fn node(prefix: &Prefix) -> Key<'_> {
    key(prefix, [":node", ""])
}

/// Whether every job depends on this key: a marker of the store, of a node, or of a slot.
pub(in crate::store::redis) fn is_marker(prefix: &Prefix, key: &str) -> bool {
    let of_slot = || {
        let tag = key
            .strip_prefix(&format!("{prefix}:{{"))?
            .strip_suffix("}:store")?;
        Some(tag.bytes().all(|b| b.is_ascii_digit()))
    };
    let is = |marker: Key<'_>| marker.to_string() == key;
    is(store(prefix)) || is(node(prefix)) || of_slot().unwrap_or(false)
}

/// The announcements of the hosts, and when each expires.
pub(in crate::store::redis) fn hosts(prefix: &Prefix) -> Key<'_> {
    key(prefix, [":hosts", ""])
}

/// The jobs of the list with this fingerprint.
pub(in crate::store::redis) fn listed_jobs<'a>(
    prefix: &'a Prefix,
    list: &'a Fingerprint,
) -> Key<'a> {
    key(prefix, [":list:", &list.0])
}

/// The failures of all jobs. In a Cluster there is no such key.
pub(in crate::store::redis) fn all_failures(prefix: &Prefix) -> Key<'_> {
    key(prefix, [":failures", ""])
}

/// The notes of runs by hand.
pub(in crate::store::redis) fn manual(prefix: &Prefix) -> Key<'_> {
    key(prefix, [":manual", ""])
}

/// The requests to daemons.
pub(in crate::store::redis) fn requests(prefix: &Prefix) -> Key<'_> {
    key(prefix, [":requests", ""])
}

/// The output of a triggered run, for the command that waits for it.
pub(in crate::store::redis) fn output<'a>(prefix: &'a Prefix, run: &'a RunId) -> Key<'a> {
    key(prefix, [":output:", run.as_str()])
}

/// The registry entries of a job. Not a key of its lock, because the lock may change.
pub(super) fn listing<'a>(prefix: &'a Prefix, job: &'a JobName) -> Key<'a> {
    Key {
        tag: Some(job.as_str()),
        ..key(prefix, [":listing", ""])
    }
}

/// The jobs that a host lists.
pub(in crate::store::redis) fn listed_by<'a>(prefix: &'a Prefix, host: &'a HostName) -> Key<'a> {
    key(prefix, [":listed:", host.as_str()])
}

/// Returns the part of a key between its first `{` and the next `}`, or the whole key if that is empty.
/// Source: the Redis Cluster specification, "Hash tags".
pub(in crate::store::redis) fn hash_tag(key: &str) -> &str {
    key.split_once('{')
        .and_then(|(_, rest)| rest.split_once('}'))
        .map(|(tag, _)| tag)
        .filter(|tag| !tag.is_empty())
        .unwrap_or(key)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::names::LockName;

    fn prefix() -> Prefix {
        Prefix::parse("p").expect("a name")
    }

    #[test]
    fn a_named_lock_lies_under_its_hash_tag() {
        let lock = Lock::named(&LockName::parse("db").expect("a name"));
        let prefix = prefix();
        let keys = LockKeys::of(&prefix, &lock);
        let job = JobName::parse("j").expect("a name");
        assert_eq!(keys.lock().to_string(), "p:{db}:lock");
        assert_eq!(keys.state().to_string(), "p:{db}:state");
        assert_eq!(keys.released().to_string(), "p:{db}:released");
        assert_eq!(keys.job(&job).to_string(), "p:{db}:job:j");
        assert_eq!(keys.runs(&job).to_string(), "p:{db}:runs:j");
        assert_eq!(keys.failures(&job).to_string(), "p:{db}:failures:j");
    }

    #[test]
    fn a_key_names_its_lock() {
        let name = LockName::parse("db").expect("a name");
        for lock in [
            Lock::named(&name),
            Lock::raw("db"),
            Lock::raw("app:{x}:lock"),
        ] {
            let key = LockKeys::of(&prefix(), &lock).lock().to_string();
            assert!(lock_of(&prefix(), &key).is(&lock), "{key}");
        }
    }

    #[test]
    fn a_raw_key_keeps_its_name_and_lends_its_hash_tag() {
        let (prefix, lock) = (prefix(), Lock::raw("app:{x}:a"));
        let keys = LockKeys::of(&prefix, &lock);
        assert_eq!(keys.lock().to_string(), "app:{x}:a");
        assert_eq!(keys.released().to_string(), "p:{x}:released");
        assert_eq!(hash_tag("app:lock"), "app:lock");
        assert_eq!(hash_tag("a{}b{c}"), "a{}b{c}");
        assert_eq!(hash_tag("a{b}{c}"), "b");
        assert_eq!(hash_tag("a{b"), "a{b");
    }

    #[test]
    fn only_a_raw_key_whose_keys_stay_together_may_be_a_lock_in_a_cluster() {
        for key in ["app:lock", "app:{x}:a", "a{b", "{x}}", "a{b}{c}"] {
            assert_eq!(check_raw_in_cluster(key), Ok(()), "{key}");
        }
        for key in ["a}b", "}", "{}x", "a{}b}"] {
            let why = check_raw_in_cluster(key).expect_err(key);
            assert!(why.contains(key) && why.contains("hash tag"), "{why}");
        }
    }

    #[test]
    fn different_locks_never_share_a_state() {
        let locks = [
            Lock::raw("a:{x}"),
            Lock::raw("b:{x}"),
            Lock::raw("x"),
            Lock::named(&LockName::parse("x").expect("a name")),
        ];
        let mut states: Vec<String> = locks
            .iter()
            .map(|lock| LockKeys::of(&prefix(), lock).state().to_string())
            .collect();
        states.sort();
        states.dedup();
        assert_eq!(states.len(), locks.len());
    }
}
