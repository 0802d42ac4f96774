//! The store: the protocol's own functions on states in memory, and what befalls a server.

use std::collections::BTreeMap;
use std::time::Duration;

use cronlatch::names::{JobName, Token};
use cronlatch::store::protocol::{self, Clock, Effect, JobState, Key, LockState, Marker, Past};
use cronlatch::store::{
    Claim, Finish, FinishReply, Lock, PauseOrder, PauseReply, PauseRequest, Record, Replaced,
    Replacement, StoreError,
};
use cronlatch::time::Timestamp;

use crate::gate::{Gate, Passage, State};
use crate::message::{Message, Reply, Request};
use crate::plan::{ForeignKey, JobOrder, NodeAct, StoreKind};
use crate::quorum::{Kept, NodeItem, Quorum};
use crate::registry::StoreRegistry;
use crate::trace::{Added, Foreign, Held, Ordered, Span};
use crate::world::{Item, Sim};

/// How many tombstones a result follows, as `store::relocate` has it.
const TOMBSTONES: u32 = 20;

/// What a server keeps.
#[derive(Debug, Clone, Default)]
struct Data {
    marker: Option<Marker>,
    locks: BTreeMap<String, LockState>,
    jobs: BTreeMap<(String, JobName), JobState>,
    runs: BTreeMap<(String, JobName), Vec<Record>>,
    registry: StoreRegistry,
    /// How many records the trace had.
    added: usize,
}

#[derive(Debug)]
pub(crate) struct Store {
    kind: StoreKind,
    data: Data,
    /// The server process.
    server: u32,
    gate: Gate<Message>,
    saved: Option<(i64, Data)>,
    /// What a replica has that has stopped, since when.
    replica: Option<(i64, Data)>,
    pace: Pace,
    /// The nodes of which a majority decides; then all of the above is unused.
    quorum: Option<Quorum>,
}

fn pause_until(now: Timestamp, lasts: Option<i64>) -> PauseOrder {
    PauseOrder::Pause {
        until: lasts.map(|lasts| Timestamp::from_millis(now.millis() + lasts)),
        reason: "a new disk".to_owned(),
    }
}

impl Store {
    pub(crate) fn new(sim: &Sim) -> Self {
        let kind = sim.plan.store;
        let clock = clock_of(sim, Past::default());
        let data = Data {
            marker: (kind == StoreKind::Redis).then(|| Marker::new("server-0", clock)),
            ..Data::default()
        };
        Self {
            kind,
            data,
            server: 0,
            gate: Gate::new(),
            saved: None,
            replica: None,
            pace: Pace::default(),
            quorum: match kind {
                StoreKind::Quorum(nodes) => Some(Quorum::new(nodes)),
                StoreKind::Redis | StoreKind::Sqlite => None,
            },
        }
    }

    pub(crate) fn arrive(&mut self, sim: &mut Sim, message: Message) {
        if let Some(quorum) = &mut self.quorum {
            return quorum.arrive(sim, message);
        }
        match self.pace.turn(sim.now, &message) {
            Some(at) => sim.at(at, Item::Serve(Box::new(message))),
            None => self.take_turn(sim, message),
        }
    }

    pub(crate) fn take_turn(&mut self, sim: &mut Sim, message: Message) {
        match self.gate.pass(message) {
            Passage::Served(message) => self.serve(sim, &message),
            Passage::Refused(message) => {
                let error = StoreError::Unreachable("connection refused".into());
                answer(sim, &message, Err(error));
            }
            Passage::Unanswered => {}
        }
    }

    fn serve(&mut self, sim: &mut Sim, message: &Message) {
        let reply = self.execute(sim, message);
        answer(sim, message, reply.map(Box::new));
    }

    /// Something happens to one of several nodes, or to a request under way to them.
    pub(crate) fn at_node(&mut self, sim: &mut Sim, item: NodeItem) {
        if let Some(quorum) = &mut self.quorum {
            quorum.happen(sim, item);
        }
    }

