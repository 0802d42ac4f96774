//! Phase 1: the vote of one node, the promises of the others, and what all of them know.

use std::collections::BTreeSet;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::ask::Answer;
use super::clock;
use super::transact::{Proposer, Subject};
use super::view::{Counting, count, merge};
use crate::ground::timing;
use crate::store::StoreError;
use crate::store::redis::node::{Ballot, Mode, Node, Place, View};

/// How long others let the holder of the vote finish what it began.
pub(super) const VOTE: Duration = Duration::from_millis(1500);

/// The shortest time a node gets to answer.
const SHORTEST_LIMIT: Duration = Duration::from_millis(100);

/// What the nodes answered.
#[derive(Debug)]
pub(super) struct Heard {
    pub(super) views: Vec<View>,
    /// The nodes that were asked and answered.
    pub(super) at: Vec<usize>,
    pub(super) errors: Vec<Answer<()>>,
}

impl Heard {
    pub(super) fn knows(&self, node: usize) -> bool {
        self.at.contains(&node) || self.errors.iter().any(|(at, _)| *at == node)
    }
}

impl Proposer {
    /// The vote of the first node that answers.
    pub(super) async fn first(
        &self,
        place: &Place,
        ballot: Ballot,
    ) -> Result<Result<(usize, View), StoreError>, StoreError> {
        let mut errors: Vec<Answer<()>> = Vec::new();
        let limit = limit(place.ttl);
        for at in self.nodes.order(&place.lock.name) {
            let node = self.nodes.get(at);
            match node.look(place, (Mode::Vote, ballot), VOTE, limit).await {
                Ok(view) => {
                    self.longest.told(at, view.longest);
                    self.nodes.note(at, &view)?;
                    return Ok(Ok((at, view)));
                }
                Err(error) => {
                    self.nodes.note_failure(at, &error)?;
                    errors.push((at, Err(error)));
                    // Without a majority there is no use in a vote.
                    if errors.len() > self.nodes.len() - self.nodes.quorum() {
                        break;
                    }
                }
            }
        }
        let answered = self.nodes.len() - errors.len();
        Ok(Err(self.few(answered, &errors)))
    }

    /// Whether the replies of further nodes may change the outcome.
    pub(super) fn is_in_doubt(&self, views: &[View], subject: &Subject<'_>) -> bool {
        let quorum = self.nodes.quorum();
        let Counting::On { counted, .. } = count(views, quorum) else {
            return false;
        };
        if views.len() == self.nodes.len() {
            return false;
        }
        let exclusive = subject.lock.exclusive;
        let merged = merge(views, &counted, quorum, (exclusive, subject.me));
        merged.needs_more(exclusive, subject.me.filter(|_| subject.reports))
    }

    /// Looks at many nodes at once, until enough of them answered for a decision.
    pub(super) async fn look(
        &self,
        place: &Place,
        which: impl Iterator<Item = usize>,
        question: (Mode, Ballot),
        views: Vec<View>,
    ) -> Result<Heard, StoreError> {
        // The first time all are heard out: a wrong list of nodes must not go unnoticed.
        let all = !self.looked.load(Ordering::Relaxed);
        let heard = self.hear(place, which, question, views, all).await?;
        if all && heard.views.len() >= self.nodes.quorum() {
            self.say_missing(&heard.errors);
            self.looked.store(true, Ordering::Relaxed);
        }
        Ok(heard)
    }

    /// As [`Self::look`], or until all have answered.
    pub(super) async fn hear(
        &self,
        place: &Place,
        which: impl Iterator<Item = usize>,
        question: (Mode, Ballot),
        mut views: Vec<View>,
        all: bool,
    ) -> Result<Heard, StoreError> {
        let limit = limit(place.ttl);
        let mut silent: BTreeSet<usize> = which.collect();
        let mut answers = self.nodes.ask(silent.clone().into_iter(), |node| {
            let place = place.clone();
            async move { node.look(&place, question, VOTE, limit).await }
        });
        let (mut errors, mut heard_at) = (Vec::new(), Vec::new());
        let quorum = self.nodes.quorum();
        let enough = |views: &[View], silent: &BTreeSet<usize>| {
            let Counting::On {
                counted,
                horizon: None,
            } = count(views, quorum)
            else {
                return false;
            };
            let clocks = counted.iter().map(|at| views[*at].micros);
            !all && (clock::agree(clocks) || self.nodes.are_shunned(silent))
        };
        while !enough(&views, &silent) {
            let Some((at, answer)) = answers.recv().await else {
                break;
            };
            silent.remove(&at);
            match answer {
                Ok(view) => {
                    self.longest.told(at, view.longest);
                    self.nodes.note(at, &view)?;
                    heard_at.push(at);
                    views.push(view);
                }
                Err(error) => {
                    self.nodes.note_failure(at, &error)?;
                    errors.push((at, Err(error)));
                }
            }
        }
        if views.len() >= quorum {
            self.outage.answered();
        }
        Ok(Heard {
            views,
            at: heard_at,
            errors,
        })
    }

    fn say_missing(&self, errors: &[Answer<()>]) {
        if errors.is_empty() || self.looked.load(Ordering::Relaxed) {
            return;
        }
        let missing: Vec<String> = errors
            .iter()
            .map(|(at, _)| self.nodes.get(*at).shown())
            .collect();
        tracing::warn!(
            "{} of {} nodes are unreachable ({}); continuing with the majority",
            missing.len(),
            self.nodes.len(),
            missing.join(", ")
        );
    }
}

/// How long one node may take to answer.
pub(super) fn limit(ttl: Duration) -> Duration {
    if ttl.is_zero() {
        return Node::RESPONSE_TIMEOUT;
    }
    timing::response_timeout(ttl).max(SHORTEST_LIMIT)
}
