//! The ticker of a daemon: the real board, and the polls of the library that drives it.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, SystemTime};

use cronlatch::config::Job;
use cronlatch::engine::simulated::HostClock;
use cronlatch::names::JobName;
use cronlatch::schedule::ticker::board::{Board, ServeStep};
use cronlatch::schedule::ticker::{ClaimsAhead, Firing, TickerJob, WallClock};
use cronlatch::time::Timestamp;
use tokio::sync::mpsc;

use super::{Env, Timer};
use crate::plan::millis;

/// A job, and how early this host claims it, if it claims it ahead of its instants.
pub(super) type TickedJob = (Arc<Job>, Option<ClaimsAhead>);

/// An occurrence that has come due: of which job.
pub(super) type Fired = (JobName, Timestamp);

/// How often the library polls.
const POLL: i64 = 500;

/// The clock that a host goes by, as the board reads it.
#[derive(Debug, Default)]
struct Wall(AtomicI64);

impl WallClock for Wall {
    fn now(&self) -> SystemTime {
        SystemTime::UNIX_EPOCH + millis(self.0.load(Ordering::Relaxed))
    }
}

pub(super) struct Ticker {
    board: Board,
    wall: Arc<Wall>,
    firings: mpsc::UnboundedReceiver<Firing>,
}

impl std::fmt::Debug for Ticker {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Ticker").finish_non_exhaustive()
    }
}

impl Ticker {
    pub(super) fn start(env: &mut Env<'_>, clock: &HostClock, jobs: &[TickedJob]) -> Self {
        let started_at = clock.at(env.utc(), env.sim.boot()).utc;
        let wall = Arc::new(Wall(AtomicI64::new(started_at.millis())));
        let (tx, firings) = mpsc::unbounded_channel();
        let clock = Arc::clone(&wall) as Arc<dyn WallClock>;
        let board = Board::new(ticker_jobs(jobs, started_at), tx, clock);
        let plan = &env.sim.plan;
        board.set_ahead(millis(plan.lead()), millis(plan.lead_in_a_crowd()));
        env.arm(env.sim.now, Timer::Poll);
        Self {
            board,
            wall,
            firings,
        }
    }

    /// Replaces the jobs. Returns what the jobs before have fired.
    pub(super) fn replace(
        &mut self,
        env: &mut Env<'_>,
        clock: &HostClock,
        jobs: &[TickedJob],
    ) -> Vec<Fired> {
        let now = clock.at(env.utc(), env.sim.boot()).utc;
        self.set(env, clock);
        let jobs = ticker_jobs(jobs, now);
        let fired = self.board.replace(jobs, &mut self.firings);
        self.call(env);
        fired.into_iter().map(by_name).collect()
    }

    pub(super) fn poll(&mut self, env: &mut Env<'_>, clock: &HostClock) {
        self.set(env, clock);
        env.arm(env.sim.now + POLL, Timer::Poll);
        self.call(env);
    }

    fn call(&mut self, env: &mut Env<'_>) {
        for job in self.board.due_soon() {
            if self.board.arm(job) {
                self.step(env, job);
            }
        }
    }

    pub(super) fn clock_set(&mut self, env: &mut Env<'_>, clock: &HostClock) {
        self.set(env, clock);
        self.board.clock_set();
    }

    pub(super) fn tick(&mut self, env: &mut Env<'_>, clock: &HostClock, job: usize) {
        self.set(env, clock);
        self.step(env, job);
    }

    /// The occurrences that have come due.
    pub(super) fn fired(&mut self) -> Vec<Fired> {
        let fired = std::iter::from_fn(|| self.firings.try_recv().ok());
        fired.map(by_name).collect()
    }

    fn set(&self, env: &Env<'_>, clock: &HostClock) {
        let now = clock.at(env.utc(), env.sim.boot()).utc;
        self.wall.0.store(now.millis(), Ordering::Relaxed);
    }

    fn step(&self, env: &mut Env<'_>, job: usize) {
        if let ServeStep::Sleep(span) = self.board.step(job) {
            let late = env.sim.dice.range(0, 3);
            let span = i64::try_from(span.max(Duration::from_millis(1)).as_millis()).unwrap_or(0);
            env.arm(env.sim.now + span + late, Timer::Tick(job));
        }
    }
}

fn by_name(firing: Firing) -> Fired {
    (firing.job, firing.scheduled_at)
}

/// The jobs as the board knows them, from then on.
fn ticker_jobs(jobs: &[TickedJob], from: Timestamp) -> Vec<TickerJob> {
    let of = |(job, claims_ahead): &TickedJob| TickerJob {
        claims_ahead: *claims_ahead,
        name: job.name.clone(),
        schedule: job.schedule.clone(),
        delay: job.delay(),
        from: from.minus(job.delay()),
    };
    jobs.iter().map(of).collect()
}
