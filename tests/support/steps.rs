//! Sequences of requests to a store: the one generator of all tests that compare stores or judge the rules.
//!
//! A step contains no clock, name or token. Occurrences are counted, and an earlier claim is named by how
//! many were sent since. Each test gives the steps their meaning and leaves out what it cannot do:
//! `tests/it/contract/agreement.rs` compares every store with the protocol, `tests/it/redis/property.rs`
//! compares the scripts also through losses of data, and `src/store/protocol/properties.rs` judges the
//! protocol itself. The nodes of a majority have requests of their own (`tests/it/redlock/acceptor.rs`).

use std::time::Duration;

use cronlatch::names::JobName;
use cronlatch::store::protocol::LEAD;
use cronlatch::store::{
    ClaimTarget, DroppedRange, Due, Fingerprint, GapAnswer, IfPaused, Kind, Late, Outcome, Overlap,
    PauseOrder, Range, Retention,
};
use cronlatch::time::Timestamp;
use proptest::prelude::{Just, Strategy, any, prop, prop_oneof};

/// How many jobs share the lock.
pub(crate) const JOBS: usize = 2;

/// Beyond every deadline that counts from an instant of the test; or, back from it, before.
pub(crate) const FAR: Duration = Duration::from_secs(24 * 3600);

/// How long before its instant a near occurrence is claimed.
pub(crate) const SOON: Duration = Duration::from_millis(900);

/// More than the longest lead of a claim.
const TOO_SOON: Duration = Duration::from_secs(200);

/// How far into the future an occurrence is moved so that its ledger must be set back.
const AHEAD: Duration = Duration::from_secs(5 * 3600);

/// The number of an occurrence that is far beyond the clock.
const NEVER: u32 = 1_000_000;

/// One step of a sequence.
#[derive(Debug, Clone)]
pub(crate) enum Step {
    Claim(Asked),
    /// A copy of an earlier claim.
    Resend(Earlier),
    Finish {
        claim: Earlier,
        /// With the record of a run that ended so, if at all.
        record: Option<Outcome>,
        give_back: bool,
    },
    /// The leases of these claims, one after the other.
    Renew(Vec<Earlier>),
    Settle(Earlier),
    /// A further attempt, with this number.
    Attempt(Earlier, u32),
    Register {
        job: usize,
        schedule: usize,
    },
    Pause(PauseStep),
    /// Something happens to the store from outside.
    Meddle(Meddling),
    /// So many milliseconds pass. For tests that move the clock themselves.
    Pass(u32),
}

/// An earlier claim.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Earlier {
    /// The newest one but so many.
    Newest(usize),
    /// The one that has the lock by the protocol.
    Holder,
}

/// What a claim is for.
#[derive(Debug, Clone)]
pub(crate) enum Asked {
    Lock,
    Manual(usize),
    Occurrence(Wish),
    /// The first occurrence that waits, of the job of the wish, by the protocol.
    Head(Wish),
    Drops(Wish),
}

/// What a host wants of an occurrence.
#[derive(Debug, Clone)]
pub(crate) struct Wish {
    pub(crate) job: usize,
    /// Its number.
    pub(crate) at: u32,
    /// The number of the one before it.
    pub(crate) prev: Option<u32>,
    pub(crate) schedule: usize,
    pub(crate) kind: Kind,
    pub(crate) early: Earliness,
    /// It lies far in the future, so that the ledger must be set back afterwards.
    pub(crate) ahead: bool,
    /// It is past its deadline.
    pub(crate) late: Option<Lateness>,
    pub(crate) overlap: Overlap,
    pub(crate) max_reruns: u32,
    pub(crate) max_attempts: u32,
    /// Whether a rerun may start after the lease ended.
    pub(crate) in_time: bool,
    pub(crate) gap: Option<Gap>,
}

/// When an occurrence may start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Earliness {
    Not,
    /// Far beyond any lead.
    Far,
    /// Within the longest lead, and the claim has that lead.
    Soon,
    /// Later than the longest lead, and the claim has a longer one.
    TooSoon,
}

/// What a claim asks for that comes past its deadline.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Lateness {
    Miss,
    Leave,
    CatchUp {
        over: bool,
        /// `catch_up: latest`, and whether the next occurrence is due.
        newer: Option<bool>,
    },
}

/// The answer to a gap.
#[derive(Debug, Clone)]
pub(crate) struct Gap {
    /// It names the watermark that is known, and not an older one.
    pub(crate) right: bool,
    drops: Drops,
}

#[derive(Debug, Clone)]
enum Drops {
    /// The first occurrence of each range, and how many it has.
    Ranges(Vec<(u32, u32)>),
    /// All between the watermark and the occurrence.
    Between,
    /// As above, and if no occurrence is claimed, all that ever follow.
    Ever,
}

