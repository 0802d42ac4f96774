//! Compares a node with its plain form: the same calls must get the same replies.
//!
//! Sequences of looks, proposals, renewals and withdrawals, with foreign hands and losses of data
//! in between, go to a real server and to the plain functions. Durations are taken to the nearest
//! hundred seconds; all else must be equal.

use std::cell::RefCell;
use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use crate::plain_acceptor::{Acceptor, ServerNow};
use cronlatch::names::{HostName, JobName, LockName, RunId, Token};
use cronlatch::store::protocol::{self, Ending, JobState, Key, LockState, Open, Waiting};
use cronlatch::store::quorum::{
    AcceptStatus, Ballot, JobView, KeyHolder, LongestTtl, PrepareMode, PrepareReply, PrepareStatus,
    Proposal, ProposedLease, ProposedRecord, QuorumNode, RequestTarget,
};
use cronlatch::store::{
    Fingerprint, Grant, Kind, Lock, Outcome, Record, Renewal, RunTerms, StoreSettings, check_url,
};
use cronlatch::time::{BootInstant, Timestamp};
use proptest::prelude::{Just, Strategy, any, prop, prop_oneof};
use proptest::test_runner::{Config, TestCaseError, TestRunner};

use crate::support::wait::LIMIT;
use crate::support::{RedisServer, claims, test_cases};

const TTL: Duration = Duration::from_secs(200);
/// Longer than a node recovers.
const AGE: Duration = Duration::from_secs(410);
const FOREIGN_TTL: Duration = Duration::from_secs(300);
const JOBS: usize = 2;
const KEEP: cronlatch::store::Retention = cronlatch::store::Retention::of_records(6);
const MARKER: &str = "cronlatch:node";
/// The server process of the plain side.
const SERVER: &str = "this one";

#[derive(Debug, Clone)]
enum Call {
    Look {
        mode: PrepareMode,
        ballot: Number,
        job: Option<usize>,
        longest: u32,
        with_ttl: bool,
    },
    Propose(Wish),
    Extend {
        token: u8,
        longest: u32,
        again: bool,
    },
    Withdraw {
        ballot: Number,
        token: u8,
    },
    Meddle(Meddling),
}

/// The number of a proposal: the nth newest that was promised, or so much more than the newest.
#[derive(Debug, Clone, Copy)]
enum Number {
    Known(usize),
    After(u64, u64),
    First(u64),
}

#[derive(Debug, Clone)]
struct Wish {
    ballot: Number,
    job: Option<usize>,
    /// The job's ledger is proposed, too: up to then, in doubt, with a horizon, with an open run.
    ledger: Option<(u8, bool, bool, Option<u8>)>,
    fence: u64,
    token: Option<u8>,
    take: bool,
    left: bool,
    finished: Vec<u8>,
    /// Its proposer saw the job's ledger that this node has.
    follows: bool,
    records: Vec<(u8, bool)>,
}

#[derive(Debug, Clone, Copy)]
enum Meddling {
    /// The lease ends: the key is gone, and its end has come.
    End,
    Evict,
    /// The key is set to this token, by a copy that came late or by a renewal.
    Own(u8),
    Foreign(bool),
    List,
    /// The vote's time is over.
    Vote,
    Flush,
    Restart,
    Declare,
    /// As much time passes as a node needs to recover.
    Age,
}

/// Two ids of one process, and one of another: its low 20 bits count the requests of a process.
fn ids() -> impl Strategy<Value = u64> {
    prop_oneof![Just(1_u64), Just(2), Just((1 << 20) + 1)]
}

fn number() -> impl Strategy<Value = Number> {
    prop_oneof![
        6 => (0..3_usize).prop_map(Number::Known),
        // Another host's, under the same number.
        3 => ids().prop_map(|id| Number::After(0, id)),
        // Of a node whose clock is far ahead.
        1 => ids().prop_map(|id| Number::After(1_000_000_000, id)),
        1 => ids().prop_map(Number::First),
    ]
}

