//! A fleet in a box: cores with clocks of their own, the protocol as the store, a network that
//! delays, loses and repeats. Simulated time; every run is repeatable by its seed.

mod acts;
mod judge;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use super::super::event::{ClaimId, Event, JobIx, Now};
use super::super::{Core, Policy};
use super::bench::{Every, policy};
use crate::config::{CatchUp, OnCrash, OnOverlap};
use crate::names::{HostName, JobName, LockName, RunId, Token};
use crate::store::protocol::{self, Clock, Effect, JobState, Key, LockState, Past};
use crate::store::{
    Claim, ClaimReply, Fingerprint, Finish, Grant, Kind, Lock, Outcome, Record, Registration,
    Settle,
};
use crate::time::{BootInstant, Timestamp};

const START: i64 = 1_000_000;
const TTL: Duration = Duration::from_secs(3);
const JOB: JobIx = JobIx(0);

/// Pseudo-random numbers (xorshift).
struct Dice(u64);

impl Dice {
    fn roll(&mut self, from: i64, to: i64) -> i64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        from + i64::try_from(self.0 % u64::try_from(to - from).expect("a range")).expect("small")
    }

    fn chance(&mut self, percent: i64) -> bool {
        self.roll(0, 100) < percent
    }
}

#[derive(Debug, Clone)]
enum Step {
    /// A host starts.
    Start,
    Due(Timestamp),
    Wake,
    /// A claim reaches the store; the answer may go back.
    Claim(ClaimId, Box<Claim>),
    Answer(ClaimId, crate::store::ClaimReply),
    /// The host gives up waiting for an answer, and sends the claim again.
    NoAnswer(ClaimId, Box<Claim>),
    StoreUp,
    Finish(Box<Finish>, Option<ClaimId>),
    Closed,
    Register,
    Look,
    Settle(RunId),
    Woken(ClaimId),
    Renew(ClaimId),
    RunEnds(ClaimId),
}

struct Run {
    token: Token,
    at: Timestamp,
    kind: Kind,
    id: RunId,
    attempt: u32,
}

struct Host {
    name: HostName,
    offset: i64,
    core: Core,
    life: u32,
    up: bool,
    /// Until then nothing passes between it and the store.
    cut_until: i64,
    tokens: BTreeMap<ClaimId, (Token, RunId)>,
    runs: BTreeMap<ClaimId, Run>,
}

/// One start of the job.
#[derive(Debug, Clone)]
struct Started {
    at: Timestamp,
    attempt: u32,
    from: i64,
    until: Option<i64>,
}

pub(super) struct Fleet {
    now: i64,
    dice: Dice,
    loss: i64,
    /// Whether claims are sent again when no answer comes.
    resends: bool,
    steps: BTreeMap<(i64, u64), (usize, u32, Step)>,
    number: u64,
    hosts: Vec<Host>,
    policy: Policy,
    lock: Lock,
    state: LockState,
    job: Option<JobState>,
    records: Vec<Record>,
    started: Vec<Started>,
    longest_run: i64,
    last_due: i64,
}

impl Fleet {
    fn new(seed: u64, policy: Policy, offsets: &[i64]) -> Self {
        let mut fleet = Self {
            now: START,
            dice: Dice(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1),
            loss: 0,
            resends: false,
            steps: BTreeMap::new(),
            number: 0,
            hosts: Vec::new(),
            lock: Lock::named(&LockName::parse("job").expect("a name")),
            policy,
            state: LockState::default(),
            job: None,
            records: Vec::new(),
            started: Vec::new(),
            longest_run: 1500,
            last_due: START + 20_000,
        };
        for (n, offset) in offsets.iter().enumerate() {
            fleet.hosts.push(Host {
                name: HostName::parse(&format!("host-{n}")).expect("a name"),
                offset: *offset,
                core: Core::new([], None, fleet.clock(*offset)),
                life: 0,
                up: false,
                cut_until: 0,
                tokens: BTreeMap::new(),
                runs: BTreeMap::new(),
            });
            let when = START + fleet.dice.roll(0, 3000);
            fleet.plan(when, n, Step::Start);
        }
        fleet
    }

    fn clock(&self, offset: i64) -> Now {
        Now {
            utc: Timestamp::from_millis(self.now + offset),
            boot: BootInstant::from_duration(Duration::from_millis(
                u64::try_from(self.now).expect("positive"),
            )),
        }
    }

    fn plan(&mut self, at: i64, host: usize, step: Step) {
        self.plan_for(at, host, self.hosts[host].life, step);
    }

