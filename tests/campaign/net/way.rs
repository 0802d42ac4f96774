//! What becomes of what passes between a party and a server.

use std::time::Duration;

/// A change holds for open connections too.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Way {
    /// Everything passes.
    Open,
    /// Nothing passes, in neither direction, and nobody says so; it is lost. A connection that has
    /// lost something is closed by the next thing that could pass.
    Silent,
    /// Nothing passes, and nobody says so, but all of it arrives when the way is open again, as TCP
    /// has it after a partition.
    Late,
    /// Requests arrive, answers are lost.
    Deaf,
    /// Connections are closed at once.
    Refused,
    /// Each piece passes so much later.
    Slow(Duration),
    /// The next request arrives, and its connection is closed instead of the answer; then all
    /// passes.
    CutReply,
}
