//! Compares a store with the executable protocol: the same calls must get the same replies.
//!
//! Sequences of calls, with copies, delays, evictions and foreign hands in between, go to a real
//! store and to the plain function. What depends on the instant of a call is compared after it
//! was reduced: instants of the test itself read `now` (or so many ages before it), fences read first, second, third, and
//! durations are taken to the nearest hundred seconds.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use cronlatch::names::{HostName, JobName, RunId, Token};
use cronlatch::store::protocol::{
    self, Clock, Effect, Ending, JobState, Key, LockState, Marker, Past, Waiting, terms_of_text,
    waiting_of_text,
};
use cronlatch::store::{
    Attempt, Claim, ClaimReply, ClaimTarget, DroppedRange, Due, Fingerprint, Finish, GapAnswer,
    Grant, GrantedRun, Head, IfPaused, JobReport, Kind, Late, Lock, OpenRun, Outcome, Overlap,
    PauseOrder, PauseReply, PauseRequest, Range, Record, Registered, Registration, Renewal,
    Retention, RunStatus, RunTerms, Settle, Store, Summary,
};
use cronlatch::time::{BootInstant, Timestamp};
use proptest::prelude::{Strategy, any, prop, prop_oneof};

const TTL: Duration = Duration::from_secs(200);
/// Longer than a store recovers. What it moves from now into the past lies there between the
/// instants of the calls.
pub(crate) const AGE: Duration = Duration::from_secs(240);
/// So often an instant can be moved in one sequence, and still be told from others.
const AGES: u32 = 40;
const FOREIGN_TTL: Duration = Duration::from_secs(300);
const MINUTE: Duration = Duration::from_secs(60);
/// Longer than one sequence takes on any machine, and shorter than half of a minute.
const NOW: Duration = Duration::from_secs(25);
const JOBS: usize = 2;
const KEEP: Retention = Retention {
    failures: 2,
    ..Retention::of_records(6)
};
/// In place of how many claims ago: the one that has the lock by the function's state.
const HOLDER: usize = usize::MAX;
/// Beyond every deadline that counts from an instant of the test; or, back from it, before.
const FAR: Duration = Duration::from_secs(24 * 3600);
/// So far back does [`Meddling::End`] put the end of a lease.
pub(crate) const ENDED: Duration = Duration::from_secs(100);
/// What the holder of a lease brings along that the store forgot.
const TERMS: RunTerms = RunTerms {
    deadline: Timestamp::from_millis(0),
    rerun_window: FAR,
    max_reruns: 2,
    max_attempts: 0,
    reruns: 0,
    yields: false,
};
/// The process that keeps the function's data.
const SERVER: &str = "this one";

/// What a hand from outside does to the lock.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Meddling {
    /// The lease ends: the key is gone, and its end has come.
    End,
    /// The deadlines of all that waits pass.
    Late,
    /// The key is gone before its end.
    Evict,
    /// Another program sets it, with or without TTL.
    Foreign { ttl: bool },
    /// Another program makes a list of it.
    List,
    /// The key loses its TTL.
    Persist,
    /// A snapshot of all that is kept is taken.
    Save,
    /// The server restarts with the snapshot.
    Restore,
    /// All is lost.
    Flush,
    /// The server restarts with all it had.
    Restart,
    /// As much time passes as the store takes to recover.
    Age,
}

/// How long before it a claim asks for an occurrence that it wants ahead.
const SOON: Duration = Duration::from_millis(900);

/// When an occurrence may start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Earliness {
    Not,
    /// In a day.
    Far,
    /// Within the longest lead, and the claim has that lead.
    Soon,
    /// Later than the longest lead, and the claim has a longer one.
    TooSoon,
}

fn earliness() -> impl Strategy<Value = Earliness> {
    use proptest::strategy::Just;
    prop_oneof![
        14 => Just(Earliness::Not),
        1 => Just(Earliness::Far),
        4 => Just(Earliness::Soon),
        1 => Just(Earliness::TooSoon),
    ]
}

/// One call, in terms that do not depend on the clock.
#[derive(Debug, Clone)]
pub(crate) enum Call {
    Claim(Asked),
    /// A copy of an earlier claim.
    Resend(usize),
    Finish {
        claim: usize,
        record: Option<Outcome>,
        give_back: bool,
    },
    Renew(Vec<usize>),
    Settle(usize),
    /// A further attempt, with this number.
    Attempt(usize, u32),
    Register {
        job: usize,
        schedule: usize,
    },
    Pause(Order),
    Meddle(Meddling),
}

/// A request to pause or to resume.
#[derive(Debug, Clone)]
pub(crate) struct Order {
    job: usize,
    /// How many minutes after the newest request, or before it.
    after: i8,
    /// How many minutes later the pause ends by itself.
    until: Option<u32>,
    resumes: bool,
}

#[derive(Debug, Clone)]
pub(crate) enum Asked {
    Lock,
    Manual(usize),
    Occurrence(Wish),
    /// The first occurrence that waits, of the job of the wish, by the function's state.
    Head(Wish),
    Drops(Wish),
}

#[derive(Debug, Clone)]
pub(crate) struct Wish {
    job: usize,
    /// Minutes from [`Both::start`].
    at: u32,
    prev: Option<u32>,
    schedule: usize,
    kind: Kind,
    early: Earliness,
    /// In the ledger's far future, so that the ledger must be set back afterwards.
    ahead: bool,
    late: Option<Lateness>,
    overlap: Overlap,
    max_reruns: u32,
    max_attempts: u32,
    /// Whether a rerun may start after the lease ended.
    in_time: bool,
    /// An answer to the last gap told (or to a wrong one), with these drops.
    gap: Option<(bool, Vec<(u32, u32)>)>,
}

