//! The guarantees of the ticker, on a wall clock that tests step.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime};

use chrono_tz::Tz::UTC;
use tokio::sync::mpsc;

use super::board::{Board, ServeStep};
use super::{
    ClaimsAhead, Firing, HEAD_STARTS, MOST_AT_ONCE, Skipped, Ticker, TickerJob, WallClock,
};
use crate::names::{HostName, JobName};
use crate::schedule::{Schedule, Spread};
use crate::time::Timestamp;

/// The timeout of a test.
const LONG: Duration = Duration::from_secs(60);

fn at(text: &str) -> Timestamp {
    Timestamp::parse(text).expect("an RFC 3339 time")
}

/// A wall clock that the test sets and that continues from there.
struct RunningClock {
    set: Mutex<(SystemTime, Instant)>,
}

impl RunningClock {
    fn new(now: Timestamp) -> Arc<Self> {
        let clock = Self {
            set: Mutex::new((SystemTime::UNIX_EPOCH, Instant::now())),
        };
        clock.set(now);
        Arc::new(clock)
    }

    fn set(&self, now: Timestamp) {
        let shown = SystemTime::UNIX_EPOCH + now.since(Timestamp::EPOCH);
        *self.set.lock().expect("no test holds it") = (shown, Instant::now());
    }

    fn shown(&self) -> Timestamp {
        let since_epoch = self.now().duration_since(SystemTime::UNIX_EPOCH);
        Timestamp::EPOCH.plus(since_epoch.expect("after 1970"))
    }
}

impl WallClock for RunningClock {
    fn now(&self) -> SystemTime {
        let (shown, since) = *self.set.lock().expect("no test holds it");
        shown + since.elapsed()
    }
}

/// A wall clock that moves only when the test moves it, for tests of the board alone.
#[derive(Default)]
struct StoppedClock(AtomicU64);

impl StoppedClock {
    fn set(&self, now: Timestamp) {
        let millis = u64::try_from(now.millis()).expect("after 1970");
        self.0.store(millis, Ordering::SeqCst);
    }
}

impl WallClock for StoppedClock {
    fn now(&self) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_millis(self.0.load(Ordering::SeqCst))
    }
}

fn job(name: &str, schedule: Schedule, from: Timestamp) -> TickerJob {
    TickerJob {
        claims_ahead: None,
        name: JobName::parse(name).expect("a good name"),
        schedule,
        delay: Duration::ZERO,
        from,
    }
}

/// The head starts of a host at a job.
fn head_starts(host: &str, job: &JobName) -> Spread {
    let host = HostName::parse(host).expect("a good name");
    Spread::new(&host, job, HEAD_STARTS)
}

/// How early a host claims a job, which is earlier in a crowd.
fn claims_ahead(host: &str, job: &JobName) -> ClaimsAhead {
    ClaimsAhead {
        head_starts: head_starts(host, job),
        earlier_in_a_crowd: true,
    }
}

fn every(seconds: u64) -> Schedule {
    Schedule::every(Duration::from_secs(seconds)).expect("a good interval")
}

/// A board of one job and a clock that stands still.
struct TickerBench {
    board: Board,
    clock: Arc<StoppedClock>,
    fired: mpsc::UnboundedReceiver<Firing>,
    jobs: usize,
}

impl TickerBench {
    fn new(job: TickerJob, now: &str) -> Self {
        Self::of(vec![job], now)
    }

    fn of(jobs: Vec<TickerJob>, now: &str) -> Self {
        let count = jobs.len();
        let clock = Arc::new(StoppedClock::default());
        clock.set(at(now));
        let (tx, fired) = mpsc::unbounded_channel();
        let board = Board::new(jobs, tx, Arc::clone(&clock) as Arc<dyn WallClock>);
        Self {
            board,
            clock,
            fired,
            jobs: count,
        }
    }

