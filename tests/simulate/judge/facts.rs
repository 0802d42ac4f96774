//! What the rules ask of a plan and its trace: who was able to act when, and what counted.

use std::collections::BTreeMap;

use cronlatch::config::{Job, Scope};
use cronlatch::schedule::Schedule;
use cronlatch::store::Record;
use cronlatch::time::Timestamp;

use crate::plan::{JobPlan, Plan, StoreKind};
use crate::trace::{
    Added, Admitted, ClockStep, Ended, Held, Hindered, Span, Start, Trace, Trouble,
};

/// How long after its start a daemon may take to be of use: it registers, and leaves what came
/// due just before to hosts whose clocks are behind.
const SETTLES: i64 = 4_000;
/// How long a host may take to get over a trouble of its own, or an outage of the store.
pub(super) const RECOVERS: i64 = 6_000;
/// How long a host that cannot start processes first waits before it tries again.
const FIRST_PAUSE: i64 = 1_000;
/// How long a host that has had no place takes to claim, one after the other, what waits for one: each claim
/// has the place while it is under way.
const TAKES_TURNS: i64 = 1_500;
/// A host whose clock is further off claims nothing (`max_clock_skew`).
const WRONG_CLOCK: i64 = 30_000;
/// A clock that is no further off is right.
const RIGHT_CLOCK: i64 = 500;

/// A host's list had the job so, from then until then.
#[derive(Debug, Clone)]
pub(crate) struct Regime<'a> {
    pub(crate) host: usize,
    pub(crate) span: Span,
    /// It began with a reload, not with the start of a daemon.
    pub(crate) by_reload: bool,
    /// When the host told the store of this schedule and lock, if its list before did not have them: it does
    /// so at once, unless it is hindered or the job's ledger waits to move to another lock.
    pub(crate) told: i64,
    pub(crate) job: &'a JobPlan,
    schedule: Schedule,
    delay: i64,
}

impl Regime<'_> {
    /// Whether the job was due then on this host, by its schedule.
    pub(crate) fn is_due(&self, at: i64) -> bool {
        self.span.holds(at) && self.has_due(at)
    }

    /// Whether both have the job on one schedule.
    pub(crate) fn is_alike(&self, other: &Self) -> bool {
        (&self.job.when, self.job.jitter) == (&other.job.when, other.job.jitter)
    }

    /// Whether the store knows both as one: they have one schedule and one lock.
    fn is_known_as(&self, other: &Self) -> bool {
        self.is_alike(other) && self.lock() == other.lock()
    }

    /// Whether the job was due then on this host, by a clock that may be off by so much.
    pub(crate) fn is_due_by(&self, at: i64, off: i64) -> bool {
        self.has_due(at) && self.span.from <= at + off && at - off < self.span.until
    }

    /// Whether the job then had a ledger of the fleet, and the other one of each host, or the reverse.
    pub(crate) fn is_of_scope_other_than(&self, subject: &Subject<'_>) -> bool {
        (self.job.scope == Scope::Fleet) != subject.host.is_none()
    }

    /// The lock that the list gives the job on this host.
    pub(crate) fn lock(&self) -> String {
        let name = self.job.lock_name();
        match self.job.scope {
            Scope::Fleet => name.to_owned(),
            Scope::Host | Scope::None => format!("{name}@host-{}", self.host),
        }
    }

    /// From when on a host that is quiet has settled with this definition.
    fn settled_from(&self) -> i64 {
        self.span.from + if self.by_reload { SETTLES } else { 0 }
    }

    /// The occurrences of its schedule within a span, whenever the list had the schedule.
    pub(crate) fn instants(&self, span: Span) -> impl Iterator<Item = i64> {
        let between = self.schedule.between(
            Timestamp::from_millis(span.from - 1),
            Timestamp::from_millis(span.until - 1),
        );
        between.map(Timestamp::millis)
    }

    /// From when on its host acts on an occurrence: it leaves what came due before it told the store of the
    /// job to hosts whose clocks are behind.
    pub(crate) fn acts_on(&self, at: i64) -> i64 {
        if at < self.told {
            self.settled_from()
        } else {
            self.span.from
        }
    }

    /// Whether its schedule has the occurrence, whenever the list had the schedule.
    pub(crate) fn has_due(&self, at: i64) -> bool {
        self.schedule.is_occurrence(Timestamp::from_millis(at))
    }
}

