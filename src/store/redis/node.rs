//! One node among several independent ones: what a majority is asked, and told.
//!
//! The keys are those of a single server, and so is the meaning of what lies under them. Beside
//! the state of a lock and the ledger of a job stand the proposal that wrote them, and the newest
//! one that was promised. Who asks, counts and decides is `store::redlock`.

use std::collections::HashMap;
use std::time::Duration;

use redis::Value;

use super::claim::{flag, millis};
use super::failure::Failure;
use super::finish::{renew_limit, renew_read};
use super::keys::{self, LockKeys};
use super::link::{Call, RESPONSE_TIMEOUT};
use super::record::{self, pairs, word};
use super::reply::{Items, integer, text};
use super::script::NodeScripts;
use super::{BATCH, RedisStore};
use crate::names::{JobName, RunId, Token};
use crate::store::protocol::{Ending, JobState, LockState, Open};
use crate::store::{Lock, Record, RedisSettings, RenewReply, Renewal, StoreError};
use crate::time::Timestamp;

/// A node, and how to ask it.
#[derive(Debug)]
pub(in crate::store) struct Node {
    pub(in crate::store) store: RedisStore,
    pub(super) scripts: NodeScripts,
}

/// The number of a proposal; a later one has a greater.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Ballot {
    pub number: u64,
    /// Tells apart what two hosts propose under one number.
    pub id: u64,
}

/// What a look is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::store) enum Mode {
    /// To be the only one who proposes; the node names the number.
    Vote,
    /// To have older proposals refused.
    Promise,
    /// To know.
    Read,
    /// To let another propose after all.
    Yield,
}

/// A lock and a job, as a node is asked for them.
#[derive(Debug, Clone)]
pub(in crate::store) struct Place {
    pub(in crate::store) lock: Lock,
    pub(in crate::store) job: Option<JobName>,
    /// The TTL of the lock's leases; zero when the request names none.
    pub(in crate::store) ttl: Duration,
    /// The longest TTL that is known.
    pub(in crate::store) longest: Duration,
}

/// How a node answered a look.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Said {
    Promised,
    /// Another has the vote.
    Busy,
    /// A later proposal was promised.
    Outbid,
    Read,
}

/// What one node knows of a lock and a job.
#[derive(Debug, Clone)]
pub struct View {
    pub said: Said,
    /// The newest proposal number that the node has promised.
    pub promised: u64,
    pub micros: u64,
    /// The server process.
    pub server: String,
    /// When the node lost its data, if it ever did.
    pub lost_at: Option<Timestamp>,
    /// How long the node's locks do not count as free.
    pub recovering: Duration,
    pub longest: Duration,
    /// Whether what it says of lock and job holds for the time before the loss too.
    pub remembers: bool,
    /// The lock itself.
    pub held: Held,
    pub lock: LockView,
    pub job: Option<JobView>,
}

/// The lock itself on one node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Held {
    No,
    /// By a token or a foreign value; how long, if it has an end.
    By(String, Option<Duration>),
    /// A key of another type.
    Other(Option<Duration>),
}

/// A lock's state on one node.
#[derive(Debug, Clone, Default)]
pub struct LockView {
    pub ballot: Ballot,
    pub fence: u64,
    pub token: Option<Token>,
    /// What is left of the lease end.
    pub left: Duration,
    pub run_id: Option<RunId>,
    /// The tokens that ended, as kept: a letter, then the token's random part.
    pub finished: String,
}

/// A job's ledger on one node.
#[derive(Debug, Clone)]
pub struct JobView {
    pub ballot: Ballot,
    pub state: JobState,
    /// Whether a majority ever knew of the open run cannot be told.
    pub doubt: bool,
    /// What was due up to then and is not decided cannot be known: a majority forgot it.
    pub horizon: Option<Timestamp>,
}

/// What is proposed to the nodes.
#[derive(Debug, Clone)]
pub(in crate::store) struct Proposal {
    pub(in crate::store) ballot: Ballot,
    pub(in crate::store) place: Place,
    pub(in crate::store) lock: LockState,
    /// Takes the lock for the state's token; else what is left of its lease.
    pub(in crate::store) lease: Lease,
    pub(in crate::store) job: Option<JobView>,
    /// The proposal that the job's state was taken from.
    pub(in crate::store) base: Ballot,
    pub(in crate::store) records: Vec<(Record, Option<Timestamp>)>,
    pub(in crate::store) keep: Option<u32>,
    pub(in crate::store) released: bool,
}

