//! One node among several independent ones: what a majority is asked, and told.
//!
//! The keys are those of a single server, and so is the meaning of what lies under them. Beside
//! the state of a lock and the ledger of a job stand the proposal that wrote them, and the newest
//! one that was promised. Who asks, counts and decides is `store::redlock`.

mod mend;
mod standing;
mod view;
mod wire;

use std::time::Duration;

use redis::Value;

pub(in crate::store) use self::mend::Placed;
pub(in crate::store) use self::standing::{Ledger, Standing};
pub use self::view::{
    Accepted, Ballot, Held, JobView, Lease, LockView, Mode, Place, Proposal, Said, Taken, View,
    finished_text,
};
use self::wire::{job_args, read_view};
use super::claim::{flag, millis};
use super::failure::Failure;
use super::finish::{renew_limit, renew_read};
use super::keys::{self, LockKeys};
use super::link::{Call, RESPONSE_TIMEOUT};
use super::record::{self, pairs};
use super::reply::{Items, integer, text};
use super::script::NodeScripts;
use super::{BATCH, RedisStore};
use crate::names::{JobName, RunId, Token};
use crate::store::{Lock, RedisSettings, RenewReply, Renewal, StoreError};

/// A node, and how to ask it.
#[derive(Debug)]
pub struct Node {
    pub(in crate::store) store: RedisStore,
    scripts: NodeScripts,
}

impl Node {
    pub fn new(settings: &RedisSettings) -> Result<Self, StoreError> {
        Ok(Self {
            store: RedisStore::new(settings)?,
            scripts: NodeScripts::new(),
        })
    }

    /// Its URL without password.
    pub(in crate::store) fn shown(&self) -> String {
        self.store.link.settings().shown()
    }

    fn marker(&self) -> String {
        keys::node(self.store.prefix())
    }

    /// Looks at a lock and a job.
    pub async fn look(
        &self,
        place: &Place,
        (mode, ballot): (Mode, Ballot),
        vote: Duration,
        limit: Duration,
    ) -> Result<View, StoreError> {
        let keys = LockKeys::of(self.store.prefix(), &place.lock);
        let mut call = Call::default();
        call.key(&keys.lock).key(&keys.state).key(self.marker());
        if let Some(job) = &place.job {
            call.key(keys.job(job));
        }
        call.arg(&flag(place.lock.exclusive))
            .arg(&match mode {
                Mode::Vote => "vote",
                Mode::Promise => "promise",
                Mode::Read => "read",
                Mode::Yield => "yield",
            })
            .arg(&ballot.number)
            .arg(&ballot.id)
            .arg(&place.longest.as_millis())
            .arg(&place.ttl.as_millis())
            .arg(&vote.as_millis());
        let answer = self.store.link.run(&self.scripts.look, &call, limit);
        Ok(read_view(answer.await?)?)
    }

    /// Proposes.
    pub async fn propose(
        &self,
        proposal: &Proposal,
        limit: Duration,
    ) -> Result<Accepted, StoreError> {
        let call = self.propose_call(proposal);
        let answer = self.store.link.run(&self.scripts.accept, &call, limit);
        let mut items = Items::of(answer.await?)?;
        let mut lacks = None;
        let taken = match items.text()?.as_str() {
            "taken" => {
                let standing = items.text()?;
                lacks = Some(items.text()?).filter(|mark| !mark.is_empty());
                match standing.as_str() {
                    "sound" => Taken::Yes,
                    "forgetful" => Taken::Forgetful,
                    _ => Taken::Recovering,
                }
            }
            "promised" => Taken::Outbid,
            "held" => Taken::Held,
            other => {
                let said = format!("the answer to a proposal is {other:?}");
                return Err(Failure::corrupt(said).into());
            }
        };
        Ok(Accepted { taken, lacks })
    }

