//! A core on a bench: one job, clocks turned by hand, actions read one by one.

use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use super::super::Core;
use super::super::event::{Action, ClaimId, ClaimSpec, Event, JobIx, Now, OccurrenceNotice};
use super::super::policy::{Exclusion, OccurrenceSource, Policy, SharedPolicy};
use crate::config::{CatchUp, OnCrash, OnLost, OnOverlap, OnStoreDown};
use crate::names::{RunId, Token};
use crate::schedule::Spread;
use crate::store::{ClaimReply, Grant, Head, Kind, Lock, OpenRun, RunStatus};
use crate::time::{BootInstant, Timestamp, seconds_after_boot};

/// Due at every multiple of so many seconds.
#[derive(Debug)]
pub(super) struct Every(pub(super) i64);

impl OccurrenceSource for Every {
    fn next_after(&self, from: Timestamp) -> Option<Timestamp> {
        let step = self.0 * 1000;
        Some(Timestamp::from_millis(
            (from.millis().div_euclid(step) + 1) * step,
        ))
    }

    fn last_before(&self, before: Timestamp) -> Option<Timestamp> {
        let step = self.0 * 1000;
        Some(Timestamp::from_millis(
            (before.millis() - 1).div_euclid(step) * step,
        ))
    }

    fn period(&self) -> Option<Duration> {
        // The odd ones count as cron expressions, which have none.
        (self.0 % 2 == 0).then(|| Duration::from_secs(self.0.unsigned_abs()))
    }
}

/// A job every ten seconds, with the defaults of the configuration.
pub(super) fn policy() -> Policy {
    let shared = SharedPolicy {
        start_deadline: Duration::from_secs(300),
        exclusion: Exclusion::Lock,
        on_overlap: OnOverlap::Skip,
        catch_up: CatchUp::Latest,
        catch_up_window: Duration::from_secs(3600),
        on_crash: OnCrash::Ignore,
        max_attempts: 0,
        on_lost: OnLost::Kill,
        on_store_down: OnStoreDown::Wait,
        poll: Duration::from_secs(5),
        skew: Duration::ZERO,
    };
    Policy {
        calendar: Arc::new(Every(10)),
        delay: Duration::ZERO,
        spread: Spread::default(),
        shared: Arc::new(shared),
    }
}

pub(super) const JOB: JobIx = JobIx(0);

pub(super) fn secs(seconds: i64) -> Timestamp {
    Timestamp::from_secs(seconds)
}

pub(super) struct Bench {
    pub(super) core: Core,
    seconds: i64,
    /// So many seconds the clock that the core goes by is ahead.
    pub(super) ahead: i64,
    /// What the core asked for and the test has not read yet.
    pub(super) out: Vec<Action>,
}

impl Bench {
    /// A daemon that starts at second 1000 and whose ledger is decided up to there.
    pub(super) fn new(policy: Policy) -> Self {
        let mut bench = Self::fresh(vec![policy], None);
        bench.registered(1000);
        bench.nothing();
        bench
    }

    pub(super) fn fresh(policies: Vec<Policy>, max_running: Option<usize>) -> Self {
        let max = max_running.and_then(NonZeroUsize::new);
        Self {
            core: Core::new(policies, max, now(1000)),
            seconds: 1000,
            ahead: 0,
            out: Vec::new(),
        }
    }

    pub(super) fn feed(&mut self, event: Event) {
        let now = Now {
            utc: secs(self.seconds + self.ahead),
            ..now(self.seconds)
        };
        let actions = self.core.handle(now, event);
        self.out.extend(actions);
    }

    /// When the next timer is due.
    pub(super) fn next_timer(&self) -> Option<BootInstant> {
        self.core.next_timer()
    }

    /// Lets time pass to this second, with every timer on the way.
    pub(super) fn at(&mut self, seconds: i64) {
        while let Some(timer) = self.core.next_timer()
            && timer <= now(seconds).boot
        {
            let upto = i64::try_from(timer.to_duration().as_millis().div_ceil(1000));
            self.seconds = self.seconds.max(upto.expect("a small number"));
            self.feed(Event::Timer);
        }
        self.seconds = seconds;
    }

    /// The occurrence of this second is due, now.
    pub(super) fn due(&mut self, seconds: i64) {
        self.at(self.seconds.max(seconds));
        self.due_of(JOB, seconds);
    }