    /// Something is done to one of several nodes.
    pub(crate) fn node_act(&mut self, sim: &mut Sim, node: usize, act: &NodeAct) {
        let Some(quorum) = &mut self.quorum else {
            return;
        };
        let until = sim.now + act.lasts();
        match act {
            NodeAct::Down { refuses, .. } => {
                let refuses = *refuses;
                quorum.away(sim, node, until, State::Down { refuses });
            }
            NodeAct::Freeze { .. } => quorum.away(sim, node, until, State::Frozen),
            NodeAct::Restart => quorum.restart(node, Kept::All),
            NodeAct::Wipe => quorum.restart(node, Kept::Nothing),
            NodeAct::Snapshot => quorum.save(node),
            NodeAct::Restore => quorum.restart(node, Kept::Saved),
            NodeAct::Clock { offset } => quorum.set_clock(node, *offset),
            NodeAct::Cut { host, .. } => quorum.cut(*host, node, until),
        }
    }

    /// One or all servers are paused or unreachable.
    pub(crate) fn away(&mut self, sim: &mut Sim, span: Span, how: State) {
        sim.trace.outages.push(span);
        if let Some(quorum) = &mut self.quorum {
            for node in 0..quorum.len() {
                quorum.away(sim, node, span.until, how);
            }
            return;
        }
        self.gate.close(how, span.until);
        sim.at(span.until, Item::StoreUp);
    }

    pub(crate) fn up(&mut self, sim: &mut Sim) {
        let Some(waiting) = self.gate.open(sim.now) else {
            return;
        };
        sim.trace.line(sim.now, || "STORE up".to_owned());
        for message in waiting {
            self.serve(sim, &message);
        }
    }

    pub(crate) fn snapshot(&mut self, sim: &Sim) {
        if let Some(quorum) = &mut self.quorum {
            return quorum.save_all(sim);
        }
        self.data.added = sim.trace.added.len();
        self.saved = Some((sim.now, self.data.clone()));
    }

    pub(crate) fn restore(&mut self, sim: &mut Sim) {
        if let Some(quorum) = &mut self.quorum {
            return quorum.restart_all(sim, Kept::Saved);
        }
        let saved = self.saved.clone();
        self.restart(sim, saved);
    }

    pub(crate) fn wipe(&mut self, sim: &mut Sim) {
        if let Some(quorum) = &mut self.quorum {
            return quorum.restart_all(sim, Kept::Nothing);
        }
        self.restart(sim, None);
    }

    pub(crate) fn replica_stops(&mut self, sim: &Sim) {
        self.data.added = sim.trace.added.len();
        self.replica = Some((sim.now, self.data.clone()));
    }

    /// The replica takes over: another server process, which has what it received.
    pub(crate) fn failover(&mut self, sim: &mut Sim) {
        if self.quorum.is_some() {
            return;
        }
        if self.replica.is_none() {
            self.replica_stops(sim);
        }
        let replica = self.replica.take();
        self.restart(sim, replica);
    }

    /// For a while each request takes so many microseconds.
    pub(crate) fn slow_down(&mut self, until: i64, each: i64) {
        self.pace = Pace {
            until,
            each,
            ..self.pace
        };
    }

    /// Another program writes a lock's key.
    pub(crate) fn seize(&mut self, sim: &mut Sim, name: &str, key: ForeignKey) {
        if self.kind == StoreKind::Sqlite {
            return;
        }
        let until = key.ttl.map(|ttl| sim.now + ttl);
        let end = until.and_then(|until| u64::try_from(until).ok());
        let foreign = if key.other_type {
            Key::OtherType { end }
        } else {
            let text = FOREIGN.to_owned();
            Key::Value { text, end }
        };
        self.write_key(name, &foreign);
        end_foreign(sim, name);
        let span = Span {
            from: sim.now,
            until: until.unwrap_or(i64::MAX),
        };
        let deleted = false;
        let foreign = Foreign { span, deleted };
        sim.trace.foreign.push((name.to_owned(), foreign));
    }

    /// Another program deletes the key that it wrote, if that is there.
    pub(crate) fn unseize(&mut self, sim: &mut Sim, name: &str) {
        self.write_key(name, &Key::Absent);
        if let Some(foreign) = end_foreign(sim, name) {
            foreign.deleted = true;
        }
    }

    fn write_key(&mut self, name: &str, key: &Key) {
        if let Some(quorum) = &mut self.quorum {
            return quorum.write_key(name, key);
        }
        let lock = self.data.locks.entry(name.to_owned()).or_default();
        if *key != Key::Absent || is_foreign(&lock.key) {
            lock.key.clone_from(key);
        }
    }