/// A request to pause or to resume.
#[derive(Debug, Clone)]
pub(crate) struct PauseStep {
    pub(crate) job: usize,
    /// How many occurrences after the newest request, or before it.
    pub(crate) after: i8,
    /// How many occurrences later the pause ends by itself.
    pub(crate) until: Option<u32>,
    pub(crate) resumes: bool,
}

/// What a hand from outside does to the lock, or to all that the store keeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Meddling {
    /// The lease ends, if there is one: the key is gone, and its end has come.
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

/// Sequences of at most so many steps, of those that a test `can` do.
pub(crate) fn steps(most: usize, can: fn(&Step) -> bool) -> impl Strategy<Value = Vec<Step>> {
    prop::collection::vec(step(), 1..most).prop_map(move |mut steps| {
        steps.retain(can);
        steps
    })
}

fn step() -> impl Strategy<Value = Step> {
    let claims = prop::collection::vec(earlier(), 0..4);
    prop_oneof![
        14 => asked().prop_map(Step::Claim),
        3 => earlier().prop_map(Step::Resend),
        5 => (earlier(), recorded(), any::<bool>())
            .prop_map(|(claim, record, give_back)| Step::Finish { claim, record, give_back }),
        2 => claims.prop_map(Step::Renew),
        2 => earlier().prop_map(Step::Settle),
        1 => (earlier(), 1..5_u32).prop_map(|(claim, attempt)| Step::Attempt(claim, attempt)),
        1 => (0..JOBS, 0..4_usize).prop_map(|(job, schedule)| Step::Register { job, schedule }),
        2 => pause().prop_map(Step::Pause),
        5 => meddling().prop_map(Step::Meddle),
        5 => prop_oneof![4 => 1..2500_u32, 1 => Just(3000)].prop_map(Step::Pass),
    ]
}

fn recorded() -> impl Strategy<Value = Option<Outcome>> {
    let outcome = prop_oneof![3 => Just(Outcome::Succeeded), 1 => Just(Outcome::Failed)];
    prop::option::weighted(0.6, outcome)
}

/// Most are recent, so that most steps are about what goes on now.
fn earlier() -> impl Strategy<Value = Earlier> {
    prop_oneof![
        3 => (0..2_usize).prop_map(Earlier::Newest),
        1 => (0..12_usize).prop_map(Earlier::Newest),
        3 => Just(Earlier::Holder),
    ]
}

fn asked() -> impl Strategy<Value = Asked> {
    prop_oneof![
        7 => wish().prop_map(Asked::Occurrence),
        4 => wish().prop_map(Asked::Head),
        1 => wish().prop_map(Asked::Drops),
        1 => (0..JOBS).prop_map(Asked::Manual),
        1 => Just(Asked::Lock),
    ]
}

fn wish() -> impl Strategy<Value = Wish> {
    let kind = prop_oneof![
        4 => Just(Kind::Schedule),
        1 => Just(Kind::CatchUp),
        1 => Just(Kind::Queue),
    ];
    let occurrence = (0..12_u32, prop::option::weighted(0.5, 1..3_u32));
    // Mostly the first, because before another one was first seen there are no gaps.
    let schedule = prop_oneof![6 => Just(0_usize), 2 => Just(1), 1 => 2..4_usize];
    let ahead = prop::bool::weighted(0.02);
    let late = prop::option::weighted(0.3, lateness());
    let reruns = (0..3_u32, 0..4_u32, prop::bool::weighted(0.8));
    let gap = prop::option::weighted(0.3, gap());
    (
        (0..JOBS, occurrence, schedule, kind),
        (earliness(), ahead, late, overlap()),
        (reruns, gap),
    )
        .prop_map(
            |((job, (at, back), schedule, kind), (early, ahead, late, overlap), (reruns, gap))| {
                Wish {
                    job,
                    at,
                    prev: back.map(|back| at.saturating_sub(back)),
                    schedule,
                    kind,
                    early,
                    ahead,
                    late,
                    overlap,
                    max_reruns: reruns.0,
                    max_attempts: reruns.1,
                    in_time: reruns.2,
                    gap,
                }
            },
        )
}

fn earliness() -> impl Strategy<Value = Earliness> {
    prop_oneof![
        14 => Just(Earliness::Not),
        1 => Just(Earliness::Far),
        4 => Just(Earliness::Soon),
        1 => Just(Earliness::TooSoon),
    ]
}

fn lateness() -> impl Strategy<Value = Lateness> {
    let newer = prop_oneof![
        2 => Just(None),
        2 => Just(Some(false)),
        1 => Just(Some(true)),
    ];
    prop_oneof![
        1 => Just(Lateness::Miss),
        1 => Just(Lateness::Leave),
        4 => (prop::bool::weighted(0.2), newer)
            .prop_map(|(over, newer)| Lateness::CatchUp { over, newer }),
    ]
}