/// What a claim asks for that comes past its deadline.
#[derive(Debug, Clone, Copy)]
enum Lateness {
    Miss,
    Leave,
    CatchUp {
        over: bool,
        /// `catch_up: latest`, and whether the next occurrence is due.
        newer: Option<bool>,
    },
}

fn lateness() -> impl Strategy<Value = Lateness> {
    let newer = prop_oneof![
        2 => proptest::strategy::Just(None),
        2 => proptest::strategy::Just(Some(false)),
        1 => proptest::strategy::Just(Some(true)),
    ];
    prop_oneof![
        1 => proptest::strategy::Just(Lateness::Miss),
        1 => proptest::strategy::Just(Lateness::Leave),
        4 => (prop::bool::weighted(0.2), newer)
            .prop_map(|(over, newer)| Lateness::CatchUp { over, newer }),
    ]
}

fn overlap() -> impl Strategy<Value = Overlap> {
    prop_oneof![
        1 => proptest::strategy::Just(Overlap::Skip),
        2 => proptest::strategy::Just(Overlap::Wait),
        3 => (0..4_u32).prop_map(|limit| Overlap::Queue { limit }),
        1 => proptest::strategy::Just(Overlap::Queue { limit: u32::MAX }),
    ]
}

fn wish() -> impl Strategy<Value = Wish> {
    let gap = prop::option::weighted(
        0.3,
        (
            prop::bool::weighted(0.8),
            prop::collection::vec((0..6_u32, 1..3_u32), 0..3),
        ),
    );
    let kind = prop_oneof![
        4 => proptest::strategy::Just(Kind::Schedule),
        1 => proptest::strategy::Just(Kind::CatchUp),
        1 => proptest::strategy::Just(Kind::Queue),
    ];
    let flags = (
        earliness(),
        prop::bool::weighted(0.02),
        prop::option::weighted(0.25, lateness()),
        overlap(),
    );
    let reruns = (0..3_u32, 0..4_u32, prop::bool::weighted(0.8));
    (
        (0..JOBS, 0..12_u32, prop::option::weighted(0.5, 1..3_u32)),
        (0..5_usize, kind, flags, reruns, gap),
    )
        .prop_map(
            |((job, at, back), (schedule, kind, flags, reruns, gap))| Wish {
                job,
                at,
                prev: back.map(|back| at.saturating_sub(back)),
                schedule: schedule.saturating_sub(1),
                kind,
                early: flags.0,
                ahead: flags.1,
                late: flags.2,
                overlap: flags.3,
                max_reruns: reruns.0,
                max_attempts: reruns.1,
                in_time: reruns.2,
                gap,
            },
        )
}

fn order() -> impl Strategy<Value = Order> {
    let until = prop::option::weighted(0.5, 0..40_u32);
    (0..JOBS, -1..3_i8, until, prop::bool::weighted(0.6)).prop_map(
        |(job, after, until, resumes)| Order {
            job,
            after,
            until,
            resumes,
        },
    )
}

fn recorded() -> impl Strategy<Value = Option<Outcome>> {
    use proptest::strategy::Just;
    let outcome = prop_oneof![3 => Just(Outcome::Succeeded), 1 => Just(Outcome::Failed)];
    prop::option::weighted(0.6, outcome)
}

fn call() -> impl Strategy<Value = Call> {
    let meddling = prop_oneof![
        4 => proptest::strategy::Just(Meddling::End),
        1 => proptest::strategy::Just(Meddling::Late),
        1 => proptest::strategy::Just(Meddling::Evict),
        1 => any::<bool>().prop_map(|ttl| Meddling::Foreign { ttl }),
        1 => proptest::strategy::Just(Meddling::List),
        1 => proptest::strategy::Just(Meddling::Persist),
        2 => proptest::strategy::Just(Meddling::Save),
        2 => proptest::strategy::Just(Meddling::Restore),
        1 => proptest::strategy::Just(Meddling::Flush),
        1 => proptest::strategy::Just(Meddling::Restart),
        4 => proptest::strategy::Just(Meddling::Age),
    ];
    // Indices count back from the newest claim, so that most calls are about what goes on now.
    let holder = || proptest::strategy::Just(HOLDER);
    let recent = || prop_oneof![3 => 0..2_usize, 1 => 0..12_usize, 3 => holder()];
    prop_oneof![
        7 => wish().prop_map(|wish| Call::Claim(Asked::Occurrence(wish))),
        4 => wish().prop_map(|wish| Call::Claim(Asked::Head(wish))),
        1 => wish().prop_map(|wish| Call::Claim(Asked::Drops(wish))),
        1 => (0..JOBS).prop_map(|job| Call::Claim(Asked::Manual(job))),
        1 => proptest::strategy::Just(Call::Claim(Asked::Lock)),
        3 => recent().prop_map(Call::Resend),
        5 => (recent(), recorded(), any::<bool>())
            .prop_map(|(claim, record, give_back)| Call::Finish { claim, record, give_back }),
        2 => prop::collection::vec(recent(), 0..4).prop_map(Call::Renew),
        2 => recent().prop_map(Call::Settle),
        1 => (recent(), 1..5_u32).prop_map(|(claim, attempt)| Call::Attempt(claim, attempt)),
        1 => (0..JOBS, 0..4_usize).prop_map(|(job, schedule)| Call::Register { job, schedule }),
        2 => order().prop_map(Call::Pause),
        5 => meddling.prop_map(Call::Meddle),
    ]
}

/// Sequences to compare, and whether the lock excludes. In half of them the store loses nothing.
pub(crate) fn sequences() -> impl Strategy<Value = (bool, Vec<Call>)> {
    let calls = (any::<bool>(), prop::collection::vec(call(), 1..40));
    let calls = calls.prop_map(|(lasts, mut calls)| {
        calls.retain(|call| !lasts || !loses(call));
        calls
    });
    (prop::bool::weighted(0.8), calls)
}

