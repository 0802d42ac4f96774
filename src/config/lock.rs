//! `lock:`, and how a job is killed. Together they determine the shortest TTL.

use std::time::Duration;

use nix::sys::signal::Signal;

use super::duration::show_duration;
use super::fields::JOB;
use super::model::{KillPlan, LockPolicy, OnLost, Scope};
use super::node::Node;
use super::problem::{Problem, Problems};
use super::section::{Section, ValueError, Vocabulary};
use super::source::Span;
use super::values;
use crate::ground::timing;
use crate::names::{JobName, LockName};

/// The fields of `lock:`.
pub(super) const LOCK: Vocabulary = Vocabulary {
    what: "`lock`",
    fields: &["ttl", "name", "key", "scope"],
    other_words: &[
        ("timeout", "did you mean `ttl`?"),
        ("expires", "did you mean `ttl`?"),
        ("expiry", "did you mean `ttl`?"),
    ],
    elsewhere: &[(
        JOB.fields,
        "this is a field of the job: write it next to `lock:`, not below it",
    )],
    not_yet: &[],
};

const DEFAULT_TTL: Duration = Duration::from_secs(30);
const MAX_TTL: Duration = Duration::from_secs(86_400);

/// `lock:` and the kill plan.
#[derive(Debug)]
pub(super) struct LockPart {
    pub(super) name: Option<LockName>,
    pub(super) key: Option<String>,
    pub(super) scope: Scope,
    pub(super) ttl: Duration,
    pub(super) ttl_place: Option<Span>,
    /// The `ttl` of the list was rejected. This is the default instead, which is not compared with
    /// other jobs.
    pub(super) ttl_refused: bool,
    pub(super) kill: KillPlan,
}

impl LockPart {
    /// Whether the list gives the lock a name or a key, so that others may take it too.
    pub(super) fn is_named(&self) -> bool {
        self.name.is_some() || self.key.is_some()
    }

    /// Returns the lock of a job.
    pub(super) fn policy(self, job: &JobName) -> LockPolicy {
        // A job that takes no lock shares none: what the store keeps of its leases is its own.
        let is_named = self.is_named();
        let shared = self.name.filter(|_| self.scope != Scope::None);
        LockPolicy {
            is_named,
            name: shared.unwrap_or_else(|| LockName::of_job(job)),
            key: self.key,
            scope: self.scope,
            ttl: self.ttl,
        }
    }
}

/// Reads `lock:`, `kill_grace` and `kill_signal`.
pub(super) fn read(
    section: Section<'_>,
    job: Option<&JobName>,
    on_lost: OnLost,
    problems: &mut Problems,
) -> LockPart {
    let lock = section
        .within("lock", &LOCK, problems)
        .unwrap_or(Section::new(&[], &[]));
    let given_ttl = lock.read("ttl", problems, |n| {
        values::duration_in(
            n,
            Duration::from_secs(1)..=MAX_TTL,
            "a dead host's locks stay held for up to one ttl",
        )
    });
    let scope = lock.read("scope", problems, scope);
    let scope = scope.unwrap_or(Scope::Fleet);
    let name = lock.read("name", problems, values::name);
    let key = lock.read("key", problems, raw_key);
    check_key(lock, scope, problems);
    let given_grace = section.read("kill_grace", problems, values::duration);
    let signal = section
        .read("kill_signal", problems, values::signal)
        .unwrap_or(Signal::SIGTERM);
    let ttl = given_ttl.unwrap_or(DEFAULT_TTL);
    let grace = given_grace.unwrap_or_else(|| timing::default_kill_grace(ttl));
    let ttl_refused = lock.entry("ttl").is_some() && given_ttl.is_none();
    // An error points at the job's own fields rather than at inherited ones.
    let to_blame = lock
        .own_entry("ttl")
        .or_else(|| section.own_entry("kill_grace"))
        .or_else(|| lock.entry("ttl"))
        .or_else(|| section.entry("kill_grace"))
        .map(|entry| entry.value.span);
    if let (false, Some(span)) = (ttl_refused, to_blame) {
        let given = Given {
            ttl,
            grace: given_grace,
            on_lost,
        };
        if let Some(problem) = given.too_short(span, job) {
            problems.add(problem);
        }
    }
    LockPart {
        name,
        key,
        scope,
        ttl,
        ttl_place: lock.span("ttl"),
        ttl_refused,
        kill: KillPlan { signal, grace },
    }
}

