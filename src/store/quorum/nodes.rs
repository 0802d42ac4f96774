//! Asks many nodes at once, and remembers which of them failed.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::mpsc;

use super::merge::quorum;
use crate::ground::sorting::SortShort as _;
use crate::ground::tasks;
use crate::store::redis::node::{PrepareReply, QuorumNode};
use crate::store::{ErrorDetail, KeyFault, RedlockSettings, StoreError};
use crate::time::Timestamp;

/// How long a node that failed is asked last.
const SHUNNED: Duration = Duration::from_secs(5);

/// How often the log repeats that a key cannot be used.
const REPORT_AGAIN: Duration = Duration::from_secs(5 * 60);

/// The nodes, in an order that is the same on all hosts.
#[derive(Debug)]
pub(super) struct Nodes {
    all: Arc<[Arc<QuorumNode>]>,
    known: Mutex<Vec<NodeHealth>>,
}

/// What this process remembers about a node.
#[derive(Debug, Clone, Default)]
struct NodeHealth {
    /// The server process that replied last.
    server: Option<String>,
    failed: Option<Instant>,
    /// The log has reported that the node recovers.
    recovering: bool,
    /// Keys that the node cannot use, and when that was logged.
    unusable: HashMap<String, Instant>,
}

impl NodeHealth {
    fn is_shunned(&self) -> bool {
        self.failed.is_some_and(|failed| failed.elapsed() < SHUNNED)
    }

    /// Whether it is time to log that this key cannot be used.
    fn is_news(&mut self, fault: &KeyFault) -> bool {
        self.unusable
            .retain(|_, logged| logged.elapsed() < REPORT_AGAIN);
        let known = self.unusable.contains_key(&fault.key);
        if !known {
            self.unusable.insert(fault.key.clone(), Instant::now());
        }
        !known
    }
}

/// The reply of a node, with the index of the node.
pub(super) type NodeReply<T> = (usize, Result<T, StoreError>);

impl Nodes {
    pub(super) fn new(settings: &RedlockSettings) -> Result<Self, StoreError> {
        let mut sorted: Vec<_> = settings.nodes.iter().collect();
        sorted.sort_short_by_key(|node| node.shown());
        if let Some(pair) = sorted
            .windows(2)
            .find(|pair| pair[0].endpoint == pair[1].endpoint)
        {
            return Err(StoreError::refused(format!(
                "{} is named twice: every node must be a server of its own",
                pair[0].shown()
            )));
        }
        if sorted.is_empty() {
            return Err(StoreError::refused("no nodes are named".to_owned()));
        }
        let all = sorted
            .into_iter()
            .map(|node| QuorumNode::new(node).map(Arc::new))
            .collect::<Result<Arc<[_]>, _>>()?;
        Ok(Self {
            known: Mutex::new(vec![NodeHealth::default(); all.len()]),
            all,
        })
    }

    pub(super) fn len(&self) -> usize {
        self.all.len()
    }

    pub(super) fn quorum(&self) -> usize {
        quorum(self.all.len())
    }

    /// All nodes, for tasks that outlive the request.
    pub(super) fn all(&self) -> Arc<[Arc<QuorumNode>]> {
        Arc::clone(&self.all)
    }

    pub(super) fn get(&self, at: usize) -> &Arc<QuorumNode> {
        &self.all[at]
    }

    /// Returns the nodes in the order in which hosts ask for the vote of a lock. It is the same on all
    /// hosts, except that nodes that failed recently come last.
    pub(super) fn order(&self, lock: &str) -> Vec<usize> {
        let start = lock.bytes().fold(0_usize, |sum, byte| {
            sum.wrapping_mul(31).wrapping_add(usize::from(byte))
        });
        let known = self.known();
        let shunned = |at: &usize| known[*at].is_shunned();
        let ring: Vec<usize> = (0..self.len()).map(|i| (start + i) % self.len()).collect();
        let (last, mut first): (Vec<usize>, Vec<usize>) = ring.into_iter().partition(shunned);
        first.extend(last);
        first
    }

    /// Asks the nodes at once. Requests that are in flight when the receiver is dropped continue.
    pub(super) fn ask<T, F>(
        &self,
        which: impl Iterator<Item = usize>,
        question: impl Fn(Arc<QuorumNode>) -> F,
    ) -> mpsc::UnboundedReceiver<NodeReply<T>>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, StoreError>> + Send + 'static,
    {
        let (sender, receiver) = mpsc::unbounded_channel();
        for at in which {
            let answer = question(Arc::clone(self.get(at)));
            let sender = sender.clone();
            tasks::spawn(async move {
                // The receiver is gone if enough other nodes have replied.
                let _ = sender.send((at, answer.await));
            });
        }
        receiver
    }

