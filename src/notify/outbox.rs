//! What a target gets next, and when: single messages while there are few, digests in a storm.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::digest::Digest;
use super::notice::Notice;
use super::notification::{Content, Notification};

/// How many messages are sent at once after a quiet time.
const AT_ONCE: u32 = 5;
/// One more after each such time.
const ONE_MORE: Duration = Duration::from_secs(10);
/// How many events are kept whole while they wait. Further ones are counted.
const WHOLE: usize = 100;

/// How a target is spared a storm.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Storm {
    /// By digests.
    Digest,
    /// By leaving out what a newer event of the same job replaces: each job has an incident of its
    /// own that only its own events open and close.
    NewestOfEachJob,
}

/// What a sender does next.
#[derive(Debug)]
pub(super) enum Next<T> {
    /// Send this.
    Send(T),
    /// Wait until then, or until something is added.
    WaitUntil(Instant),
    /// Wait until something is added.
    Idle,
}

/// The messages that wait for one target.
#[derive(Debug)]
pub(super) struct Outbox {
    storm: Storm,
    waiting: VecDeque<Arc<Notice>>,
    /// What came when [`WHOLE`] waited.
    more: Option<Digest>,
    tokens: u32,
    /// Since when the next token grows.
    growing_since: Instant,
    undelivered: u64,
}

impl Outbox {
    /// Nothing waits, and nothing was sent.
    pub(super) fn new(storm: Storm, now: Instant) -> Self {
        Self {
            storm,
            waiting: VecDeque::new(),
            more: None,
            tokens: AT_ONCE,
            growing_since: now,
            undelivered: 0,
        }
    }

    /// How many events wait.
    pub(super) fn len(&self) -> u64 {
        let more = self.more.as_ref().map_or(0, Digest::events);
        self.waiting.len() as u64 + more
    }

    /// Adds an event.
    pub(super) fn push(&mut self, notice: Arc<Notice>) {
        match self.storm {
            Storm::NewestOfEachJob => {
                self.waiting.retain(|other| other.job != notice.job);
                self.waiting.push_back(notice);
            }
            Storm::Digest if self.waiting.len() < WHOLE && self.more.is_none() => {
                self.waiting.push_back(notice);
            }
            Storm::Digest => match &mut self.more {
                Some(more) => more.add(&notice),
                None => self.more = Some(Digest::of(&notice)),
            },
        }
    }

    /// A message was given up on.
    pub(super) fn gave_up(&mut self, message: &Notification) {
        self.undelivered += message.undelivered + 1;
    }

    /// What to do now. A sender that is closing does not wait for its turn.
    pub(super) fn next(&mut self, now: Instant, pace: Pace) -> Next<Notification> {
        self.grow(now);
        let several = self.len() > 1;
        if self.len() == 0 {
            return Next::Idle;
        }
        if self.storm == Storm::NewestOfEachJob {
            return self.single();
        }
        match (pace, self.tokens) {
            (Pace::Closing, _) if several => self.digest(),
            (Pace::Closing, _) => self.single(),
            (Pace::Steady, 0) => Next::WaitUntil(self.growing_since + ONE_MORE),
            (Pace::Steady, tokens) => {
                self.tokens -= 1;
                // The last one is for all that is left.
                if tokens == 1 && several {
                    self.digest()
                } else {
                    self.single()
                }
            }
        }
    }

    fn grow(&mut self, now: Instant) {
        while self.tokens < AT_ONCE && now.saturating_duration_since(self.growing_since) >= ONE_MORE
        {
            self.tokens += 1;
            self.growing_since += ONE_MORE;
        }
        if self.tokens == AT_ONCE {
            self.growing_since = now;
        }
    }

    fn single(&mut self) -> Next<Notification> {
        match self.waiting.pop_front() {
            Some(notice) => self.send(Content::One(notice)),
            None => self.digest(),
        }
    }

    fn digest(&mut self) -> Next<Notification> {
        let mut digest: Option<Digest> = None;
        for notice in self.waiting.drain(..) {
            match &mut digest {
                Some(digest) => digest.add(&notice),
                None => digest = Some(Digest::of(&notice)),
            }
        }
        match (digest, self.more.take()) {
            (Some(mut digest), Some(more)) => {
                digest.merge(&more);
                self.send(Content::Digest(Box::new(digest)))
            }
            (Some(digest), None) | (None, Some(digest)) => {
                self.send(Content::Digest(Box::new(digest)))
            }
            (None, None) => Next::Idle,
        }
    }