    /// Another server process takes over with these data, or without any.
    fn restart(&mut self, sim: &mut Sim, saved: Option<(i64, Data)>) {
        if self.kind == StoreKind::Sqlite {
            return;
        }
        self.server += 1;
        self.gate.forget();
        let longest = sim.plan.longest_ttl();
        let (from, data) = saved.unwrap_or((sim.plan.start, Data::default()));
        for added in &mut sim.trace.added[data.added..] {
            added.lost = true;
        }
        self.data = data;
        let keys = self.data.locks.iter();
        note_foreign(sim, keys.map(|(name, lock)| (name, &lock.key)));
        let until = sim.now + longest + 1_000;
        sim.trace.losses.push(Span { from, until });
        let now = sim.now;
        self.note_locks(sim, now);
    }

    fn note_locks(&self, sim: &mut Sim, at: i64) {
        for (lock, state) in &self.data.locks {
            let (token, until) = holder(state);
            let lock = lock.clone();
            sim.trace.held.push(Held {
                at,
                lock,
                exclusive: is_exclusive(state),
                token,
                until,
            });
        }
    }

    fn past(&mut self, sim: &Sim, longest: Duration) -> Past {
        match self.kind {
            StoreKind::Sqlite | StoreKind::Quorum(_) => Past::default(),
            StoreKind::Redis => {
                let server = format!("server-{}", self.server);
                let clock = clock_of(sim, Past::default());
                protocol::notice(&mut self.data.marker, &server, clock, longest)
            }
        }
    }

    /// Whether a claim takes the short way, on which the marker is not looked at.
    fn is_settled(&mut self, sim: &Sim, claim: &Claim) -> bool {
        let lock = self.lock(sim, &claim.lock.name);
        let place = (claim.what.job()).map(|job| (claim.lock.name.clone(), job.clone()));
        let job = place.and_then(|place| self.data.jobs.get(&place));
        let clock = clock_of(sim, Past::default());
        protocol::settled(&lock, job, clock, claim).is_some()
    }

    fn execute(&mut self, sim: &mut Sim, message: &Message) -> Result<Reply, StoreError> {
        let past = match &message.request {
            Request::Claim(claim) if self.is_settled(sim, claim) => Past::default(),
            _ => self.past(sim, message.longest),
        };
        let clock = clock_of(sim, past);
        Ok(match &message.request {
            Request::Claim(claim) => {
                let on = (&claim.lock, claim.what.job(), Some(&claim.token));
                Reply::Claim(self.transition(sim, on, |lock, job| {
                    protocol::claim(lock, job, clock, claim)
                }))
            }
            Request::Finish(finish) => Reply::Finished(self.finish(sim, clock, finish)?),
            Request::Attempt(attempt) => {
                let on = (&attempt.lock, Some(&attempt.job), Some(&attempt.token));
                Reply::Counted(self.transition(sim, on, |_, job| {
                    (protocol::note_attempt(job, attempt), Vec::new())
                }))
            }
            Request::Renew(renewals) => Reply::Renew(
                renewals
                    .iter()
                    .map(|renewal| {
                        let job = renewal.run.as_ref().map(|run| &run.job);
                        let on = (&renewal.grant.lock, job, Some(&renewal.grant.token));
                        self.transition(sim, on, |lock, job| {
                            protocol::renew(lock, job, clock, renewal)
                        })
                    })
                    .collect(),
            ),
            Request::Settle(settle) => {
                let on = (&settle.lock, Some(&settle.job), None);
                Reply::Settled(self.transition(sim, on, |lock, job| {
                    protocol::settle(lock, job, clock, settle)
                }))
            }
            Request::Register(all) => Reply::Registered(
                all.iter()
                    .map(|asked| {
                        let on = (&asked.lock, Some(&asked.job), None);
                        self.transition(sim, on, |lock, job| {
                            (protocol::register(lock, job, clock, asked), Vec::new())
                        })
                    })
                    .collect(),
            ),
            Request::Jobs(job, on) => {
                let lock = self.lock(sim, &on.name);
                let state = self.data.jobs.get(&(on.name.clone(), job.clone()));
                let report = protocol::report(job, &lock, on.exclusive, state, clock);
                Reply::Report(Box::new(report))
            }
            Request::Ledger(job, on) => {
                let lock = self.lock(sim, &on.name);
                let state = self.data.jobs.get(&(on.name.clone(), job.clone()));
                Reply::Ledger(Box::new(protocol::ledger(&lock, state, clock)))
            }
            Request::Replace(asked) => {
                let on = (&asked.lock, Some(&asked.job), None);
                let replaced = self.transition(sim, on, |lock, job| {
                    (protocol::replace(lock, job, clock, asked), Vec::new())
                });
                sim.trace.line(sim.now, || moved(asked, replaced));
                Reply::Replaced(replaced)
            }
            Request::Now => Reply::Now(clock.utc()),
            Request::BeginLedgers(all) => {
                for asked in all {
                    let on = (&asked.lock, Some(&asked.job), None);
                    self.transition(sim, on, |_, job| {
                        (protocol::begin(job, clock, asked), Vec::new())
                    });
                }
                Reply::LedgersBegun
            }
            Request::Announce { .. }
            | Request::Hosts
            | Request::Listings(_)
            | Request::Enlist(..)
            | Request::ListedBy(_)
            | Request::NoteManual(_)
            | Request::ManualRuns
            | Request::ForgetManual(_) => {
                let registry = &mut self.data.registry;
                registry.serve(sim.now, clock.utc(), &message.request)
            }
        })
    }

