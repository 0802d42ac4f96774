//! Commands that wait for the same instant: how many of them wait as processes, and which begins when.
//!
//! The kernel wakes all processes that sleep until one instant before any of them runs, which takes milliseconds for a
//! thousand. If they wake one after another, the first of them runs at once. The last of them is not later for it,
//! because each needs a core for longer than the time between two of them.
//!
//! A command that waits as a process takes two of them, itself and its reaper, and a core takes most of a millisecond
//! to prepare it. If thousands waited as processes, the last of them would be prepared after the instant, when the first
//! are to begin. So there is a number of places. A command without a place is prepared once those with one have had
//! their turn: until then they need the cores for themselves. It is soon prepared by the reapers of those that have
//! ended.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread;
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::tasks::process_limit;
use crate::time::BootInstant;

/// About half of the time that a core needs to wake a process and to execute its command.
const WAKE_COST: Duration = Duration::from_micros(200);

/// How much later all others begin than the first commands: a process that wakes takes the core from one that is just
/// beginning.
const FIRST_ALONE: Duration = Duration::from_millis(2);

/// A command whose instant comes so much earlier than that of all before is one of the first, too. While the store
/// decides on thousands, it sends the replies of up to 64 claims at once, up to some milliseconds after the first of them.
const MUCH_EARLIER: Duration = Duration::from_micros(300);

/// Instants that differ by less are of the same crowd: each is computed from the reply to a claim, which takes longer
/// while the store decides on thousands.
const SAME_INSTANT: Duration = Duration::from_millis(100);

/// How many commands of a crowd wait as processes for each core at most. It prepares them in less than the second that
/// a claim may come before its instant. Where claims leave less time, fewer are prepared (`docs/performance.md`).
const PLACES_OF_CORE: u32 = 600;

/// All crowds.
#[derive(Debug)]
pub(super) struct Crowds {
    cores: u32,
    /// The places that each crowd has.
    places: usize,
    /// The places that this host has for all crowds, once somebody has asked for one.
    of_host: OnceLock<Arc<Semaphore>>,
    known: Mutex<Vec<Crowd>>,
}

/// The commands that wait for one instant. The first to begin are one for each core, and those whose instants come much
/// earlier.
#[derive(Debug, Clone)]
struct Crowd {
    /// The earliest of its commands'.
    instant: BootInstant,
    places: Arc<Semaphore>,
    /// How many commands got a place.
    served: Arc<AtomicU32>,
}

impl Crowd {
    /// When those that got a place so far will have begun.
    fn has_begun_at(&self, cores: u32) -> BootInstant {
        let served = self.served.load(Ordering::Relaxed);
        if served <= cores {
            return self.instant;
        }
        self.turn(served, cores)
    }

    /// When a command begins that is not one of the first, before which so many got a place, on so many cores.
    fn turn(&self, before: u32, cores: u32) -> BootInstant {
        let later = (WAKE_COST / cores).saturating_mul(before);
        // A limit, because withdrawn commands are counted, too.
        let later = later.min(WAKE_COST * PLACES_OF_CORE);
        self.instant.plus(FIRST_ALONE + later)
    }
}

/// What allows a command to wait as a process.
#[derive(Debug)]
pub(super) struct Place {
    /// When the command begins: never before its instant, and later the more of its crowd got a place before.
    pub(super) begins_at: BootInstant,
    _permits: [OwnedSemaphorePermit; 2],
}

impl Crowds {
    /// For the cores and the processes that this process may use.
    pub(super) fn new() -> Self {
        Self::on(thread::available_parallelism().map_or(1, usize::from))
    }

    fn on(cores: usize) -> Self {
        let cores = u32::try_from(cores).unwrap_or(u32::MAX).max(1);
        let places = usize::try_from(PLACES_OF_CORE.saturating_mul(cores)).unwrap_or(usize::MAX);
        Self {
            cores,
            places: places.min(Semaphore::MAX_PERMITS),
            of_host: OnceLock::new(),
            known: Mutex::default(),
        }
    }

    /// On one core, with so many places for each crowd and in all.
    #[cfg(test)]
    pub(super) fn of(places: usize, of_host: usize) -> Self {
        Self {
            places,
            of_host: OnceLock::from(Arc::new(Semaphore::new(of_host))),
            ..Self::on(1)
        }
    }