fn overlap() -> impl Strategy<Value = Overlap> {
    prop_oneof![
        1 => Just(Overlap::Skip),
        2 => Just(Overlap::Wait),
        3 => (0..4_u32).prop_map(|limit| Overlap::Queue { limit }),
        1 => Just(Overlap::Queue { limit: u32::MAX }),
    ]
}

fn gap() -> impl Strategy<Value = Gap> {
    let ranges = prop::collection::vec((0..6_u32, 1..3_u32), 0..3);
    let drops = prop_oneof![
        5 => ranges.prop_map(Drops::Ranges),
        4 => Just(Drops::Between),
        1 => Just(Drops::Ever),
    ];
    (prop::bool::weighted(0.8), drops).prop_map(|(right, drops)| Gap { right, drops })
}

fn pause() -> impl Strategy<Value = PauseStep> {
    let until = prop::option::weighted(0.5, 0..40_u32);
    (0..JOBS, -1..3_i8, until, prop::bool::weighted(0.6)).prop_map(
        |(job, after, until, resumes)| PauseStep {
            job,
            after,
            until,
            resumes,
        },
    )
}

fn meddling() -> impl Strategy<Value = Meddling> {
    prop_oneof![
        4 => Just(Meddling::End),
        1 => Just(Meddling::Late),
        1 => Just(Meddling::Evict),
        1 => any::<bool>().prop_map(|ttl| Meddling::Foreign { ttl }),
        1 => Just(Meddling::List),
        1 => Just(Meddling::Persist),
        2 => Just(Meddling::Save),
        2 => Just(Meddling::Restore),
        1 => Just(Meddling::Flush),
        1 => Just(Meddling::Restart),
        4 => Just(Meddling::Age),
    ]
}

/// The name of a job.
pub(crate) fn job_name(job: usize) -> JobName {
    JobName::parse(&format!("j{job}")).expect("letters and digits are a name")
}

/// The schedule of this number.
pub(crate) fn fingerprint(schedule: usize) -> Fingerprint {
    Fingerprint(format!("schedule {schedule}").into())
}

impl Gap {
    /// Whether it may drop an occurrence that is decided already, as no host does.
    pub(crate) fn is_arbitrary(&self) -> bool {
        matches!(self.drops, Drops::Ranges(_))
    }
}

impl Asked {
    /// The job that the claim is for.
    pub(crate) fn job(&self) -> Option<usize> {
        match self {
            Self::Lock => None,
            Self::Manual(job) => Some(*job),
            Self::Occurrence(wish) | Self::Head(wish) | Self::Drops(wish) => Some(wish.job),
        }
    }

    /// What is wanted of an occurrence.
    pub(crate) fn wish(&self) -> Option<&Wish> {
        match self {
            Self::Lock | Self::Manual(_) => None,
            Self::Occurrence(wish) | Self::Head(wish) | Self::Drops(wish) => Some(wish),
        }
    }
}

/// The instants that the numbers of a sequence stand for in a test of a store with a clock of its own.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Frame {
    /// When the occurrence 0 is due.
    pub(crate) start: Timestamp,
    /// The time between two occurrences.
    pub(crate) every: Duration,
    /// The instant of the test.
    pub(crate) now: Timestamp,
    /// How long a rerun may start after the lease ended, unless it is in time.
    pub(crate) short_window: Duration,
    /// What the histories keep.
    pub(crate) keep: Retention,
}

/// What a host knows that makes a claim.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Known {
    /// The store's clock.
    pub(crate) clock: Timestamp,
    /// The first occurrence that waits.
    pub(crate) head: Option<Timestamp>,
    /// The watermark that the answer to a gap names.
    pub(crate) base: Option<Timestamp>,
}

impl Frame {
    /// When an occurrence is due.
    pub(crate) fn at(&self, n: u32) -> Timestamp {
        self.start.plus(self.every * n)
    }

    fn before_all(&self) -> Timestamp {
        self.start.minus(FAR)
    }

    fn after_all(&self) -> Timestamp {
        self.now.plus(FAR)
    }

    /// What a claim is for.
    pub(crate) fn target(&self, asked: &Asked, known: Known) -> ClaimTarget {
        let (wish, scheduled_at) = match asked {
            Asked::Lock => return ClaimTarget::Lock,
            Asked::Manual(job) => {
                return ClaimTarget::Manual {
                    job: job_name(*job),
                    if_paused: IfPaused::Refuse,
                };
            }
            Asked::Drops(wish) => return self.drops(wish, known),
            Asked::Head(wish) => (wish, known.head.unwrap_or(self.at(wish.at))),
            Asked::Occurrence(wish) if wish.ahead => (wish, self.at(wish.at).plus(AHEAD)),
            Asked::Occurrence(wish) => (wish, self.at(wish.at)),
        };
        ClaimTarget::Occurrence {
            job: job_name(wish.job),
            kind: wish.kind,
            due: self.due(wish, scheduled_at, known),
            overlap: wish.overlap,
            keep: self.keep,
        }
    }

