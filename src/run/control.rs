//! The orders to a run in progress: from its daemon, which drains or ends, and from people, who
//! have it killed or signalled.

use std::fmt;
use std::future::pending;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use nix::sys::signal::Signal;
use tokio::sync::{mpsc, watch};

use super::follow::Interruption;
use crate::guard::Stream;

/// How much the daemon wants its runs to stop.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Stop {
    /// Not at all.
    Not,
    /// No further attempts.
    Drain,
    /// At once.
    End,
}

/// Which process carries a run.
#[derive(Debug, Clone)]
enum Carrier {
    Daemon,
    /// `trigger --here`, and the signal that ended it.
    Command(Arc<OnceLock<Signal>>),
}

/// Who asked for something, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Cause {
    /// `USER@HOST`.
    pub(crate) by: String,
    /// May be empty.
    pub(crate) reason: String,
}

/// `alice@web1: it hangs`, or `alice@web1` without a reason.
impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.by)?;
        match self.reason.as_str() {
            "" => Ok(()),
            reason => write!(f, ": {reason}"),
        }
    }
}

/// What a person asks of one run.
#[derive(Debug, Clone)]
pub(crate) enum RunOrder {
    /// To end: the first signal, the grace, SIGKILL.
    Kill(Arc<Cause>),
    /// To get a signal.
    Signal(Signal, Arc<Cause>),
}

/// Gives orders to one run.
#[derive(Debug, Clone)]
pub(crate) struct RunOrders(mpsc::UnboundedSender<RunOrder>);

impl RunOrders {
    /// Gives an order. Returns whether the run is still in progress.
    pub(crate) fn send(&self, order: RunOrder) -> bool {
        self.0.send(order).is_ok()
    }
}

/// A line of the output of a run, for somebody who follows it.
#[derive(Debug)]
pub(crate) struct FollowedLine {
    pub(crate) stream: Stream,
    pub(crate) text: String,
}

/// Receives the lines of a run.
#[derive(Debug)]
pub(crate) struct FollowedLines {
    pub(crate) lines: mpsc::Receiver<FollowedLine>,
    /// How many lines were dropped, because they were not received fast enough.
    pub(crate) dropped: Arc<AtomicU64>,
}

#[derive(Debug)]
struct LineSender {
    lines: mpsc::Sender<FollowedLine>,
    dropped: Arc<AtomicU64>,
}

/// How many lines wait for the one who follows.
const LINES_WAITING: usize = 4096;

/// The orders to one run. Every wait is cancel-safe.
#[derive(Debug)]
pub(crate) struct RunControl {
    stop: watch::Receiver<Stop>,
    carrier: Carrier,
    orders: Option<mpsc::UnboundedReceiver<RunOrder>>,
    /// Who had the run killed.
    killed: Option<Arc<Cause>>,
    /// The signals that it got, and who sent them.
    signals: Vec<(Signal, Arc<Cause>)>,
    follower: Option<LineSender>,
}

impl RunControl {
    /// A run that only its daemon stops.
    pub(crate) fn of(stop: watch::Receiver<Stop>) -> Self {
        Self {
            stop,
            carrier: Carrier::Daemon,
            orders: None,
            killed: None,
            signals: Vec::new(),
            follower: None,
        }
    }

    /// A run that `trigger --here` carries, which a signal stops.
    pub(crate) fn of_command(stop: watch::Receiver<Stop>, signal: Arc<OnceLock<Signal>>) -> Self {
        Self {
            carrier: Carrier::Command(signal),
            ..Self::of(stop)
        }
    }

    /// Why the run is killed that its process stops, as its record says it.
    pub(super) fn why_stopped(&self) -> String {
        match &self.carrier {
            Carrier::Daemon => "the daemon was stopped".to_owned(),
            Carrier::Command(signal) => match signal.get() {
                Some(signal) => format!("`cronlatch trigger` received {signal}"),
                None => "`cronlatch trigger` was stopped".to_owned(),
            },
        }
    }

    /// The same while it happens, for the log.
    pub(super) fn why_stopping(&self) -> String {
        match &self.carrier {
            Carrier::Daemon => "the daemon is stopping".to_owned(),
            Carrier::Command(_) => self.why_stopped(),
        }
    }

    /// Lets people give orders to the run.
    pub(crate) fn with_orders(mut self) -> (Self, RunOrders) {
        let (sender, orders) = mpsc::unbounded_channel();
        self.orders = Some(orders);
        (self, RunOrders(sender))
    }

    /// Lets somebody follow the output of the run.
    pub(crate) fn with_follower(mut self) -> (Self, FollowedLines) {
        let (sender, lines) = mpsc::channel(LINES_WAITING);
        let dropped = Arc::<AtomicU64>::default();
        self.follower = Some(LineSender {
            lines: sender,
            dropped: Arc::clone(&dropped),
        });
        (self, FollowedLines { lines, dropped })
    }