fn wish() -> impl Strategy<Value = Wish> {
    let ledger = (
        0..4_u8,
        any::<bool>(),
        any::<bool>(),
        prop::option::of(0..4_u8),
    );
    (
        (
            prop_oneof![3 => Just(Number::Known(0)), 1 => number()],
            prop::option::weighted(0.8, 0..JOBS),
            prop::option::weighted(0.8, ledger),
            prop::option::weighted(0.8, 0..4_u8),
        ),
        (
            any::<bool>(),
            any::<bool>(),
            prop::collection::vec(0..4_u8, 0..3),
            prop::bool::weighted(0.9),
            prop::collection::vec((0..4_u8, any::<bool>()), 0..3),
            1..9_u64,
        ),
    )
        .prop_map(
            |((ballot, job, ledger, token), (take, left, finished, follows, records, fence))| {
                Wish {
                    ballot,
                    job,
                    ledger: ledger.filter(|_| job.is_some()),
                    fence,
                    take: take && token.is_some(),
                    token,
                    left,
                    finished,
                    follows,
                    records: if job.is_some() { records } else { Vec::new() },
                }
            },
        )
}

fn call() -> impl Strategy<Value = Call> {
    let mode = prop_oneof![
        4 => Just(PrepareMode::Vote),
        4 => Just(PrepareMode::Promise),
        1 => Just(PrepareMode::Read),
        1 => Just(PrepareMode::Yield),
    ];
    let look = (
        mode,
        number(),
        prop::option::of(0..JOBS),
        0..9_u32,
        any::<bool>(),
    )
        .prop_map(|(mode, ballot, job, longest, with_ttl)| Call::Look {
            mode,
            ballot,
            job,
            longest,
            with_ttl,
        });
    let meddling = prop_oneof![
        2 => Just(Meddling::End),
        2 => Just(Meddling::Evict),
        2 => (0..4_u8).prop_map(Meddling::Own),
        1 => any::<bool>().prop_map(Meddling::Foreign),
        1 => Just(Meddling::List),
        2 => Just(Meddling::Vote),
        1 => Just(Meddling::Flush),
        2 => Just(Meddling::Restart),
        1 => Just(Meddling::Declare),
        4 => Just(Meddling::Age),
    ];
    prop_oneof![
        6 => look,
        6 => wish().prop_map(Call::Propose),
        3 => (0..4_u8, 0..9_u32, any::<bool>())
            .prop_map(|(token, longest, again)| Call::Extend { token, longest, again }),
        2 => (number(), 0..4_u8).prop_map(|(ballot, token)| Call::Withdraw { ballot, token }),
        4 => meddling.prop_map(Call::Meddle),
    ]
}

fn token(who: u8) -> Token {
    let random = u128::from(who) + 1;
    // One of them is no token of ours: it is remembered in full.
    Token::from_text(&match who {
        3 => "another program's".to_owned(),
        _ => format!("h{who}:1:r{who}:{random:032x}"),
    })
}

fn run_id(who: u8) -> RunId {
    RunId::from_text(&format!("r{who}"))
}

fn job(index: usize) -> JobName {
    JobName::parse(&format!("j{index}")).expect("a name")
}

fn at(n: u8) -> Timestamp {
    Timestamp::from_millis(1_000_000 + 60_000 * i64::from(n))
}

fn ledger(wish: (u8, bool, bool, Option<u8>), ballot: Ballot) -> JobView {
    let (last, doubt, horizon, open) = wish;
    let open = open.map(|who| Open {
        scheduled_at: (who != 2).then(|| at(last)),
        run_id: run_id(who),
        token: token(who),
        attempt: u32::from(who) + 1,
        kind: Kind::Schedule,
        fence: 1_700_000_000_000_001,
        started_at: at(last),
        host: format!("h{who}"),
        terms: RunTerms {
            deadline: at(last),
            max_reruns: u32::from(who),
            ..RunTerms::NONE
        },
    });
    JobView {
        ballot,
        state: JobState {
            last: at(last),
            open,
            waiting: vec![Waiting {
                scheduled_at: at(last),
                kind: Kind::Queue,
                deadline: at(last),
                yields: doubt,
                attempts: 0,
                reruns: 0,
                crashed: None,
            }],
            fingerprints: vec![(Fingerprint("one of them".into()), at(0))],
            moved: None,
            decided_beyond: Vec::new(),
            pauses: Vec::new(),
            summary: cronlatch::store::Summary::default(),
        },
        doubt,
        horizon: horizon.then(|| at(1)),
    }
}