    fn plan_for(&mut self, at: i64, host: usize, life: u32, step: Step) {
        self.number += 1;
        self.steps
            .insert((at.max(self.now), self.number), (host, life, step));
    }

    fn soon(&mut self, host: usize, step: Step) {
        let at = self.now + self.dice.roll(1, 40);
        self.plan(at, host, step);
    }

    /// Kills a host: its jobs die with it, its messages in flight arrive all the same.
    fn crash_at(&mut self, at: i64, host: usize) {
        self.run_until(at);
        for run in std::mem::take(&mut self.hosts[host].runs).into_values() {
            self.end_of(&run, self.now);
        }
        self.hosts[host].life += 1;
        self.hosts[host].up = false;
    }

    /// Cuts a host off from the store.
    fn cut_at(&mut self, at: i64, host: usize, until: i64) {
        self.run_until(at);
        self.hosts[host].cut_until = until;
    }

    fn is_cut(&self, host: usize) -> bool {
        self.now < self.hosts[host].cut_until
    }

    fn end_of(&mut self, run: &Run, until: i64) {
        let open =
            |s: &&mut Started| s.until.is_none() && s.at == run.at && s.attempt == run.attempt;
        if let Some(started) = self.started.iter_mut().find(open) {
            started.until = Some(until);
        }
    }

    fn run_until(&mut self, end: i64) {
        while let Some(entry) = self.steps.first_entry()
            && entry.key().0 <= end
        {
            let ((at, _), (host, life, step)) = entry.remove_entry();
            self.now = at;
            self.step(host, life, step);
        }
        self.now = end;
    }

    fn store_clock(&mut self) -> Clock {
        let clock = Clock {
            micros: u64::try_from(self.now * 1000).expect("positive"),
            lease: u64::try_from(self.now).expect("positive"),
            past: Past::default(),
        };
        if let Key::Value { end: Some(end), .. } = self.state.key
            && end <= clock.lease
        {
            self.state.key = Key::Absent;
        }
        clock
    }

    fn keep(&mut self, effects: Vec<Effect>) {
        for effect in effects {
            if let Effect::Append { record, .. } = effect {
                self.records.push(*record);
            }
        }
    }

    fn answer(&self, claim: ClaimId, reply: ClaimReply, (token, run_id): (Token, RunId)) -> Event {
        match reply {
            ClaimReply::Granted {
                fence,
                attempt,
                starts_in,
                ..
            } => Event::Granted {
                job: JOB,
                claim,
                grant: Grant {
                    lock: self.lock.clone(),
                    token,
                    run_id,
                    fence,
                    ttl: TTL,
                    sent: BootInstant::BOOT,
                    starts_at: None,
                }
                .starting_in(starts_in, self.clock(0).boot),
                attempt,
            },
            reply => Event::Replied {
                job: JOB,
                claim,
                reply,
            },
        }
    }

    fn step(&mut self, host: usize, life: u32, step: Step) {
        let alive = self.hosts[host].life == life;
        match step {
            // Lost, and told by the silence.
            Step::Claim(..) | Step::Answer(..) if self.is_cut(host) => {}
            // Tried again and again.
            Step::StoreUp
            | Step::Finish(..)
            | Step::Closed
            | Step::Register
            | Step::Look
            | Step::Settle(_)
            | Step::Renew(_)
                if self.is_cut(host) =>
            {
                self.plan_for(self.now + 200, host, life, step);
            }
            // What the store does, it does for the dead as well.
            Step::Claim(id, claim) => self.execute_claim(host, id, claim),
            Step::Finish(finish, run) => self.finish(host, finish, run),
            _ if !alive => {}
            Step::Start => self.start(host),
            Step::Due(at) => {
                self.feed(host, Event::Due { job: JOB, at });
                let next = at.plus(Duration::from_secs(1));
                self.plan_due(host, next);
            }
            Step::Wake => self.feed(host, Event::Timer),
            Step::Answer(claim, reply) => {
                if let Some((token, run_id)) = self.hosts[host].tokens.remove(&claim) {
                    let event = self.answer(claim, reply, (token, run_id));
                    self.feed(host, event);
                }
            }
            Step::NoAnswer(id, claim) => self.no_answer(host, id, claim),
            Step::StoreUp => self.feed(host, Event::StoreUp),
            Step::Closed => self.feed(host, Event::RunClosed { job: JOB }),
            Step::Register => self.register(host),
            Step::Look => self.query_ledger(host),
            Step::Settle(run_id) => self.settle(host, run_id),
            Step::Woken(claim) => self.feed(host, Event::Woken { job: JOB, claim }),
            Step::Renew(claim) => self.renew(host, claim),
            Step::RunEnds(claim) => self.run_ends(host, claim),
        }
    }

