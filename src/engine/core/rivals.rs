//! Other hosts that claim the same job: whether the store is asked first if one of them has claimed an occurrence.

/// A host that has lost an occurrence asks before its next claims, until it has won so many in a row.
const WINS_UNTIL_ALONE: u8 = 3;

/// What a lane knows of other hosts, from its claims of occurrences at their times.
#[derive(Debug, Default)]
pub(super) struct Rivals {
    /// How many more wins in a row it takes until this host counts as the only one. At 0 it does.
    wins_until_alone: u8,
    /// The store found the last claim ahead of an instant early. Nobody is granted such a job ahead, so a
    /// question would be in vain.
    was_early: bool,
}

impl Rivals {
    /// Another host had claimed an occurrence, which this one claimed ahead of its instant or not.
    pub(super) fn lost(&mut self, ahead: bool) {
        self.wins_until_alone = WINS_UNTIL_ALONE;
        self.was_early &= !ahead;
    }

    /// This host has claimed an occurrence, ahead of its instant or not.
    pub(super) fn won(&mut self, ahead: bool) {
        self.wins_until_alone = self.wins_until_alone.saturating_sub(1);
        self.was_early &= !ahead;
    }

    /// The store found an occurrence early. All hosts claim it again at its instant.
    pub(super) fn early(&mut self) {
        self.was_early = true;
    }

    /// Whether a claim ahead of its instant probably loses: hosts take turns at being first, so it does if this
    /// host has lost lately. Whether there is time for a question is decided when the claim is sent.
    pub(super) fn ask_first(&self) -> bool {
        self.wins_until_alone > 0 && !self.was_early
    }
}