    /// Sets the clock and does what the library and the callback would do at once.
    fn at(&mut self, now: &str) -> Vec<Firing> {
        self.clock.set(at(now));
        for job in self.board.due_soon() {
            self.board.arm(job);
        }
        for job in 0..self.jobs {
            self.board.step(job);
        }
        std::iter::from_fn(|| self.fired.try_recv().ok()).collect()
    }
}

fn instants(firings: &[Firing]) -> Vec<String> {
    firings.iter().map(|f| f.scheduled_at.to_string()).collect()
}

#[test]
fn a_job_is_taken_once_however_often_it_is_reported() {
    let now = "2026-06-01T11:59:59Z";
    let bench = TickerBench::new(job("j", every(3600), at(now)), now);
    assert_eq!(bench.board.due_soon(), [0]);
    assert_eq!(
        bench.board.due_soon(),
        [0],
        "reported again until it is taken"
    );
    assert!(bench.board.arm(0));
    assert!(!bench.board.arm(0), "a doubled call finds nothing");
    assert_eq!(bench.board.due_soon(), [0; 0]);
    assert_eq!(
        bench.board.step(0),
        ServeStep::Sleep(Duration::from_secs(1)),
        "to the instant, not beyond"
    );
}

#[test]
fn a_sleeping_task_looks_at_the_wall_clock_every_second() {
    let now = "2026-06-01T11:59:58.600Z";
    let bench = TickerBench::new(job("j", every(3600), at(now)), now);
    assert_eq!(bench.board.due_soon(), [0]);
    assert!(bench.board.arm(0));
    assert_eq!(
        bench.board.step(0),
        ServeStep::Sleep(Duration::from_secs(1))
    );
    // Set back by an hour meanwhile: it waits on the board again and not in its sleep.
    bench.clock.set(at("2026-06-01T10:59:59Z"));
    assert_eq!(bench.board.step(0), ServeStep::Leave);
    assert_eq!(bench.board.due_soon(), [0; 0]);
    bench.clock.set(at("2026-06-01T11:59:59Z"));
    assert_eq!(bench.board.due_soon(), [0]);
}

#[test]
fn an_occurrence_is_not_fired_a_millisecond_early() {
    let mut bench = TickerBench::new(
        job("j", every(3600), at("2026-06-01T11:00:00Z")),
        "2026-06-01T11:59:59Z",
    );
    assert_eq!(bench.at("2026-06-01T11:59:59.999Z"), []);
    let fired = bench.at("2026-06-01T12:00:00Z");
    assert_eq!(instants(&fired), ["2026-06-01T12:00:00Z"]);
    assert_eq!(bench.at("2026-06-01T12:00:00.001Z"), []);
}

#[test]
fn a_delay_moves_the_firing_and_not_the_occurrence() {
    let mut delayed = job("j", every(3600), at("2026-06-01T11:00:00Z"));
    delayed.delay = Duration::from_millis(2500);
    let mut bench = TickerBench::new(delayed, "2026-06-01T11:59:59Z");
    assert_eq!(bench.at("2026-06-01T12:00:02.499Z"), []);
    let fired = bench.at("2026-06-01T12:00:02.500Z");
    assert_eq!(instants(&fired), ["2026-06-01T12:00:00Z"]);
    assert_eq!(fired[0].due_at, at("2026-06-01T12:00:02.500Z"));
}

#[test]
fn what_lies_between_a_corrected_clock_and_the_start_of_a_job_fires_however_near_it_is() {
    let mut ahead = job("j", every(3600), at("2026-06-01T12:00:00.033Z"));
    ahead.claims_ahead = Some(claims_ahead("a", &ahead.name));
    let mut bench = TickerBench::new(ahead, "2026-06-01T12:00:00.033Z");
    bench
        .board
        .set_ahead(Duration::from_millis(46), Duration::ZERO);
    assert_eq!(bench.at("2026-06-01T12:00:00.034Z"), []);
    // The clock was 76 ms ahead.
    bench.clock.set(at("2026-06-01T11:59:59.990Z"));
    bench.board.clock_set();
    let fired = bench.at("2026-06-01T11:59:59.991Z");
    assert_eq!(instants(&fired), ["2026-06-01T12:00:00Z"]);
    bench.board.clock_set();
    assert_eq!(bench.at("2026-06-01T12:00:00Z"), []);
}

