//! What blocks a request for a lock, on each node and in a majority.

use std::time::Duration;

use super::clock::after;
use crate::ground::sorting::SortShort as _;
use crate::names::Token;
use crate::store::protocol::{Clock, Key};
use crate::store::redis::node::{KeyHolder, LockView, PrepareReply};

/// Computes what blocks a request on each node.
pub(super) struct Blocks<'a> {
    pub(super) base: &'a LockView,
    pub(super) exclusive: bool,
    pub(super) me: Option<&'a Token>,
    pub(super) clock: Clock,
}

/// What blocks a request on one node, ordered by how long it does.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Block {
    Free,
    Until(Duration, Who),
    ForEver(Who),
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Who {
    /// The lock holds this.
    Value(String),
    OtherType,
    /// The lock is gone, its lease end has not come.
    Granted(String),
}

impl Blocks<'_> {
    /// Returns the lock as a majority has it.
    pub(super) fn key(&self, counted: &[&PrepareReply], quorum: usize) -> Key {
        if !self.exclusive {
            return Key::Absent;
        }
        let mut blocks: Vec<Block> = counted.iter().map(|reply| self.on(reply)).collect();
        blocks.sort();
        let at = |left: &Duration| Some(after(self.clock, *left));
        match blocks.get(quorum - 1) {
            Some(Block::ForEver(Who::Value(text) | Who::Granted(text))) => Key::Value {
                text: text.clone(),
                end: None,
            },
            Some(Block::Until(left, Who::OtherType)) => Key::OtherType { end: at(left) },
            Some(Block::ForEver(Who::OtherType)) => Key::OtherType { end: None },
            // The token and the lease end in the state already express this.
            Some(Block::Until(_, Who::Granted(text)))
                if self.base.token.as_ref().map(Token::as_str) == Some(text) =>
            {
                Key::Absent
            }
            Some(Block::Until(left, Who::Value(text) | Who::Granted(text))) => Key::Value {
                text: text.clone(),
                end: at(left),
            },
            Some(Block::Free) | None => self.mine(counted, quorum),
        }
    }

    /// Whether these nodes do not suffice to decide if a majority of all has the lock free.
    pub(super) fn are_torn(&self, counted: &[&PrepareReply], quorum: usize) -> bool {
        if !self.exclusive {
            return false;
        }
        let (free, held): (Vec<Block>, Vec<Block>) = (counted.iter())
            .map(|reply| self.on(reply))
            .partition(|block| *block == Block::Free);
        free.len() < quorum && held.len() < quorum
    }

    /// Returns the lock as ours if a majority holds it for `me`. Nodes that do not count are assumed
    /// to hold the lock when a request asks whether it is free, and to have it free here.
    fn mine(&self, counted: &[&PrepareReply], quorum: usize) -> Key {
        let Some(me) = self.me else {
            return Key::Absent;
        };
        let lefts = counted.iter().filter_map(|reply| match &reply.held {
            KeyHolder::Value(value, left) if value == me.as_str() => {
                Some(left.unwrap_or(Duration::MAX).max(Duration::from_millis(1)))
            }
            _ => None,
        });
        let mut lefts: Vec<Duration> = lefts.collect();
        lefts.sort_short_by(|one, other| other.cmp(one));
        let Some(left) = lefts.get(quorum - 1).copied() else {
            return Key::Absent;
        };
        Key::Value {
            text: me.as_str().to_owned(),
            end: (left != Duration::MAX).then(|| after(self.clock, left)),
        }
    }

    fn on(&self, reply: &PrepareReply) -> Block {
        match &reply.held {
            KeyHolder::OtherType(Some(left)) => Block::Until(*left, Who::OtherType),
            KeyHolder::OtherType(None) => Block::ForEver(Who::OtherType),
            KeyHolder::Value(value, left) => {
                let ours = self.me.is_some_and(|me| me.as_str() == value);
                // This node missed the release of a token that ended.
                if ours || self.base.has_ended(value) {
                    return Block::Free;
                }
                match left {
                    Some(left) => Block::Until(
                        (*left).max(Duration::from_millis(1)),
                        Who::Value(value.clone()),
                    ),
                    None => Block::ForEver(Who::Value(value.clone())),
                }
            }
            KeyHolder::Nobody => match &reply.lock.token {
                Some(token)
                    if Some(token) != self.me
                        && !reply.lock.left.is_zero()
                        && !self.base.has_ended(token.as_str()) =>
                {
                    Block::Until(reply.lock.left, Who::Granted(token.as_str().to_owned()))
                }
                _ => Block::Free,
            },
        }
    }
}
