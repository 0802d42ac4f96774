//! G4 and G5, on what was seen of the locks themselves.

use std::collections::BTreeMap;

use super::{Rule, Story, Violation};

pub(super) const ALL: [fn(&Story) -> Vec<Violation>; 3] = [foreign_writes, stolen, blocked];

/// By how much two readings of one clock may differ, in milliseconds: instants are whole ones, and
/// a script stands still in time.
const GRAIN: i64 = 5;

/// How long after its holder's last request a lock is looked at again at the latest.
const LOOK: i64 = 50;

/// Who holds a lock.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Holding {
    pub(crate) token: String,
    /// When it ends by itself; `None` if it does not.
    pub(crate) until: Option<i64>,
}

/// What a command did to the key of a lock.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Write {
    /// It holds this.
    Set {
        token: String,
        until: Option<i64>,
        /// Only if it held nothing.
        if_free: bool,
    },
    /// It holds what it held for longer, or shorter.
    Extend { until: i64 },
    /// It is gone.
    Delete,
}

/// What was seen of one lock.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Sight {
    /// A look at a server that decides about it.
    Look {
        /// Which process: another one may have other data.
        process: String,
        /// What its key says.
        key: Option<Holding>,
        /// The lease that is stored in addition to the key, while it lasts.
        beside: Option<Holding>,
    },
    /// Nothing is known of it any more: the server is not there, does not decide, or was emptied.
    Unknown,
    /// A command that reached its key, and all the words it came with.
    Write {
        write: Write,
        by: Vec<String>,
        /// By a script, as all that hosts do.
        in_script: bool,
    },
}

/// One of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Sighting {
    /// By the true clock, in milliseconds since the epoch.
    pub(crate) at: i64,
    pub(crate) server: String,
    pub(crate) lock: &'static str,
    pub(crate) sight: Sight,
}

/// A daemon that is no more.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Death {
    pub(crate) host: String,
    pub(crate) pid: i32,
    /// After this nothing that it sent can reach a server any more.
    pub(crate) at: i64,
}

/// What is known of a lock on a server while its writes are followed.
#[derive(Debug, Default)]
struct Known {
    process: String,
    key: Key,
    /// It came with the data that a process started with, and nobody has written it since.
    revived: bool,
}

#[derive(Debug, Default)]
enum Key {
    #[default]
    Unknown,
    Free,
    Held(Holding),
}

impl From<Option<Holding>> for Key {
    fn from(held: Option<Holding>) -> Self {
        held.map_or(Self::Free, Self::Held)
    }
}

/// G5. A command that changes a key with a token contains that token.
fn foreign_writes(story: &Story) -> Vec<Violation> {
    let mut found = Vec::new();
    let mut locks: BTreeMap<(&str, &str), Known> = BTreeMap::new();
    for seen in &story.sightings {
        let known = locks.entry((&seen.server, seen.lock)).or_default();
        match &seen.sight {
            Sight::Unknown => known.key = Key::Unknown,
            Sight::Look { process, key, .. } => {
                let came = !known.process.is_empty() && known.process != *process;
                known.revived = came || known.revived;
                known.process.clone_from(process);
                known.key = key.clone().into();
            }
            Sight::Write {
                write,
                by,
                in_script,
            } => {
                let held = known.held_at(seen.at);
                if let Some(held) = &held
                    && *in_script
                    && !shows(by, &held.token)
                    // A later lease takes the place of one that old data brought up.
                    && !(known.revived && matches!(write, Write::Set { .. }))
                {
                    let (lock, server) = (seen.lock, &seen.server);
                    found.push(Violation {
                        rule: Rule::OwnLock,
                        at: seen.at,
                        text: format!("{lock} on {server} held {held:?}: {write:?} by {by:?}"),
                    });
                }
                known.apply(write, held);
            }
        }
    }
    found
}