fn loses(call: &Call) -> bool {
    let Call::Meddle(meddling) = call else {
        return false;
    };
    matches!(
        meddling,
        Meddling::Restore | Meddling::Flush | Meddling::Restart | Meddling::Age
    )
}

/// Does to the lock in the store what was done to it in the function's state.
pub(crate) trait Meddler {
    ///
    /// `ended` is the end that [`Meddling::End`] writes, in milliseconds.
    fn meddle(&self, lock: &Lock, meddling: Meddling, ttl: Duration, ended: u64);
    /// All that the store keeps of a lock: token, run, end of the lease, and how tokens ended.
    fn lock_kept(&self, lock: &Lock) -> [Option<String>; 4];
    /// What it stores about a job and no reply contains: the waiting list, and the status, token,
    /// kind, fence and terms of the open run.
    fn job_kept(&self, lock: &Lock, job: &JobName) -> [Option<String>; 6];
    /// Declares the store new.
    fn begin(&self);
}

/// Runs one sequence on both sides; the first difference is the error.
pub(crate) async fn compare(
    store: Arc<dyn Store>,
    meddler: &impl Meddler,
    lock: Lock,
    calls: &[Call],
) -> Result<(), String> {
    // From here on its claims carry the TTL, as those of a daemon.
    let first = Registration {
        job: job_name(0),
        lock: Lock::raw("warm-up"),
        fingerprint: Fingerprint("none".to_owned()),
        ttl: TTL,
    };
    store.register(&[first]).await.map_err(|e| e.to_string())?;
    meddler.begin();
    let start = store.now().await.map_err(|e| e.to_string())?;
    let mut both = Both {
        store,
        lock,
        // Half a minute off, so that no occurrence lies near the instant of the test. The newest
        // of them lies ahead of it.
        start: start.minus(MINUTE * 21 / 2),
        now: start,
        claims: Vec::new(),
        real: Side::default(),
        plain: Side::default(),
        model: Model {
            kept: Kept::default(),
            saved: Kept::default(),
            marker: Some(Marker::new(SERVER, clock_at(start))),
        },
        fences: Vec::new(),
        listed: Duration::ZERO,
        at_its_instant: false,
    };
    for (nr, call) in calls.iter().enumerate() {
        let (real, plain) = both.apply(call, meddler).await;
        if both.at_its_instant {
            // Nobody knows on which side of the instant the store served the claim.
            return Ok(());
        }
        if real != plain {
            return Err(format!(
                "call {nr}, {call:?}\n  store:    {real}\n  function: {plain}"
            ));
        }
    }
    Ok(())
}

/// What one side has seen, to reduce its answers.
#[derive(Debug, Default)]
struct Side {
    fences: Vec<u64>,
    gap: Option<Timestamp>,
}

#[derive(Debug)]
struct Model {
    kept: Kept,
    saved: Kept,
    marker: Option<Marker>,
}

/// All that a loss of data may take away.
#[derive(Debug, Default, Clone)]
struct Kept {
    lock: LockState,
    jobs: HashMap<usize, Option<JobState>>,
    history: HashMap<usize, Vec<Record>>,
}

struct Both {
    store: Arc<dyn Store>,
    lock: Lock,
    start: Timestamp,
    now: Timestamp,
    /// Each claim as the store and as the function gets it, and its job.
    claims: Vec<(Claim, Claim, Option<usize>)>,
    /// What each was granted: by the store, by the function.
    fences: Vec<(u64, u64)>,
    real: Side,
    plain: Side,
    model: Model,
    /// The longest TTL of what was registered.
    listed: Duration,
    /// The instant of a claim came while the store served it.
    at_its_instant: bool,
}

fn clock_at(now: Timestamp) -> Clock {
    let millis = u64::try_from(now.millis()).expect("after 1970");
    Clock {
        micros: millis * 1000,
        lease: millis,
        past: Past::default(),
    }
}

fn job_name(job: usize) -> JobName {
    JobName::parse(&format!("j{job}")).expect("a name")
}

impl Both {
    fn at(&self, minutes: u32) -> Timestamp {
        self.start.plus(MINUTE * minutes)
    }

    /// A clock that is past every instant of the calls before: two instants that are equal on one
    /// side must not differ on the other.
    async fn clock(&self) -> Clock {
        let before = self.store.now().await.expect("the store answers");
        let mut now = before;
        while now == before {
            now = self.store.now().await.expect("the store answers");
        }
        clock_at(now)
    }

    /// The clock of an operation that compares the marker.
    fn noticing(&mut self, clock: Clock, longest: Duration) -> Clock {
        let past = protocol::notice(&mut self.model.marker, SERVER, clock, longest);
        Clock { past, ..clock }
    }

    /// The renewal of a claim, as the store and as the function get it.
    fn renewals(&self, index: usize) -> (Renewal, Renewal) {
        let claim = &self.claims[index].0;
        let run = match &claim.what {
            ClaimTarget::Lock | ClaimTarget::Drops { .. } => None,
            ClaimTarget::Manual { job, .. } => Some((job, None, Kind::Manual)),
            ClaimTarget::Occurrence { job, due, kind, .. } => {
                Some((job, Some(due.scheduled_at), *kind))
            }
        };
        let run = run.map(|(job, scheduled_at, kind)| GrantedRun {
            job: job.clone(),
            scheduled_at,
            attempt: 1,
            kind,
            started_at: self.start,
            terms: TERMS,
        });
        let (real, plain) = self.fences[index];
        let with = |fence| Renewal {
            grant: Grant {
                lock: self.lock.clone(),
                token: claim.token.clone(),
                run_id: claim.run_id.clone(),
                fence,
                ttl: TTL,
                sent: BootInstant::BOOT,
                starts_at: None,
            },
            run: run.clone(),
        };
        (with(real), with(plain))
    }