    /// Follows a ledger that has moved, as all stores do. In the middle of a move, tombstones may lead
    /// in a circle.
    fn finish(
        &mut self,
        sim: &mut Sim,
        clock: Clock,
        finish: &Finish,
    ) -> Result<FinishReply, StoreError> {
        let mut finish = finish.clone();
        for _ in 0..TOMBSTONES {
            let recorded = finish.record.as_ref().map(|record| &record.job);
            let job = finish.job.as_ref().or(recorded);
            let on = (&finish.lock, job, Some(&finish.token));
            let reply = self.transition(sim, on, |lock, job| {
                protocol::finish(lock, job, clock, &finish)
            });
            let FinishReply::Moved { to } = reply else {
                return Ok(reply);
            };
            finish.lock = to.lock();
        }
        Err(StoreError::Unreachable("the ledger moves".into()))
    }

    /// A person pauses or resumes a job, which has no effect if the store does not reply.
    pub(crate) fn order(&mut self, sim: &mut Sim, (lock, job): (&Lock, &JobName), order: JobOrder) {
        if self.quorum.is_some() || self.gate.state() != State::Up {
            return;
        }
        let past = self.past(sim, Duration::ZERO);
        let clock = clock_of(sim, past);
        let (late, order) = match order {
            JobOrder::Resume => (0, PauseOrder::Resume),
            JobOrder::Pause { lasts } => (0, pause_until(clock.utc(), lasts)),
            JobOrder::LatePause { by } => (by, pause_until(clock.utc(), None)),
        };
        let request = PauseRequest {
            job: job.clone(),
            lock: lock.clone(),
            order,
            by: "alice@host".to_owned(),
            asked_at: Timestamp::from_millis(clock.utc().millis() - late),
        };
        let reply = self.transition(sim, (lock, Some(job), None), |_, state| {
            (protocol::pause(state, clock, &request), Vec::new())
        });
        sim.trace
            .line(sim.now, || format!("ORDER {request:?} {reply:?}"));
        if reply != PauseReply::Done {
            return;
        }
        let place = (lock.name.clone(), job.clone());
        let pauses = self.data.jobs.get(&place).map(|state| state.pauses.clone());
        sim.trace.ordered.push(Ordered {
            at: sim.now,
            lock: lock.name.clone(),
            job: job.to_string(),
            pauses: pauses.unwrap_or_default(),
        });
    }

    /// The state of a lock, whose key is gone once its time is over.
    fn lock(&self, sim: &Sim, name: &str) -> LockState {
        let mut lock = self.data.locks.get(name).cloned().unwrap_or_default();
        if let Key::Value { end: Some(end), .. } | Key::OtherType { end: Some(end) } = lock.key
            && end <= lease_clock(sim)
        {
            lock.key = Key::Absent;
        }
        lock
    }

    fn transition<T>(
        &mut self,
        sim: &mut Sim,
        (on, job, token): (&Lock, Option<&JobName>, Option<&Token>),
        rules: impl FnOnce(&mut LockState, &mut Option<JobState>) -> (T, Vec<Effect>),
    ) -> T {
        let before = self.lock(sim, &on.name);
        let mut lock = before.clone();
        let place = job.map(|job| (on.name.clone(), job.clone()));
        let known = place
            .as_ref()
            .and_then(|place| self.data.jobs.remove(place));
        let mut state = known;
        let (reply, effects) = rules(&mut lock, &mut state);
        protocol::summarize(&mut state, &effects, clock_of(sim, Past::default()));
        if let (Some(place), Some(state)) = (place, state) {
            sim.trace.note_waiting(sim.now, &place.1, &state.waiting);
            self.data.jobs.insert(place, state);
        }
        watch(sim, (&on.name, token), &before, &lock);
        self.data.locks.insert(on.name.clone(), lock);
        for effect in effects {
            self.take_effect(sim, &on.name, effect);
        }
        reply
    }

