//! A state of the world: store, hosts, network, and what an onlooker remembers.

use std::collections::BTreeMap;

use cronlatch::store::Kind;
use cronlatch::store::protocol::{
    Clock, FORGOTTEN_AHEAD, JobState, Key, LEAD, LockState, Marker, notice,
};

use crate::ids::{Tick, Ticket, clock, fingerprint, instant, tick_of, ticks};
use crate::rules::{Budget, Defect, Rules};

/// What the records say of an occurrence, as bits.
pub(crate) mod verdict {
    pub(crate) const RAN: u8 = 1;
    /// Its grant came when the lease was over; nothing was started.
    pub(crate) const LATE: u8 = 2;
    pub(crate) const INTERRUPTED: u8 = 4;
    pub(crate) const SKIPPED: u8 = 8;
    pub(crate) const MISSED: u8 = 16;
    pub(crate) const UNKNOWN: u8 = 32;
}

/// What became of an occurrence.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub(crate) struct Fate {
    pub(crate) starts: u8,
    pub(crate) verdicts: u8,
}

/// The answer to a gap: the watermark it was computed from, and what is dropped.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Gap {
    pub(crate) last: Tick,
    /// Those from before the store lost its data.
    pub(crate) unknown: Vec<Tick>,
    pub(crate) missed: Vec<Tick>,
}

/// How a run or a claim ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Word {
    Succeeded,
    Lost,
    NeverStarted,
    GivenBack,
}

/// What an occurrence is claimed as.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum As {
    Current,
    CaughtUp,
    Rerun,
    /// The head of the waiting list.
    Head,
}

impl As {
    pub(crate) fn kind(self) -> Kind {
        match self {
            Self::Current => Kind::Schedule,
            Self::CaughtUp => Kind::CatchUp,
            Self::Rerun => Kind::Rerun,
            Self::Head => Kind::Queue,
        }
    }
}

/// A request.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Ask {
    Claim {
        job: usize,
        at: Tick,
        version: usize,
        what: As,
        ticket: Ticket,
        gap: Option<Gap>,
    },
    Renew {
        job: usize,
        at: Tick,
        ticket: Ticket,
        fence: u64,
        attempt: u32,
    },
    Finish {
        job: usize,
        at: Tick,
        ticket: Ticket,
        word: Word,
    },
    Settle {
        job: usize,
        run: Ticket,
    },
    Register {
        job: usize,
        version: usize,
    },
}

impl Ask {
    pub(crate) fn job(&self) -> usize {
        match self {
            Self::Claim { job, .. }
            | Self::Renew { job, .. }
            | Self::Finish { job, .. }
            | Self::Settle { job, .. }
            | Self::Register { job, .. } => *job,
        }
    }

    fn ticket(&self) -> Option<Ticket> {
        match self {
            Self::Claim { ticket, .. }
            | Self::Renew { ticket, .. }
            | Self::Finish { ticket, .. } => Some(*ticket),
            Self::Settle { run, .. } => Some(*run),
            Self::Register { .. } => None,
        }
    }
}

/// A run that is open somewhere.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Watch {
    pub(crate) run: Ticket,
    pub(crate) at: Tick,
    /// When its lease is over, unless renewed.
    pub(crate) over: Tick,
}

/// An answer.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Answer {
    /// The fence counts only where the store may lose its data; else it is zero.
    Granted {
        fence: u64,
        attempt: u32,
        /// When the run may start; zero if it may at once.
        begins: Tick,
    },
    Recovering {
        until: Tick,
    },
    Early {
        until: Tick,
    },
    Running(Watch),
    Decided,
    Gap {
        last: Tick,
        horizon: Option<Tick>,
    },
    Unknown,
    TooLate,
    Held,
    /// The head of the waiting list, whether the lock is free, and whether the claimed occurrence
    /// is in the list.
    Waits {
        head: Tick,
        free: bool,
        entered: bool,
    },
    Finished,
    Renewed,
    NotRenewed,
    Done,
    NotSettled,
    Registered {
        base: Tick,
        open: Option<Watch>,
        head: Option<Tick>,
    },
}

/// What of the data is left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kept {
    All,
    Beginning,
    /// The snapshot that was taken last.
    Saved,
    Nothing,
}

