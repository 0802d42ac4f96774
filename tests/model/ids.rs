//! Time in ticks, and the names of a small world.

use std::time::Duration;

use cronlatch::names::{HostName, JobName, LockName, RunId, Token};
use cronlatch::store::protocol::{Clock, Past};
use cronlatch::store::{Fingerprint, Lock};
use cronlatch::time::Timestamp;

/// Ticks since the world began.
pub(crate) type Tick = i64;

const TICK_MS: i64 = 1000;
const BEGIN_MS: i64 = 1_000_000_000;

pub(crate) fn instant(tick: Tick) -> Timestamp {
    Timestamp::from_millis(BEGIN_MS + tick * TICK_MS)
}

/// The tick of an instant, rounded up: a host that waits for it waits long enough.
pub(crate) fn tick_of(at: Timestamp) -> Tick {
    -(BEGIN_MS - at.millis()).div_euclid(TICK_MS)
}

pub(crate) fn ticks(count: Tick) -> Duration {
    Duration::from_millis(u64::try_from(count * TICK_MS).expect("no negative spans"))
}

/// How many ticks a span takes, rounded up.
pub(crate) fn in_ticks(span: Duration) -> Tick {
    let ms = i64::try_from(span.as_millis()).expect("short spans");
    -(-ms).div_euclid(TICK_MS)
}

pub(crate) fn clock(now: Tick) -> Clock {
    let ms = u64::try_from(instant(now).millis()).expect("after the epoch");
    Clock {
        micros: ms * 1000,
        lease: ms,
        past: Past::default(),
    }
}

/// One claim of one host: its token and its run.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Ticket {
    pub(crate) host: usize,
    pub(crate) number: usize,
}

impl Ticket {
    pub(crate) fn token(self) -> Token {
        let Self { host, number } = self;
        Token::from_text(&format!("h{host}:1:{host}-{number}:{number:x}"))
    }

    pub(crate) fn run_id(self) -> RunId {
        RunId::from_text(&format!("{}-{}", self.host, self.number))
    }

    pub(crate) fn of_token(text: &str) -> Self {
        let run = text.split(':').nth(2).expect("a token of this world");
        Self::of_run(run)
    }

    pub(crate) fn of_run(text: &str) -> Self {
        let (host, number) = text.split_once('-').expect("a run of this world");
        Self {
            host: host.parse().expect("a number"),
            number: number.parse().expect("a number"),
        }
    }
}

impl std::fmt::Debug for Ticket {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "h{}#{}", self.host, self.number)
    }
}

pub(crate) fn lock() -> Lock {
    Lock::named(&LockName::parse("l").expect("a name"))
}

pub(crate) fn job(index: usize) -> JobName {
    JobName::parse(&index.to_string()).expect("a name")
}

pub(crate) fn index_of(job: &JobName) -> usize {
    job.as_str().parse().expect("a job of this world")
}

pub(crate) fn host_name(index: usize) -> HostName {
    HostName::parse(&format!("h{index}")).expect("a name")
}

pub(crate) fn fingerprint(version: usize) -> Fingerprint {
    Fingerprint(version.to_string().into())
}