/// A skipped occurrence, or one that ran.
fn record(name: &JobName, n: u8, skipped: bool) -> Record {
    let outcome = if skipped {
        Outcome::Skipped
    } else {
        Outcome::Succeeded
    };
    Record {
        run_id: (!skipped).then(|| run_id(n)),
        finished_at: Some(at(n)),
        host: HostName::parse("h").ok(),
        ..claims::record(name.clone(), Some(at(n)), outcome)
    }
}

/// Both sides.
struct Both<'a> {
    hands: &'a RefCell<redis::Connection>,
    node: &'a QuorumNode,
    lock: Lock,
    plain: Acceptor,
    plain_server: String,
    /// What was promised, oldest first.
    promised: Vec<Ballot>,
    histories: HashMap<usize, Vec<Record>>,
    /// The jobs whose histories may lack records.
    lacking: HashSet<usize>,
}

impl Both<'_> {
    /// Reaches into the server as another program would.
    fn command(&self, words: &[&str]) -> redis::Value {
        let mut command = redis::cmd(words[0]);
        command.arg(&words[1..]);
        let answer = command.query(&mut *self.hands.borrow_mut());
        answer.expect("the server answers")
    }

    fn number(&self, words: &[&str]) -> i64 {
        redis::from_redis_value(self.command(words)).expect("a number")
    }

    fn key(&self, name: &str) -> String {
        format!("cronlatch:{{{}}}:{name}", self.lock.name)
    }

    /// A millisecond that is past all calls before: instants that differ on one side must differ
    /// on the other.
    fn tick(&self) -> u64 {
        let time = || {
            let redis::Value::Array(parts) = self.command(&["TIME"]) else {
                panic!("no time");
            };
            let part = |at: usize| -> u64 {
                redis::from_redis_value(parts[at].clone()).expect("a number")
            };
            part(0) * 1_000_000 + part(1)
        };
        let before = time();
        loop {
            let now = time();
            if now / 1000 != before / 1000 {
                return now;
            }
        }
    }

    fn ballot(&self, number: Number) -> Ballot {
        // No proposal has the number nought.
        let first = Ballot { number: 1, id: 1 };
        let newest = self.promised.last().copied().unwrap_or(first);
        match number {
            Number::Known(back) => {
                let at = self.promised.len().checked_sub(back + 1);
                at.map_or(newest, |at| self.promised[at])
            }
            Number::After(more, id) => Ballot {
                number: newest.number + more,
                id,
            },
            Number::First(id) => Ballot { number: 1, id },
        }
    }

    fn target(&self, of: Option<usize>, longest: u32, with_ttl: bool) -> RequestTarget {
        RequestTarget {
            lock: self.lock.clone(),
            job: of.map(job),
            ttl: if with_ttl { TTL } else { Duration::ZERO },
            longest: longest_ttl(longest),
        }
    }

    async fn prepare(
        &mut self,
        target: &RequestTarget,
        question: (PrepareMode, Ballot),
    ) -> (PrepareReply, PrepareReply) {
        let real = self.node.prepare(target, question, TTL, LIMIT).await;
        let real = real.expect("the node answers");
        let here = ServerNow {
            micros: real.micros,
            server: &self.plain_server,
        };
        let plain = self.plain.prepare(here, target, question, TTL);
        (real, plain)
    }

    fn proposal(&self, wish: &Wish) -> Proposal {
        let ballot = self.ballot(wish.ballot);
        let name = wish.job.map(job);
        let ended = wish.finished.iter().map(|who| {
            let how = [Ending::Released, Ending::Lost, Ending::Interrupted];
            (token(*who), how[usize::from(*who) % 3])
        });
        let records = wish.records.iter().filter_map(|(n, skipped)| {
            let follows = skipped.then(|| at(n.saturating_sub(1)));
            Some(ProposedRecord {
                record: record(name.as_ref()?, *n, *skipped),
                follows,
                replaces: false,
            })
        });
        Proposal {
            ballot,
            target: self.target(wish.job, 0, true),
            lock: LockState {
                key: Key::Absent,
                fence: wish.fence,
                token: wish.token.map(token),
                lease_end: 0,
                run_id: wish.token.map(run_id),
                finished: ended.collect(),
            },
            lease: match (wish.take, wish.left) {
                (true, _) => ProposedLease::Take(TTL),
                (false, true) => ProposedLease::Stay(TTL),
                (false, false) if wish.fence.is_multiple_of(2) => ProposedLease::Over(None),
                (false, false) => {
                    ProposedLease::Over(Some(Duration::from_millis(wish.fence % 100)))
                }
            },
            job: wish.ledger.map(|wish| ledger(wish, ballot)),
            base: if wish.follows {
                self.base(wish.job)
            } else {
                Ballot::default()
            },
            records: records.collect(),
            keep: Some(KEEP),
            released: false,
        }
    }

    /// The proposal that the plain form has the job's ledger from.
    fn base(&self, of: Option<usize>) -> Ballot {
        let ledger = of.and_then(|index| self.plain.ledgers.get(&job(index)));
        ledger.map(|ledger| ledger.ballot).unwrap_or_default()
    }

    fn renewal(&self, who: u8) -> Renewal {
        Grant {
            lock: self.lock.clone(),
            token: token(who),
            run_id: run_id(who),
            fence: 0,
            ttl: TTL,
            sent: BootInstant::BOOT,
            starts_at: None,
        }
        .renewal()
    }

    /// Makes the call on both sides; what they answered and what is then to be seen, reduced.
    async fn apply(&mut self, call: &Call) -> (String, String) {
        let micros = self.tick();
        let server = self.plain_server.clone();
        let here = ServerNow {
            micros,
            server: &server,
        };
        let (real, plain) = match call {
            Call::Look {
                mode,
                ballot,
                job,
                longest,
                with_ttl,
            } => {
                let asked = self.ballot(*ballot);
                let target = self.target(*job, *longest, *with_ttl);
                let (real, plain) = self.prepare(&target, (*mode, asked)).await;
                if plain.status == PrepareStatus::Promised {
                    let number = plain.promised;
                    self.promised.push(Ballot { number, ..asked });
                }
                (reduce(&real), reduce(&plain))
            }
            Call::Propose(wish) => {
                let proposal = self.proposal(wish);
                let real = self.node.accept(&proposal, LIMIT).await;
                let follows = proposal.base == self.base(wish.job);
                let plain = self.plain.accept(here, &proposal);
                let mut lacks = false;
                if !matches!(plain, AcceptStatus::Preempted | AcceptStatus::Held) {
                    let job = wish.job.filter(|_| proposal.job.is_some());
                    self.lacking.extend(job.filter(|_| !follows));
                    lacks = job.is_some_and(|job| self.lacking.contains(&job));
                    self.write(&proposal, lacks);
                }
                let real = real.expect("the node answers");
                let (taken, mark) = (real.status, real.lacks.is_some());
                (format!("{taken:?} {mark}"), format!("{plain:?} {lacks}"))
            }
            Call::Extend {
                token,
                longest,
                again,
            } => {
                let renewal = self.renewal(*token);
                let longest = longest_ttl(*longest);
                let asked = std::slice::from_ref(&renewal);
                let real = self.node.extend(asked, longest, *again).await;
                let plain = self.plain.extend(here, &renewal, longest, *again);
                let real = real.expect("the node answers")[0];
                (format!("{real:?}"), format!("{plain:?}"))
            }
            Call::Withdraw { ballot, token: who } => {
                let (ballot, token) = (self.ballot(*ballot), token(*who));
                let real = self.node.withdraw(&self.lock, ballot, &token).await;
                real.expect("the node answers");
                let _ = self
                    .plain
                    .withdraw(here, self.lock.exclusive, ballot, &token);
                Default::default()
            }
            Call::Meddle(meddling) => {
                self.meddle(*meddling, micros / 1000).await;
                Default::default()
            }
        };
        let (seen_real, seen_plain) = self.see(matches!(call, Call::Propose(_))).await;
        (
            format!("{real}\n    {seen_real}"),
            format!("{plain}\n    {seen_plain}"),
        )
    }

    /// Adds the records. Of a node that lacks some, the newest entry may be overtaken, and nothing
    /// is merged into it.
    fn write(&mut self, proposal: &Proposal, lacks: bool) {
        for (nr, proposed) in proposal.records.iter().enumerate() {
            let (record, follows) = (&proposed.record, proposed.follows);
            let index = record.job.as_str()[1..].parse().expect("our own name");
            let history = self.histories.entry(index).or_default();
            let newest = history.last().filter(|_| !lacks || nr > 0);
            let merged = newest.and_then(|newest| protocol::merge(newest, record, follows));
            if merged.is_some() {
                history.pop();
            }
            history.push(merged.unwrap_or_else(|| record.clone()));
            protocol::trim(history, KEEP);
        }
    }

    /// All that can be seen from outside; the histories only after something was written.
    async fn see(&mut self, written: bool) -> (String, String) {
        let (mut real, mut plain) = (String::new(), String::new());
        for index in 0..JOBS {
            let target = self.target(Some(index), 0, false);
            let (a, b) = self
                .prepare(&target, (PrepareMode::Read, Ballot::default()))
                .await;
            real += &reduce(&a);
            plain += &reduce(&b);
            if !written {
                continue;
            }
            let records = self.node.records(&job(index), &self.lock, 100).await;
            let records = records.expect("the node answers").0.into_iter();
            let records: Vec<Record> = records.rev().map(|entry| entry.record).collect();
            real += &format!("\n    {records:?}\n    ");
            let records = self.histories.entry(index).or_default();
            plain += &format!("\n    {records:?}\n    ");
        }
        (real, plain)
    }

    async fn meddle(&mut self, meddling: Meddling, now: u64) {
        let of_key = matches!(
            meddling,
            Meddling::Evict | Meddling::Own(_) | Meddling::Foreign(_) | Meddling::List
        );
        if of_key && !self.lock.exclusive {
            return;
        }
        let (key, state) = (self.key("lock"), self.key("state"));
        let has_state = self.number(&["EXISTS", &state]) == 1;
        let value = |text: &str, ttl: Option<Duration>| {
            let millis = ttl.map(|ttl| ttl.as_millis());
            match millis {
                Some(millis) => self.command(&["SET", &key, text, "PX", &millis.to_string()]),
                None => self.command(&["SET", &key, text]),
            };
            let millis = millis.map(|ttl| u64::try_from(ttl).expect("small"));
            Key::Value {
                text: text.to_owned(),
                end: millis.map(|ttl| now + ttl),
            }
        };
        match meddling {
            Meddling::End => {
                self.command(&["DEL", &key]);
                if has_state {
                    self.command(&["HSET", &state, "lease_end", "0"]);
                }
                self.plain.key = Key::Absent;
                self.plain.register.lease_end = 0;
            }
            Meddling::Evict => {
                self.command(&["DEL", &key]);
                self.plain.key = Key::Absent;
            }
            Meddling::Own(who) => self.plain.key = value(token(who).as_str(), Some(TTL)),
            Meddling::Foreign(ends) => {
                self.plain.key = value("somebody else's", ends.then_some(FOREIGN_TTL));
            }
            Meddling::List => {
                self.command(&["DEL", &key]);
                self.command(&["RPUSH", &key, "x"]);
                self.plain.key = Key::OtherType { end: None };
            }
            Meddling::Vote => {
                if self.number(&["HEXISTS", &state, "vote"]) == 1 {
                    self.command(&["HSET", &state, "vote_until", "1"]);
                }
                if let Some((_, until)) = &mut self.plain.register.vote {
                    *until = 1;
                }
            }
            Meddling::Flush => {
                for name in ["lock", "state", "job:j0", "job:j1", "runs:j0", "runs:j1"] {
                    self.command(&["DEL", &self.key(name)]);
                }
                self.command(&["DEL", MARKER]);
                self.plain = Acceptor::default();
                self.histories.clear();
                self.lacking.clear();
            }
            Meddling::Restart => {
                if self.plain.marker.is_some() {
                    self.command(&["HSET", MARKER, "server", "another"]);
                }
                self.plain_server += "'";
            }
            Meddling::Declare => {
                self.declare().await;
            }
            Meddling::Age => self.age(),
        }
    }

    /// Moves all instants of a loss into the past.
    fn age(&mut self) {
        let millis = u64::try_from(AGE.as_millis()).expect("small");
        let older = |key: &str, field: &str| {
            let known = self.command(&["HGET", key, field]);
            if matches!(&known, redis::Value::BulkString(text) if !text.is_empty()) {
                let back = format!("-{millis}");
                self.command(&["HINCRBY", key, field, &back]);
            }
        };
        let lost_at = self.plain.marker.as_ref().and_then(|it| it.lost_at);
        if lost_at.is_none() {
            return;
        }
        older(MARKER, "lost_at");
        older(MARKER, "until");
        self.forget_ttls();
        for name in ["state", "job:j0", "job:j1"] {
            older(&self.key(name), "epoch");
        }
        let past = |epoch: &mut Option<u64>| *epoch = epoch.map(|epoch| epoch - millis);
        if let Some(marker) = &mut self.plain.marker {
            past(&mut marker.lost_at);
            marker.until -= millis;
            for listed in &mut marker.listed.0 {
                listed.until = 1;
            }
        }
        past(&mut self.plain.register.epoch);
        for ledger in self.plain.ledgers.values_mut() {
            past(&mut ledger.epoch);
        }
    }

    fn forget_ttls(&self) {
        let kept: Option<String> =
            redis::from_redis_value(self.command(&["HGET", MARKER, "longest"])).expect("text");
        let kept = kept.unwrap_or_default();
        let kept = kept.split(',').filter_map(|kept| kept.split_once(' '));
        let past: Vec<String> = kept.map(|(ttl, _)| format!("{ttl} 1")).collect();
        self.command(&["HSET", MARKER, "longest", &past.join(",")]);
    }

    async fn declare(&mut self) {
        self.node.declare_new().await.expect("the node answers");
        self.plain.declare_new(&self.plain_server);
    }
}

