//! Which of the nodes that accept a proposal count.

use crate::store::redis::node::AcceptStatus;

/// What a node must remember so that its acceptance counts.
///
/// A node that lost its data may have forgotten a higher promise. Therefore its acceptance counts only
/// for a proposal whose phase 1 saw the loss: then the node gave its promise after the loss.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Trust {
    /// It must remember lock and job.
    Sound,
    /// It may have forgotten them, if one TTL has passed since.
    Forgetful,
    /// It may have lost its data recently. Enough for the report of a holder on its own run.
    Recovering,
}

impl Trust {
    /// Whether a node with this reply counts.
    pub fn counts(self, taken: AcceptStatus) -> bool {
        match taken {
            AcceptStatus::Accepted => true,
            AcceptStatus::Forgetful => self >= Self::Forgetful,
            AcceptStatus::Recovering => self >= Self::Recovering,
            AcceptStatus::Preempted | AcceptStatus::Held => false,
        }
    }
}