    /// Makes the call on both sides; the answers and all that can be read afterwards, reduced.
    async fn apply(&mut self, call: &Call, meddler: &impl Meddler) -> (String, String) {
        let clock = self.clock().await;
        let (real, plain) = match call {
            Call::Claim(asked) => {
                self.ask(asked, clock.utc());
                self.claim(self.claims.len() - 1, clock).await
            }
            Call::Resend(back) => match self.recent(*back) {
                Some(index) => self.claim(index, clock).await,
                None => return Default::default(),
            },
            Call::Finish {
                claim,
                record,
                give_back,
            } => match self.recent(*claim) {
                Some(index) => self.finish(index, (*record, *give_back), clock).await,
                None => return Default::default(),
            },
            Call::Renew(backs) => self.renew(backs, clock).await,
            Call::Settle(back) => match self.recent(*back) {
                Some(index) => self.settle(index, clock).await,
                None => return Default::default(),
            },
            Call::Attempt(back, attempt) => match self.recent(*back) {
                Some(index) => self.note_attempt(index, *attempt).await,
                None => return Default::default(),
            },
            Call::Register { job, schedule } => self.register(*job, *schedule, clock).await,
            Call::Pause(order) => self.pause(order, clock).await,
            Call::Meddle(meddling) => {
                let of_key = matches!(
                    meddling,
                    Meddling::Evict | Meddling::Foreign { .. } | Meddling::List | Meddling::Persist
                );
                if self.lock.exclusive || !of_key {
                    let ended = clock_at(self.now.minus(ENDED)).lease;
                    meddler.meddle(&self.lock, *meddling, FOREIGN_TTL, ended);
                    self.meddle(*meddling, clock, ended);
                }
                Default::default()
            }
        };
        let (mut seen_real, mut seen_plain) = self.look(clock).await;
        let (kept_real, kept_plain) = self.kept(meddler);
        seen_real += &kept_real;
        seen_plain += &kept_plain;
        (
            format!("{real} {seen_real}"),
            format!("{plain} {seen_plain}"),
        )
    }

    fn recent(&self, back: usize) -> Option<usize> {
        if back == HOLDER {
            let token = self.model.kept.lock.token.as_ref()?;
            return self
                .claims
                .iter()
                .position(|(claim, ..)| claim.token == *token);
        }
        self.claims.len().checked_sub(back + 1)
    }

    fn ask(&mut self, asked: &Asked, now: Timestamp) {
        let host = HostName::parse(&format!("h{}", self.claims.len() % 3)).expect("a name");
        let run_id = RunId::new();
        let real = Claim {
            lock: self.lock.clone(),
            token: Token::new(&host, &run_id),
            run_id,
            ttl: TTL,
            what: self.what((asked, now), self.real.gap),
        };
        let plain = Claim {
            what: self.what((asked, now), self.plain.gap),
            ..real.clone()
        };
        let job = match asked {
            Asked::Lock => None,
            Asked::Manual(job) => Some(*job),
            Asked::Occurrence(wish) | Asked::Head(wish) | Asked::Drops(wish) => Some(wish.job),
        };
        self.claims.push((real, plain, job));
        self.fences.push((0, 0));
    }

    fn what(&self, (asked, now): (&Asked, Timestamp), told: Option<Timestamp>) -> ClaimTarget {
        let wish = match asked {
            Asked::Lock => return ClaimTarget::Lock,
            Asked::Manual(job) => {
                return ClaimTarget::Manual {
                    job: job_name(*job),
                    if_paused: IfPaused::Refuse,
                };
            }
            Asked::Occurrence(wish) | Asked::Head(wish) | Asked::Drops(wish) => wish,
        };
        let far = FAR;
        let state = self.model.kept.jobs.get(&wish.job).and_then(Option::as_ref);
        let head = state.and_then(|job| job.waiting.first());
        let scheduled_at = match asked {
            Asked::Head(_) => head.map_or(self.at(wish.at), |entry| entry.scheduled_at),
            _ if wish.ahead => self.at(wish.at + 5 * 60),
            _ => self.at(wish.at),
        };
        let drop = |(from, count): &(u32, u32)| DroppedRange {
            range: Range {
                from: self.at(*from),
                until: self.at(from + count - 1),
                count: u64::from(*count),
            },
            outcome: if count % 2 == 0 {
                Outcome::Skipped
            } else {
                Outcome::Missed
            },
            reason: "dropped".to_owned(),
        };
        let gap = |(right, drops): &(bool, Vec<(u32, u32)>)| GapAnswer {
            if_last: told.filter(|_| *right).unwrap_or(self.start),
            drop: drops.iter().map(drop).collect(),
        };
        let gap = wish.gap.as_ref().map(gap);
        let fingerprint = Fingerprint(format!("schedule {}", wish.schedule));
        if let (Asked::Drops(_), Some(answer)) = (asked, &gap) {
            return ClaimTarget::Drops {
                job: job_name(wish.job),
                fingerprint,
                answer: answer.clone(),
                keep: KEEP,
            };
        }
        let due = Due {
            scheduled_at,
            not_before: match wish.early {
                Earliness::Not => self.start.minus(far),
                Earliness::Far => self.now.plus(far),
                Earliness::Soon => now.plus(SOON),
                Earliness::TooSoon => now.plus(TTL),
            },
            deadline: if wish.late.is_some() {
                self.start.minus(far)
            } else {
                self.now.plus(far)
            },
            prev: wish.prev.map(|prev| self.at(prev)),
            fingerprint,
            gap,
            late: match wish.late {
                None | Some(Lateness::Miss) => Late::Miss,
                Some(Lateness::Leave) => Late::Leave,
                Some(Lateness::CatchUp { over, newer }) => {
                    let due = |is_due| {
                        if is_due {
                            self.start
                        } else {
                            self.now.plus(far)
                        }
                    };
                    Late::CatchUp {
                        until: due(over),
                        newer: newer.map(due),
                    }
                }
            },
            max_reruns: wish.max_reruns,
            max_attempts: wish.max_attempts,
            rerun_window: if wish.in_time { far } else { Duration::ZERO },
            lead: match wish.early {
                Earliness::Not | Earliness::Far => Duration::ZERO,
                Earliness::Soon => protocol::LEAD,
                Earliness::TooSoon => TTL * 2,
            },
        };
        ClaimTarget::Occurrence {
            job: job_name(wish.job),
            kind: wish.kind,
            due,
            overlap: wish.overlap,
            keep: KEEP,
        }
    }