    fn take_effect(&mut self, sim: &mut Sim, lock: &str, effect: Effect) {
        match effect {
            Effect::Append {
                record,
                follows,
                replaces,
                ..
            } => {
                if replaces {
                    self.remove_replaced(sim, lock, &record);
                }
                sim.trace
                    .line(sim.now, || format!("RECORD {}", shown(&record)));
                sim.trace.added.push(Added {
                    at: sim.now,
                    lock: lock.to_owned(),
                    record: (*record).clone(),
                    ballot: None,
                    lost: false,
                    replaced: false,
                });
                let runs = self.data.runs.entry((lock.to_owned(), record.job.clone()));
                let runs = runs.or_default();
                let newest = runs.last();
                match newest.and_then(|newest| protocol::merge(newest, &record, follows)) {
                    Some(merged) => {
                        runs.pop();
                        runs.push(merged);
                    }
                    None => runs.push(*record),
                }
            }
            Effect::Released => {
                for host in 0..sim.plan.hosts.len() {
                    let lock = lock.to_owned();
                    let at = sim.now + sim.dice.range(1, 4);
                    sim.at(at, Item::Released { host, lock });
                }
            }
        }
    }
}

impl Store {
    /// A host has reported a result after all.
    fn remove_replaced(&mut self, sim: &mut Sim, lock: &str, record: &Record) {
        let stood_for_it = |known: &Record| protocol::is_replaced_by(known, record);
        // The run may be on record under the lock that the job had then, its occurrence under each lock.
        let is_here = |added: &Added| added.record.run_id.is_some() || added.lock == lock;
        let added = sim.trace.added.iter_mut();
        for added in added.filter(|it| is_here(it) && stood_for_it(&it.record)) {
            added.replaced = true;
        }
        let runs = self
            .data
            .runs
            .get_mut(&(lock.to_owned(), record.job.clone()));
        if let Some(runs) = runs {
            runs.retain(|known| !stood_for_it(known));
        }
    }
}

/// Notes who holds the lock, and who changed what was another's.
fn watch(
    sim: &mut Sim,
    (name, token): (&str, Option<&Token>),
    before: &LockState,
    after: &LockState,
) {
    if (&before.key, &before.token, before.lease_end) == (&after.key, &after.token, after.lease_end)
    {
        return;
    }
    let mine = |text: &String| token.is_some_and(|token| token.as_str() == text);
    let was_anothers = match &before.key {
        Key::Absent => false,
        Key::Value { text, .. } => !mine(text) && (text == FOREIGN || sim.trace.losses.is_empty()),
        Key::OtherType { .. } => true,
    };
    if was_anothers && before.key != after.key {
        let text = format!(
            "{name}: {:?}, which {token:?} made {:?}",
            before.key, after.key
        );
        sim.trace.trespasses.push((sim.now, text));
    }
    let (token, until) = holder(after);
    sim.trace.held.push(Held {
        at: sim.now,
        lock: name.to_owned(),
        token,
        until,
        exclusive: before.key != after.key || is_exclusive(after),
    });
}

/// Whether its holder keeps others out: that of a job without a lock has no key.
fn is_exclusive(lock: &LockState) -> bool {
    let token = lock.token.as_ref().map(Token::as_str);
    match &lock.key {
        Key::Absent => token.is_none(),
        Key::Value { text, .. } => token == Some(text),
        Key::OtherType { .. } => false,
    }
}

/// A step of a ledger's move in a line.
fn moved(asked: &Replacement, replaced: Replaced) -> String {
    let (job, lock, new) = (&asked.job, &asked.lock.name, &asked.new);
    let to = new.moved.as_ref().map(|moved| &moved.to.name);
    let waits = new.waiting.iter().map(|it| it.scheduled_at.millis());
    let waits: Vec<_> = waits.collect();
    let (number, last) = (new.moved.as_ref().map(|it| it.number), new.last.millis());
    format!(
        "MOVE of {job}, number {number:?}: {lock} to {to:?}, decided until {last}, waiting {waits:?}: \
         {replaced:?}"
    )
}