/// A snapshot.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Saved {
    lock: LockState,
    jobs: Vec<Option<JobState>>,
    marker: Option<Marker>,
}

/// A request, or with its answer on the way back.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Message {
    pub(crate) host: usize,
    /// When this copy was sent; zero where that does not matter.
    pub(crate) sent: Tick,
    pub(crate) ask: Ask,
    pub(crate) answer: Option<Answer>,
}

/// What a lane is about.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum Phase {
    /// A registration is under way.
    Asking,
    /// Nothing, and nothing before this tick.
    Free { from: Tick },
    Claiming {
        ticket: Ticket,
        at: Tick,
        what: As,
        sent: Tick,
    },
}

/// One job on one host.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Lane {
    pub(crate) phase: Phase,
    /// The next occurrence of its schedule.
    pub(crate) next: usize,
    /// Those before this one are caught up with.
    pub(crate) late_until: usize,
    pub(crate) gap: Option<Gap>,
    pub(crate) watch: Option<Watch>,
    /// The head of the waiting list, and from when on it is to be claimed.
    pub(crate) wait: Option<(Tick, Tick)>,
    /// The next occurrence is to be claimed after that head.
    pub(crate) blocked: bool,
    /// Whether the ledger is to be asked again.
    pub(crate) stale: bool,
}

/// A run on a host.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Run {
    pub(crate) ticket: Ticket,
    pub(crate) job: usize,
    pub(crate) at: Tick,
    pub(crate) fence: u64,
    pub(crate) attempt: u32,
    /// The instant that it still waits for; zero once it has started.
    pub(crate) begins: Tick,
    /// The host's own end of the lease.
    pub(crate) end: Tick,
    /// Whether its processes live; else its verdict is on the way.
    pub(crate) alive: bool,
    /// When the renewal that is under way was sent.
    pub(crate) renewing: Option<Tick>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Host {
    pub(crate) up: bool,
    pub(crate) version: usize,
    pub(crate) lanes: Vec<Lane>,
    pub(crate) runs: Vec<Run>,
}

/// What an onlooker remembers.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub(crate) struct Onlooker {
    /// Per job, what became of each occurrence.
    pub(crate) fates: Vec<BTreeMap<Tick, Fate>>,
    /// Per job, where its ledger began.
    pub(crate) began: Vec<Option<Tick>>,
    /// When data were lost last.
    pub(crate) lost_at: Option<Tick>,
    /// The highest fencing token given out, and to whom.
    pub(crate) fence: u64,
    pub(crate) fence_of: Option<Ticket>,
    /// Claims that finished.
    pub(crate) finished: Vec<Ticket>,
    /// A request changed a lock that was another's.
    pub(crate) trespass: bool,
    /// A grant came with a fencing token that is not above all before.
    pub(crate) fence_fell: bool,
    /// A claim that had finished got the lock.
    pub(crate) revived: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct World {
    pub(crate) now: Tick,
    pub(crate) lock: LockState,
    pub(crate) jobs: Vec<Option<JobState>>,
    /// What the data say of the server; only where it may lose them.
    pub(crate) marker: Option<Marker>,
    pub(crate) server: usize,
    /// How far the server's clock is ahead.
    pub(crate) ahead: Tick,
    pub(crate) saved: Option<Box<Saved>>,
    pub(crate) hosts: Vec<Host>,
    pub(crate) net: Vec<Message>,
    pub(crate) left: Budget,
    pub(crate) seen: Onlooker,
}