    async fn claim(&mut self, index: usize, clock: Clock) -> (String, String) {
        let (real, plain, job) = self.claims[index].clone();
        let known = (job.as_ref()).and_then(|job| self.model.kept.jobs.get(job)?.as_ref());
        let lock = &self.model.kept.lock;
        let mut clock = match protocol::settled(lock, known, clock, &plain) {
            // The short way does not look at the marker.
            Some(_) => clock,
            None => self.noticing(clock, TTL),
        };
        clock.past.least = protocol::least_wait(job.is_some(), self.listed);
        let real = self.store.claim(&real).await.expect("the store answers");
        if let ClaimTarget::Occurrence { due, .. } = &plain.what
            && clock.utc() < due.not_before
        {
            let after = self.store.now().await.expect("the store answers");
            self.at_its_instant |= due.not_before <= after;
        }
        let mut none = None;
        let state = match job {
            Some(job) => self.model.kept.jobs.entry(job).or_default(),
            None => &mut none,
        };
        let (plain, effects) = protocol::claim(&mut self.model.kept.lock, state, clock, &plain);
        protocol::summarize(state, &effects, clock);
        self.model.write(effects);
        if let (ClaimReply::Granted { fence: a, .. }, ClaimReply::Granted { fence: b, .. }) =
            (&real, &plain)
        {
            self.fences[index] = (*a, *b);
        }
        if let ClaimReply::Gap { last, .. } = real {
            self.real.gap = Some(last);
        }
        if let ClaimReply::Gap { last, .. } = plain {
            self.plain.gap = Some(last);
        }
        (
            self.real.claim_reply(self.now, &real),
            self.plain.claim_reply(self.now, &plain),
        )
    }

    async fn finish(
        &mut self,
        index: usize,
        (outcome, give_back): (Option<Outcome>, bool),
        clock: Clock,
    ) -> (String, String) {
        let (claim, _, job) = self.claims[index].clone();
        let scheduled_at = match &claim.what {
            ClaimTarget::Occurrence { due, .. } => Some(due.scheduled_at),
            _ => None,
        };
        let record = job.zip(outcome).map(|(job, outcome)| Record {
            run_id: Some(claim.run_id.clone()),
            started_at: Some(self.start),
            finished_at: Some(self.start),
            host: HostName::parse("h").ok(),
            // The second one is written otherwise in a summary.
            reason: [None, Some("a reason"), Some("50 %\tof it")][index % 3].map(str::to_owned),
            exit_code: Some(i32::from(outcome == Outcome::Failed)),
            attempts: 1,
            ..crate::support::claims::record(job_name(job), scheduled_at, outcome)
        });
        let finish = Finish {
            lock: self.lock.clone(),
            token: claim.token,
            record,
            job: job.map(job_name),
            give_back,
            keep: KEEP,
        };
        let real = self.store.finish(&finish).await.expect("the store answers");
        let lock = &self.model.kept.lock;
        // Only then does the script look.
        let clock = if lock.key == Key::Absent && lock.fence == 0 {
            self.noticing(clock, Duration::ZERO)
        } else {
            clock
        };
        let mut none = None;
        let state = match job {
            Some(job) => self.model.kept.jobs.entry(job).or_default(),
            None => &mut none,
        };
        let (plain, effects) = protocol::finish(&mut self.model.kept.lock, state, clock, &finish);
        protocol::summarize(state, &effects, clock);
        self.model.write(effects);
        (format!("{real:?}"), format!("{plain:?}"))
    }

    async fn renew(&mut self, backs: &[usize], clock: Clock) -> (String, String) {
        let indexes: Vec<usize> = backs.iter().filter_map(|b| self.recent(*b)).collect();
        let (mut replies, mut expected) = (Vec::new(), Vec::new());
        // One by one: a batch holds each lock once, and the scripts go through one twice.
        for index in indexes {
            let (real, plain) = self.renewals(index);
            let longest = protocol::longest_counted(std::slice::from_ref(&real));
            let reply = self.store.renew(&[real]).await.expect("the store answers");
            replies.extend(reply);
            let clock = self.noticing(clock, longest);
            let kept = &mut self.model.kept;
            let mut none = None;
            let state = match self.claims[index].2 {
                Some(job) => kept.jobs.entry(job).or_default(),
                None => &mut none,
            };
            let (reply, effects) = protocol::renew(&mut kept.lock, state, clock, &plain);
            protocol::summarize(state, &effects, clock);
            self.model.write(effects);
            expected.push(reply);
        }
        (format!("{replies:?}"), format!("{expected:?}"))
    }

    async fn note_attempt(&mut self, index: usize, attempt: u32) -> (String, String) {
        let (claim, _, Some(job)) = self.claims[index].clone() else {
            return Default::default();
        };
        let attempt = Attempt {
            lock: self.lock.clone(),
            token: claim.token,
            job: job_name(job),
            attempt,
        };
        let real = self.store.note_attempt(&attempt).await;
        let state = self.model.kept.jobs.entry(job).or_default();
        let plain = protocol::note_attempt(state, &attempt);
        let real = real.expect("the store answers");
        (format!("{real:?}"), format!("{plain:?}"))
    }

