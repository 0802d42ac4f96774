//! One change of a lock and its job, taken by a majority of the nodes or by nobody.
//!
//! Phase 1: the first node that answers, in an order all hosts share, is asked alone for its vote
//! and names the number of the proposal; whoever gets the vote has all others promise to take
//! nothing older, and learns what they know. The rules of the protocol are applied to what a
//! majority knows together. Phase 2: the outcome is proposed to all; a node takes it if it has
//! promised nothing later since, and, if the lock is taken with it, has the lock free. What a
//! majority took stands: every later proposal begins with hearing at least one of them.
//!
//! Who loses the vote only reads: once a majority agrees on a state that answers the request as it
//! is, that is the answer.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::ask::{Answer, Nodes};
use super::mend::mend;
use super::view::{Counting, Merged, count, merge};
use crate::lease::timing;
use crate::names::{JobName, Token};
use crate::store::protocol::{Clock, Effect, JobState, LockState, REASON_INTERRUPTED};
use crate::store::redis::node::{
    Ballot, JobView, Lease, Mode, Node, Place, Proposal, Said, Taken, View,
};
use crate::store::{Lock, Outcome, Record, RedlockSettings, StoreError};

/// How long others let the holder of the vote finish what it began.
const VOTE: Duration = Duration::from_millis(1500);

/// How long hosts step aside for one another before a request counts as unanswered.
const CONTENTION_LIMIT: Duration = Duration::from_secs(10);

/// The shortest time a node gets to answer.
const SHORTEST_LIMIT: Duration = Duration::from_millis(100);

/// Why a run is `unknown` whose lease ended without a word.
const REASON_DOUBT: &str = "its lease ended, and only a minority of the nodes knew of it: whether \
                            it ran cannot be told";

/// What a request is about.
#[derive(Debug, Clone)]
pub(super) struct Subject<'a> {
    pub(super) lock: &'a Lock,
    pub(super) job: Option<&'a JobName>,
    /// Who asks.
    pub(super) me: Option<&'a Token>,
    /// Zero when the request names none.
    pub(super) ttl: Duration,
    pub(super) hear: Hear,
}

/// Who is heard before a decision.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Hear {
    /// As many as it takes.
    Enough,
    /// Everybody who answers.
    All,
}

impl<'a> Subject<'a> {
    /// A job and its lock, in nobody's name.
    pub(super) fn of_job(job: &'a JobName, lock: &'a Lock) -> Self {
        Self {
            lock,
            job: Some(job),
            me: None,
            ttl: Duration::ZERO,
            hear: Hear::Enough,
        }
    }
}

/// What the rules made of it.
#[derive(Debug)]
pub(super) struct Outcomes<R> {
    pub(super) reply: R,
    pub(super) effects: Vec<Effect>,
    /// The lock is taken for the state's token.
    pub(super) taken: bool,
}

/// What became of a request.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Done<R> {
    Reply(R),
    /// Too many nodes lost their data; so long yet.
    Recovering(Duration),
}

enum Attempt<R> {
    Done(Done<R>),
    /// Another host is at it; a proposal must have a greater number than this.
    Contended(u64),
    /// Too few answers.
    Failed(StoreError),
}

/// The state after the rules were applied.
pub(super) struct Judged<R> {
    lock: LockState,
    job: Option<JobState>,
    doubt: bool,
    pub(super) outcomes: Outcomes<R>,
    pub(super) changed: bool,
}

/// The nodes, and how patiently they are asked.
#[derive(Debug)]
pub(super) struct Majority {
    pub(super) nodes: Nodes,
    tries: u32,
    retry_delay: (Duration, Duration),
    longest: AtomicU64,
    /// All nodes were heard out once: they are as many servers as they should be.
    looked: AtomicBool,
}

impl Majority {
    pub(super) fn new(settings: &RedlockSettings) -> Result<Self, StoreError> {
        Ok(Self {
            nodes: Nodes::new(settings)?,
            tries: settings.tries.max(1),
            retry_delay: settings.retry_delay,
            longest: AtomicU64::new(0),
            looked: AtomicBool::new(false),
        })
    }