/// One ledger: a job of the fleet, or of one host.
#[derive(Debug)]
pub(crate) struct Subject<'a> {
    pub(crate) name: &'a str,
    /// Of `scope: host` and `scope: none`.
    pub(crate) host: Option<usize>,
    pub(crate) regimes: Vec<Regime<'a>>,
    pub(crate) starts: Vec<&'a Start>,
    pub(crate) added: Vec<&'a Added>,
    pub(crate) delay: i64,
}

impl<'a> Subject<'a> {
    /// Whether any host's list had the occurrence when it was due by that host's own clock, which may
    /// be off by so much.
    pub(crate) fn counts_by(&self, at: i64, off: i64) -> bool {
        let mut regimes = self.regimes.iter();
        regimes.any(|it| it.is_due_by(at, off))
    }

    /// Who had the job on a schedule by which it was due then, since then and without a pause.
    pub(crate) fn listed_since(&self, at: i64) -> Vec<&Regime<'a>> {
        let due: Vec<_> = self.regimes.iter().filter(|it| it.is_due(at)).collect();
        let is_alike = |it: &&Regime<'_>| due.iter().any(|first| first.is_alike(it));
        let mut listed_until = at;
        for regime in self.regimes.iter().filter(is_alike) {
            if regime.told <= listed_until {
                listed_until = listed_until.max(regime.span.until);
            }
        }
        let mut listed: Vec<_> = self.regimes.iter().filter(is_alike).collect();
        listed.retain(|it| it.told <= listed_until);
        listed
    }

    /// The definition that the fleet went by then.
    pub(crate) fn plan_at(&self, at: i64) -> &'a JobPlan {
        let there = self.regimes.iter().rfind(|regime| regime.span.holds(at));
        there
            .or(self.regimes.last())
            .expect("a subject has a regime")
            .job
    }

    /// The runs of an occurrence, in the order in which they began.
    pub(crate) fn starts_of(&self, at: i64) -> impl Iterator<Item = &&'a Start> {
        self.starts.iter().filter(move |start| start.at == Some(at))
    }

    /// The records of an occurrence that the store has not lost.
    pub(crate) fn records_of(&self, at: i64) -> impl Iterator<Item = &&'a Added> {
        let covers = move |added: &&&Added| span_of(&added.record).is_some_and(|s| s.holds(at));
        self.added.iter().filter(covers).filter(|added| !added.lost)
    }
}

/// The occurrences that a record is about.
pub(crate) fn span_of(record: &Record) -> Option<Span> {
    let from = record.scheduled_at?.millis();
    let until = record.until.map_or(from, Timestamp::millis) + 1;
    Some(Span { from, until })
}

/// All that the rules go by.
#[derive(Debug)]
pub(crate) struct Facts<'a> {
    pub(crate) plan: &'a Plan,
    pub(crate) trace: &'a Trace,
    pub(crate) subjects: Vec<Subject<'a>>,
    /// Per host: the spans in which it was up, left alone, in reach of a store that was up, and
    /// its clock right.
    pub(crate) quiet: Vec<Vec<Span>>,
    /// Per host: the spans in which it could act at all.
    pub(crate) able: Vec<Vec<Span>>,
    /// Per host: the same, without daemons that were started while the clock was wrong: until it is set
    /// right, they claim nothing.
    pub(crate) trusted: Vec<Vec<Span>>,
    /// Per host: the spans in which its daemon ran, neither stopped nor suspended.
    pub(crate) up: Vec<Vec<Span>>,
    /// Per host: the spans in which it ran as many as its list allows.
    pub(crate) full: Vec<Vec<Span>>,
    pub(crate) end: i64,
}

impl<'a> Facts<'a> {
    pub(crate) fn of(plan: &'a Plan, trace: &'a Trace) -> Self {
        let end = plan.start + plan.end;
        let hosts = 0..plan.hosts.len();
        let quiet = hosts.clone().map(|host| quiet(trace, host, end));
        let able = hosts.clone().map(|host| able(trace, host, end));
        let trusted = hosts.clone().map(|host| trusted(trace, host, end));
        let up = hosts.clone().map(|host| up(trace, host, end));
        let full = hosts.map(|host| full(plan, trace, host, end));
        Self {
            subjects: subjects(plan, trace, end),
            quiet: quiet.collect(),
            able: able.collect(),
            trusted: trusted.collect(),
            up: up.collect(),
            full: full.collect(),
            plan,
            trace,
            end,
        }
    }