    async fn settle(&mut self, index: usize, clock: Clock) -> (String, String) {
        let (claim, _, Some(job)) = self.claims[index].clone() else {
            return Default::default();
        };
        let settle = Settle {
            lock: self.lock.clone(),
            job: job_name(job),
            run_id: claim.run_id,
            keep: KEEP,
        };
        let real = self.store.settle(&settle).await.expect("the store answers");
        let clock = self.noticing(clock, Duration::ZERO);
        let state = self.model.kept.jobs.entry(job).or_default();
        let (plain, effects) = protocol::settle(&mut self.model.kept.lock, state, clock, &settle);
        protocol::summarize(state, &effects, clock);
        self.model.write(effects);
        (format!("{real:?}"), format!("{plain:?}"))
    }

    async fn pause(&mut self, order: &Order, clock: Clock) -> (String, String) {
        let state = self.model.kept.jobs.entry(order.job).or_default();
        let newest = state.as_ref().and_then(|state| state.pauses.last());
        let newest = newest.map_or(self.start, |pause| pause.asked_at);
        let minutes = MINUTE * u32::from(order.after.unsigned_abs());
        let asked_at = if order.after < 0 {
            newest.minus(minutes)
        } else {
            newest.plus(minutes)
        };
        let request = PauseRequest {
            job: job_name(order.job),
            lock: self.lock.clone(),
            order: if order.resumes {
                PauseOrder::Resume
            } else {
                PauseOrder::Pause {
                    until: order.until.map(|minutes| asked_at.plus(MINUTE * minutes)),
                    reason: "a new disk".to_owned(),
                }
            },
            by: "alice@web1".to_owned(),
            asked_at,
        };
        let known = state.is_some();
        let real = self.store.pause(&request).await.expect("the store answers");
        // Only without a ledger does the script look at the marker.
        let clock = if known {
            clock
        } else {
            self.noticing(clock, Duration::ZERO)
        };
        let state = self.model.kept.jobs.entry(order.job).or_default();
        let plain = protocol::pause(state, clock, &request);
        let reduce = |reply: PauseReply| match reply {
            PauseReply::Recovering { remaining } => format!("recovering {}", reduce(remaining)),
            other => format!("{other:?}"),
        };
        (reduce(real), reduce(plain))
    }

    async fn register(&mut self, job: usize, schedule: usize, clock: Clock) -> (String, String) {
        let registration = Registration {
            job: job_name(job),
            lock: self.lock.clone(),
            fingerprint: Fingerprint(format!("schedule {schedule}")),
            ttl: TTL,
        };
        let asked = [registration];
        let real = self
            .store
            .register(&asked)
            .await
            .expect("the store answers");
        self.listed = TTL;
        let clock = self.noticing(clock, TTL);
        let state = self.model.kept.jobs.entry(job).or_default();
        let plain = protocol::register(&self.model.kept.lock, state, clock, &asked[0]);
        let reduce = |known: &Registered| {
            format!(
                "{} {} {:?} {} {} {:?} {:?}",
                reduce(known.recovering),
                reduce_instant(self.now, known.decided_until),
                reduce_instants(self.now, &known.decided_later),
                reduce_instant(self.now, known.now),
                reduce_open(self.now, known.open.as_ref()),
                known.head.map(|head| reduce_head(self.now, head)),
                known.pauses
            )
        };
        (reduce(&real[0]), reduce(&plain))
    }

    fn meddle(&mut self, meddling: Meddling, clock: Clock, ended: u64) {
        let model = &mut self.model;
        let elsewhere = |marker: &mut Option<Marker>| {
            if let Some(marker) = marker {
                "another one".clone_into(&mut marker.server);
            }
        };
        match meddling {
            Meddling::Save => model.saved = model.kept.clone(),
            Meddling::Restore => {
                model.kept = model.saved.clone();
                elsewhere(&mut model.marker);
            }
            Meddling::Flush => {
                model.kept = Kept::default();
                model.marker = None;
            }
            Meddling::Restart => elsewhere(&mut model.marker),
            Meddling::Late => {
                for job in model.kept.jobs.values_mut().flatten() {
                    for entry in &mut job.waiting {
                        entry.deadline = Timestamp::EPOCH;
                    }
                }
            }
            Meddling::Age => {
                if let Some(marker) = &mut model.marker
                    && let Some(lost_at) = &mut marker.lost_at
                {
                    *lost_at = lost_at.minus(AGE);
                    marker.until -= u64::try_from(AGE.as_millis()).expect("small");
                    for listed in &mut marker.listed.0 {
                        listed.until = 1;
                    }
                }
            }
            _ => {}
        }
        let lock = &mut self.model.kept.lock;
        let foreign_end = clock.lease + u64::try_from(FOREIGN_TTL.as_millis()).expect("small");
        match meddling {
            Meddling::End => {
                lock.key = Key::Absent;
                if *lock != LockState::default() {
                    lock.lease_end = ended;
                }
            }
            Meddling::Evict => lock.key = Key::Absent,
            Meddling::Foreign { ttl } => {
                lock.key = Key::Value {
                    text: "another program".to_owned(),
                    end: ttl.then_some(foreign_end),
                }
            }
            Meddling::List => {
                lock.key = Key::OtherType {
                    end: Some(foreign_end),
                }
            }
            Meddling::Persist => {
                if let Key::Value { end, .. } | Key::OtherType { end } = &mut lock.key {
                    *end = None;
                }
            }
            _ => {}
        }
    }