    /// Waits for a place for a command that begins at `instant`. Returns `None` once the crowd has begun and those that
    /// got a place have had their turn. Cancel-safe. Suspended time does not count, so it may return later by the time
    /// that the machine was suspended.
    pub(super) async fn place(&self, instant: BootInstant) -> Option<Place> {
        let of_host = self.of_host.get_or_init(|| {
            let places = places_of_host(process_limit());
            Arc::new(Semaphore::new(places))
        });
        let (crowd, is_much_earlier) = self.crowd(instant);
        let begin = instant.min(crowd.instant);
        let permits = async {
            let place = Arc::clone(&crowd.places).acquire_owned().await?;
            Ok::<_, tokio::sync::AcquireError>([place, Arc::clone(of_host).acquire_owned().await?])
        };
        // Computed now, so that thousands without a place do not wake at the instant only to wait for it.
        let rest = begin.max(crowd.has_begun_at(self.cores));
        // No semaphore is ever closed.
        let permits = tokio::time::timeout(rest.remaining(), permits);
        let permits = permits.await.ok()?.ok()?;
        if begin <= BootInstant::now() {
            let rest = rest.remaining();
            if !rest.is_zero() {
                // The permits are kept meanwhile: they would wake another one.
                tokio::time::sleep(rest).await;
            }
            return None;
        }
        let before = crowd.served.fetch_add(1, Ordering::Relaxed);
        let is_first = before < self.cores || is_much_earlier;
        let turn = (!is_first).then(|| crowd.turn(before, self.cores));
        Some(Place {
            begins_at: turn.map_or(instant, |turn| turn.max(instant)),
            _permits: permits,
        })
    }

    /// The crowd of an instant, and whether the instant comes much earlier than those before.
    fn crowd(&self, instant: BootInstant) -> (Crowd, bool) {
        // No code that holds the lock can panic.
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let now = BootInstant::now();
        // Not only until its instant: a command whose claim was late lets those with a place begin first, too.
        known.retain(|crowd| crowd.has_begun_at(self.cores) > now);
        let is_same = |crowd: &Crowd| {
            let (one, other) = (instant.to_duration(), crowd.instant.to_duration());
            // One that has begun is not that of a command which begins later.
            one.abs_diff(other) < SAME_INSTANT && (crowd.instant > now || instant <= now)
        };
        if let Some(crowd) = known.iter_mut().find(|crowd| is_same(crowd)) {
            let is_much_earlier = instant.plus(MUCH_EARLIER) < crowd.instant;
            crowd.instant = crowd.instant.min(instant);
            return (crowd.clone(), is_much_earlier);
        }
        let crowd = Crowd {
            instant,
            places: Arc::new(Semaphore::new(self.places)),
            served: Arc::default(),
        };
        known.push(crowd.clone());
        (crowd, false)
    }
}