#[test]
fn a_job_that_is_claimed_ahead_fires_by_so_much_before_its_instant_and_once() {
    let mut ahead = job("j", every(3600), at("2026-06-01T11:00:00Z"));
    let head_start = head_starts("a", &ahead.name);
    ahead.claims_ahead = Some(claims_ahead("a", &ahead.name));
    ahead.delay = Duration::from_secs(2);
    let mut bench = TickerBench::new(ahead, "2026-06-01T11:59:59Z");
    // With the host's head start at this occurrence it is 40 ms.
    let rest = Duration::from_millis(40)
        .abs_diff(head_start.delay(at("2026-06-01T12:00:00Z"), Duration::MAX));
    bench.board.set_ahead(rest, Duration::ZERO);
    assert_eq!(bench.at("2026-06-01T12:00:01.900Z"), []);
    let sleeps = ServeStep::Sleep(Duration::from_millis(60));
    assert_eq!(bench.board.step(0), sleeps);
    assert_eq!(bench.at("2026-06-01T12:00:01.959Z"), []);
    let fired = bench.at("2026-06-01T12:00:01.960Z");
    assert_eq!(instants(&fired), ["2026-06-01T12:00:00Z"]);
    assert_eq!(fired[0].due_at, at("2026-06-01T12:00:02Z"));
    // A clock that is measured again fires again what is not due within that time.
    bench.board.clock_set();
    assert_eq!(bench.at("2026-06-01T12:00:01.970Z"), []);
    assert_eq!(bench.at("2026-06-01T12:00:02Z"), []);
    bench.clock.set(at("2026-06-01T12:00:01Z"));
    bench.board.clock_set();
    assert_eq!(bench.at("2026-06-01T12:00:01.959Z"), []);
    let fired = bench.at("2026-06-01T12:00:01.960Z");
    assert_eq!(instants(&fired), ["2026-06-01T12:00:00Z"]);
}

#[test]
fn a_task_sleeps_until_the_lead_of_the_next_occurrence_and_not_of_the_one_it_has_fired() {
    let second = |n| at("2026-06-01T12:00:00Z").plus(Duration::from_secs(n));
    let mut ahead = job("j", every(1), second(0));
    let head_start = head_starts("a", &ahead.name);
    ahead.claims_ahead = Some(claims_ahead("a", &ahead.name));
    let fires_at = |n| second(n).minus(head_start.delay(second(n), Duration::MAX));
    let is_shorter = |n: &u64| fires_at(n + 1).since(fires_at(*n)) < Duration::from_secs(1);
    let n = (1..100).find(is_shorter).expect("one of many");
    ahead.from = second(n - 1);
    let bench = TickerBench::new(ahead, "2026-06-01T12:00:00Z");
    bench.clock.set(fires_at(n));
    assert!(bench.board.arm(0));
    let sleeps = fires_at(n + 1).since(fires_at(n));
    assert_eq!(bench.board.step(0), ServeStep::Sleep(sleeps));
}

/// The firings of jobs that share an instant, with how long before it each fires.
fn crowd(jobs: Vec<TickerJob>, for_each: Duration) -> BTreeMap<String, Duration> {
    let instant = at("2026-06-01T12:00:00Z");
    let mut bench = TickerBench::of(jobs, "2026-06-01T11:59:58Z");
    bench.board.set_ahead(Duration::from_millis(40), for_each);
    let mut leads = BTreeMap::new();
    for left in (0..2_000).rev() {
        let now = instant.minus(Duration::from_millis(left));
        for firing in bench.at(&now.to_string()) {
            let lead = instant.since(now);
            assert_eq!(leads.insert(firing.job.to_string(), lead), None);
        }
    }
    leads
}

