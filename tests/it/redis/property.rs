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
    Attempt, Claim, ClaimReply, ClaimTarget, Finish, Grant, GrantedRun, Head, JobReport, Kind,
    Lock, OpenRun, Outcome, PauseReply, PauseRequest, Record, Registered, Registration, Renewal,
    Retention, RunStatus, RunTerms, Settle, Store, Summary,
};
use cronlatch::time::{BootInstant, Timestamp};
use proptest::prelude::{Strategy, any, prop};

use crate::steps::{
    Asked, Earlier, FAR, Frame, JOBS, Known, Meddling, PauseStep, Step, fingerprint, job_name,
    steps,
};

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
const KEEP: Retention = Retention {
    failures: 2,
    ..Retention::of_records(6)
};
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

/// Sequences to compare, and whether the lock excludes. In half of them the store loses nothing.
pub(crate) fn sequences() -> impl Strategy<Value = (bool, Vec<Step>)> {
    let on_a_server = |step: &Step| !matches!(step, Step::Pass(_));
    let steps = (any::<bool>(), steps(45, on_a_server)).prop_map(|(lasts, mut steps)| {
        steps.retain(|step| !lasts || !loses(step));
        steps
    });
    (prop::bool::weighted(0.8), steps)
}

fn loses(step: &Step) -> bool {
    let Step::Meddle(meddling) = step else {
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
    steps: &[Step],
) -> Result<(), String> {
    // From here on its claims carry the TTL, as those of a daemon.
    let first = Registration {
        job: job_name(0),
        lock: Lock::raw("warm-up"),
        fingerprint: fingerprint(0),
        ttl: TTL,
    };
    store.register(&[first]).await.map_err(|e| e.to_string())?;
    meddler.begin();
    let start = store.now().await.map_err(|e| e.to_string())?;
    let mut both = Both {
        store,
        lock,
        frame: Frame {
            // Half a minute off, so that no occurrence lies near the instant of the test. The newest
            // of them lies ahead of it.
            start: start.minus(MINUTE * 21 / 2),
            every: MINUTE,
            now: start,
            short_window: Duration::ZERO,
            keep: KEEP,
        },
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
    for (nr, step) in steps.iter().enumerate() {
        let (real, plain) = both.apply(step, meddler).await;
        if both.at_its_instant {
            // Nobody knows on which side of the instant the store served the claim.
            return Ok(());
        }
        if real != plain {
            return Err(format!(
                "step {nr}, {step:?}\n  store:    {real}\n  function: {plain}"
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
    frame: Frame,
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

impl Both {
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
            started_at: self.frame.start,
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

    /// Does the step on both sides; the answers and all that can be read afterwards, reduced.
    async fn apply(&mut self, step: &Step, meddler: &impl Meddler) -> (String, String) {
        let clock = self.clock().await;
        let Some((real, plain)) = self.answers(step, clock, meddler).await else {
            return Default::default();
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

    /// The answers of both sides to one step; `None` if there is no such earlier claim.
    async fn answers(
        &mut self,
        step: &Step,
        clock: Clock,
        meddler: &impl Meddler,
    ) -> Option<(String, String)> {
        Some(match step {
            Step::Claim(asked) => {
                self.ask(asked, clock.utc());
                let index = self.claims.len() - 1;
                let (known_real, known_plain) = self.already_claimed(index, clock).await;
                let (real, plain) = self.claim(index, clock).await;
                (known_real + &real, known_plain + &plain)
            }
            Step::Resend(claim) => self.claim(self.index(*claim)?, clock).await,
            Step::Finish {
                claim,
                record,
                give_back,
            } => {
                let how = (*record, *give_back);
                self.finish(self.index(*claim)?, how, clock).await
            }
            Step::Renew(claims) => self.renew(claims, clock).await,
            Step::Settle(claim) => self.settle(self.index(*claim)?, clock).await,
            Step::Attempt(claim, attempt) => self.note_attempt(self.index(*claim)?, *attempt).await,
            Step::Register { job, schedule } => self.register(*job, *schedule, clock).await,
            Step::Pause(pause) => self.pause(pause, clock).await,
            Step::Meddle(meddling) => {
                self.meddle_both(*meddling, clock, meddler);
                Default::default()
            }
            Step::Pass(_) => return None,
        })
    }

    fn meddle_both(&mut self, meddling: Meddling, clock: Clock, meddler: &impl Meddler) {
        let of_key = matches!(
            meddling,
            Meddling::Evict | Meddling::Foreign { .. } | Meddling::List | Meddling::Persist
        );
        if self.lock.exclusive || !of_key {
            let ended = clock_at(self.frame.now.minus(ENDED)).lease;
            meddler.meddle(&self.lock, meddling, FOREIGN_TTL, ended);
            self.meddle(meddling, clock, ended);
        }
    }

    fn index(&self, claim: Earlier) -> Option<usize> {
        match claim {
            Earlier::Newest(back) => self.claims.len().checked_sub(back + 1),
            Earlier::Holder => {
                let token = self.model.kept.lock.token.as_ref()?;
                let mut claims = self.claims.iter();
                claims.position(|(claim, ..)| claim.token == *token)
            }
        }
    }

    fn ask(&mut self, asked: &Asked, now: Timestamp) {
        let host = HostName::parse(&format!("h{}", self.claims.len() % 3)).expect("a name");
        let run_id = RunId::new();
        let real = Claim {
            lock: self.lock.clone(),
            token: Token::new(&host, &run_id),
            run_id,
            ttl: TTL,
            what: self.target(asked, now, self.real.gap),
        };
        let plain = Claim {
            what: self.target(asked, now, self.plain.gap),
            ..real.clone()
        };
        self.claims.push((real, plain, asked.job()));
        self.fences.push((0, 0));
    }

    /// What a claim is for. `told` is the watermark of the last gap that a side has named.
    fn target(&self, asked: &Asked, now: Timestamp, told: Option<Timestamp>) -> ClaimTarget {
        let state = asked.job().and_then(|job| self.model.kept.jobs.get(&job));
        let waiting = state.and_then(Option::as_ref).map(|job| &job.waiting);
        let head = waiting.and_then(|waiting| waiting.first());
        let known = Known {
            clock: now,
            head: head.map(|entry| entry.scheduled_at),
            base: told,
        };
        self.frame.target(asked, known)
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
            self.real.claim_reply(self.frame.now, &real),
            self.plain.claim_reply(self.frame.now, &plain),
        )
    }

    /// What both sides know of another host's claim before this one is sent. It must be what they reply to
    /// the claim, and leave no trace.
    async fn already_claimed(&mut self, index: usize, clock: Clock) -> (String, String) {
        let (real, plain, job) = self.claims[index].clone();
        let known = (job.as_ref()).and_then(|job| self.model.kept.jobs.get(job)?.as_ref());
        let real = self.store.already_claimed(&real).await;
        let real = real.expect("the store answers");
        // The store is asked only for the newest occurrence, and where hosts exclude each other.
        let is_asked = match (&plain.what, known) {
            (ClaimTarget::Occurrence { due, .. }, Some(job)) => {
                self.lock.exclusive && due.scheduled_at == job.last
            }
            _ => false,
        };
        let plain = protocol::settled(&self.model.kept.lock, known, clock, &plain);
        let mut shown = |reply: Option<ClaimReply>| match reply {
            Some(reply) => format!("[{}] ", self.real.claim_reply(self.frame.now, &reply)),
            None => String::new(),
        };
        (
            shown(real.map(ClaimReply::AlreadyClaimed)),
            shown(plain.filter(|_| is_asked)),
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
            started_at: Some(self.frame.start),
            finished_at: Some(self.frame.start),
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

    async fn renew(&mut self, claims: &[Earlier], clock: Clock) -> (String, String) {
        let indexes: Vec<usize> = claims.iter().filter_map(|it| self.index(*it)).collect();
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

    async fn pause(&mut self, step: &PauseStep, clock: Clock) -> (String, String) {
        let state = self.model.kept.jobs.entry(step.job).or_default();
        let newest = state.as_ref().and_then(|state| state.pauses.last());
        let (asked_at, order) = self.frame.pause(step, newest.map(|pause| pause.asked_at));
        let request = PauseRequest {
            job: job_name(step.job),
            lock: self.lock.clone(),
            order,
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
        let state = self.model.kept.jobs.entry(step.job).or_default();
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
            fingerprint: fingerprint(schedule),
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
                reduce_instant(self.frame.now, known.decided_until),
                reduce_instants(self.frame.now, &known.decided_beyond),
                reduce_instant(self.frame.now, known.now),
                reduce_open(self.frame.now, known.open.as_ref()),
                known.head.map(|head| reduce_head(self.frame.now, head)),
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
                if lock.token.is_some() {
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
        let end = |end: i64| reduce_lease_end(self.frame.now, Timestamp::from_millis(end));
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
            real += &self.real.waiting(self.frame.now, &list);
            if status.as_deref() == Some("open") {
                let terms = terms_of_text(&terms.expect("an open run has terms"));
                real += &format!(
                    "\n      {} {} {} {}",
                    token.expect("a token"),
                    kind.expect("a kind"),
                    self.real
                        .fence(fence.expect("a fence").parse().expect("a number")),
                    reduce_terms(self.frame.now, &terms.expect("terms"))
                );
            }
            let Some(state) = self.model.kept.jobs.get(&job).and_then(Option::as_ref) else {
                wanted += &self.plain.waiting(self.frame.now, &[]);
                continue;
            };
            wanted += &self.plain.waiting(self.frame.now, &state.waiting);
            if let Some(open) = &state.open {
                wanted += &format!(
                    "\n      {} {} {} {}",
                    open.token.as_str(),
                    open.kind.word(),
                    self.plain.fence(open.fence),
                    reduce_terms(self.frame.now, &open.terms)
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
            real += &self.real.report(self.frame.now, report);
            plain += &self.plain.report(self.frame.now, &wanted);
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
                .records(self.frame.now, history.expect("the store answers").records);
            plain += &self.plain.records(self.frame.now, wanted);
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
                decided_beyond,
                pauses,
            } => format!(
                "gap {} {:?} {:?} {pauses:?}",
                reduce_instant(now, *last),
                horizon.map(|at| reduce_instant(now, at)),
                reduce_instants(now, decided_beyond)
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