    fn send(&mut self, content: Content) -> Next<Notification> {
        let undelivered = std::mem::take(&mut self.undelivered);
        Next::Send(Notification {
            content,
            undelivered,
        })
    }
}

/// Whether a sender has time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Pace {
    /// It has.
    Steady,
    /// The daemon is about to end.
    Closing,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::JobEvent;
    use crate::names::{HostName, JobName};
    use crate::notify::notice::NoticeKind;
    use crate::time::Timestamp;

    fn notice(job: &str) -> Arc<Notice> {
        Arc::new(Notice {
            event: JobEvent::Failed,
            job: JobName::parse(job).expect("a name"),
            host: HostName::parse("web1").expect("a name"),
            at: Timestamp::from_secs(0),
            run_id: None,
            scheduled_at: None,
            in_a_row: 1,
            record: None,
            detail: None,
            kind: NoticeKind::Real,
        })
    }

    /// How many events each message has that may be sent at this instant.
    fn sent(outbox: &mut Outbox, now: Instant, pace: Pace) -> Vec<u64> {
        let mut sent = Vec::new();
        while let Next::Send(message) = outbox.next(now, pace) {
            sent.push(message.events());
        }
        sent
    }

    #[test]
    fn few_events_are_sent_one_by_one() {
        let now = Instant::now();
        let mut outbox = Outbox::new(Storm::Digest, now);
        for _ in 0..3 {
            outbox.push(notice("a"));
        }
        assert_eq!(sent(&mut outbox, now, Pace::Steady), [1, 1, 1]);
        assert!(matches!(outbox.next(now, Pace::Steady), Next::Idle));
    }

    #[test]
    fn a_storm_is_four_messages_and_a_digest_and_then_one_digest_in_ten_seconds() {
        let now = Instant::now();
        let mut outbox = Outbox::new(Storm::Digest, now);
        for n in 0..1000 {
            outbox.push(notice(&format!("job-{n}")));
        }
        assert_eq!(sent(&mut outbox, now, Pace::Steady), [1, 1, 1, 1, 996]);
        for _ in 0..10 {
            outbox.push(notice("a"));
        }
        let waits = outbox.next(now, Pace::Steady);
        assert!(
            matches!(waits, Next::WaitUntil(at) if at == now + ONE_MORE),
            "{waits:?}"
        );
        assert_eq!(sent(&mut outbox, now + ONE_MORE, Pace::Steady), [10]);
        // After a quiet time single messages are sent again.
        for _ in 0..3 {
            outbox.push(notice("a"));
        }
        assert_eq!(
            sent(&mut outbox, now + 10 * ONE_MORE, Pace::Steady),
            [1, 1, 1]
        );
    }

    #[test]
    fn at_the_end_what_waits_is_sent_at_once() {
        let now = Instant::now();
        let mut outbox = Outbox::new(Storm::Digest, now);
        for _ in 0..300 {
            outbox.push(notice("a"));
        }
        assert_eq!(sent(&mut outbox, now, Pace::Closing), [300]);
        outbox.push(notice("a"));
        assert_eq!(sent(&mut outbox, now, Pace::Closing), [1]);
    }

    #[test]
    fn incidents_keep_the_newest_event_of_each_job() {
        let now = Instant::now();
        let mut outbox = Outbox::new(Storm::NewestOfEachJob, now);
        for job in ["a", "b", "a", "c", "a"] {
            outbox.push(notice(job));
        }
        assert_eq!(sent(&mut outbox, now, Pace::Steady), [1, 1, 1]);
    }

    #[test]
    fn what_was_given_up_is_counted_once() {
        let now = Instant::now();
        let mut outbox = Outbox::new(Storm::Digest, now);
        for _ in 0..2 {
            outbox.push(notice("a"));
            let Next::Send(message) = outbox.next(now, Pace::Steady) else {
                panic!("nothing to send");
            };
            outbox.gave_up(&message);
        }
        outbox.push(notice("a"));
        let Next::Send(message) = outbox.next(now, Pace::Steady) else {
            panic!("nothing to send");
        };
        assert_eq!(message.undelivered, 2);
    }
}