impl Known {
    fn held_at(&self, at: i64) -> Option<Holding> {
        match &self.key {
            Key::Held(held) if held.until.is_none_or(|until| at + GRAIN < until) => {
                Some(held.clone())
            }
            Key::Held(_) | Key::Free | Key::Unknown => None,
        }
    }

    fn apply(&mut self, write: &Write, held: Option<Holding>) {
        if matches!(self.key, Key::Unknown) {
            return;
        }
        self.revived = false;
        let held = match write {
            Write::Set { if_free: true, .. } if held.is_some() => held,
            Write::Set { token, until, .. } => Some(Holding {
                token: token.clone(),
                until: *until,
            }),
            Write::Extend { until } => held.map(|held| Holding {
                until: Some(*until),
                ..held
            }),
            Write::Delete => None,
        };
        self.key = held.into();
    }
}

/// Whether the words of a command show a token: as it is, or by the part that no other has.
fn shows(words: &[String], token: &str) -> bool {
    let part = token.rsplit(':').next().filter(|part| part.len() == 32);
    let part = part.unwrap_or(token);
    words.iter().any(|word| word.contains(part))
}

/// G5. A lock that changes hands, or is deleted, is that of no run which lives on. Also where only
/// looks tell of it.
fn stolen(story: &Story) -> Vec<Violation> {
    let mut found = Vec::new();
    let last_signs: BTreeMap<&str, i64> = story
        .runs
        .iter()
        .map(|run| (run.run_id.as_str(), run.last_sign))
        .collect();
    let mut locks: BTreeMap<(&str, &str), (String, Option<Holding>)> = BTreeMap::new();
    for seen in &story.sightings {
        let Sight::Look { process, key, .. } = &seen.sight else {
            continue;
        };
        let before = locks.insert((&seen.server, seen.lock), (process.clone(), key.clone()));
        let Some((was, Some(held))) = before.filter(|(was, _)| was == process) else {
            continue;
        };
        // What ended by itself was nobody's any more on this server.
        if held.until.is_some_and(|until| until <= seen.at + GRAIN) {
            continue;
        }
        let token = |holding: &Option<Holding>| holding.as_ref().map(|held| held.token.clone());
        let other = token(key).filter(|token| *token != held.token);
        let lives_on = run_of(&held.token)
            .and_then(|run| last_signs.get(run))
            .is_some_and(|sign| *sign > seen.at + GRAIN);
        if let Some(other) = other
            && lives_on
        {
            found.push(Violation {
                rule: Rule::OwnLock,
                at: seen.at,
                text: format!(
                    "{} on {} ({was}): {} has it, but the run of {held:?} lives on",
                    seen.lock, seen.server, other
                ),
            });
        }
    }
    found
}

/// `HOST:PID:RUN:RANDOM`
fn run_of(token: &str) -> Option<&str> {
    token.split(':').nth(2)
}

/// G4. One TTL after a daemon died no lock is its any more; and no lease of a host is longer than
/// one TTL, or without end.
fn blocked(story: &Story) -> Vec<Violation> {
    let longest = story.ttl + story.clock_spread + LOOK;
    let mut found = Vec::new();
    for seen in &story.sightings {
        let Sight::Look { key, beside, .. } = &seen.sight else {
            continue;
        };
        for held in [key, beside].into_iter().flatten() {
            let mut words = held.token.split(':');
            let (Some(host), Some(pid), Some(_), Some(_)) =
                (words.next(), words.next(), words.next(), words.next())
            else {
                continue;
            };
            let death = story
                .deaths
                .iter()
                .find(|death| death.host == host && death.pid.to_string() == pid);
            let outlived = death.is_some_and(|death| seen.at > death.at + longest);
            let endless = held.until.is_none_or(|until| until > seen.at + longest);
            if outlived || endless {
                found.push(Violation {
                    rule: Rule::Progress,
                    at: seen.at,
                    text: format!("{} on {}: {held:?}, {death:?}", seen.lock, seen.server),
                });
            }
        }
    }
    found
}