    fn propose_call(&self, proposal: &Proposal) -> Call {
        let place = &proposal.place;
        let keys = LockKeys::of(self.store.prefix(), &place.lock);
        let mut call = Call::default();
        call.key(&keys.lock).key(&keys.state).key(self.marker());
        if let Some(job) = &place.job {
            call.key(keys.job(job)).key(keys.runs(job));
        }
        let optional = |n: Option<u32>| n.map(|n| n.to_string()).unwrap_or_default();
        let lock = &proposal.lock;
        call.arg(&flag(place.lock.exclusive))
            .arg(&proposal.ballot.number)
            .arg(&proposal.ballot.id)
            .arg(&keys.released)
            .arg(&flag(proposal.released))
            .arg(&optional(proposal.keep))
            .arg(&lock.fence)
            .arg(lock.token.as_ref().map_or("", Token::as_str))
            .arg(lock.run_id.as_ref().map_or("", RunId::as_str))
            .arg(&finished_text(lock));
        match proposal.lease {
            Lease::Take(ttl) => call.arg("take").arg(&millis(ttl)),
            Lease::Stay(left) => call.arg("stay").arg(&left.as_millis()),
        };
        job_args(&mut call, proposal.job.as_ref());
        call.arg(&proposal.base.number).arg(&proposal.base.id);
        for (record, follows) in &proposal.records {
            let mut fields = pairs(record);
            if let Some(follows) = follows {
                fields.push(("follows", follows.millis().to_string()));
            }
            call.arg(&fields.len());
            for (name, value) in fields {
                call.arg(name).arg(&value);
            }
        }
        call
    }

    /// Takes the lock of a proposal back that found no majority.
    pub async fn withdraw(
        &self,
        lock: &Lock,
        ballot: Ballot,
        token: &Token,
    ) -> Result<(), StoreError> {
        let keys = LockKeys::of(self.store.prefix(), lock);
        let mut call = Call::default();
        call.key(&keys.lock).key(&keys.state);
        call.arg(&flag(lock.exclusive))
            .arg(&ballot.number)
            .arg(&ballot.id)
            .arg(token)
            .arg(&keys.released);
        self.store.run(&self.scripts.withdraw, &call).await?;
        Ok(())
    }

    /// Extends leases; with `again` also sets locks again that are gone.
    pub async fn extend(
        &self,
        renewals: &[Renewal],
        longest: Duration,
        again: bool,
    ) -> Result<Vec<RenewReply>, StoreError> {
        let limit = renew_limit(renewals);
        let mut replies = Vec::with_capacity(renewals.len());
        for batch in renewals.chunks(BATCH) {
            let mut call = Call::default();
            call.key(self.marker());
            call.arg(&longest.as_millis()).arg(&flag(again));
            for renewal in batch {
                let keys = LockKeys::of(self.store.prefix(), &renewal.lock);
                call.key(keys.lock).key(keys.state);
                call.arg(&flag(renewal.lock.exclusive))
                    .arg(&renewal.token)
                    .arg(&millis(renewal.ttl));
            }
            let answer = self.store.link.run(&self.scripts.extend, &call, limit);
            let letters = renew_read(answer.await?, batch.len())?;
            let forgotten = |reply: Option<RenewReply>| reply.unwrap_or(RenewReply::Absent);
            replies.extend(letters.into_iter().map(forgotten));
        }
        Ok(replies)
    }

    /// The newest records of a job, each with the place in the stream where it lies.
    pub async fn records(
        &self,
        job: &JobName,
        lock: &Lock,
        limit: usize,
    ) -> Result<Vec<Placed>, StoreError> {
        let command = super::reading::history_command(self.store.prefix(), job, lock, limit);
        let mut entries = Items::of(self.store.link.send(&command).await?)?;
        let mut records = Vec::new();
        while !entries.is_empty() {
            let entry = entries.next()?;
            let id = match &entry {
                Value::Array(parts) => parts.first().cloned().map(text).transpose()?,
                _ => None,
            };
            let place = id
                .as_deref()
                .and_then(|id| id.split_once('-'))
                .and_then(|(ms, seq)| Some((ms.parse().ok()?, seq.parse().ok()?)))
                .unwrap_or_default();
            records.push((place, record::read(job, entry)?));
        }
        Ok(records)
    }

    /// How many keys begin with our prefix, markers apart.
    pub(in crate::store) async fn count_keys(&self) -> Result<u64, StoreError> {
        let mut command = redis::cmd("EXISTS");
        let store = keys::store(self.store.prefix());
        command.arg(self.marker()).arg(store);
        let markers = integer(&self.store.link.send(&command).await?)?;
        let count = self.store.count_keys().await?;
        Ok(count.saturating_sub(u64::try_from(markers).unwrap_or(0)))
    }

    /// Declares the node new.
    pub async fn declare_new(&self) -> Result<(), StoreError> {
        let mut call = Call::default();
        call.key(self.marker());
        self.store.run(&self.scripts.declare, &call).await?;
        Ok(())
    }

    /// How long an answer may take when nothing is said of it.
    pub(in crate::store) const RESPONSE_TIMEOUT: Duration = RESPONSE_TIMEOUT;
}