    /// Everything that is stored and that no reply contains.
    fn kept(&mut self, meddler: &impl Meddler) -> (String, String) {
        let [token, run, end, finished] = meddler.lock_kept(&self.lock);
        let plain = &self.model.kept.lock;
        let letter = |ending: &Ending| match ending {
            Ending::Released => 'R',
            Ending::Lost => 'L',
            Ending::Interrupted => 'I',
        };
        let letters = finished.unwrap_or_default();
        let letters = letters.lines().filter_map(|line| line.chars().next());
        // Without a token the end means nothing, and a store need not keep it.
        let is_held = |token: Option<&str>| token.is_some_and(|token| !token.is_empty());
        let lease_end = end.filter(|_| is_held(token.as_deref()));
        let lease_end = lease_end.and_then(|end| end.parse().ok()).unwrap_or(0);
        let held_until = plain.token.as_ref().map_or(0, |_| plain.lease_end);
        let end = |end: i64| reduce_lease_end(self.now, Timestamp::from_millis(end));
        let mut real = format!(
            "\n    lock {} {} {} {}",
            token.unwrap_or_default(),
            run.unwrap_or_default(),
            end(lease_end),
            letters.collect::<String>()
        );
        let mut wanted = format!(
            "\n    lock {} {} {} {}",
            plain.token.as_ref().map(Token::as_str).unwrap_or_default(),
            plain.run_id.as_ref().map(RunId::as_str).unwrap_or_default(),
            end(i64::try_from(held_until).expect("small")),
            plain
                .finished
                .iter()
                .map(|(_, e)| letter(e))
                .collect::<String>()
        );
        for job in 0..JOBS {
            let [waiting, status, token, kind, fence, terms] =
                meddler.job_kept(&self.lock, &job_name(job));
            let list = waiting_of_text(&waiting.unwrap_or_default()).expect("a waiting list");
            real += &self.real.waiting(self.now, &list);
            if status.as_deref() == Some("open") {
                let terms = terms_of_text(&terms.expect("an open run has terms"));
                real += &format!(
                    "\n      {} {} {} {}",
                    token.expect("a token"),
                    kind.expect("a kind"),
                    self.real
                        .fence(fence.expect("a fence").parse().expect("a number")),
                    reduce_terms(self.now, &terms.expect("terms"))
                );
            }
            let Some(state) = self.model.kept.jobs.get(&job).and_then(Option::as_ref) else {
                wanted += &self.plain.waiting(self.now, &[]);
                continue;
            };
            wanted += &self.plain.waiting(self.now, &state.waiting);
            if let Some(open) = &state.open {
                wanted += &format!(
                    "\n      {} {} {} {}",
                    open.token.as_str(),
                    open.kind.word(),
                    self.plain.fence(open.fence),
                    reduce_terms(self.now, &open.terms)
                );
            }
        }
        (real, wanted)
    }

    /// All that can be read of the jobs.
    async fn look(&mut self, clock: Clock) -> (String, String) {
        let asked: Vec<(JobName, Lock)> = (0..JOBS)
            .map(|job| (job_name(job), self.lock.clone()))
            .collect();
        let reports = self.store.jobs(&asked).await.expect("the store answers");
        let (mut real, mut plain) = (String::new(), String::new());
        for (job, report) in reports.iter().enumerate() {
            let state = self.model.kept.jobs.entry(job).or_default().as_ref();
            let exclusive = self.lock.exclusive;
            let wanted =
                protocol::report(&report.job, &self.model.kept.lock, exclusive, state, clock);
            real += &self.real.report(self.now, report);
            plain += &self.plain.report(self.now, &wanted);
            let history = self.store.history(&report.job, &self.lock, 100).await;
            let mut wanted = self
                .model
                .kept
                .history
                .get(&job)
                .cloned()
                .unwrap_or_default();
            wanted.reverse();
            real += &self
                .real
                .records(self.now, history.expect("the store answers").records);
            plain += &self.plain.records(self.now, wanted);
        }
        (real, plain)
    }
}

impl Model {
    fn write(&mut self, effects: Vec<Effect>) {
        for effect in effects {
            let Effect::Append {
                record,
                keep,
                follows,
                replaces,
            } = effect
            else {
                continue;
            };
            let job = record.job.as_str()[1..].parse().expect("our own name");
            let history = self.kept.history.entry(job).or_default();
            if replaces {
                history.retain(|known| !protocol::is_replaced_by(known, &record));
            }
            let merged = history
                .last()
                .and_then(|newest| protocol::merge(newest, &record, follows));
            if merged.is_some() {
                history.pop();
            }
            history.push(merged.unwrap_or(*record));
            if let Some(keep) = keep {
                protocol::trim(history, keep);
            }
        }
    }
}

impl Side {
    fn fence(&mut self, fence: u64) -> String {
        if fence == 0 {
            return "none".to_owned();
        }
        if self.fences.last().is_none_or(|newest| fence > *newest) {
            self.fences.push(fence);
        }
        match self.fences.iter().position(|known| *known == fence) {
            Some(nr) => format!("#{nr}"),
            None => format!("a fence that fell: {fence}"),
        }
    }