/// What another program writes into the key of a lock.
pub(crate) const FOREIGN: &str = "another program";

/// Another program's key ends here, if there is one.
fn end_foreign<'a>(sim: &'a mut Sim, name: &str) -> Option<&'a mut Foreign> {
    let now = sim.now;
    let mut all = sim.trace.foreign.iter_mut();
    let (_, foreign) = all.find(|(lock, it)| lock == name && it.span.holds(now))?;
    foreign.span.until = now;
    Some(foreign)
}

/// Other programs' keys are those that a server has after it was replaced.
pub(crate) fn note_foreign<'a>(
    sim: &mut Sim,
    keys: impl IntoIterator<Item = (&'a String, &'a Key)>,
) {
    for (_, foreign) in &mut sim.trace.foreign {
        foreign.span.until = foreign.span.until.min(sim.now);
    }
    for (name, key) in keys {
        let (Key::Value { end, .. } | Key::OtherType { end }) = key else {
            continue;
        };
        let until = end.map_or(i64::MAX, |end| i64::try_from(end).unwrap_or(i64::MAX));
        if is_foreign(key) && sim.now < until {
            let span = Span {
                from: sim.now,
                until,
            };
            let deleted = false;
            let foreign = Foreign { span, deleted };
            sim.trace.foreign.push((name.clone(), foreign));
        }
    }
}

/// Whether another program wrote the key.
pub(crate) fn is_foreign(key: &Key) -> bool {
    match key {
        Key::Absent => false,
        Key::Value { text, .. } => text == FOREIGN,
        Key::OtherType { .. } => true,
    }
}

/// How fast a server is; as fast as it likes unless told otherwise.
#[derive(Debug, Clone, Copy, Default)]
struct Pace {
    until: i64,
    /// What each request takes, in microseconds.
    each: i64,
    /// When it is through with what has arrived, in microseconds.
    busy_until: i64,
}

impl Pace {
    /// When a message that arrives is served; `None`: at once.
    fn turn(&mut self, now: i64, message: &Message) -> Option<i64> {
        if now >= self.until && self.busy_until <= now * 1_000 {
            return None;
        }
        let parts = match &message.request {
            Request::Register(all) => all.len(),
            Request::Renew(all) => all.len(),
            _ => 1,
        };
        // A request about many jobs spares the way to the server and back.
        let parts = i64::try_from(parts).unwrap_or(1);
        let takes = if now < self.until { self.each } else { 0 };
        let work = takes + takes * (parts - 1) / 5;
        self.busy_until = self.busy_until.max(now * 1_000) + work;
        Some((self.busy_until + 999) / 1_000)
    }
}

/// Who holds a lock, and until when.
fn holder(lock: &LockState) -> (Option<String>, i64) {
    let until = i64::try_from(lock.lease_end).unwrap_or(i64::MAX);
    (lock.token.as_ref().map(|t| t.as_str().to_owned()), until)
}

fn lease_clock(sim: &Sim) -> u64 {
    u64::try_from(sim.now).unwrap_or(0)
}

fn clock_of(sim: &Sim, past: Past) -> Clock {
    Clock {
        micros: lease_clock(sim) * 1_000,
        lease: lease_clock(sim),
        past,
    }
}

pub(crate) fn answer(sim: &mut Sim, message: &Message, result: Result<Box<Reply>, StoreError>) {
    if message.deaf {
        return;
    }
    let item = Item::Answer {
        host: message.host,
        life: message.life,
        id: message.id,
        result,
    };
    sim.at(sim.now + message.back, item);
}

/// A record in a line.
pub(crate) fn shown(record: &Record) -> String {
    let mut text = format!("{} {:?}", record.job, record.outcome);
    if let Some(at) = record.scheduled_at {
        text += &format!(" of {}", at.millis());
    }
    if let Some(until) = record.until {
        text += &format!("..{} ({})", until.millis(), record.count.unwrap_or(0));
    }
    if let Some(run) = &record.run_id {
        text += &format!(" run {run} attempts {}", record.attempts);
    }
    if let Some(reason) = &record.reason {
        text += &format!(" [{reason}]");
    }
    text + &format!(" kind {:?}", record.kind)
}