    pub(super) fn due_of(&mut self, job: JobIx, seconds: i64) {
        let at = secs(seconds);
        self.feed(Event::Due { job, at });
    }

    pub(super) fn registered(&mut self, decided_until: i64) {
        self.registered_of(JOB, decided_until);
    }

    pub(super) fn registered_of(&mut self, job: JobIx, decided_until: i64) {
        self.feed(Event::Registered {
            job,
            reply: crate::store::Registered {
                pauses: Vec::new(),
                decided_until: secs(decided_until),
                decided_beyond: Vec::new(),
                now: secs(self.seconds),
                open: None,
                head: None,
                recovering: std::time::Duration::ZERO,
                moved: false,
            },
        });
    }

    pub(super) fn registered_open(&mut self, decided_until: i64, at: i64, remaining: u64) {
        self.feed(Event::Registered {
            job: JOB,
            reply: crate::store::Registered {
                pauses: Vec::new(),
                decided_until: secs(decided_until),
                decided_beyond: Vec::new(),
                now: secs(self.seconds),
                open: Some(OpenRun {
                    scheduled_at: Some(secs(at)),
                    run_id: RunId::from_text("open"),
                    by: "other".to_owned(),
                    attempt: 1,
                    started_at: secs(at),
                    remaining: Duration::from_secs(remaining),
                }),
                head: None,
                recovering: std::time::Duration::ZERO,
                moved: false,
            },
        });
    }

    /// The next action that is not talk.
    /// The store grants a claim that the lane does not wait for any more.
    #[track_caller]
    pub(super) fn grant_in_vain(&mut self, spec: &ClaimSpec) {
        self.answer(spec, granted());
        let give_back = Action::GiveBack {
            job: spec.job,
            grant: grant(FENCE),
        };
        assert_eq!(self.action(), give_back);
    }

    #[track_caller]
    pub(super) fn action(&mut self) -> Action {
        loop {
            assert!(!self.out.is_empty(), "no action is left");
            let action = self.out.remove(0);
            if !matches!(action, Action::Report { .. }) {
                return action;
            }
        }
    }

    /// Nothing but talk is left; it is forgotten.
    #[track_caller]
    pub(super) fn nothing(&mut self) {
        let talk = |action: &Action| matches!(action, Action::Report { .. });
        let rest: Vec<_> = self.out.drain(..).filter(|a| !talk(a)).collect();
        assert_eq!(rest, []);
    }

    /// Whether this was said of an occurrence since the last look.
    pub(super) fn said(&self, seconds: i64, what: &OccurrenceNotice) -> bool {
        let is_it = |action: &Action| matches!(action, Action::Report { at, notice, .. } if *at == secs(seconds) && notice == what);
        self.out.iter().any(is_it)
    }

    /// The next action is a claim of this second's occurrence.
    #[track_caller]
    pub(super) fn claim(&mut self, seconds: i64) -> ClaimSpec {
        match self.action() {
            Action::Claim(spec) if spec.at == secs(seconds) => spec,
            other => panic!("not a claim of {seconds}: {other:?}"),
        }
    }

    #[track_caller]
    pub(super) fn started(&mut self, seconds: i64) -> ClaimId {
        match self.action() {
            Action::Start { at, claim, .. } if at == secs(seconds) => claim,
            other => panic!("not a start of {seconds}: {other:?}"),
        }
    }

    #[track_caller]
    pub(super) fn started_alone(&mut self, seconds: i64) -> ClaimId {
        match self.action() {
            Action::StartWithoutStore { at, claim, .. } if at == secs(seconds) => claim,
            other => panic!("not a start of {seconds} without the store: {other:?}"),
        }
    }

    pub(super) fn answer(&mut self, spec: &ClaimSpec, reply: ClaimReply) {
        let (job, claim) = (spec.job, spec.claim);
        self.feed(match reply {
            ClaimReply::Granted { fence, attempt, .. } => Event::Granted {
                job,
                claim,
                grant: grant(fence),
                attempt,
            },
            reply => Event::Replied { job, claim, reply },
        });
    }

    #[track_caller]
    pub(super) fn answer_drops(&mut self, action: &Action, reply: ClaimReply) {
        let Action::Drops(spec) = action else {
            panic!("nothing is dropped: {action:?}");
        };
        let (job, claim) = (spec.job, spec.claim);
        self.feed(Event::Replied { job, claim, reply });
    }