impl World {
    pub(crate) fn begin(rules: &Rules) -> Self {
        let jobs = rules.schedules.len();
        let known = JobState {
            last: instant(0),
            open: None,
            waiting: Vec::new(),
            fingerprints: vec![(fingerprint(0), instant(0))],
            moved: None,
            decided_beyond: Vec::new(),
            pauses: Vec::new(),
            summary: cronlatch::store::Summary::default(),
        };
        let lane = Lane {
            phase: Phase::Free { from: 0 },
            next: 0,
            late_until: 0,
            gap: None,
            watch: None,
            wait: None,
            blocked: false,
            stale: false,
        };
        let host = |version: &usize| Host {
            up: true,
            version: *version,
            lanes: vec![lane.clone(); jobs],
            runs: Vec::new(),
        };
        let mut world = Self {
            now: 0,
            lock: LockState::default(),
            jobs: vec![(!rules.fresh).then_some(known); jobs],
            marker: (rules.is_forgetful()).then(|| Marker::new("0", clock(0))),
            server: 0,
            ahead: rules.ahead,
            saved: None,
            hosts: rules.versions.iter().map(host).collect(),
            net: Vec::new(),
            left: rules.budget,
            seen: Onlooker {
                fates: vec![BTreeMap::new(); jobs],
                began: vec![(!rules.fresh).then_some(0); jobs],
                ..Onlooker::default()
            },
        };
        for host in 0..world.hosts.len() {
            if rules.fresh || world.hosts[host].version > 0 {
                world.register_all(host);
            }
        }
        world.tidy(rules);
        world
    }

    pub(crate) fn fate(&mut self, job: usize, at: Tick) -> &mut Fate {
        self.seen.fates[job].entry(at).or_default()
    }

    /// A tick passes: leases end, in the store and on the hosts.
    pub(crate) fn tick(&mut self, rules: &Rules) {
        self.now += 1;
        let clock = clock(self.now + self.ahead);
        if let Key::Value { end: Some(end), .. } = &self.lock.key
            && *end <= clock.lease
        {
            self.lock.key = Key::Absent;
        }
        // What follows makes one state of those that no request can tell apart: how long ago a
        // lease ended, and how far below the clock the newest fencing token is.
        if self.lock.lease_end <= clock.lease {
            self.lock.lease_end = 0;
        }
        for fence in [&mut self.lock.fence, &mut self.seen.fence] {
            if !rules.is_forgetful() && *fence > 0 && *fence < clock.micros {
                *fence = clock.micros - 1;
            }
        }
        for host in 0..self.hosts.len() {
            self.end_leases(host);
            self.start_prepared(host);
        }
    }

    /// Makes one state of those that differ in nothing that matters.
    pub(crate) fn tidy(&mut self, rules: &Rules) {
        let hosts = &self.hosts;
        self.net
            .retain(|message| message.answer.is_none() || hosts[message.host].awaits(message));
        self.net.sort_unstable();
        self.net.dedup();
        for host in &mut self.hosts {
            host.runs.sort_unstable_by_key(|run| run.ticket);
        }
        let used = self.tickets();
        let is_used = |ticket: &Ticket| used.contains(ticket);
        self.lock
            .finished
            .retain(|(token, _)| is_used(&Ticket::of_token(token.as_str())));
        self.seen.finished.retain(is_used);
        self.seen.finished.sort_unstable();
        self.seen.fence_of = self.seen.fence_of.filter(is_used);
        for open in self
            .jobs
            .iter_mut()
            .flatten()
            .filter_map(|j| j.open.as_mut())
        {
            open.started_at = instant(0);
            if !rules.is_forgetful() {
                open.fence = open.fence.min(1);
            }
        }
        let waiting = self
            .jobs
            .iter_mut()
            .flatten()
            .flat_map(|job| &mut job.waiting);
        for crashed in waiting.filter_map(|entry| entry.crashed.as_mut()) {
            crashed.started_at = instant(0);
            if !rules.is_forgetful() {
                crashed.fence = crashed.fence.min(1);
            }
        }
    }

    /// The tickets that a request may still name.
    fn tickets(&self) -> Vec<Ticket> {
        let mut used: Vec<Ticket> = self.net.iter().filter_map(|m| m.ask.ticket()).collect();
        for host in &self.hosts {
            used.extend(host.runs.iter().map(|run| run.ticket));
            for lane in &host.lanes {
                used.extend(lane.watch.iter().map(|watch| watch.run));
                if let Phase::Claiming { ticket, .. } = lane.phase {
                    used.push(ticket);
                }
            }
        }
        for message in &self.net {
            if let Some(
                Answer::Running(watch)
                | Answer::Registered {
                    open: Some(watch), ..
                },
            ) = &message.answer
            {
                used.push(watch.run);
            }
        }
        used.extend(tickets_in(&self.lock, &self.jobs));
        if let Some(saved) = &self.saved {
            used.extend(tickets_in(&saved.lock, &saved.jobs));
            let ended = saved.lock.finished.iter();
            used.extend(ended.map(|(token, _)| Ticket::of_token(token.as_str())));
        }
        used
    }