    /// Every host's lists that had the job, whatever its scope.
    pub(crate) fn regimes_of(&self, job: &str) -> impl Iterator<Item = &Regime<'a>> {
        let of_job = self.subjects.iter().filter(move |it| it.name == job);
        of_job.flat_map(|it| &it.regimes)
    }

    /// The definition that all lists had within the span, but for `enabled`; `None` if they differ.
    pub(crate) fn plan_between(&self, subject: &Subject<'_>, span: Span) -> Option<&'a JobPlan> {
        let regimes = self.regimes_of(subject.name);
        let mut regimes = regimes.filter(|it| it.span.meets(span));
        let first = regimes.next().filter(|it| it.delay == subject.delay)?;
        let same = regimes.all(|it| is_same(first.job, it.job) && it.delay == subject.delay);
        same.then_some(first.job)
    }

    /// When a run was granted; when it began, if the store did not grant it.
    pub(crate) fn granted(&self, start: &Start) -> i64 {
        let of_it = format!(":{}:", start.run_id);
        let granted = self.trace.held.iter().find(|held| {
            let token = held.token.as_ref();
            held.lock == start.lock && token.is_some_and(|token| token.contains(&of_it))
        });
        granted.map_or(start.begin, |held| held.at)
    }

    /// When the store knew the result of a run; of several nodes, when a majority had taken it in one
    /// decision.
    pub(crate) fn known_at(&self, added: &Added) -> Option<i64> {
        let StoreKind::Quorum(nodes) = self.plan.store else {
            return Some(added.at);
        };
        let run_id = added.record.run_id.as_ref()?;
        let mut taken: BTreeMap<u64, Vec<i64>> = BTreeMap::new();
        for told in &self.trace.told {
            if told.lock == added.lock && told.run_id == run_id.as_str() {
                taken.entry(told.ballot).or_default().push(told.at);
            }
        }
        // A node notes what it takes as time passes.
        let decided = taken.values().filter_map(|times| times.get(nodes / 2));
        decided.min().copied()
    }

    /// Whether a host that had the job was quiet throughout.
    pub(crate) fn some_host_quiet(&self, subject: &Subject<'_>, at: i64, span: Span) -> bool {
        self.quiet_host(subject, at, span).is_some()
    }

    /// A host that had the occurrence and was quiet throughout the span.
    pub(crate) fn quiet_host(&self, subject: &Subject<'_>, at: i64, span: Span) -> Option<usize> {
        let mut regimes = subject.regimes.iter().filter(|regime| regime.is_due(at));
        let host = regimes.find(|regime| {
            let quiet = &self.quiet[regime.host];
            quiet
                .iter()
                .any(|it| it.from <= span.from && span.until <= it.until)
                && regime.settled_from() <= span.from
                && span.until <= regime.span.until
        })?;
        Some(host.host)
    }

    /// The first instant at which some host that has the job has been quiet for so long, beginning
    /// not before `from`; `None` when there is none.
    pub(crate) fn quiet_for(&self, subject: &Subject<'_>, from: i64, long: i64) -> Option<i64> {
        self.quiet_among(subject, |_| true, (from, long))
    }

    /// As [`Self::quiet_for`], among hosts whose list has had the occurrence's schedule since without
    /// a break: nobody else knows of it.
    pub(crate) fn quiet_for_due(
        &self,
        subject: &Subject<'_>,
        at: i64,
        (from, long): (i64, i64),
    ) -> Option<i64> {
        let listed = subject.listed_since(at);
        let counts = |it: &Regime<'_>| listed.iter().any(|listed| std::ptr::eq(*listed, it));
        self.quiet_among(subject, counts, (from, long))
    }

    /// As [`Self::quiet_for`], for one host alone.
    pub(crate) fn quiet_on(
        &self,
        subject: &Subject<'_>,
        host: usize,
        (from, long): (i64, i64),
    ) -> Option<i64> {
        self.quiet_among(subject, |regime| regime.host == host, (from, long))
    }

    /// As [`Self::quiet_on`], while that host has the job on the same schedule.
    pub(crate) fn quiet_as(
        &self,
        subject: &Subject<'_>,
        regime: &Regime<'_>,
        (from, long): (i64, i64),
    ) -> Option<i64> {
        let is_meant = |it: &Regime<'_>| it.host == regime.host && it.is_alike(regime);
        self.quiet_among(subject, is_meant, (from, long))
    }

    fn quiet_among(
        &self,
        subject: &Subject<'_>,
        is_meant: impl Fn(&Regime<'_>) -> bool,
        (from, long): (i64, i64),
    ) -> Option<i64> {
        let mut first: Option<i64> = None;
        for regime in subject.regimes.iter().filter(|it| is_meant(it)) {
            for span in &self.quiet[regime.host] {
                let begin = from.max(span.from).max(regime.settled_from());
                if begin + long <= span.until.min(regime.span.until) {
                    let over = begin + long;
                    first = Some(first.map_or(over, |first| first.min(over)));
                }
            }
        }
        first
    }

    /// The spans within `span` in which a host could act, and none of its messages got lost.
    pub(crate) fn able_and_heard(&self, host: usize, span: Span) -> Vec<Span> {
        let within = |it: &Span| Span {
            from: it.from.max(span.from),
            until: it.until.min(span.until),
        };
        let mut spans: Vec<Span> = self.able[host].iter().map(within).collect();
        spans.retain(|it| it.from < it.until);
        for trouble in self.trace.troubles.iter().filter(|it| it.host == host) {
            spans = without(spans, trouble.span);
        }
        spans
    }

    /// Whether data were lost that may concern this instant.
    pub(crate) fn may_be_forgotten(&self, at: i64) -> bool {
        let near = |loss: &Span| loss.from - 10_000 <= at && at <= loss.until + 3_000;
        self.trace.losses.iter().any(near)
    }

    /// When the lease of a run ended, or would have.
    pub(crate) fn lease_end(&self, start: &Start) -> Option<i64> {
        self.lease_end_of(&start.lock, &start.run_id)
    }

    /// As [`Self::lease_end`], also of a run that was granted and never began.
    pub(crate) fn lease_end_of(&self, lock: &str, run_id: &str) -> Option<i64> {
        let of_it = format!(":{run_id}:");
        let held = self.trace.held.iter().rfind(|held| {
            let token = held.token.as_ref();
            held.lock == lock && token.is_some_and(|token| token.contains(&of_it))
        });
        held.map(|held| held.until)
    }

    /// The spans within `span` in which nobody held the lock, whoever's lease it was.
    pub(crate) fn free(&self, lock: &str, span: Span) -> Vec<Span> {
        let mut free = Vec::new();
        let mut since = Some(self.plan.start);
        let mut close = |since: Option<i64>, until: i64| {
            if let Some(from) = since {
                let (from, until) = (from.max(span.from), until.min(span.until));
                if from < until {
                    free.push(Span { from, until });
                }
            }
        };
        let of_lock = |held: &&Held| held.lock == lock && held.exclusive;
        for held in self.trace.held.iter().filter(of_lock) {
            let held_until = held.token.as_ref().map_or(held.at, |_| held.until);
            close(since, held.at);
            since = Some(held.at.max(held_until));
        }
        close(since, span.until);
        // Another program's key keeps everybody out, whoever has a lease.
        let foreign = self.trace.foreign.iter().filter(|(of, _)| of == lock);
        foreign.fold(free, |free, (_, foreign)| without(free, foreign.span))
    }
}

/// Takes a span out of others.
pub(crate) fn without(spans: Vec<Span>, out: Span) -> Vec<Span> {
    let mut left = Vec::new();
    for span in spans {
        for part in [
            Span {
                until: span.until.min(out.from),
                ..span
            },
            Span {
                from: span.from.max(out.until),
                ..span
            },
        ] {
            if part.from < part.until {
                left.push(part);
            }
        }
    }
    left
}

fn lives(trace: &Trace, host: usize, end: i64) -> Vec<Span> {
    let of_host = trace.lives.iter().filter(|life| life.host == host);
    let spans = of_host.map(|life| Span {
        from: life.from,
        until: life.drains.or(life.until).unwrap_or(end),
    });
    spans.collect()
}

fn quiet(trace: &Trace, host: usize, end: i64) -> Vec<Span> {
    let mut spans: Vec<Span> = lives(trace, host, end);
    for span in &mut spans {
        span.from += SETTLES;
    }
    spans.retain(|span| span.from < span.until);
    for trouble in trace.troubles.iter().filter(|it| it.host == host) {
        let until = trouble.span.until + RECOVERS + pause_after(trace, trouble);
        spans = without(
            spans,
            Span {
                until,
                ..trouble.span
            },
        );
    }
    for outage in trace.outages.iter().chain(&trace.losses) {
        let until = outage.until + RECOVERS;
        spans = without(spans, Span { until, ..*outage });
    }
    for loss in &trace.losses {
        spans = without(spans, *loss);
    }
    let mut clocks = trace
        .clocks
        .iter()
        .filter(|step| step.host == host)
        .peekable();
    while let Some(ClockStep {
        at: from, ahead, ..
    }) = clocks.next()
    {
        let until = clocks.peek().map_or(i64::MAX, |next| next.at);
        let settles = from
            + if *from == trace.clocks[0].at {
                0
            } else {
                15_000
            };
        if ahead.abs() > RIGHT_CLOCK {
            spans = without(spans, Span { from: *from, until });
        } else {
            // A clock that was wrong is measured again every ten seconds.
            let until = settles.min(until);
            spans = without(spans, Span { from: *from, until });
        }
    }
    spans
}

/// For how long a host claims nothing that could start processes again: its pauses double, so none is
/// longer than the time before it and the first. In a pause it does not notice that it could start
/// some meanwhile.
fn pause_after(trace: &Trace, trouble: &Trouble) -> i64 {
    if trouble.how != Hindered::Short {
        return 0;
    }
    let all = trace.troubles.iter().filter(|it| it.host == trouble.host);
    let mut shortages: Vec<Span> = all
        .filter(|it| it.how == Hindered::Short && it.span.from <= trouble.span.from)
        .map(|it| it.span)
        .collect();
    shortages.sort_by_key(|span| span.from);
    let one = shortages.into_iter().reduce(|before, next| {
        let pause = before.until - before.from + FIRST_PAUSE;
        let goes_on = next.from <= before.until + pause;
        Span {
            from: if goes_on { before.from } else { next.from },
            until: next.until.max(before.until),
        }
    });
    one.map_or(0, |it| it.until - it.from + FIRST_PAUSE)
}

fn up(trace: &Trace, host: usize, end: i64) -> Vec<Span> {
    let still = |how| matches!(how, Hindered::Stopped | Hindered::Suspended);
    let troubles = trace.troubles.iter().filter(|it| it.host == host);
    let troubles = troubles.filter(|it| still(it.how)).map(|it| it.span);
    troubles.fold(lives(trace, host, end), without)
}

fn able(trace: &Trace, host: usize, end: i64) -> Vec<Span> {
    let mut spans = lives(trace, host, end);
    // What gets through a bad network is enough to act on, and so is a store that takes its time. A
    // host that cannot start processes decides all the same.
    let acts = |how| matches!(how, Hindered::Lossy | Hindered::Slow | Hindered::Short);
    let is_cut = |it: &&Trouble| it.host == host && !acts(it.how);
    for trouble in trace.troubles.iter().filter(is_cut) {
        spans = without(spans, trouble.span);
    }
    for outage in &trace.outages {
        spans = without(spans, *outage);
    }
    spans
}

fn trusted(trace: &Trace, host: usize, end: i64) -> Vec<Span> {
    let clocks = || trace.clocks.iter().filter(|step| step.host == host);
    let is_wrong_from = |at: i64| {
        let shown = clocks().rfind(|step| step.at <= at);
        shown.is_some_and(|step| step.ahead.abs() > WRONG_CLOCK)
    };
    let lives = trace.lives.iter().filter(|it| it.host == host);
    let wrong = lives.filter(|it| is_wrong_from(it.from)).map(|life| {
        let is_right = |step: &ClockStep| step.ahead.abs() <= WRONG_CLOCK;
        let right = clocks().find(|step| life.from < step.at && is_right(step));
        let ends = [life.until, right.map(|step| step.at)];
        Span {
            from: life.from,
            until: ends.into_iter().flatten().min().unwrap_or(end),
        }
    });
    wrong.fold(able(trace, host, end), without)
}

/// When a host ran as many as its list allows (`max_running`), and the moments between, in which claims have
/// the place. A run has its place from its first attempt to the end of its last.
fn full(plan: &Plan, trace: &Trace, host: usize, end: i64) -> Vec<Span> {
    let mut full = Vec::new();
    let lives = trace.lives.iter().enumerate();
    for (nr, life) in lives.filter(|(_, it)| it.host == host) {
        let lives = Span {
            from: life.from,
            until: life.until.unwrap_or(end),
        };
        let places = places(plan, trace, host, lives, end);
        let lists = trace.lists_of(nr);
        for (n, (from, list)) in lists.iter().enumerate() {
            let until = lists.get(n + 1).map_or(lives.until, |(next, _)| *next);
            if let Some(max) = plan.lists[*list].max_running {
                let span = Span { from: *from, until };
                full.extend(without_moments(at_once(&places, max, span)));
            }
        }
    }
    full
}

/// Spans in ascending order, as one where only a moment lies between them.
fn without_moments(spans: Vec<Span>) -> Vec<Span> {
    let mut whole: Vec<Span> = Vec::new();
    for span in spans {
        match whole.last_mut() {
            Some(last) if span.from - last.until < TAKES_TURNS => last.until = span.until,
            _ => whole.push(span),
        }
    }
    whole
}

/// The places that the runs of one daemon take: from when until when.
fn places(plan: &Plan, trace: &Trace, host: usize, lives: Span, end: i64) -> Vec<Span> {
    let mut places: BTreeMap<&str, Span> = BTreeMap::new();
    let of_daemon = |it: &&Start| it.host == host && it.at.is_some() && lives.holds(it.begin);
    for start in trace.starts.iter().filter(of_daemon) {
        let until = place_until(plan, trace, start, end).min(lives.until);
        let from = start.begin;
        let place = places.entry(&start.run_id).or_insert(Span { from, until });
        place.from = place.from.min(from);
        place.until = place.until.max(until);
    }
    places.into_values().collect()
}

/// An attempt that failed has its place until the next one begins, or the run is given up before that.
fn place_until(plan: &Plan, trace: &Trace, start: &Start, end: i64) -> i64 {
    let Some(ended) = start.end else { return end };
    let jobs = plan.lists.iter().flat_map(|list| &list.jobs);
    let mut retries = jobs.filter(|it| it.name == start.job).map(|it| it.retry);
    let delay = retries.find_map(|it| it.filter(|(tries, _)| start.attempt < *tries));
    let Some((_, delay)) = delay.filter(|_| start.ended != Some(Ended::Itself(0))) else {
        return ended;
    };
    let of_run = |it: &&Added| {
        let id = it.record.run_id.as_ref();
        id.is_some_and(|id| id.as_str() == start.run_id)
    };
    let given_up = trace.added.iter().find(of_run).map_or(end, |it| it.at);
    given_up.clamp(ended, ended + delay * 4)
}

/// The parts of a span in which at least so many of the places were taken.
fn at_once(places: &[Span], many: usize, span: Span) -> Vec<Span> {
    let mut edges: Vec<i64> = places.iter().flat_map(|it| [it.from, it.until]).collect();
    edges.extend([span.from, span.until]);
    edges.retain(|at| span.from <= *at && *at <= span.until);
    edges.sort_unstable();
    edges.dedup();
    let parts = edges.windows(2).map(|pair| Span {
        from: pair[0],
        until: pair[1],
    });
    let taken = |at: i64| places.iter().filter(|it| it.holds(at)).count();
    parts.filter(|it| taken(it.from) >= many).collect()
}

fn regime(host: usize, span: Span, job: &JobPlan) -> Regime<'_> {
    let made: Job = job.job();
    Regime {
        host,
        span,
        by_reload: false,
        told: span.from,
        job,
        delay: i64::try_from(made.delay().as_millis()).unwrap_or(0),
        schedule: made.schedule,
    }
}