fn claimed_ahead(name: &str, earlier_in_a_crowd: bool) -> TickerJob {
    let mut job = job(name, every(3600), at("2026-06-01T11:00:00Z"));
    let head_starts = Spread::default();
    job.claims_ahead = Some(ClaimsAhead {
        head_starts,
        earlier_in_a_crowd,
    });
    job
}

#[test]
fn of_many_jobs_at_one_instant_each_fires_earlier_than_the_one_before_and_none_too_early() {
    let ms = Duration::from_millis;
    let jobs = (0..5).map(|n| claimed_ahead(&format!("j{n}"), true));
    let leads = crowd(jobs.collect(), ms(300));
    let leads: Vec<_> = leads.into_values().collect();
    assert_eq!(leads, [ms(40), ms(340), ms(640), ms(900), ms(900)]);
}

#[test]
fn what_fired_early_in_a_crowd_does_not_fire_again_when_the_clock_is_measured() {
    let jobs = (0..3).map(|n| claimed_ahead(&format!("j{n}"), true));
    let mut bench = TickerBench::of(jobs.collect(), "2026-06-01T11:59:58Z");
    let ms = Duration::from_millis;
    bench.board.set_ahead(ms(40), ms(400));
    let fired = bench.at("2026-06-01T11:59:59.200Z");
    assert_eq!(fired.len(), 1, "the last of them");
    bench.board.clock_set();
    assert_eq!(bench.at("2026-06-01T11:59:59.300Z"), []);
}

#[test]
fn a_job_that_is_alone_at_its_instant_or_may_not_be_earlier_keeps_its_lead() {
    let ms = Duration::from_millis;
    let mut later = claimed_ahead("later", true);
    later.delay = Duration::from_secs(60);
    let jobs = vec![
        claimed_ahead("alone", true),
        later,
        claimed_ahead("named", false),
        job("plain", every(3600), at("2026-06-01T11:00:00Z")),
    ];
    let leads: Vec<_> = crowd(jobs, ms(300)).into_iter().collect();
    let expected = [("alone", 40), ("named", 40), ("plain", 0)];
    assert_eq!(
        leads,
        expected.map(|(name, lead)| (name.to_owned(), ms(lead)))
    );
}

/// Of three hosts whose claims take about as long, each is the first about as often.
#[test]
fn hosts_take_turns_at_being_first() {
    let job = JobName::parse("j").expect("a good name");
    let hosts = ["a", "b", "c"].map(|name| head_starts(name, &job));
    let mut first = [0; 3];
    for minute in 0..300 {
        let occurrence = Timestamp::from_millis(minute * 60_000);
        let starts = hosts.map(|host| host.delay(occurrence, Duration::MAX));
        assert!(starts.iter().all(|it| *it < HEAD_STARTS));
        let earliest = (0..3).max_by_key(|at| starts[*at]).expect("three");
        first[earliest] += 1;
    }
    assert!(first.iter().all(|wins| *wins > 70), "{first:?}");
}

/// Of 300 jobs that share an instant, a host that is a hundred milliseconds slower than two others is still the
/// first at some.
#[test]
fn in_a_crowd_a_slow_host_wins_as_well() {
    let ms = Duration::from_millis;
    // How long each job sleeps on a host.
    let [one, other, slow] = ["a", "b", "c"].map(|host| {
        let jobs = (0..300).map(|n| {
            let mut job = claimed_ahead(&format!("j{n}"), true);
            job.claims_ahead = Some(claims_ahead(host, &job.name));
            job
        });
        let bench = TickerBench::of(jobs.collect(), "2026-06-01T11:59:59.050Z");
        bench.board.set_ahead(ms(40), ms(1));
        for job in bench.board.due_soon() {
            assert!(bench.board.arm(job));
        }
        let sleep = |job| match bench.board.step(job) {
            ServeStep::Sleep(duration) => duration,
            step @ ServeStep::Leave => panic!("{step:?}"),
        };
        (0..300).map(sleep).collect::<Vec<_>>()
    });
    let is_first = |job: &usize| slow[*job] + ms(100) < one[*job].min(other[*job]);
    let wins = (0..300).filter(is_first).count();
    assert!(wins > 15, "{wins}");
}