    fn claim_reply(&mut self, now: Timestamp, reply: &ClaimReply) -> String {
        match reply {
            ClaimReply::Granted {
                fence,
                attempt,
                at,
                starts_in,
            } => format!(
                "granted {} {attempt} {} {}",
                self.fence(*fence),
                reduce_instant(now, *at),
                reduce(*starts_in)
            ),
            ClaimReply::Recovering { remaining } => format!("recovering {}", reduce(*remaining)),
            ClaimReply::Early { by } => format!("early {}", reduce(*by)),
            ClaimReply::AlreadyClaimed(RunStatus::Running {
                by,
                run_id,
                attempt,
                remaining,
            }) => format!("running {by} {run_id} {attempt} {}", reduce(*remaining)),
            ClaimReply::Gap {
                last,
                horizon,
                decided_later,
                pauses,
            } => format!(
                "gap {} {:?} {:?} {pauses:?}",
                reduce_instant(now, *last),
                horizon.map(|at| reduce_instant(now, at)),
                reduce_instants(now, decided_later)
            ),
            ClaimReply::Held { by, remaining } => {
                format!("held {by} {:?}", remaining.map(reduce))
            }
            ClaimReply::Ahead { by } => format!("ahead {}", reduce(*by)),
            ClaimReply::Waits {
                head,
                entered,
                by,
                remaining,
            } => format!(
                "waits {} {entered} {by:?} {:?}",
                reduce_head(now, *head),
                remaining.map(reduce)
            ),
            other => format!("{other:?}"),
        }
    }

    fn report(&mut self, now: Timestamp, report: &JobReport) -> String {
        let last = report.last.map(|last| reduce_instant(now, last));
        let holder = report
            .holder
            .as_ref()
            .map(|h| format!("{} {} {:?}", h.value, h.by, h.remaining.map(reduce)));
        let schedules: Vec<_> = report
            .fingerprints
            .iter()
            .map(|(schedule, seen)| format!("{} {}", schedule.0, reduce_instant(now, *seen)))
            .collect();
        let waiting: Vec<_> = report
            .waiting
            .iter()
            .map(|head| reduce_head(now, *head))
            .collect();
        format!(
            "\n    {} last {last:?} fence {} {schedules:?}\n      holder {holder:?} open {} {waiting:?} {:?}",
            report.job,
            self.fence(report.fence),
            reduce_open(now, report.open.as_ref()),
            report.pauses
        ) + &self.summary(now, &report.summary)
    }

    fn summary(&mut self, now: Timestamp, summary: &Summary) -> String {
        let Summary {
            recent,
            newest,
            last_success,
            failures,
        } = summary.clone();
        let recent: Vec<_> = recent
            .iter()
            .map(|it| format!("{:?} {:?}", it.outcome, it.provisional))
            .collect();
        let records = newest.into_iter().chain(last_success).chain(failures);
        format!("\n      {recent:?}") + &self.records(now, records.collect())
    }

    /// Every field of what waits.
    fn waiting(&mut self, now: Timestamp, list: &[Waiting]) -> String {
        let mut text = String::new();
        for entry in list {
            text += &format!(
                "\n      waits {} {} {} {} {:?}",
                reduce_head(now, entry.head()),
                entry.yields,
                entry.attempts,
                entry.reruns,
                entry.crashed.as_ref().map(|crashed| format!(
                    "{} {} {} {} {} {}",
                    crashed.run_id,
                    crashed.token.as_str(),
                    crashed.kind.word(),
                    self.fence(crashed.fence),
                    reduce_instant(now, crashed.started_at),
                    crashed.host
                ))
            );
        }
        text
    }

    fn records(&mut self, now: Timestamp, records: Vec<Record>) -> String {
        let mut text = String::new();
        for mut record in records {
            // How far a ledger was ahead depends on the instant.
            if let Some(reason) = &mut record.reason
                && reason.starts_with("the ledger was ahead")
            {
                reason.retain(|c| !c.is_ascii_digit());
            }
            let fence = record.fence.take().map(|fence| self.fence(fence));
            let times = [record.started_at.take(), record.finished_at.take()]
                .map(|at| at.map(|at| reduce_instant(now, at)));
            text += &format!("\n      {record:?} {fence:?} {times:?}");
        }
        text
    }
}

fn reduce_instants(now: Timestamp, all: &[Timestamp]) -> Vec<String> {
    all.iter().map(|at| reduce_instant(now, *at)).collect()
}

fn reduce_instant(now: Timestamp, at: Timestamp) -> String {
    let near = |at: Timestamp| at.since(now).max(now.since(at)) < NOW;
    match (0..AGES).find(|ages| near(at.plus(AGE * *ages))) {
        Some(0) => "now".to_owned(),
        Some(ages) => format!("now less {ages} ages"),
        None => at.to_string(),
    }
}

/// A deadline may count from the instant of the test.
fn reduce_deadline(now: Timestamp, at: Timestamp) -> String {
    let counted = reduce_instant(now, at.minus(FAR));
    if counted.starts_with("now") {
        format!("{counted} and far")
    } else {
        reduce_instant(now, at)
    }
}

fn reduce_lease_end(now: Timestamp, at: Timestamp) -> String {
    let counted = reduce_instant(now, at.minus(TTL));
    if counted == "now" {
        "now and TTL".to_owned()
    } else {
        reduce_instant(now, at)
    }
}

fn reduce_head(now: Timestamp, head: Head) -> String {
    let (at, kind) = (reduce_instant(now, head.scheduled_at), head.kind.word());
    format!("{at} {kind} until {}", reduce_deadline(now, head.deadline))
}

fn reduce_terms(now: Timestamp, terms: &RunTerms) -> String {
    let deadline = reduce_deadline(now, terms.deadline);
    let known = RunTerms {
        deadline: Timestamp::EPOCH,
        ..*terms
    };
    format!("{deadline} {known:?}")
}

fn reduce(duration: Duration) -> u64 {
    (duration.as_secs() + 50) / 100
}

fn reduce_open(now: Timestamp, open: Option<&OpenRun>) -> String {
    open.map_or_else(
        || "none".to_owned(),
        |open| {
            let at = open.scheduled_at.map(|at| reduce_instant(now, at));
            let (started, left) = (reduce_instant(now, open.started_at), reduce(open.remaining));
            let (run_id, by, attempt) = (&open.run_id, &open.by, open.attempt);
            format!("{at:?} {run_id} {by} {attempt} {started} {left}")
        },
    )
}