/// A reply, with what depends on the instant of the call taken to the nearest hundred seconds.
fn reduce(reply: &PrepareReply) -> String {
    let ago = reply.lost_at.map(|at| {
        let now = Timestamp::from_millis(i64::try_from(reply.micros / 1000).expect("small"));
        hundreds(now.since(at))
    });
    let held = match &reply.held {
        KeyHolder::Nobody => "free".to_owned(),
        KeyHolder::Value(text, left) => format!("{text} {:?}", left.map(hundreds)),
        KeyHolder::OtherType(left) => format!("a list {:?}", left.map(hundreds)),
    };
    let lock = &reply.lock;
    format!(
        "{:?} {} lost {ago:?} ago, recovering {}, longest {:?}, remembers {}, held {held}\n    \
         {:?} fence {} {:?} {} {:?} {:?}\n    {:?}",
        reply.status,
        reply.promised,
        hundreds(reply.recovering),
        reply.longest,
        reply.remembers,
        lock.ballot,
        lock.fence,
        lock.token,
        hundreds(lock.left),
        lock.run_id,
        lock.finished,
        reply.job,
    )
}

/// Up to three times the TTL in the list, and up to twice as much elsewhere.
fn longest_ttl(number: u32) -> LongestTtl {
    LongestTtl {
        listed: TTL * (number % 3),
        elsewhere: TTL * (number / 3),
        least: TTL * (number % 2 * 4),
    }
}