    fn execute_claim(&mut self, host: usize, id: ClaimId, claim: Box<Claim>) {
        let clock = self.store_clock();
        let (reply, effects) = protocol::claim(&mut self.state, &mut self.job, clock, &claim);
        self.keep(effects);
        if !self.dice.chance(self.loss) {
            self.soon(host, Step::Answer(id, reply));
        }
        if self.dice.chance(self.loss) {
            let later = self.now + self.dice.roll(1, 5000);
            self.plan(later, host, Step::Claim(ClaimId(u64::MAX), claim));
        }
    }

    fn no_answer(&mut self, host: usize, claim: ClaimId, request: Box<Claim>) {
        let runs = self.hosts[host].runs.contains_key(&claim);
        if self.hosts[host].tokens.contains_key(&claim) && !runs {
            self.feed(host, Event::NoReply { job: JOB, claim });
            self.plan(self.now + 200, host, Step::StoreUp);
            self.send_claim(host, claim, request, 210);
        }
    }

    fn settle(&mut self, host: usize, run_id: RunId) {
        let clock = self.store_clock();
        let settle = Settle {
            lock: self.lock.clone(),
            job: name(),
            run_id,
            keep: crate::store::Retention::of_records(100),
        };
        let (settled, effects) = protocol::settle(&mut self.state, &mut self.job, clock, &settle);
        self.keep(effects);
        if !settled {
            self.feed(host, Event::NotSettled { job: JOB });
        }
    }

    fn plan_due(&mut self, host: usize, at: Timestamp) {
        let offset = self.hosts[host].offset;
        if at.millis() <= self.last_due {
            let late = self.dice.roll(0, 5);
            self.plan(at.millis() - offset + late, host, Step::Due(at));
        }
    }

    fn start(&mut self, host: usize) {
        let now = self.clock(self.hosts[host].offset);
        let state = &mut self.hosts[host];
        state.core = Core::new([self.policy.clone()], None, now);
        state.up = true;
        state.tokens.clear();
        let next = self.policy.calendar.next_after(now.utc);
        self.plan_due(host, next.expect("always another"));
        self.soon(host, Step::Register);
    }

    fn register(&mut self, host: usize) {
        let clock = self.store_clock();
        let registration = Registration {
            job: name(),
            lock: self.lock.clone(),
            fingerprint: fingerprint(),
            ttl: TTL,
        };
        let answer = protocol::register(&self.state, &mut self.job, clock, &registration);
        self.feed(
            host,
            Event::Registered {
                job: JOB,
                reply: crate::store::Registered {
                    pauses: Vec::new(),
                    decided_until: answer.decided_until,
                    decided_beyond: answer.decided_beyond,
                    now: answer.now,
                    open: answer.open,
                    head: answer.head,
                    recovering: std::time::Duration::ZERO,
                    moved: false,
                },
            },
        );
    }

    fn query_ledger(&mut self, host: usize) {
        let clock = self.store_clock();
        let report = protocol::report(&name(), &self.state, true, self.job.as_ref(), clock);
        let event = Event::LedgerQueried {
            job: JOB,
            head: report.waiting.first().copied(),
            behind: report.first_due_behind_head(),
            open: report.open,
        };
        self.feed(host, event);
    }

    fn feed(&mut self, host: usize, event: Event) {
        let now = self.clock(self.hosts[host].offset);
        let actions = self.hosts[host].core.handle(now, event);
        for action in actions {
            self.act(host, action);
        }
        if let Some(timer) = self.hosts[host].core.next_timer() {
            let at = i64::try_from(timer.to_duration().as_millis()).expect("small");
            self.plan(at + 1, host, Step::Wake);
        }
    }
}

fn name() -> JobName {
    JobName::parse("job").expect("a name")
}

fn fingerprint() -> Fingerprint {
    Fingerprint("every second".into())
}

fn every_second() -> Policy {
    Policy {
        calendar: Arc::new(Every(1)),
        ..policy()
    }
    .with(|it| it.skew = Duration::from_secs(3))
}

const OVERLAPS: [OnOverlap; 3] = [
    OnOverlap::Skip,
    OnOverlap::Wait,
    OnOverlap::Queue { limit: 3 },
];

