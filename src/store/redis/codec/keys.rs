//! The names of the keys in Redis.
//!
//! All keys of a lock share a hash tag, `PREFIX:{LOCK}:…`, so that in a Cluster one script can access
//! them. For a lock under an application's own key it is the hash tag of that key, or else the whole
//! key. Several such keys may share a hash tag, so the name of the state contains the whole key
//! (`PREFIX:{TAG}:state:KEY`): different locks never share a state.

use super::call::Call;
use crate::names::{HostName, JobName, Prefix, RunId};
use crate::store::{Fingerprint, Lock, LockKey, LockRef};

/// The keys of one lock.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::store::redis) struct LockKeys {
    /// The lock itself: a string that holds the token.
    pub(in crate::store::redis) lock: String,
    /// Fence, token, lease end, run, and the tokens that finished.
    pub(in crate::store::redis) state: String,
    /// The channel on which releases are announced.
    pub(in crate::store::redis) released: String,
    tagged: String,
}

impl LockKeys {
    pub(in crate::store::redis) fn of(prefix: &Prefix, lock: &Lock) -> Self {
        match &lock.key {
            LockKey::Named => {
                let tagged = format!("{prefix}:{{{}}}", lock.name);
                Self {
                    lock: format!("{tagged}:lock"),
                    state: format!("{tagged}:state"),
                    released: format!("{tagged}:released"),
                    tagged,
                }
            }
            LockKey::Raw(key) => {
                let tagged = format!("{prefix}:{{{}}}", hash_tag(key));
                Self {
                    lock: key.clone(),
                    state: format!("{tagged}:state:{key}"),
                    released: format!("{tagged}:released"),
                    tagged,
                }
            }
        }
    }

    /// The ledger of a job under this lock.
    pub(in crate::store::redis) fn job(&self, job: &JobName) -> String {
        format!("{}:job:{job}", self.tagged)
    }

    /// The failures in that history.
    pub(in crate::store::redis) fn failures(&self, job: &JobName) -> String {
        format!("{}:failures:{job}", self.tagged)
    }

    /// The history of a job under this lock.
    pub(in crate::store::redis) fn runs(&self, job: &JobName) -> String {
        format!("{}:runs:{job}", self.tagged)
    }
}

/// Adds the keys of a job to a call that may record a failure.
pub(in crate::store::redis) fn job_keys(
    call: &mut Call,
    (keys, job): (&LockKeys, &JobName),
    all_failures: Option<&str>,
) {
    call.key(keys.job(job))
        .key(keys.runs(job))
        .key(keys.failures(job));
    if let Some(all) = all_failures {
        call.key(all);
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
pub(in crate::store::redis) fn store(prefix: &Prefix) -> String {
    format!("{prefix}:store")
}

/// The marker of one node among several: `{format, server, replid, lost_at, until,
/// longest}`.
pub(in crate::store::redis) fn node(prefix: &Prefix) -> String {
    format!("{prefix}:node")
}

/// Whether every job depends on this key: a marker of the store, of a node, or of a slot.
pub(in crate::store::redis) fn is_marker(prefix: &Prefix, key: &str) -> bool {
    let of_slot = || {
        let tag = key
            .strip_prefix(&format!("{prefix}:{{"))?
            .strip_suffix("}:store")?;
        Some(tag.bytes().all(|b| b.is_ascii_digit()))
    };
    key == store(prefix) || key == node(prefix) || of_slot().unwrap_or(false)
}

/// The announcements of the hosts, and when each expires.
pub(in crate::store::redis) fn hosts(prefix: &Prefix) -> String {
    format!("{prefix}:hosts")
}

/// The jobs of the list with this fingerprint.
pub(in crate::store::redis) fn listed_jobs(prefix: &Prefix, list: &Fingerprint) -> String {
    format!("{prefix}:list:{}", list.0)
}

/// The failures of all jobs. In a Cluster there is no such key.
pub(in crate::store::redis) fn all_failures(prefix: &Prefix) -> String {
    format!("{prefix}:failures")
}

/// The notes of runs by hand.
pub(in crate::store::redis) fn manual(prefix: &Prefix) -> String {
    format!("{prefix}:manual")
}

/// The requests to daemons.
pub(in crate::store::redis) fn requests(prefix: &Prefix) -> String {
    format!("{prefix}:requests")
}

/// The output of a triggered run, for the command that waits for it.
pub(in crate::store::redis) fn output(prefix: &Prefix, run: &RunId) -> String {
    format!("{prefix}:output:{run}")
}

/// The registry entries of a job. Not a key of its lock, because the lock may change.
pub(super) fn listing(prefix: &Prefix, job: &JobName) -> String {
    format!("{prefix}:{{{job}}}:listing")
}

/// The jobs that a host lists.
pub(in crate::store::redis) fn listed_by(prefix: &Prefix, host: &HostName) -> String {
    format!("{prefix}:listed:{host}")
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
        let keys = LockKeys::of(&prefix(), &lock);
        let job = JobName::parse("j").expect("a name");
        assert_eq!(keys.lock, "p:{db}:lock");
        assert_eq!(keys.state, "p:{db}:state");
        assert_eq!(keys.released, "p:{db}:released");
        assert_eq!(keys.job(&job), "p:{db}:job:j");
        assert_eq!(keys.runs(&job), "p:{db}:runs:j");
        assert_eq!(keys.failures(&job), "p:{db}:failures:j");
    }

    #[test]
    fn a_key_names_its_lock() {
        let name = LockName::parse("db").expect("a name");
        for lock in [
            Lock::named(&name),
            Lock::raw("db"),
            Lock::raw("app:{x}:lock"),
        ] {
            let key = LockKeys::of(&prefix(), &lock).lock;
            assert!(lock_of(&prefix(), &key).is(&lock), "{key}");
        }
    }

    #[test]
    fn a_raw_key_keeps_its_name_and_lends_its_hash_tag() {
        let keys = LockKeys::of(&prefix(), &Lock::raw("app:{x}:a"));
        assert_eq!(keys.lock, "app:{x}:a");
        assert_eq!(keys.released, "p:{x}:released");
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
            .map(|lock| LockKeys::of(&prefix(), lock).state)
            .collect();
        states.sort();
        states.dedup();
        assert_eq!(states.len(), locks.len());
    }
}