fn hundreds(span: Duration) -> u64 {
    (span.as_secs() + 50) / 100
}

/// A real node, and what the comparison needs of it.
struct Bench {
    server: RedisServer,
    runtime: tokio::runtime::Runtime,
    node: QuorumNode,
    hands: RefCell<redis::Connection>,
    /// The lock of the next sequence.
    next: AtomicU32,
}

impl Bench {
    fn start() -> Self {
        let server = RedisServer::start();
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .expect("a runtime");
        let StoreSettings::Redis(settings) = check_url(&server.url()).expect("a URL") else {
            panic!("not a Redis URL");
        };
        let node = runtime.block_on(async { QuorumNode::new(&settings).expect("a node") });
        let client = redis::Client::open(server.url()).expect("a URL");
        let hands = client.get_connection().expect("the server answers");
        Self {
            server,
            runtime,
            node,
            hands: RefCell::new(hands),
            next: AtomicU32::new(0),
        }
    }

    /// Makes the calls on both sides, under a lock of their own. Returns the histories, or the first
    /// call after which the sides differ.
    fn compare(
        &self,
        exclusive: bool,
        calls: &[Call],
    ) -> Result<HashMap<usize, Vec<Record>>, String> {
        let name = format!("l{}", self.next.fetch_add(1, Ordering::Relaxed));
        let mut both = Both {
            hands: &self.hands,
            node: &self.node,
            lock: Lock {
                exclusive,
                ..Lock::named(&LockName::parse(&name).expect("a name"))
            },
            plain: Acceptor::default(),
            plain_server: SERVER.to_owned(),
            promised: Vec::new(),
            histories: HashMap::new(),
            lacking: HashSet::new(),
        };
        self.runtime.block_on(async {
            both.declare().await;
            for (nr, call) in calls.iter().enumerate() {
                let (real, plain) = both.apply(call).await;
                if real != plain {
                    return Err(format!(
                        "call {nr}, {call:?}\n  node:  {real}\n  plain: {plain}\n"
                    ));
                }
            }
            Ok(both.histories)
        })
    }
}