    /// The longest TTL that is known, with this one.
    pub(super) fn longest(&self, ttl: Duration) -> Duration {
        let millis = u64::try_from(ttl.as_millis()).unwrap_or(u64::MAX);
        let before = self.longest.fetch_max(millis, Ordering::Relaxed);
        Duration::from_millis(before.max(millis))
    }

    /// Changes lock and job by the rules. They may be applied several times, to what was found
    /// then; only the last outcome counts.
    pub(super) async fn transact<R>(
        &self,
        subject: &Subject<'_>,
        rules: impl Fn(&mut LockState, &mut Option<JobState>, Clock) -> Outcomes<R>,
    ) -> Result<Done<R>, StoreError> {
        let began = Instant::now();
        let (mut failures, mut floor) = (0, 0);
        loop {
            match self.attempt(subject, &rules, floor).await? {
                Attempt::Done(done) => return Ok(done),
                Attempt::Contended(seen) if began.elapsed() < CONTENTION_LIMIT => {
                    floor = floor.max(seen);
                }
                Attempt::Contended(_) => {
                    return Err(StoreError::Unreachable(format!(
                        "the nodes are busy with other hosts' requests for lock {} since \
                         {CONTENTION_LIMIT:?}",
                        subject.lock.name
                    )));
                }
                Attempt::Failed(error) => {
                    failures += 1;
                    if failures >= self.tries {
                        return Err(error);
                    }
                }
            }
            tokio::time::sleep(self.jittered()).await;
        }
    }

    /// As [`Self::transact`], for requests that most often change nothing: the nodes are asked to
    /// propose only if they must.
    pub(super) async fn transact_lazily<R>(
        &self,
        subject: &Subject<'_>,
        rules: impl Fn(&mut LockState, &mut Option<JobState>, Clock) -> Outcomes<R>,
    ) -> Result<Done<R>, StoreError> {
        let place = self.place(subject);
        let all = 0..self.nodes.len();
        let heard = self
            .look(&place, all, (Mode::Read, Ballot::default()), Vec::new())
            .await?;
        if let Some(reply) = self.settled(&heard.views, subject, &rules) {
            return Ok(Done::Reply(reply));
        }
        self.transact(subject, rules).await
    }

    async fn attempt<R>(
        &self,
        subject: &Subject<'_>,
        rules: &impl Fn(&mut LockState, &mut Option<JobState>, Clock) -> Outcomes<R>,
        floor: u64,
    ) -> Result<Attempt<R>, StoreError> {
        let place = self.place(subject);
        let ballot = Ballot {
            number: floor.saturating_add(1),
            id: random() >> 12,
        };
        let sent = Instant::now();
        let (first, view) = match self.first(&place, ballot).await? {
            Ok(first) => first,
            Err(error) => return Ok(Attempt::Failed(error)),
        };
        let others = (0..self.nodes.len()).filter(|at| *at != first);
        if view.said == Said::Busy {
            let view = View {
                said: Said::Read,
                ..view
            };
            let seen = view.promised;
            let heard = self
                .look(&place, others, (Mode::Read, Ballot::default()), vec![view])
                .await?;
            return Ok(match self.settled(&heard.views, subject, rules) {
                Some(reply) => Attempt::Done(Done::Reply(reply)),
                None => Attempt::Contended(seen),
            });
        }
        let ballot = Ballot {
            number: view.promised,
            ..ballot
        };
        let promise = (Mode::Promise, ballot);
        let mut heard = match subject.hear {
            Hear::Enough => self.look(&place, others, promise, vec![view]).await?,
            Hear::All => self.hear(&place, others, promise, vec![view], true).await?,
        };
        if self.is_in_doubt(&heard.views, subject) {
            let unheard: Vec<usize> = (0..self.nodes.len())
                .filter(|at| *at != first && !heard.knows(*at))
                .collect();
            let views = std::mem::take(&mut heard.views);
            let more = self.hear(&place, unheard.into_iter(), promise, views, true);
            let more = more.await?;
            heard.views = more.views;
            heard.at.extend(more.at);
            heard.errors.extend(more.errors);
        }
        let outcome = self
            .decide(&place, ballot, &heard, (subject, rules), sent)
            .await;
        if !matches!(outcome, Ok((_, Proposed::Yes))) {
            self.yield_vote(first, &place, ballot);
        }
        outcome.map(|(attempt, _)| attempt)
    }

