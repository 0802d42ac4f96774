//! Locks: what names one, where its key lies, and the fingerprint of a job's schedule.
//!
//! How a lock is kept is up to each store.

use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::names::{HostName, LockName};

/// Which key holds a lock.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum LockKey {
    /// cronlatch's own layout: `PREFIX:{LOCK}:lock`.
    Named,
    /// A key that applications take themselves with `SET key token NX PX`; used as it is.
    Raw(String),
}

/// A lock. Its name determines where state, ledger and history are, its key where the lock itself is.
///
/// With a raw key the name is unused in Redis keys; the key's own hash tag, else the whole key,
/// takes its place.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Lock {
    /// The lock's name; for `scope: host` and for `scope: none` it reads `LOCK@HOST`.
    pub name: String,
    /// Where the lock itself is.
    pub key: LockKey,
    /// False for `scope: none`: ledger and history are kept, no lock is taken.
    pub exclusive: bool,
}

impl Lock {
    /// A lock of the whole fleet.
    pub fn named(name: &LockName) -> Self {
        Self {
            name: name.to_string(),
            key: LockKey::Named,
            exclusive: true,
        }
    }

    /// A lock that applications share under their own key.
    pub fn raw(key: &str) -> Self {
        Self {
            name: key.to_owned(),
            key: LockKey::Raw(key.to_owned()),
            exclusive: true,
        }
    }

    /// A lock that only the daemons of one host compete for.
    pub fn of_host(name: &LockName, host: &HostName) -> Self {
        Self {
            name: format!("{name}@{host}"),
            key: LockKey::Named,
            exclusive: true,
        }
    }

    /// The name of the host whose runs alone use this lock, for `scope: host` and `scope: none`.
    pub fn host(&self) -> Option<&str> {
        match self.key {
            LockKey::Named => self.name.rsplit_once('@').map(|(_, host)| host),
            LockKey::Raw(_) => None,
        }
    }
}

/// A lock as ledgers refer to it, without [`Lock::exclusive`].
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct LockRef {
    /// The name, or the raw key.
    pub name: String,
    /// Whether it is a raw key.
    pub raw: bool,
}

impl LockRef {
    /// The reference to a lock.
    pub fn of(lock: &Lock) -> Self {
        Self {
            name: lock.name.clone(),
            raw: matches!(lock.key, LockKey::Raw(_)),
        }
    }

    /// Whether it refers to `lock`.
    pub fn is(&self, lock: &Lock) -> bool {
        self.name == lock.name && self.raw == matches!(lock.key, LockKey::Raw(_))
    }

    /// The lock, as one that excludes.
    pub fn lock(&self) -> Lock {
        Lock {
            name: self.name.clone(),
            key: if self.raw {
                LockKey::Raw(self.name.clone())
            } else {
                LockKey::Named
            },
            exclusive: true,
        }
    }
}

/// The identity of a schedule. It changes whenever the instants of the schedule may change.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Fingerprint(pub Arc<str>);

impl Serialize for Fingerprint {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for Fingerprint {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer).map(|text| Self(text.into()))
    }
}