#[test]
fn a_node_does_what_its_plain_form_does_call_by_call() {
    let bench = Bench::start();
    let mut runner = TestRunner::new(Config {
        cases: test_cases(30),
        failure_persistence: None,
        ..Config::default()
    });
    let sequences = (
        prop::bool::weighted(0.8),
        prop::collection::vec(call(), 1..40),
    );
    let outcome = runner.run(&sequences, |(exclusive, calls)| {
        (bench.compare(exclusive, &calls).map(drop)).map_err(TestCaseError::fail)
    });
    if let Err(error) = outcome {
        panic!("{error}\n{}", bench.server.log());
    }
}

#[test]
fn a_node_that_missed_a_proposal_merges_no_record_into_one_that_may_be_overtaken() {
    // Skips of the second and third minute, one proposal each.
    let skip = |minute: u8, follows: bool| {
        let promise = Call::Look {
            mode: PrepareMode::Promise,
            ballot: Number::After(1, 1),
            job: Some(0),
            longest: 0,
            with_ttl: true,
        };
        let propose = Call::Propose(Wish {
            ballot: Number::Known(0),
            job: Some(0),
            ledger: Some((minute, false, false, None)),
            fence: 1,
            token: None,
            take: false,
            left: false,
            finished: Vec::new(),
            follows,
            records: vec![(minute, true)],
        });
        [promise, propose]
    };
    let recorded = |follows: bool| {
        let bench = Bench::start();
        let calls = [skip(2, true), skip(3, follows)].concat();
        let histories = bench
            .compare(true, &calls)
            .unwrap_or_else(|it| panic!("{it}"));
        (histories[&0].iter())
            .map(|record| record.count)
            .collect::<Vec<_>>()
    };
    assert_eq!(recorded(true), [Some(2)]);
    // Between the two the job's ledger was decided without this node.
    assert_eq!(recorded(false), [None, None]);
}