    /// Phase 2, if there is anything to propose.
    async fn decide<R>(
        &self,
        place: &Place,
        ballot: Ballot,
        heard: &Heard,
        (subject, rules): (
            &Subject<'_>,
            &impl Fn(&mut LockState, &mut Option<JobState>, Clock) -> Outcomes<R>,
        ),
        sent: Instant,
    ) -> Result<(Attempt<R>, Proposed), StoreError> {
        let quorum = self.nodes.quorum();
        let (counted, horizon) = match count(&heard.views, quorum) {
            Counting::On { counted, horizon } => (counted, horizon),
            Counting::Recovering(left) => {
                return Ok((Attempt::Done(Done::Recovering(left)), Proposed::No));
            }
            Counting::TooFew => {
                let later = heard.views.iter().filter(|view| view.said == Said::Outbid);
                let attempt = if let Some(seen) = later.map(|view| view.promised).max() {
                    Attempt::Contended(seen)
                } else {
                    Attempt::Failed(self.nodes.too_few(heard.views.len(), &heard.errors))
                };
                return Ok((attempt, Proposed::No));
            }
        };
        let exclusive = subject.lock.exclusive;
        let mut merged = merge(&heard.views, &counted, quorum, (exclusive, subject.me));
        merged.forget_before(horizon);
        let judged = judge(&merged, rules);
        // One that forgot is told, so that it counts again.
        let forgetful = |view: &View| view.recovering.is_zero() && !view.remembers;
        if !judged.changed && merged.agreed && !heard.views.iter().any(forgetful) {
            let reply = Done::Reply(judged.outcomes.reply);
            return Ok((Attempt::Done(reply), Proposed::No));
        }
        let proposal = proposal(place, ballot, &merged, &judged, subject.ttl);
        let verdict = self.propose(&proposal, horizon.is_some()).await;
        let over = judged.outcomes.taken && sent.elapsed() >= validity(subject.ttl);
        let attempt = match verdict {
            Verdict::Taken if !over => Attempt::Done(Done::Reply(judged.outcomes.reply)),
            Verdict::Taken => Attempt::Failed(StoreError::Unreachable(format!(
                "the nodes took {:?} to grant a lease of {:?}",
                sent.elapsed(),
                subject.ttl
            ))),
            Verdict::Outbid => Attempt::Contended(ballot.number),
            Verdict::TooFew(error) => Attempt::Failed(error),
        };
        if judged.outcomes.taken && !matches!(attempt, Attempt::Done(_)) {
            self.withdraw(&proposal);
        }
        let over = matches!(attempt, Attempt::Done(_));
        Ok((attempt, if over { Proposed::Yes } else { Proposed::No }))
    }

    /// The answer, if a majority agrees on a state that gives it as it is.
    fn settled<R>(
        &self,
        views: &[View],
        subject: &Subject<'_>,
        rules: &impl Fn(&mut LockState, &mut Option<JobState>, Clock) -> Outcomes<R>,
    ) -> Option<R> {
        let quorum = self.nodes.quorum();
        let Counting::On {
            counted,
            horizon: None,
        } = count(views, quorum)
        else {
            return None;
        };
        let exclusive = subject.lock.exclusive;
        let merged = merge(views, &counted, quorum, (exclusive, subject.me));
        if !merged.agreed {
            return None;
        }
        let judged = judge(&merged, rules);
        (!judged.changed).then_some(judged.outcomes.reply)
    }

    pub(super) fn place(&self, subject: &Subject<'_>) -> Place {
        Place {
            lock: subject.lock.clone(),
            job: subject.job.cloned(),
            ttl: subject.ttl,
            longest: self.longest(subject.ttl),
        }
    }

    /// The vote of the first node that answers.
    async fn first(
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
                    self.longest(view.longest);
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
        Ok(Err(self.nodes.too_few(answered, &errors)))
    }