/// The places of a host that may have so many processes. With two processes for each command, a third of all is left
/// to others.
fn places_of_host(processes: Option<u64>) -> usize {
    let places = processes.map_or(u64::MAX, |processes| processes / 3);
    let places = usize::try_from(places).unwrap_or(usize::MAX);
    places.clamp(1, Semaphore::MAX_PERMITS)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn in_an_hour() -> BootInstant {
        BootInstant::now().plus(Duration::from_secs(3_600))
    }

    /// When those begin that ask for these instants one after another.
    async fn turns<const N: usize>(crowds: &Crowds, asked: [BootInstant; N]) -> Vec<BootInstant> {
        let mut turns = Vec::new();
        for instant in asked {
            let place = crowds.place(instant).await.expect("there is one");
            turns.push(place.begins_at);
        }
        turns
    }

    #[tokio::test]
    async fn each_of_a_crowd_begins_after_the_one_before_and_none_before_its_instant() {
        let crowds = Crowds {
            cores: 2,
            ..Crowds::of(1, 1)
        };
        let instant = in_an_hour();
        let micros = |n| instant.plus(Duration::from_micros(n));
        let asked = [400, 440, 410, 0, 50, 90_000].map(micros);
        assert_eq!(
            turns(&crowds, asked).await,
            [400, 440, 2_600, 0, 2_400, 90_000].map(micros),
            "two are the first, and one that comes much earlier"
        );
        let next = instant.plus(Duration::from_secs(1));
        assert_eq!(
            turns(&crowds, [next, instant, next]).await,
            [next, micros(2_600), next],
            "each crowd by itself"
        );
    }

    #[tokio::test]
    async fn however_many_were_withdrawn_none_begins_long_after_its_instant() {
        let crowds = Crowds::of(1, 1);
        let instant = in_an_hour();
        for _ in 0..=PLACES_OF_CORE {
            drop(crowds.place(instant).await);
        }
        let last = instant.plus(Duration::from_millis(120) + FIRST_ALONE);
        assert_eq!(turns(&crowds, [instant]).await, [last]);
    }

    /// Whether another one gets a place for this instant at once.
    async fn is_free(crowds: &Crowds, instant: BootInstant) -> bool {
        let place = tokio::time::timeout(Duration::ZERO, crowds.place(instant));
        place.await.is_ok()
    }

    #[tokio::test]
    async fn a_place_is_free_again_once_its_command_has_begun() {
        let crowds = Crowds::of(2, 3);
        let one = in_an_hour();
        let other = one.plus(Duration::from_secs(1));
        let first = crowds.place(one).await;
        let _second = crowds.place(one).await;
        assert!(!is_free(&crowds, one).await, "the crowd has two");
        let _third = crowds.place(other).await;
        assert!(!is_free(&crowds, other).await, "the host has three");
        drop(first);
        assert!(is_free(&crowds, one).await && is_free(&crowds, other).await);
    }

    #[tokio::test]
    async fn a_command_needs_no_place_once_its_instant_has_come() {
        let crowds = Crowds::of(1, 1);
        assert!(crowds.place(BootInstant::now()).await.is_none());
        let crowds = Crowds::of(0, 1);
        let near = BootInstant::now().plus(Duration::from_millis(20));
        assert!(crowds.place(near).await.is_none());
        assert!(BootInstant::now() >= near);
        assert!(!is_free(&crowds, in_an_hour()).await);
        let known = crowds.known.lock().expect("nobody panicked");
        assert_eq!(known.len(), 1, "those that have begun are forgotten");
    }

    #[tokio::test]
    async fn a_command_without_a_place_lets_those_with_one_begin_first() {
        let crowds = Crowds::of(1, 1);
        let instant = BootInstant::now().plus(Duration::from_millis(500));
        let first = crowds.place(instant).await.expect("a place");
        crowds.crowd(instant).0.served.store(200, Ordering::Relaxed);
        let have_begun = first.begins_at.plus(WAKE_COST * 200);
        assert!(crowds.place(instant).await.is_none());
        assert!(BootInstant::now() >= have_begun);
    }

    #[tokio::test]
    async fn a_command_that_is_claimed_late_lets_those_with_a_place_begin_first() {
        let crowds = Crowds::of(1, 1);
        let instant = BootInstant::now().plus(Duration::from_millis(500));
        let first = crowds.place(instant).await.expect("a place");
        crowds.crowd(instant).0.served.store(400, Ordering::Relaxed);
        let have_begun = first.begins_at.plus(WAKE_COST * 400);
        tokio::time::sleep(first.begins_at.remaining()).await;
        drop(first);
        assert!(crowds.place(instant).await.is_none());
        assert!(BootInstant::now() >= have_begun);
    }

    #[tokio::test]
    async fn a_crowd_that_has_begun_is_not_that_of_a_command_which_begins_later() {
        let crowds = Crowds::of(1, 2);
        let begun = BootInstant::now().plus(Duration::from_millis(10));
        let first = crowds.place(begun).await;
        crowds.crowd(begun).0.served.store(400, Ordering::Relaxed);
        tokio::time::sleep(begun.remaining()).await;
        let later = begun.plus(SAME_INSTANT * 9 / 10);
        let crowd = crowds.crowd(later).0;
        // On a machine that was busy for so long, both have begun.
        assert!(crowd.instant == later || later <= BootInstant::now());
        drop(first);
    }

    #[test]
    fn a_third_of_the_processes_is_left_to_others() {
        assert_eq!(places_of_host(Some(4_915)), 1_638);
        assert_eq!(places_of_host(Some(2)), 1, "there is always one");
        assert_eq!(places_of_host(None), Semaphore::MAX_PERMITS);
        assert_eq!(Crowds::on(2).places, 1_200);
    }
}