    fn drops(&self, wish: &Wish, known: Known) -> ClaimTarget {
        let all = Gap {
            right: true,
            drops: Drops::Between,
        };
        let gap = wish.gap.as_ref().unwrap_or(&all);
        let last = match gap.drops {
            Drops::Ever => NEVER,
            Drops::Ranges(_) | Drops::Between => wish.at + 1,
        };
        ClaimTarget::Drops {
            job: job_name(wish.job),
            fingerprint: fingerprint(wish.schedule),
            answer: self.answer(gap, known.base, self.at(last)),
            keep: self.keep,
        }
    }

    fn due(&self, wish: &Wish, scheduled_at: Timestamp, known: Known) -> Due {
        let (not_before, lead) = match wish.early {
            Earliness::Not => (self.before_all(), Duration::ZERO),
            Earliness::Far => (self.after_all(), Duration::ZERO),
            Earliness::Soon => (known.clock.plus(SOON), LEAD),
            Earliness::TooSoon => (known.clock.plus(TOO_SOON), TOO_SOON * 2),
        };
        let gap = wish.gap.as_ref();
        Due {
            scheduled_at,
            not_before,
            deadline: if wish.late.is_some() {
                self.before_all()
            } else {
                self.after_all()
            },
            prev: wish.prev.map(|prev| self.at(prev)),
            fingerprint: fingerprint(wish.schedule),
            gap: gap.map(|gap| self.answer(gap, known.base, scheduled_at)),
            late: self.late(wish.late),
            max_reruns: wish.max_reruns,
            max_attempts: wish.max_attempts,
            rerun_window: if wish.in_time { FAR } else { self.short_window },
            lead,
        }
    }

    fn late(&self, late: Option<Lateness>) -> Late {
        let due = |is_due| {
            if is_due { self.start } else { self.after_all() }
        };
        match late {
            None | Some(Lateness::Miss) => Late::Miss,
            Some(Lateness::Leave) => Late::Leave,
            Some(Lateness::CatchUp { over, newer }) => Late::CatchUp {
                until: due(over),
                newer: newer.map(due),
            },
        }
    }

    /// An answer that drops occurrences before the instant `until`.
    fn answer(&self, gap: &Gap, base: Option<Timestamp>, until: Timestamp) -> GapAnswer {
        let wrong = self.start.minus(Duration::from_millis(1));
        let if_last = base.filter(|_| gap.right).unwrap_or(wrong);
        let range = |from: u32, count: u32| DroppedRange {
            range: Range {
                from: self.at(from),
                until: self.at(from + count - 1),
                count: u64::from(count),
            },
            outcome: if count.is_multiple_of(2) {
                Outcome::Skipped
            } else {
                Outcome::Missed
            },
            reason: "dropped".to_owned(),
        };
        let drop = match &gap.drops {
            Drops::Ranges(ranges) => ranges.iter().map(|it| range(it.0, it.1)).collect(),
            Drops::Between | Drops::Ever => {
                let undecided = |n: &u32| base.is_none_or(|base| self.at(*n) > base);
                let end = self.number_from(until);
                let from = (0..end).find(undecided);
                from.map(|from| range(from, end - from))
                    .into_iter()
                    .collect()
            }
        };
        GapAnswer { if_last, drop }
    }

    /// The number of the first occurrence that is not due before an instant.
    fn number_from(&self, at: Timestamp) -> u32 {
        let number = at
            .since(self.start)
            .as_millis()
            .div_ceil(self.every.as_millis());
        u32::try_from(number).unwrap_or(u32::MAX)
    }

    /// When a request about the pause of a job is made, and what it asks for. `newest` is the instant of
    /// the one before.
    pub(crate) fn pause(
        &self,
        step: &PauseStep,
        newest: Option<Timestamp>,
    ) -> (Timestamp, PauseOrder) {
        let (newest, span) = (
            newest.unwrap_or(self.start),
            self.every * u32::from(step.after.unsigned_abs()),
        );
        let asked_at = if step.after < 0 {
            newest.minus(span)
        } else {
            newest.plus(span)
        };
        let order = if step.resumes {
            PauseOrder::Resume
        } else {
            PauseOrder::Pause {
                until: step.until.map(|n| asked_at.plus(self.every * n)),
                reason: "a new disk".to_owned(),
            }
        };
        (asked_at, order)
    }
}
