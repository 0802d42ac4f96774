//! A message to a target: one event, or a digest of many.

use std::sync::Arc;

use super::digest::Digest;
use super::notice::Notice;

/// What is sent to a target.
#[derive(Debug, Clone)]
pub(super) struct Notification {
    /// What it is about.
    pub(crate) content: Content,
    /// How many messages to this target were given up on before it.
    pub(crate) undelivered: u64,
}

/// What a message is about.
#[derive(Debug, Clone)]
pub(crate) enum Content {
    /// One event.
    One(Arc<Notice>),
    /// Many.
    Digest(Box<Digest>),
}

impl Notification {
    /// A message of one event.
    pub(crate) fn one(notice: Notice) -> Self {
        Self {
            content: Content::One(Arc::new(notice)),
            undelivered: 0,
        }
    }

    /// How many events it is about.
    pub(crate) fn events(&self) -> u64 {
        match &self.content {
            Content::One(_) => 1,
            Content::Digest(digest) => digest.events(),
        }
    }
}