    /// Whether the views alone cannot tell that a majority knows of the open run.
    fn is_in_doubt(&self, views: &[View], subject: &Subject<'_>) -> bool {
        let quorum = self.nodes.quorum();
        match count(views, quorum) {
            Counting::On { counted, .. } if views.len() < self.nodes.len() => {
                merge(
                    views,
                    &counted,
                    quorum,
                    (subject.lock.exclusive, subject.me),
                )
                .doubt
            }
            _ => false,
        }
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
    async fn hear(
        &self,
        place: &Place,
        which: impl Iterator<Item = usize>,
        question: (Mode, Ballot),
        mut views: Vec<View>,
        all: bool,
    ) -> Result<Heard, StoreError> {
        let limit = limit(place.ttl);
        let mut answers = self.nodes.ask(which, |node| {
            let place = place.clone();
            async move { node.look(&place, question, VOTE, limit).await }
        });
        let (mut errors, mut heard_at) = (Vec::new(), Vec::new());
        let quorum = self.nodes.quorum();
        let enough = |views: &[View]| {
            !all && matches!(count(views, quorum), Counting::On { horizon: None, .. })
        };
        while !enough(&views) {
            let Some((at, answer)) = answers.recv().await else {
                break;
            };
            match answer {
                Ok(view) => {
                    self.longest(view.longest);
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
            "{} of {} nodes do not answer ({}); going on with the majority",
            missing.len(),
            self.nodes.len(),
            missing.join(", ")
        );
    }

    /// Proposes to all nodes; done as soon as a majority took it.
    async fn propose(&self, proposal: &Proposal, forgotten: bool) -> Verdict {
        let proposal = Arc::new(proposal.clone());
        let limit = limit(proposal.place.ttl);
        let mut answers = self.nodes.ask(0..self.nodes.len(), |node| {
            let (proposal, all) = (Arc::clone(&proposal), self.nodes.all());
            async move {
                let accepted = node.propose(&proposal, limit).await?;
                if let (Some(lacks), Some(job)) = (accepted.lacks, proposal.place.job.clone()) {
                    let lock = proposal.place.lock.clone();
                    tokio::spawn(mend(all, node, (job, lock), lacks));
                }
                Ok(accepted.taken)
            }
        });
        let (mut taken, mut answered, mut outbid) = (0, 0, false);
        let mut errors = Vec::new();
        while let Some((at, answer)) = answers.recv().await {
            match answer {
                Ok(Taken::Yes) => {
                    answered += 1;
                    taken += 1;
                }
                Ok(Taken::Forgetful) => {
                    answered += 1;
                    taken += usize::from(forgotten);
                }
                Ok(Taken::Recovering) => answered += 1,
                Ok(Taken::Outbid | Taken::Held) => {
                    answered += 1;
                    outbid = true;
                }
                Err(error) => errors.push((at, Err(error))),
            }
            if taken >= self.nodes.quorum() {
                return Verdict::Taken;
            }
        }
        if outbid {
            Verdict::Outbid
        } else {
            Verdict::TooFew(self.nodes.too_few(answered, &errors))
        }
    }

    fn withdraw(&self, proposal: &Proposal) {
        let (lock, ballot) = (proposal.place.lock.clone(), proposal.ballot);
        let Some(token) = proposal.lock.token.clone() else {
            return;
        };
        // Nobody waits for it: what cannot be withdrawn ends with its TTL.
        drop(self.nodes.ask(0..self.nodes.len(), |node| {
            let (lock, token) = (lock.clone(), token.clone());
            async move { node.withdraw(&lock, ballot, &token).await }
        }));
    }

    fn yield_vote(&self, first: usize, place: &Place, ballot: Ballot) {
        drop(self.nodes.ask(std::iter::once(first), |node: Arc<Node>| {
            let place = place.clone();
            async move {
                node.look(&place, (Mode::Yield, ballot), VOTE, Node::RESPONSE_TIMEOUT)
                    .await
                    .map(drop)
            }
        }));
    }

    fn jittered(&self) -> Duration {
        let (least, most) = self.retry_delay;
        let share = u32::try_from(random() >> 48).unwrap_or(0);
        least + most.saturating_sub(least) * share / 65_536
    }
}

/// What the nodes answered.
#[derive(Debug)]
pub(super) struct Heard {
    pub(super) views: Vec<View>,
    /// The nodes that were asked and answered.
    at: Vec<usize>,
    pub(super) errors: Vec<Answer<()>>,
}

impl Heard {
    fn knows(&self, node: usize) -> bool {
        self.at.contains(&node) || self.errors.iter().any(|(at, _)| *at == node)
    }
}

/// Whether a majority took a proposal, and with it the vote is given back.
#[derive(PartialEq, Eq)]
enum Proposed {
    Yes,
    No,
}

enum Verdict {
    Taken,
    Outbid,
    TooFew(StoreError),
}

pub(super) fn judge<R>(
    merged: &Merged,
    rules: &impl Fn(&mut LockState, &mut Option<JobState>, Clock) -> Outcomes<R>,
) -> Judged<R> {
    let (mut lock, mut job) = (merged.lock.clone(), merged.job.clone());
    let mut outcomes = rules(&mut lock, &mut job, merged.clock);
    let changed =
        lock != merged.lock || job != merged.job || outcomes.taken || !outcomes.effects.is_empty();
    let before = merged.job.as_ref().and_then(|job| job.open.as_ref());
    if let Some(open) = before.filter(|_| merged.doubt) {
        for effect in &mut outcomes.effects {
            if let Effect::Append { record, .. } = effect {
                doubt(record, open.run_id.as_str());
            }
        }
    }
    let same_run = job
        .as_ref()
        .and_then(|job| job.open.as_ref())
        .is_some_and(|open| before.is_some_and(|before| before.token == open.token));
    Judged {
        doubt: merged.doubt && same_run && !outcomes.taken,
        lock,
        job,
        outcomes,
        changed,
    }
}

fn doubt(record: &mut Record, run: &str) {
    let of_it = record.run_id.as_ref().is_some_and(|id| id.as_str() == run);
    if of_it && record.reason.as_deref() == Some(REASON_INTERRUPTED) {
        record.outcome = Outcome::Unknown;
        record.reason = Some(REASON_DOUBT.to_owned());
    }
}

pub(super) fn proposal<R>(
    place: &Place,
    ballot: Ballot,
    merged: &Merged,
    judged: &Judged<R>,
    ttl: Duration,
) -> Proposal {
    let mut proposal = Proposal {
        ballot,
        place: place.clone(),
        lock: judged.lock.clone(),
        lease: if judged.outcomes.taken {
            Lease::Take(ttl)
        } else {
            Lease::Stay(merged.left)
        },
        job: judged.job.clone().map(|state| JobView {
            ballot,
            state,
            doubt: judged.doubt,
            horizon: merged.clock.past.horizon,
        }),
        base: merged.base,
        records: Vec::new(),
        keep: None,
        released: false,
    };
    for effect in &judged.outcomes.effects {
        match effect {
            Effect::Append {
                record,
                keep,
                follows,
            } => {
                proposal.records.push(((**record).clone(), *follows));
                proposal.keep = proposal.keep.or(*keep);
            }
            Effect::Released => proposal.released = true,
        }
    }
    proposal
}

/// How long a lease may have been in the making: its TTL less what clocks drift apart, 1 % and
/// 2 ms. Source: the description of Redlock, "Is the algorithm asynchronous?".
fn validity(ttl: Duration) -> Duration {
    ttl.saturating_sub(ttl / 100 + Duration::from_millis(2))
}

/// How long one node may take to answer.
fn limit(ttl: Duration) -> Duration {
    if ttl.is_zero() {
        return Node::RESPONSE_TIMEOUT;
    }
    timing::response_timeout(ttl).max(SHORTEST_LIMIT)
}

fn random() -> u64 {
    let mut bytes = [0_u8; 8];
    // Nothing safe can be done without, as for tokens.
    getrandom::fill(&mut bytes).expect("the kernel's random source answers once booted");
    u64::from_ne_bytes(bytes)
}