/// What a proposal does with the lock itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::store) enum Lease {
    Take(Duration),
    Stay(Duration),
}

/// A node's answer to a proposal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::store) struct Accepted {
    pub(in crate::store) taken: Taken,
    /// The mark of a history that may lack records: it did not take the proposal before this one.
    pub(in crate::store) lacks: Option<String>,
}

/// How a node took a proposal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Taken {
    /// It did, and counts in any quorum.
    Yes,
    /// It did; it has not remembered lock and job since it lost its data.
    Forgetful,
    /// It did; it has lost its data a moment ago.
    Recovering,
    /// It has promised otherwise.
    Outbid,
    /// Another holds the lock.
    Held,
}

impl LockView {
    /// How tokens ended. Only the random part of a token is kept: those that `known` names are
    /// given back in full.
    pub(in crate::store) fn endings(&self, known: &[&Token]) -> Vec<(Token, Ending)> {
        let full: HashMap<&str, &Token> = known
            .iter()
            .map(|token| (random_part(token.as_str()), *token))
            .collect();
        self.finished
            .lines()
            .filter_map(|line| {
                let (letter, rest) = line.split_at_checked(1)?;
                let ending = match letter {
                    "R" => Ending::Released,
                    "L" => Ending::Lost,
                    "I" => Ending::Interrupted,
                    _ => return None,
                };
                let token = full
                    .get(rest)
                    .map_or_else(|| Token::from_text(rest), |token| (*token).clone());
                Some((token, ending))
            })
            .collect()
    }

    /// Whether a value under the lock is of a token that ended.
    pub(in crate::store) fn has_ended(&self, value: &str) -> bool {
        let part = random_part(value);
        self.finished
            .lines()
            .any(|line| line.len() > 1 && line.get(1..) == Some(part))
    }
}

/// How tokens ended, as a node keeps it.
pub fn finished_text(lock: &LockState) -> String {
    let mut lines = String::from("\n");
    for (token, ending) in &lock.finished {
        lines.push(match ending {
            Ending::Released => 'R',
            Ending::Lost => 'L',
            Ending::Interrupted => 'I',
        });
        lines.push_str(random_part(token.as_str()));
        lines.push('\n');
    }
    lines
}

/// The part of a token that no other shares; as in `prelude.lua`.
fn random_part(token: &str) -> &str {
    token
        .rsplit_once(':')
        .map(|(_, part)| part)
        .filter(|part| part.len() == 32 && part.bytes().all(|b| b.is_ascii_hexdigit()))
        .unwrap_or(token)
}

impl Node {
    pub(in crate::store) fn new(settings: &RedisSettings) -> Result<Self, StoreError> {
        Ok(Self {
            store: RedisStore::new(settings)?,
            scripts: NodeScripts::new(),
        })
    }

    /// Its URL without password.
    pub(in crate::store) fn shown(&self) -> String {
        self.store.link.settings().shown()
    }

    pub(super) fn marker(&self) -> String {
        keys::node(self.store.prefix())
    }

