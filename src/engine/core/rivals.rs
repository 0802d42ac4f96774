//! Other hosts that claim the same job: whether the store is asked first if one of them has claimed an occurrence.

/// A host that has lost an occurrence asks before its next claims, until it has won so many in a row.
const WINS_UNTIL_ALONE: u8 = 3;

/// What a lane knows of other hosts, from its claims of occurrences at their times.
#[derive(Debug, Default)]
pub(super) struct Rivals {
    /// After so many wins in a row this host counts as the only one; 0 if it does.
    wins_until_alone: u8,
    /// The store found the next occurrence early, so all hosts claim it again at its instant.
    claim_again: bool,
}

impl Rivals {
    /// Another host had claimed an occurrence.
    pub(super) fn lost(&mut self) {
        self.wins_until_alone = WINS_UNTIL_ALONE;
    }

    /// This host has claimed an occurrence.
    pub(super) fn won(&mut self) {
        self.wins_until_alone = self.wins_until_alone.saturating_sub(1);
    }

    /// The store found an occurrence early.
    pub(super) fn early(&mut self) {
        self.claim_again = true;
    }

    /// Whether the store is asked before the next claim, which `is_ahead` of its instant or not.
    ///
    /// Hosts take turns at being first, so this one probably loses if it has lost lately. Ahead of the instant
    /// the additional round trip makes no start later. Of the hosts whose claims were early, all but one lose.
    pub(super) fn ask_first(&mut self, is_ahead: bool) -> bool {
        let again = std::mem::take(&mut self.claim_again);
        self.wins_until_alone > 0 && (again || is_ahead)
    }
}
