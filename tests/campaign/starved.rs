//! When this machine had no processor time for the campaign: nobody planned that, and it troubles
//! everybody as a fault does.
//!
//! A thread that only sleeps a little notices it by waking up late. Servers that starve fail over,
//! and daemons that starve start late, without any fault of theirs.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crate::checker::Span;
use crate::fleet;

/// How long the thread sleeps.
const NAP: Duration = Duration::from_millis(50);

/// Waking up later than this is starving: a third of a lease.
const LATE: Duration = Duration::from_secs(1);

/// The thread that sleeps.
#[derive(Debug)]
pub(crate) struct Sleeper {
    spans: Arc<Mutex<Vec<Span>>>,
    over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Sleeper {
    pub(crate) fn start() -> Self {
        let spans = Arc::new(Mutex::new(Vec::new()));
        let over = Arc::new(AtomicBool::new(false));
        let (noted, ends) = (Arc::clone(&spans), Arc::clone(&over));
        let thread = thread::spawn(move || {
            while !ends.load(Ordering::Relaxed) {
                let before = Instant::now();
                thread::sleep(NAP);
                let late = before.elapsed().saturating_sub(NAP);
                if late >= LATE {
                    let until = fleet::now();
                    let from = until - i64::try_from(late.as_millis()).expect("a short time");
                    let mut noted = noted.lock().unwrap_or_else(PoisonError::into_inner);
                    noted.push(Span { from, until });
                }
            }
        });
        Self {
            spans,
            over,
            thread: Some(thread),
        }
    }

    /// When there was no time, so far.
    pub(crate) fn spans(&self) -> Vec<Span> {
        let spans = self.spans.lock().unwrap_or_else(PoisonError::into_inner);
        spans.clone()
    }
}

impl Drop for Sleeper {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
