//! Signals: what the launcher wants ignored, and what is passed on to the command.

use std::io;

use nix::sys::signal::Signal;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;

use crate::ground::tasks;

/// The signals that are passed on. SIGINT and SIGQUIT of a terminal reach the command directly, so
/// [`Running::signal`](crate::guard::Running::signal) does not send those again.
const PASSED_ON: [Signal; 8] = [
    Signal::SIGHUP,
    Signal::SIGINT,
    Signal::SIGQUIT,
    Signal::SIGTERM,
    Signal::SIGUSR1,
    Signal::SIGUSR2,
    Signal::SIGALRM,
    Signal::SIGWINCH,
];

/// The signals that were ignored when this process was started (`nohup`, `trap '' INT`). They
/// stay ignored here, and the guard leaves them ignored in the command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct IgnoredSignals {
    ignored: u64,
}

impl IgnoredSignals {
    /// Returns those of this process. To be called before anything changes them.
    pub(super) fn of_launcher() -> Self {
        let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
        Self {
            ignored: ignored_mask(&status),
        }
    }

    /// Whether the launcher wants the signal ignored. SIGTERM ends this program anyway:
    /// otherwise only SIGKILL could.
    pub(super) fn ignores(self, signal: Signal) -> bool {
        let bit = 1_u64 << (signal as u32 - 1);
        signal != Signal::SIGTERM && self.ignored & bit != 0
    }
}

fn ignored_mask(status: &str) -> u64 {
    status
        .lines()
        .find_map(|line| line.strip_prefix("SigIgn:"))
        .and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok())
        .unwrap_or(0)
}

/// The signals that this process receives from now on.
#[derive(Debug)]
pub(super) struct CaughtSignals(mpsc::UnboundedReceiver<Signal>);

impl CaughtSignals {
    /// Catches every signal that is to be passed on.
    pub(super) fn catch(ignored: IgnoredSignals) -> io::Result<Self> {
        let (arrived, arrivals) = mpsc::unbounded_channel();
        for passed_on in PASSED_ON {
            if ignored.ignores(passed_on) {
                continue;
            }
            let mut stream = signal(SignalKind::from_raw(passed_on as i32))?;
            let arrived = arrived.clone();
            tasks::spawn(async move {
                while stream.recv().await.is_some() && arrived.send(passed_on).is_ok() {}
            });
        }
        Ok(Self(arrivals))
    }

    /// Cancel-safe.
    pub(super) async fn next(&mut self) -> Signal {
        match self.0.recv().await {
            Some(signal) => signal,
            None => std::future::pending().await,
        }
    }

    /// Returns the next signal that asks for an end: every one but SIGWINCH, because their default action ends a
    /// process. Cancel-safe.
    pub(super) async fn next_to_end(&mut self) -> Signal {
        loop {
            let signal = self.next().await;
            if signal != Signal::SIGWINCH {
                return signal;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use nix::sys::signal::Signal;

    use super::{IgnoredSignals, ignored_mask};

    #[test]
    fn ignored_signals_are_read_from_the_kernel_and_term_is_never_among_them() {
        let mask = ignored_mask("Name:\tx\nSigBlk:\tffff\nSigIgn:\t0000000000005001\n");
        let ignored = IgnoredSignals { ignored: mask };
        assert!(ignored.ignores(Signal::SIGHUP));
        assert!(!ignored.ignores(Signal::SIGTERM));
        assert!(!ignored.ignores(Signal::SIGINT));
    }
}