/// Clocks that disagree: nothing runs twice, early or at the same time, and nothing is missed.
#[test]
fn hosts_whose_clocks_disagree_run_every_occurrence_once() {
    for seed in 0..150 {
        let on_overlap = OVERLAPS[usize::try_from(seed % 3).expect("small")];
        let policy = every_second().with(|it| it.on_overlap = on_overlap);
        let mut fleet = Fleet::new(seed, policy, &[-1500, 0, 700]);
        fleet.longest_run = 100;
        fleet.settle_down();
        fleet.assert_exclusion();
        fleet.assert_once();
        fleet.assert_no_silence();
        for (second, outcomes) in fleet.verdicts() {
            assert_eq!(outcomes, [Outcome::Succeeded], "seed {seed}, {second}");
        }
    }
}

/// A network that loses and repeats, jobs longer than their interval.
#[test]
fn a_bad_network_costs_time_and_no_guarantee() {
    for seed in 0..300 {
        let policy = every_second().with(|it| {
            it.on_overlap = OVERLAPS[usize::try_from(seed % 3).expect("small")];
            it.catch_up = [CatchUp::None, CatchUp::Latest, CatchUp::All]
                [usize::try_from(seed / 3 % 3).expect("small")];
        });
        let mut fleet = Fleet::new(seed, policy, &[-400, 0, 300]);
        fleet.loss = 15;
        fleet.resends = true;
        fleet.settle_down();
        fleet.assert_exclusion();
        fleet.assert_once();
        fleet.assert_no_silence();
        for (second, outcomes) in fleet.verdicts() {
            assert_eq!(outcomes.len(), 1, "seed {seed}, {second}: {outcomes:?}");
        }
    }
}

/// Hosts that die and come back, with and without reruns.
#[test]
fn crashes_leave_verdicts_and_no_run_twice() {
    for seed in 0..300 {
        let on_crash = if seed % 2 == 0 {
            OnCrash::Ignore
        } else {
            OnCrash::Rerun { max_reruns: 3 }
        };
        let policy = every_second().with(|it| {
            it.on_crash = on_crash;
            it.on_overlap = OVERLAPS[usize::try_from(seed % 3).expect("small")];
        });
        let mut fleet = Fleet::new(seed, policy, &[-400, 0, 300]);
        fleet.loss = 3;
        fleet.resends = true;
        for _ in 0..4 {
            let at = fleet.now + fleet.dice.roll(1000, 4000);
            let host = usize::try_from(fleet.dice.roll(0, 3)).expect("small");
            fleet.crash_at(at, host);
            let back = fleet.now + fleet.dice.roll(100, 3000);
            fleet.plan(back, host, Step::Start);
        }
        fleet.settle_down();
        fleet.assert_exclusion();
        fleet.assert_once();
        fleet.assert_no_silence();
        if on_crash == OnCrash::Ignore {
            let again = fleet.started.iter().find(|started| started.attempt > 1);
            assert!(again.is_none(), "seed {seed}: {again:?}");
        }
    }
}

/// Hosts that are cut off from the store for a while, beside one that never is: whatever that one
/// has in hand is run, or skipped for a lock that a cut-off host still has, and never missed.
#[test]
fn what_a_healthy_host_has_in_hand_is_not_missed_for_hosts_that_come_back() {
    for seed in 0..90 {
        let policy = every_second().with(|it| {
            it.on_overlap = OVERLAPS[usize::try_from(seed % 3).expect("small")];
            it.catch_up = [CatchUp::None, CatchUp::Latest, CatchUp::All]
                [usize::try_from(seed / 3 % 3).expect("small")];
        });
        let mut fleet = Fleet::new(seed, policy, &[-1500, 0, 700]);
        fleet.resends = true;
        fleet.longest_run = 100;
        fleet.run_until(START + 5000);
        for _ in 0..5 {
            let at = fleet.now + fleet.dice.roll(100, 3000);
            let until = at + fleet.dice.roll(300, 4000);
            let host = usize::try_from(fleet.dice.roll(1, 4)).expect("small");
            for cut in [1, 2] {
                if host == cut || host == 3 {
                    fleet.cut_at(at, cut, until);
                }
            }
        }
        fleet.settle_down();
        fleet.assert_exclusion();
        fleet.assert_once();
        fleet.assert_no_silence();
        for (second, outcomes) in fleet.verdicts() {
            let missed = outcomes.contains(&Outcome::Missed);
            assert!(!missed, "seed {seed}, {second}: {outcomes:?}");
        }
    }
}