#[test]
fn a_job_that_is_not_claimed_ahead_fires_at_its_instant() {
    let mut bench = TickerBench::new(
        job("j", every(3600), at("2026-06-01T11:00:00Z")),
        "2026-06-01T11:59:59Z",
    );
    bench
        .board
        .set_ahead(Duration::from_millis(40), Duration::ZERO);
    assert_eq!(bench.at("2026-06-01T11:59:59.999Z"), []);
    assert_eq!(bench.at("2026-06-01T12:00:00Z").len(), 1);
}

#[test]
fn a_clock_stepped_forward_delivers_each_occurrence_once_and_in_order() {
    let now = "2026-06-01T11:30:00Z";
    let mut bench = TickerBench::new(job("j", every(3600), at(now)), now);
    assert_eq!(bench.at(now), []);
    let fired = bench.at("2026-06-01T14:10:00Z");
    assert_eq!(
        instants(&fired),
        [
            "2026-06-01T12:00:00Z",
            "2026-06-01T13:00:00Z",
            "2026-06-01T14:00:00Z"
        ]
    );
    assert_eq!(bench.at("2026-06-01T14:10:01Z"), []);
}

#[test]
fn a_clock_stepped_back_fires_nothing_again() {
    let now = "2026-06-01T11:59:59Z";
    let mut bench = TickerBench::new(job("j", every(3600), at(now)), now);
    assert_eq!(
        instants(&bench.at("2026-06-01T13:00:00Z")),
        ["2026-06-01T12:00:00Z", "2026-06-01T13:00:00Z"]
    );
    assert_eq!(bench.at("2026-06-01T10:59:59Z"), []);
    assert_eq!(bench.at("2026-06-01T12:00:00Z"), []);
    assert_eq!(bench.at("2026-06-01T13:00:00Z"), []);
    assert_eq!(
        instants(&bench.at("2026-06-01T14:00:00Z")),
        ["2026-06-01T14:00:00Z"]
    );
}

#[test]
fn a_clock_that_was_years_ahead_does_not_silence_a_job_for_years() {
    let now = "2030-06-01T11:59:59Z";
    let mut bench = TickerBench::new(job("j", every(3600), at(now)), now);
    assert_eq!(
        instants(&bench.at("2030-06-01T12:00:00Z")),
        ["2030-06-01T12:00:00Z"]
    );
    assert_eq!(bench.at("2026-06-01T11:59:00Z"), []);
    assert_eq!(
        instants(&bench.at("2026-06-01T12:00:00Z")),
        ["2026-06-01T12:00:00Z"]
    );
}

#[test]
fn of_too_many_passed_over_the_newest_are_delivered_and_the_rest_named() {
    let now = "2026-06-01T12:00:00Z";
    let mut bench = TickerBench::new(job("j", every(1), at(now)), now);
    let fired = bench.at("2026-06-01T13:00:00.400Z");
    assert_eq!(fired.len(), MOST_AT_ONCE);
    assert_eq!(
        fired[0].skipped,
        Some(Skipped {
            first: at("2026-06-01T12:00:01Z"),
            last: at("2026-06-01T12:43:20Z"),
        })
    );
    assert_eq!(fired[0].scheduled_at, at("2026-06-01T12:43:21Z"));
    assert!(fired[1..].iter().all(|f| f.skipped.is_none()));
    assert!(
        fired
            .windows(2)
            .all(|w| w[0].scheduled_at < w[1].scheduled_at)
    );
    assert_eq!(
        fired[MOST_AT_ONCE - 1].scheduled_at,
        at("2026-06-01T13:00:00Z")
    );
    assert_eq!(
        instants(&bench.at("2026-06-01T13:00:01Z")),
        ["2026-06-01T13:00:01Z"]
    );
}

