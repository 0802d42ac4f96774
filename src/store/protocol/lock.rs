//! The state of a lock, and the questions that the rules ask about it. Each store keeps it in its
//! own form.

use std::time::Duration;

use super::clock::Clock;
use crate::names::{HostName, RunId, Token};

/// How many finished tokens a lock remembers.
pub const FINISHED_KEPT: usize = 64;

/// The holder that is shown for a raw key that is not a string.
pub const OTHER_TYPE: &str = "(a key of another type)";

/// Foreign values are shown up to this length, in bytes.
const SHOWN_MAX: usize = 100;

/// The lock itself, in Redis a key with a TTL. After its end it is `Absent`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Hash)]
pub enum Key {
    /// It is free.
    #[default]
    Absent,
    /// It is held.
    Value {
        /// A token, or the value of another program.
        text: String,
        /// When it ends on [`Clock::lease`]; `None` without TTL.
        end: Option<u64>,
    },
    /// A raw key that is not a string: it is held by an unknown program.
    OtherType {
        /// When it ends on [`Clock::lease`]; `None` without TTL.
        end: Option<u64>,
    },
}

/// How a token ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Ending {
    /// `finish` returned `Released`.
    Released,
    /// `finish` returned `Lost`.
    Lost,
    /// Its run was recorded as interrupted, and no `finish` has come.
    Interrupted,
}

/// Everything that a store keeps about a lock.
#[derive(Debug, Clone, PartialEq, Eq, Default, Hash)]
pub struct LockState {
    /// The lock itself.
    pub key: Key,
    /// The newest fencing token given out; 0 before the first.
    pub fence: u64,
    /// The token of the newest grant, until it finishes or its run is settled.
    pub token: Option<Token>,
    /// When that lease ends on [`Clock::lease`], independently of the key.
    pub lease_end: u64,
    /// The run of that grant.
    pub run_id: Option<RunId>,
    /// The tokens that ended, oldest first, at most [`FINISHED_KEPT`].
    pub finished: Vec<(Token, Ending)>,
}

/// Returns the host of a token (`HOST:PID:RUN_ID:HEX`), or the first 100 bytes of another value.
pub fn holder(value: &str) -> String {
    let parts: Vec<&str> = value.split(':').collect();
    if let [host, pid, run, random] = parts[..]
        && HostName::parse(host).is_ok()
        && !pid.is_empty()
        && pid.bytes().all(|b| b.is_ascii_digit())
        && !run.is_empty()
        && !random.is_empty()
        && random.bytes().all(|b| b.is_ascii_hexdigit())
    {
        return host.to_owned();
    }
    let end = (0..=SHOWN_MAX.min(value.len()))
        .rev()
        .find(|&at| value.is_char_boundary(at))
        .unwrap_or(0);
    value[..end].to_owned()
}

/// The relation of the lock to one token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum TokenStanding {
    /// This token holds it.
    Ours,
    /// This token may take it.
    Free,
    /// Another token holds it, or its lease has not ended.
    Other {
        holder: String,
        remaining: Option<Duration>,
    },
}

impl LockState {
    /// Returns how `token` ended, if it did.
    pub(super) fn ending(&self, token: &Token) -> Option<Ending> {
        self.finished
            .iter()
            .find(|(ended, _)| ended == token)
            .map(|(_, ending)| *ending)
    }

    /// Notes how `token` ended, and removes the oldest tokens beyond [`FINISHED_KEPT`].
    pub(super) fn remember(&mut self, token: &Token, ending: Ending) {
        self.finished.retain(|(ended, _)| ended != token);
        self.finished.push((token.clone(), ending));
        let surplus = self.finished.len().saturating_sub(FINISHED_KEPT);
        self.finished.drain(..surplus);
    }

    pub(in crate::store) fn is_granted_to(&self, token: &Token) -> bool {
        self.token.as_ref() == Some(token)
    }

    pub(in crate::store) fn key_holds(&self, token: &Token) -> bool {
        matches!(&self.key, Key::Value { text, .. } if text == token.as_str())
    }

    pub(super) fn standing(&self, exclusive: bool, token: &Token, clock: Clock) -> TokenStanding {
        if exclusive {
            match &self.key {
                Key::Value { text, .. } if text == token.as_str() => return TokenStanding::Ours,
                Key::Value { text, end } => {
                    return TokenStanding::Other {
                        holder: holder(text),
                        remaining: end.map(|end| clock.until(end)),
                    };
                }
                Key::OtherType { end } => {
                    return TokenStanding::Other {
                        holder: OTHER_TYPE.to_owned(),
                        remaining: end.map(|end| clock.until(end)),
                    };
                }
                Key::Absent => (),
            }
        }
        match &self.token {
            Some(granted) if granted == token => {
                if exclusive {
                    TokenStanding::Free
                } else {
                    TokenStanding::Ours
                }
            }
            // The key was evicted or deleted, and its holder may not know yet.
            Some(granted) if exclusive && self.lease_end > clock.lease => TokenStanding::Other {
                holder: holder(granted.as_str()),
                remaining: Some(clock.until(self.lease_end)),
            },
            _ => TokenStanding::Free,
        }
    }

    /// Takes the lock for `token`, or extends it, until `end`.
    pub(super) fn take(&mut self, exclusive: bool, token: &Token, end: u64) {
        if exclusive {
            self.key = Key::Value {
                text: token.as_str().to_owned(),
                end: Some(end),
            };
        }
        self.token = Some(token.clone());
        self.lease_end = end;
    }

    pub(super) fn next_fence(&self, clock: Clock) -> u64 {
        clock.micros.max(self.fence.saturating_add(1))
    }

    /// Returns how long the lease of `token` lasts; zero if it is over.
    pub(super) fn remaining(&self, token: &Token, clock: Clock) -> Duration {
        match &self.key {
            Key::Value { text, end } if text == token.as_str() => {
                // A key that exists holds the lock, also in its last millisecond.
                clock
                    .until(end.unwrap_or(self.lease_end))
                    .max(Duration::from_millis(1))
            }
            _ if self.is_granted_to(token) => clock.until(self.lease_end),
            _ => Duration::ZERO,
        }
    }
}

impl LockState {
    /// Returns how long ago the lease of `token` ended. `None` while it lasts, or if that is unknown
    /// because another lease followed or the machine was restarted.
    pub(super) fn over_for(&self, token: &Token, clock: Clock) -> Option<Duration> {
        let known = self.is_granted_to(token) && self.lease_end > 0;
        (known && self.lease_end <= clock.lease).then(|| clock.since(self.lease_end))
    }
}