    /// Notes the reply of a node. Returns an error if two nodes are the same server.
    pub(super) fn note(&self, at: usize, reply: &PrepareReply) -> Result<(), StoreError> {
        let mut known = self.known();
        known[at].failed = None;
        let recovers = !reply.recovering.is_zero();
        let news = recovers != known[at].recovering;
        known[at].recovering = recovers;
        known[at].server = Some(reply.server.clone());
        let twin = known
            .iter()
            .enumerate()
            .position(|(other, it)| other != at && it.server.as_ref() == Some(&reply.server));
        drop(known);
        if news && recovers {
            tracing::warn!(
                node = self.get(at).shown(),
                "this node is new, was restarted or has lost its data; it does not count towards \
                 the majority until {}, then its ledgers are repaired from the other nodes. Restart \
                 no other node before that",
                Timestamp::now().plus(reply.recovering)
            );
        }
        match twin {
            Some(twin) => {
                let said = format!(
                    "{} and {} are the same server: every node must be one of its own",
                    self.get(at).shown(),
                    self.get(twin).shown()
                );
                Err(StoreError::WrongList(said.into()))
            }
            None => Ok(()),
        }
    }

    /// Notes that a node replied.
    pub(super) fn note_answer(&self, at: usize) {
        self.known()[at].failed = None;
    }

    /// Whether all of these nodes failed recently, so that waiting for them is pointless.
    pub(super) fn are_shunned(&self, which: &BTreeSet<usize>) -> bool {
        let known = self.known();
        which.iter().all(|at| known[*at].is_shunned())
    }

    /// Notes a failure. Returns it if it shows that the list of nodes is wrong.
    pub(super) fn note_failure(&self, at: usize, error: &StoreError) -> Result<(), StoreError> {
        let mut known = self.known();
        // The node responds, and serves the other jobs.
        if let StoreError::Key(fault) = error {
            if known[at].is_news(fault) {
                tracing::warn!(
                    node = self.get(at).shown(),
                    "Redis node {} cannot use key {fault}; the other nodes do without it while they \
                     can. To repair it, {}",
                    self.get(at).shown(),
                    fault.repair_on_node()
                );
            }
            return Ok(());
        }
        known[at].failed = Some(Instant::now());
        match error {
            StoreError::Replica(said) if known[at].server.is_none() => {
                let text = format!("{said}; nodes must be independent of one another");
                Err(StoreError::WrongList(said.reworded(text)))
            }
            _ => Ok(()),
        }
    }

    /// Returns the error for too few replies.
    pub(super) fn too_few(&self, answered: usize, errors: &[NodeReply<()>]) -> StoreError {
        let faults = errors.iter().filter_map(|(_, e)| match e {
            Err(StoreError::Key(fault)) => Some(fault),
            _ => None,
        });
        // The nodes respond, but the data that they keep of this job cannot be used.
        if let Some(fault) = faults.clone().next()
            && self.len() - faults.count() < self.quorum()
        {
            return StoreError::Key(fault.clone());
        }
        let refused = errors
            .iter()
            .filter_map(|(_, e)| match e {
                Err(StoreError::Unreachable(_)) | Ok(()) => None,
                Err(other) => Some(other.to_string()),
            })
            .collect::<Vec<_>>();
        let why = self.reasons(errors);
        let text = format!(
            "{answered} of {} nodes respond, and {} must ({why})",
            self.len(),
            self.quorum()
        );
        let is_refused = self.len() - refused.len() < self.quorum();
        let mut detail = ErrorDetail::from(text);
        if let Some(first) = errors.iter().find_map(|(_, e)| e.as_ref().err()) {
            detail = detail.caused_by(first.clone());
        }
        let rejects = |(_, e): &&NodeReply<()>| e.as_ref().is_err_and(StoreError::takes_no_writes);
        if self.len() - errors.iter().filter(rejects).count() < self.quorum() {
            detail = detail.of_rejected_writes();
        }
        if is_refused {
            StoreError::Refused(detail)
        } else {
            StoreError::Unreachable(detail)
        }
    }

    /// Returns, for people, which nodes failed and why.
    pub(super) fn reasons(&self, errors: &[NodeReply<()>]) -> String {
        let reason = |(at, result): &NodeReply<()>| {
            let (error, node) = (result.as_ref().err()?.reason(), self.get(*at).shown());
            // Most errors begin with the name of their server.
            Some(if error.contains(&node) {
                error
            } else {
                format!("{node}: {error}")
            })
        };
        let reasons: Vec<String> = errors.iter().filter_map(reason).collect();
        reasons.join("; ")
    }

    fn known(&self) -> MutexGuard<'_, Vec<NodeHealth>> {
        // Nothing that holds the guard can panic half-way through a change.
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