    /// Waits until the process is to be killed or to get a signal.
    pub(super) async fn interrupted(&mut self) -> Interruption {
        if self.killed.is_some() {
            return Interruption::Kill;
        }
        let stop = &mut self.stop;
        let ended = async {
            if stop.wait_for(|now| *now >= Stop::End).await.is_err() {
                pending::<()>().await;
            }
        };
        let order = tokio::select! {
            () = ended => return Interruption::Kill,
            order = next(&mut self.orders) => order,
        };
        match order {
            RunOrder::Kill(cause) => {
                self.killed = Some(cause);
                Interruption::Kill
            }
            RunOrder::Signal(signal, cause) => {
                self.signals.push((signal, cause));
                Interruption::Signal(signal)
            }
        }
    }

    /// Waits, while no process runs, until no further attempt may start: somebody has the run killed,
    /// or the daemon drains (`None`). A signal is for a process, so it is dropped.
    pub(super) async fn told_to_stop(&mut self) -> Option<Arc<Cause>> {
        loop {
            if self.killed.is_some() {
                return self.killed.clone();
            }
            let stop = &mut self.stop;
            let drains = async {
                if stop.wait_for(|now| *now >= Stop::Drain).await.is_err() {
                    // The daemon's loop is gone, and so is this process soon.
                    pending::<()>().await;
                }
            };
            let order = tokio::select! {
                () = drains => return None,
                order = next(&mut self.orders) => order,
            };
            if let RunOrder::Kill(cause) = order {
                self.killed = Some(cause);
            }
        }
    }

    /// Who had the run killed, and why.
    pub(super) fn killed(&self) -> Option<&Cause> {
        self.killed.as_deref()
    }

    /// Who sent this signal to the run, and why.
    pub(super) fn sent(&self, signal: i32) -> Option<&Cause> {
        let mut sent = self.signals.iter();
        let sent = sent.find(|(sent, _)| *sent as i32 == signal);
        sent.map(|(_, cause)| &**cause)
    }

    /// Passes a line on to the one who follows, if anybody does. Never waits.
    pub(super) fn line(&self, stream: Stream, text: &str) {
        if let Some(follower) = &self.follower {
            let text = text.to_owned();
            let sent = follower.lines.try_send(FollowedLine { stream, text });
            if sent.is_err() {
                follower.dropped.fetch_add(1, Ordering::Relaxed);
            }
        }
    }
}

async fn next(orders: &mut Option<mpsc::UnboundedReceiver<RunOrder>>) -> RunOrder {
    match orders {
        Some(receiver) => match receiver.recv().await {
            Some(order) => order,
            None => pending().await,
        },
        None => pending().await,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cause() -> Arc<Cause> {
        Arc::new(Cause {
            by: "alice@web1".to_owned(),
            reason: String::new(),
        })
    }

    fn control() -> (watch::Sender<Stop>, RunControl, RunOrders) {
        let (stopper, stop) = watch::channel(Stop::Not);
        let (control, orders) = RunControl::of(stop).with_orders();
        (stopper, control, orders)
    }

    #[tokio::test]
    async fn an_order_to_kill_holds_for_every_later_attempt() {
        let (_stopper, mut control, orders) = control();
        assert!(orders.send(RunOrder::Signal(Signal::SIGHUP, cause())));
        assert!(orders.send(RunOrder::Kill(cause())));
        let first = control.interrupted().await;
        assert_eq!(first, Interruption::Signal(Signal::SIGHUP));
        assert!(control.sent(Signal::SIGHUP as i32).is_some());
        assert!(control.sent(Signal::SIGTERM as i32).is_none() && control.killed().is_none());
        for _ in 0..2 {
            assert_eq!(control.interrupted().await, Interruption::Kill);
        }
        assert_eq!(control.told_to_stop().await, Some(cause()));
        drop(control);
        assert!(!orders.send(RunOrder::Kill(cause())));
    }

    #[tokio::test]
    async fn a_daemon_that_ends_kills_without_a_cause() {
        let (stopper, mut control, _orders) = control();
        stopper.send_replace(Stop::End);
        assert_eq!(control.interrupted().await, Interruption::Kill);
        assert!(control.killed().is_none());
    }

    #[test]
    fn lines_that_nobody_receives_are_counted_and_dropped() {
        let (_stopper, control, _orders) = control();
        let (control, follower) = control.with_follower();
        for _ in 0..LINES_WAITING + 3 {
            control.line(Stream::Out, "x");
        }
        assert_eq!(follower.dropped.load(Ordering::Relaxed), 3);
    }
}
