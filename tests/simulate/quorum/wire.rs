//! What passes between the hosts' store clients and the nodes.

use super::node::{Answer, Ask};

/// A question to a node.
#[derive(Debug, Clone)]
pub(crate) struct Envelope {
    pub(crate) host: usize,
    /// Who waits for the answer: a request, and at which of its steps.
    pub(crate) op: u64,
    pub(crate) step: u32,
    pub(crate) node: usize,
    pub(crate) ask: Ask,
    /// The longest TTL that the host knows of.
    pub(crate) longest: i64,
}

/// Something that will happen to a node or to a request.
#[derive(Debug, Clone)]
pub(crate) enum NodeItem {
    Reach(Box<Envelope>),
    Back {
        op: u64,
        step: u32,
        node: usize,
        answer: Answer,
    },
    /// The answers to a step are waited for no longer.
    Limit {
        op: u64,
        step: u32,
    },
    /// A request is tried again.
    Again {
        op: u64,
        step: u32,
    },
    /// A node is no longer paused, or is reachable again.
    Up {
        node: usize,
    },
}