#[test]
fn after_stop_nothing_is_delivered() {
    let now = "2026-06-01T11:59:59Z";
    let mut bench = TickerBench::new(job("j", every(3600), at(now)), now);
    assert_eq!(bench.at(now), []);
    bench.board.stop();
    assert_eq!(bench.at("2026-06-01T12:00:00Z"), []);
}

/// A firing, and what the clock showed when it was received.
async fn receive(
    fired: &mut mpsc::UnboundedReceiver<Firing>,
    clock: &RunningClock,
) -> (Firing, Timestamp) {
    let firing = tokio::time::timeout(LONG, fired.recv())
        .await
        .expect("a firing comes")
        .expect("the ticker lives");
    (firing, clock.shown())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_thousand_jobs_due_at_once_fire_once_each_and_none_early() {
    const JOBS: usize = 10_000;
    let start = at("2026-05-31T23:59:59.200Z");
    let midnight = at("2026-06-01T00:00:00Z");
    let clock = RunningClock::new(start);
    let schedule = Schedule::cron("0 0 1 6 *", UTC).expect("good cron text");
    let jobs = (0..JOBS).map(|n| job(&format!("job-{n}"), schedule.clone(), start));
    let (tx, mut fired) = mpsc::unbounded_channel();
    let shared = Arc::clone(&clock) as Arc<dyn WallClock>;
    let mut ticker = Ticker::start_with_clock(jobs.collect(), tx, shared)
        .await
        .expect("the ticker starts");
    let mut counts = BTreeMap::new();
    for _ in 0..JOBS {
        let (firing, received_at) = receive(&mut fired, &clock).await;
        assert_eq!(firing.scheduled_at, midnight);
        assert!(
            received_at >= midnight,
            "{} fired at {received_at}",
            firing.job
        );
        *counts.entry(firing.job).or_insert(0) += 1;
    }
    assert_eq!(counts.len(), JOBS, "each job fired");
    ticker.stop().await.expect("the ticker stops");
    assert_eq!(fired.try_recv().ok(), None, "none fired twice");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_job_of_every_second_misses_none_and_doubles_none() {
    let start = at("2026-06-01T11:59:59.700Z");
    let clock = RunningClock::new(start);
    let (tx, mut fired) = mpsc::unbounded_channel();
    let shared = Arc::clone(&clock) as Arc<dyn WallClock>;
    let ticker = Ticker::start_with_clock(vec![job("j", every(1), start)], tx, shared)
        .await
        .expect("the ticker starts");
    for second in 0..3 {
        let (firing, received_at) = receive(&mut fired, &clock).await;
        let expected = at("2026-06-01T12:00:00Z").plus(Duration::from_secs(second));
        assert_eq!(firing.scheduled_at, expected);
        assert!(received_at >= expected, "{received_at}");
    }
    drop(ticker);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_step_of_the_clock_is_noticed_while_jobs_sleep() {
    let start = at("2026-06-01T11:30:00Z");
    let clock = RunningClock::new(start);
    let (tx, mut fired) = mpsc::unbounded_channel();
    let shared = Arc::clone(&clock) as Arc<dyn WallClock>;
    let ticker = Ticker::start_with_clock(vec![job("j", every(3600), start)], tx, shared)
        .await
        .expect("the ticker starts");
    assert_eq!(ticker.next_due(), Some(at("2026-06-01T12:00:00Z")));
    clock.set(at("2026-06-01T13:30:00Z"));
    let (first, _) = receive(&mut fired, &clock).await;
    let (second, _) = receive(&mut fired, &clock).await;
    assert_eq!(
        instants(&[first, second]),
        ["2026-06-01T12:00:00Z", "2026-06-01T13:00:00Z"]
    );
    clock.set(at("2026-06-01T11:59:59.900Z"));
    // Back to 12:00: noon has fired. What fires next is 14:00.
    clock.set(at("2026-06-01T14:00:00Z"));
    let (third, _) = receive(&mut fired, &clock).await;
    assert_eq!(instants(&[third]), ["2026-06-01T14:00:00Z"]);
}

#[test]
fn a_replaced_job_begins_anew_and_one_that_is_the_same_goes_on() {
    let now = "2026-06-01T11:59:59Z";
    let mut bench = TickerBench::new(job("same", every(3600), at(now)), now);
    assert!(bench.board.arm(0), "a task sleeps towards it");
    let later = at("2026-06-01T12:00:00Z");
    let list = vec![
        job("same", every(3600), later),
        job("new", every(1800), at(now)),
    ];
    assert_eq!(bench.board.replace(list, &mut bench.fired), []);
    assert_eq!(bench.board.due_soon(), [1], "the other one is in hand");
    assert!(bench.board.arm(1));
    bench.clock.set(later);
    for number in [0, 1] {
        bench.board.step(number);
    }
    let names = |bench: &mut TickerBench| -> Vec<_> {
        let fired = std::iter::from_fn(|| bench.fired.try_recv().ok());
        fired.map(|firing| firing.job.to_string()).collect()
    };
    assert_eq!(names(&mut bench), ["same", "new"]);
    let list = vec![job("same", every(60), later)];
    assert_eq!(bench.board.replace(list, &mut bench.fired), []);
    bench.clock.set(at("2026-06-01T13:00:00Z"));
    for number in [0, 1] {
        assert_eq!(bench.board.step(number), ServeStep::Leave, "it is gone");
    }
    assert_eq!(names(&mut bench), [""; 0]);
    assert_eq!(bench.board.due_soon(), [2]);
    assert!(bench.board.arm(2));
    bench.board.step(2);
    assert_eq!(
        names(&mut bench).len(),
        60,
        "on its new schedule from then on"
    );
}

#[test]
fn what_a_new_job_fires_ahead_at_once_is_not_taken_for_what_the_list_before_fired() {
    let now = "2026-06-01T11:59:59.980Z";
    let mut bench = TickerBench::new(job("old", every(60), at("2026-06-01T11:58:59Z")), now);
    bench
        .board
        .set_ahead(Duration::from_millis(40), Duration::ZERO);
    assert!(bench.board.arm(0));
    bench.board.step(0);
    let mut new = job("new", every(3600), at(now));
    new.claims_ahead = Some(claims_ahead("a", &new.name));
    let before = bench.board.replace(vec![new], &mut bench.fired);
    assert_eq!(instants(&before), ["2026-06-01T11:59:00Z"]);
    assert_eq!(bench.board.due_soon(), [1]);
    assert!(bench.board.arm(1));
    bench.board.step(1);
    let fired: Vec<_> = std::iter::from_fn(|| bench.fired.try_recv().ok()).collect();
    assert_eq!(instants(&fired), ["2026-06-01T12:00:00Z"]);
}

#[tokio::test]
async fn a_list_that_grows_fires_as_many_jobs_as_it_has() {
    let now = at("2026-06-01T11:59:59Z");
    let clock = RunningClock::new(now);
    let (tx, mut fired) = mpsc::unbounded_channel();
    let first = vec![job("j-0", every(3600), now)];
    let mut ticker = Ticker::start_with_clock(first, tx, clock).await.unwrap();
    let jobs = (0..500).map(|n| job(&format!("j-{n}"), every(3600), now));
    assert_eq!(ticker.replace(jobs.collect(), &mut fired), []);
    let mut names = std::collections::BTreeSet::new();
    while names.len() < 500 {
        let firing = tokio::time::timeout(LONG, fired.recv()).await;
        let firing = firing.expect("all of them fire").expect("it goes on");
        assert!(names.insert(firing.job.to_string()), "once each");
    }
    ticker.stop().await.unwrap();
}