fn scope(node: &Node) -> Result<Scope, ValueError> {
    values::word(
        node,
        &[
            ("fleet", Scope::Fleet),
            ("host", Scope::Host),
            ("none", Scope::None),
        ],
    )
}

/// Rejects a key together with a name, and a key with a scope other than `fleet`.
fn check_key(lock: Section<'_>, scope: Scope, problems: &mut Problems) {
    if let (Some(key), Some(name)) = (lock.entry("key"), lock.entry("name")) {
        problems.add(
            Problem::new(key.span, "a lock has either a `name` or a `key`")
                .other(name.span, "`name` is at")
                .help("`name` is a lock of cronlatch, `key` one that applications use too"),
        );
    } else if let (Some(key), Scope::Host | Scope::None) = (lock.entry("key"), scope) {
        let mut problem = Problem::new(
            key.span,
            "`key` is a lock of the whole fleet: it requires `scope: fleet`",
        );
        if let Some(span) = lock.span("scope") {
            problem = problem.other(span, "`scope` is at");
        }
        problems.add(problem);
    }
}

fn raw_key(node: &Node) -> Result<String, ValueError> {
    const MAX: usize = 1024;
    let key = values::filled(node)?;
    if key.len() > MAX {
        return Err(ValueError::new(
            format!("this key is longer than {MAX} bytes"),
            "",
        ));
    }
    Ok(key)
}

/// What a job says about the length and the end of its lease.
struct Given {
    ttl: Duration,
    grace: Option<Duration>,
    on_lost: OnLost,
}

impl Given {
    /// The grace that must fit into a lease of that length: none for a job that may go on.
    fn grace(&self, ttl: Duration) -> Duration {
        match self.on_lost {
            OnLost::Kill => self
                .grace
                .unwrap_or_else(|| timing::default_kill_grace(ttl)),
            OnLost::Continue => Duration::ZERO,
        }
    }

    fn fits(&self, ttl: Duration) -> bool {
        timing::needed(ttl, self.grace(ttl)) <= ttl
    }

    fn too_short(&self, span: Span, job: Option<&JobName>) -> Option<Problem> {
        let ttl = self.ttl;
        if self.fits(ttl) {
            return None;
        }
        let grace = self.grace(ttl);
        let whole = |d: Duration| show_duration(Duration::from_millis(round_up(d)));
        let sum = format!(
            "needed: ttl/3 ({}) + 2 response time-outs ({}) + kill_grace ({}) + 1 % of ttl ({}) \
             + {} = {}",
            whole(ttl / 3),
            whole(2 * timing::response_timeout(ttl)),
            whole(grace),
            whole(ttl / 100),
            whole(timing::KILL_MARGIN),
            whole(timing::needed(ttl, grace)),
        );
        let of = job.map_or_else(String::new, |name| format!(" for job `{name}`"));
        let message = format!(
            "a ttl of {} is too short{of}: it must leave time for a failed renewal and for \
             killing the job",
            whole(ttl)
        );
        let enough = (1..=MAX_TTL.as_secs())
            .map(Duration::from_secs)
            .find(|&t| t >= ttl && self.fits(t));
        let way_out = match (enough, self.grace) {
            (Some(enough), Some(_)) => format!(
                "raise `lock.ttl` to {} or more, or lower `kill_grace`",
                whole(enough)
            ),
            (Some(enough), None) => format!("raise `lock.ttl` to {} or more", whole(enough)),
            (None, _) => "lower `kill_grace`".to_owned(),
        };
        Some(Problem::new(span, message).help(sum).help(way_out))
    }
}

fn round_up(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX)
}