    /// Looks at a lock and a job.
    pub(in crate::store) async fn look(
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
    pub(in crate::store) async fn propose(
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
    pub(in crate::store) async fn withdraw(
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
    pub(in crate::store) async fn extend(
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
    pub(in crate::store) async fn records(
        &self,
        job: &JobName,
        lock: &Lock,
        limit: usize,
    ) -> Result<Vec<((u64, u64), Record)>, StoreError> {
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
    pub(in crate::store) async fn declare_new(&self) -> Result<(), StoreError> {
        let mut call = Call::default();
        call.key(self.marker());
        self.store.run(&self.scripts.declare, &call).await?;
        Ok(())
    }

    /// How long an answer may take when nothing is said of it.
    pub(in crate::store) const RESPONSE_TIMEOUT: Duration = RESPONSE_TIMEOUT;
}

fn job_args(call: &mut Call, job: Option<&JobView>) {
    let Some(view) = job else {
        call.arg("0");
        for _ in 14..=27 {
            call.arg("");
        }
        return;
    };
    let job = &view.state;
    let horizon = view.horizon.map(|at| at.millis().to_string());
    call.arg("1")
        .arg(&job.last.millis())
        .arg(&fingerprints_text(job))
        .arg(&flag(view.doubt))
        .arg(&horizon.unwrap_or_default())
        .arg(&flag(job.open.is_some()));
    let Some(open) = &job.open else {
        for _ in 19..=27 {
            call.arg("");
        }
        return;
    };
    let scheduled_at = open.scheduled_at.map(|at| at.millis().to_string());
    call.arg(&scheduled_at.unwrap_or_default())
        .arg(&open.run_id)
        .arg(&open.token)
        .arg(&open.attempt)
        .arg(&word(open.kind))
        .arg(&open.fence)
        .arg(&open.started_at.millis())
        .arg(&open.host)
        .arg(&open.prev_last.millis());
}

fn fingerprints_text(job: &JobState) -> String {
    let mut lines = String::new();
    for (fingerprint, at) in &job.fingerprints {
        lines.push_str(&format!("{} {}\n", at.millis(), fingerprint.0));
    }
    lines
}

fn read_view(answer: Value) -> Result<View, Failure> {
    let mut items = Items::of(answer)?;
    let said = match items.text()?.as_str() {
        "promised" => Said::Promised,
        "busy" => Said::Busy,
        "outbid" => Said::Outbid,
        "read" => Said::Read,
        other => return Err(Failure::corrupt(format!("a node answers {other:?}"))),
    };
    let promised = number(&mut items)?;
    let micros = number(&mut items)?;
    let server = items.text()?;
    let lost_at = optional(&mut items)?;
    let recovering = Duration::from_millis(number(&mut items)?);
    let longest = Duration::from_millis(number(&mut items)?);
    let (lock_known, job_known) = (items.text()? == "1", items.text()? == "1");
    let (kind, value) = (items.text()?, items.text()?);
    let remaining = u64::try_from(number::<i64>(&mut items)?)
        .ok()
        .map(Duration::from_millis);
    let held = match kind.as_str() {
        "value" => Held::By(value, remaining),
        "other" => Held::Other(remaining),
        _ => Held::No,
    };
    let fence = number(&mut items)?;
    let token = Some(items.text()?).filter(|token| !token.is_empty());
    let left = Duration::from_millis(number(&mut items)?);
    let run_id = Some(items.text()?).filter(|id| !id.is_empty());
    let finished = items.text()?;
    let lock = LockView {
        ballot: ballot(&mut items)?,
        fence,
        token: token.as_deref().map(Token::from_text),
        left,
        run_id: run_id.as_deref().map(RunId::from_text),
        finished,
    };
    Ok(View {
        said,
        promised,
        micros,
        server,
        lost_at,
        recovering,
        longest,
        remembers: lock_known && job_known,
        held,
        lock,
        job: (!items.is_empty()).then(|| job(&mut items)).transpose()?,
    })
}

fn job(items: &mut Items) -> Result<JobView, Failure> {
    let ballot = ballot(items)?;
    let last = instant(items)?;
    let fingerprints = super::reading::fingerprints(&items.text()?)?;
    let doubt = items.text()? == "1";
    let horizon = optional(items)?;
    let open = (!items.is_empty()).then(|| open(items)).transpose()?;
    Ok(JobView {
        ballot,
        doubt,
        horizon,
        state: JobState {
            last,
            open,
            fingerprints,
        },
    })
}

fn open(items: &mut Items) -> Result<Open, Failure> {
    Ok(Open {
        scheduled_at: optional(items)?,
        run_id: RunId::from_text(&items.text()?),
        token: Token::from_text(&items.text()?),
        attempt: number(items)?,
        kind: record::from_word(&items.text()?)?,
        fence: number(items)?,
        started_at: instant(items)?,
        host: items.text()?,
        prev_last: instant(items)?,
    })
}

fn ballot(items: &mut Items) -> Result<Ballot, Failure> {
    Ok(Ballot {
        number: number(items)?,
        id: number(items)?,
    })
}

fn number<T: std::str::FromStr>(items: &mut Items) -> Result<T, Failure> {
    let text = items.text()?;
    text.parse()
        .map_err(|_| Failure::corrupt(format!("a node answers {text:?} instead of a number")))
}

fn instant(items: &mut Items) -> Result<Timestamp, Failure> {
    number(items).map(Timestamp::from_millis)
}

fn optional(items: &mut Items) -> Result<Option<Timestamp>, Failure> {
    let text = items.text()?;
    if text.is_empty() {
        return Ok(None);
    }
    text.parse()
        .map(|millis| Some(Timestamp::from_millis(millis)))
        .map_err(|_| Failure::corrupt(format!("a node answers {text:?} instead of an instant")))
}