/// Whether two lists have the job alike, but for `enabled`.
fn is_same(one: &JobPlan, other: &JobPlan) -> bool {
    let enabled = one.enabled;
    JobPlan {
        enabled,
        ..other.clone()
    } == *one
}

/// When the store first heard from the host of the job on this schedule and under this lock.
fn first_told(trace: &Trace, regime: &Regime<'_>) -> i64 {
    let of_it = |it: &&Admitted| {
        it.host == regime.host && it.job == regime.job.name && it.at >= regime.span.from
    };
    let told = trace.admitted.iter().find(of_it);
    told.map_or(i64::MAX, |it| it.at)
}

fn subjects<'a>(plan: &'a Plan, trace: &'a Trace, end: i64) -> Vec<Subject<'a>> {
    let mut subjects: BTreeMap<(&str, Option<usize>), Vec<Regime<'a>>> = BTreeMap::new();
    let mut last_seen: BTreeMap<(&str, Option<usize>, usize), (usize, usize)> = BTreeMap::new();
    // A host's list is what it last started with, also while it is away.
    for host in 0..plan.hosts.len() {
        let lives = trace.lives.iter().enumerate();
        let of_host: Vec<_> = lives.filter(|(_, it)| it.host == host).collect();
        let mut list_before: Option<(usize, usize)> = None;
        for (n, (life, _)) in of_host.iter().enumerate() {
            // What comes due as the simulation ends still counts.
            let last = of_host
                .get(n + 1)
                .map_or(end + 1_000, |(_, next)| next.from);
            let lists = trace.lists_of(*life);
            for (n, (from, list)) in lists.iter().enumerate() {
                let until = lists.get(n + 1).map_or(last, |(next, _)| *next);
                let span = Span { from: *from, until };
                let list_before = list_before.replace((*life, n));
                for job in &plan.lists[*list].jobs {
                    let mut regime = regime(host, span, job);
                    regime.by_reload = n > 0;
                    if !job.enabled || !(job.hosts.is_empty() || job.hosts.contains(&host)) {
                        continue;
                    }
                    let of = (job.scope != Scope::Fleet).then_some(host);
                    let regimes = subjects.entry((&job.name, of)).or_default();
                    // A list that has the job may have been in force for too short a time to tell the store.
                    let newest = regimes.iter().rfind(|it| it.host == host);
                    let is_untold = newest.is_some_and(|it| it.told > it.span.until);
                    // A list that lacked the job may have been in force for no time at all.
                    let seen = last_seen.insert((&job.name, of, host), (*life, n));
                    let was_listed = seen == list_before;
                    let goes_on = regime.by_reload && was_listed;
                    let before = regimes.last_mut().filter(|it: &&mut Regime<'_>| {
                        goes_on && it.host == host && it.span.until == span.from
                    });
                    match before {
                        // A reload that leaves the job as it is is nothing to the job.
                        Some(before) if before.job == job => before.span.until = until,
                        before => {
                            let told = before
                                .filter(|it| it.is_known_as(&regime))
                                .map(|it| it.told);
                            let told = told.unwrap_or_else(|| first_told(trace, &regime));
                            let is_new = regime.by_reload || !was_listed || is_untold;
                            regime.told = if is_new { told } else { span.from };
                            regimes.push(regime);
                        }
                    }
                }
            }
        }
    }
    let make = |((name, host), mut regimes): ((&'a str, Option<usize>), Vec<Regime<'a>>)| {
        regimes.sort_by_key(|regime| regime.span.from);
        // A change of the scope makes another ledger of it.
        let mine = |lock: &str| match host {
            Some(host) => lock.ends_with(&format!("@host-{host}")),
            None => !lock.contains('@'),
        };
        let starts = trace
            .starts
            .iter()
            .filter(|start| start.job == name && start.at.is_some() && mine(&start.lock));
        let added = trace
            .added
            .iter()
            .filter(|it| it.record.job.as_str() == name && mine(&it.lock));
        Subject {
            name,
            host,
            delay: regimes[0].delay,
            starts: starts.collect(),
            added: added.collect(),
            regimes,
        }
    };
    subjects.into_iter().map(make).collect()
}

impl Subject<'_> {
    /// The occurrences of its schedules within a span, ascending.
    pub(crate) fn occurrences(&self, span: Span) -> Vec<i64> {
        let mut all = Vec::new();
        for regime in &self.regimes {
            let from = span.from.max(regime.span.from);
            let until = span.until.min(regime.span.until);
            all.extend(regime.instants(Span { from, until }));
        }
        all.sort_unstable();
        all.dedup();
        all
    }
}
