//! Whether one of several nodes counts, for the repair loop and for reports. Reading it changes nothing.

use std::time::Duration;

use super::QuorumNode;
use crate::names::JobName;
use crate::store::redis::BATCH;
use crate::store::redis::RESPONSE_TIMEOUT;
use crate::store::redis::codec::call::Call;
use crate::store::redis::codec::keys::LockKeys;
use crate::store::redis::codec::reply::Items;
use crate::store::redis::failure::RedisFailure;
use crate::store::{KeyFault, Lock, NodeClock, StoreError};
use crate::time::{BootInstant, Timestamp};

/// The condition of a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::store) struct NodeState {
    /// Whether it was never used and not initialised.
    pub(in crate::store) new: bool,
    /// When it lost its data, if it ever did.
    pub(in crate::store) lost_at: Option<Timestamp>,
    /// How much longer its locks do not count as free.
    pub(in crate::store) recovering: Duration,
    /// The longest TTL that it knows.
    pub(in crate::store) longest: Duration,
    /// The ledger of each job, in the order of the request.
    pub(in crate::store) ledgers: Vec<LedgerPresence>,
    /// The faults of jobs whose keys it cannot use.
    pub(in crate::store) unusable: Vec<(JobName, KeyFault)>,
    /// The difference between its clock and the clock of this host.
    pub(in crate::store) clock: NodeClock,
}

/// The ledger of one job on a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::store) enum LedgerPresence {
    /// There is one, and it counts.
    Known,
    /// There is none, and the node never lost data.
    Nothing,
    /// There is one from before the node lost its data.
    Forgotten,
    /// There is none since the node lost its data.
    Absent,
    /// A key is damaged, or the user may not access it.
    Unusable,
}

impl QuorumNode {
    /// Reads the condition and changes nothing. `longest` is the longest TTL that the caller knows.
    pub(in crate::store) async fn standing(
        &self,
        jobs: &[(JobName, Lock)],
        longest: Duration,
    ) -> Result<NodeState, StoreError> {
        let mut all: Option<NodeState> = None;
        let mut parts: Vec<_> = jobs.chunks(BATCH).rev().collect();
        if parts.is_empty() {
            parts.push(jobs);
        }
        while let Some(part) = parts.pop() {
            let mut said = match self.standing_of(part, longest).await {
                Err(StoreError::Key(fault)) => {
                    let [(job, _)] = part else {
                        let (first, second) = part.split_at(part.len() / 2);
                        parts.extend([second, first]);
                        continue;
                    };
                    let mut said = self.standing_of(&[], longest).await?;
                    said.ledgers.push(LedgerPresence::Unusable);
                    said.unusable.push((job.clone(), fault));
                    said
                }
                said => said?,
            };
            match &mut all {
                None => all = Some(said),
                Some(all) => {
                    all.ledgers.append(&mut said.ledgers);
                    all.unusable.append(&mut said.unusable);
                }
            }
        }
        all.ok_or_else(|| RedisFailure::corrupt("no reply".to_owned()).into())
    }

    async fn standing_of(
        &self,
        jobs: &[(JobName, Lock)],
        longest: Duration,
    ) -> Result<NodeState, StoreError> {
        let mut call = Call::default();
        call.key(&self.marker()).arg(&longest.as_millis());
        for (job, lock) in jobs {
            let keys = LockKeys::of(self.store.prefix(), lock);
            call.key(&keys.state()).key(&keys.job(job));
        }
        let (sent, began) = (Timestamp::now(), BootInstant::now());
        let reply = self
            .link
            .run(&self.scripts.standing, &call, RESPONSE_TIMEOUT)
            .await?;
        // The reply is assumed to be from the middle of the round trip.
        let error = BootInstant::now().since(began) / 2;
        let here = (sent.plus(error), error);
        Ok(read(Items::of(reply)?, jobs.len(), here)?)
    }
}

fn read(
    mut items: Items,
    jobs: usize,
    (here, error): (Timestamp, Duration),
) -> Result<NodeState, RedisFailure> {
    let new = items.text()? == "new";
    let millis = |text: String| {
        text.parse::<u64>().map_err(|_| {
            RedisFailure::corrupt(format!("a node returned {text:?} instead of a number"))
        })
    };
    let lost_at = match items.text()? {
        text if text.is_empty() => None,
        text => Some(millis(text)?),
    };
    let recovering = Duration::from_millis(millis(items.text()?)?);
    let longest = Duration::from_millis(millis(items.text()?)?);
    let letters = items.text()?;
    let ledgers = letters
        .chars()
        .map(|letter| match letter {
            'K' => Ok(LedgerPresence::Known),
            'N' => Ok(LedgerPresence::Nothing),
            'F' => Ok(LedgerPresence::Forgotten),
            'A' => Ok(LedgerPresence::Absent),
            other => Err(RedisFailure::corrupt(format!(
                "a node returned {other:?} for a job"
            ))),
        })
        .collect::<Result<Vec<_>, _>>()?;
    if ledgers.len() != jobs {
        return Err(RedisFailure::corrupt(format!(
            "a node returned {} jobs instead of {jobs}",
            ledgers.len()
        )));
    }
    let micros = i64::try_from(millis(items.text()?)?).unwrap_or(i64::MAX);
    Ok(NodeState {
        clock: NodeClock {
            offset_ms: micros / 1000 - here.millis(),
            error,
        },
        new,
        lost_at: lost_at.map(|at| Timestamp::from_millis(i64::try_from(at).unwrap_or(i64::MAX))),
        recovering,
        longest,
        ledgers,
        unusable: Vec::new(),
    })
}
