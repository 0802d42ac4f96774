//! Which nodes count among those that take a proposal.

use crate::store::redis::node::Taken;

/// The least that a node must remember of its past for its vote to count.
///
/// A node that lost its data may have forgotten a later promise. So the votes of such nodes count
/// only for a proposal whose first phase saw that they had lost their data: then they gave their
/// promise after the loss.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Trust {
    /// It remembers lock and job.
    Sound,
    /// It has forgotten them, and has waited for one TTL since.
    Forgetful,
    /// It lost its data a moment ago. Enough for what a holder reports of its own run.
    Recovering,
}

impl Trust {
    /// Whether a node that answered this counts.
    pub fn counts(self, taken: Taken) -> bool {
        match taken {
            Taken::Yes => true,
            Taken::Forgetful => self >= Self::Forgetful,
            Taken::Recovering => self >= Self::Recovering,
            Taken::Outbid | Taken::Held => false,
        }
    }
}