    /// A ticket that nobody can mistake for another.
    pub(crate) fn new_ticket(&self, host: usize) -> Ticket {
        let used = self.tickets();
        (0..usize::MAX)
            .map(|number| Ticket { host, number })
            .find(|ticket| !used.contains(ticket) && !self.seen.finished.contains(ticket))
            .expect("there is no last number")
    }

    /// The store's clocks, and what it knows of its past.
    pub(crate) fn clock(&mut self, rules: &Rules) -> Clock {
        let mut now = clock(self.now + self.ahead);
        if rules.is_forgetful() && !rules.is(Defect::NoAmnesiaGuard) {
            let server = self.server.to_string();
            now.past = notice(&mut self.marker, &server, now, ticks(rules.ttl));
            // All requests have one TTL here: when it was last in use makes no difference.
            for listed in self.marker.iter_mut().flat_map(|it| &mut it.listed.0) {
                listed.until = 0;
            }
            let lost_at = self.marker.as_ref().and_then(|marker| marker.lost_at);
            let lost_at = lost_at.map(tick_of);
            self.seen.lost_at = self.seen.lost_at.max(lost_at);
            if rules.is(Defect::NoHorizon) {
                now.past.horizon = now.past.horizon.map(|at| at.minus(FORGOTTEN_AHEAD));
            }
            if rules.is(Defect::NoLeadInHorizon) {
                now.past.horizon = now.past.horizon.map(|at| at.minus(LEAD));
            }
        }
        now
    }

    /// A snapshot is taken.
    pub(crate) fn save(&mut self) {
        self.saved = Some(Box::new(Saved {
            lock: self.lock.clone(),
            jobs: self.jobs.clone(),
            marker: self.marker.clone(),
        }));
    }

    /// The server starts again, or another takes its place, with these data.
    pub(crate) fn restart_server(&mut self, rules: &Rules, kept: Kept) {
        self.server += 1;
        self.ahead = 0;
        if kept != Kept::All {
            self.seen.finished.clear();
        }
        match kept {
            Kept::All => {}
            Kept::Saved => {
                if let Some(saved) = self.saved.take() {
                    let Saved { lock, jobs, marker } = *saved;
                    (self.lock, self.jobs, self.marker) = (lock, jobs, marker);
                }
            }
            Kept::Beginning => {
                let fresh = Self::begin(rules);
                self.lock = LockState::default();
                (self.jobs, self.marker) = (fresh.jobs, fresh.marker);
            }
            Kept::Nothing => {
                self.lock = LockState::default();
                self.marker = None;
                self.jobs.fill(None);
            }
        }
        let now = clock(self.now).lease;
        if matches!(&self.lock.key, Key::Value { end: Some(end), .. } if *end <= now) {
            self.lock.key = Key::Absent;
        }
    }

    pub(crate) fn send(&mut self, host: usize, sent: Tick, ask: Ask) {
        self.net.push(Message {
            host,
            sent,
            ask,
            answer: None,
        });
    }
}

/// The tickets that the data of a store name.
fn tickets_in(lock: &LockState, jobs: &[Option<JobState>]) -> Vec<Ticket> {
    let key = match &lock.key {
        Key::Value { text, .. } => Some(text.as_str()),
        Key::Absent | Key::OtherType { .. } => None,
    };
    let open = jobs.iter().flatten().filter_map(|job| job.open.as_ref());
    let waiting = jobs.iter().flatten().flat_map(|job| &job.waiting);
    let crashed = waiting.filter_map(|entry| entry.crashed.as_ref());
    let tokens = lock.token.iter().chain(open.map(|open| &open.token));
    let tokens = tokens.chain(crashed.map(|crashed| &crashed.token));
    let tokens = tokens.map(cronlatch::names::Token::as_str);
    key.into_iter()
        .chain(tokens)
        .map(Ticket::of_token)
        .collect()
}