    pub(super) fn no_reply(&mut self, spec: &ClaimSpec) {
        let (job, claim) = (spec.job, spec.claim);
        self.feed(Event::NoReply { job, claim });
    }

    /// Answers with a grant and reads the start.
    #[track_caller]
    pub(super) fn grant(&mut self, spec: &ClaimSpec) {
        self.answer(spec, granted());
        let at = spec.at.millis() / 1000;
        assert_eq!(self.started(at), spec.claim);
    }

    pub(super) fn ended(&mut self) {
        self.feed(Event::RunEnded { job: JOB });
    }

    pub(super) fn closed(&mut self) {
        self.feed(Event::RunClosed { job: JOB });
    }

    /// The wait that was asked for, which must be the next action, is over.
    #[track_caller]
    pub(super) fn wake(&mut self) {
        match self.action() {
            Action::AwaitRelease { job, claim, .. } => self.feed(Event::Woken { job, claim }),
            other => panic!("not a wait: {other:?}"),
        }
    }

    /// What a read of the ledger found.
    pub(super) fn found_head(&mut self, head: Option<Head>) {
        let open = None;
        self.feed(Event::LedgerQueried {
            job: JOB,
            open,
            head,
            behind: None,
        });
    }

    /// The next action reads the ledger.
    #[track_caller]
    pub(super) fn looks(&mut self) {
        assert_eq!(self.action(), Action::QueryLedger { job: JOB });
    }

    /// Forgets how a full host has looked at the ledger meanwhile.
    pub(super) fn looked(&mut self) {
        self.out
            .retain(|it| !matches!(it, Action::QueryLedger { .. }));
    }

    /// The next action awaits a release; the event that ends the wait.
    #[track_caller]
    pub(super) fn waits(&mut self) -> Event {
        match self.action() {
            Action::AwaitRelease { job, claim, .. } => Event::Woken { job, claim },
            other => panic!("not a wait: {other:?}"),
        }
    }
}

fn now(seconds: i64) -> Now {
    Now {
        utc: secs(seconds),
        boot: seconds_after_boot(u64::try_from(seconds).expect("a second after boot")),
    }
}

/// The lease of a claim that was granted under this fencing token.
pub(super) fn grant(fence: u64) -> Grant {
    Grant {
        lock: Lock::raw("lock"),
        token: Token::from_text("token"),
        run_id: RunId::from_text("ours"),
        fence,
        ttl: Duration::from_secs(30),
        sent: BootInstant::BOOT,
        starts_at: None,
    }
}

/// The fencing token of [`granted`].
pub(super) const FENCE: u64 = 7;

pub(super) fn granted() -> ClaimReply {
    ClaimReply::Granted {
        fence: FENCE,
        attempt: 1,
        at: secs(1000),
        starts_in: Duration::ZERO,
    }
}

pub(super) fn held(remaining: u64) -> ClaimReply {
    ClaimReply::Held {
        by: "other".to_owned(),
        remaining: Some(Duration::from_secs(remaining)),
    }
}

/// The head of a waiting list, with the start deadline of the bench's jobs.
pub(super) fn head(at: i64, kind: Kind) -> Head {
    Head {
        scheduled_at: secs(at),
        kind,
        deadline: secs(at + 300),
    }
}

/// The claimed occurrence waits behind `at`, or is `at`; another host has the lock.
pub(super) fn waits_for(at: i64, remaining: u64) -> ClaimReply {
    ClaimReply::Waits {
        head: head(at, Kind::Queue),
        entered: true,
        by: Some("other".to_owned()),
        remaining: Some(Duration::from_secs(remaining)),
    }
}

pub(super) fn gap(last: i64) -> ClaimReply {
    ClaimReply::Gap {
        last: secs(last),
        horizon: None,
        decided_beyond: Vec::new(),
        pauses: Vec::new(),
    }
}

pub(super) fn decided() -> ClaimReply {
    ClaimReply::AlreadyClaimed(RunStatus::Decided)
}

pub(super) fn running(remaining: u64) -> ClaimReply {
    ClaimReply::AlreadyClaimed(RunStatus::Running {
        by: "other".to_owned(),
        run_id: RunId::from_text("theirs"),
        attempt: 1,
        remaining: Duration::from_secs(remaining),
    })
}
