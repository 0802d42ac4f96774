//! A watch over the locks themselves, beside the hosts: what each server says of every lock now
//! and then, and, where servers are Redis, every write that reaches one, and from whom.
//!
//! It asks through the servers' unix sockets, which no fault of the network touches.

mod file;
mod monitor;
mod words;

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::checker::Sighting;

/// How long between two looks.
const PAUSE: Duration = Duration::from_millis(100);

/// A lock, as the story and as the servers call it.
#[derive(Debug, Clone)]
pub(crate) struct Watched {
    pub(crate) lock: &'static str,
    /// The key that holds the token.
    pub(crate) key: String,
    /// Where its lease end is kept beside it.
    pub(crate) state: String,
}

/// Who watches.
#[derive(Debug, Default)]
pub(crate) struct Watch {
    seen: Arc<Mutex<Vec<Sighting>>>,
    over: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

/// What one of its threads needs.
#[derive(Debug, Clone)]
struct Post {
    server: String,
    locks: Vec<Watched>,
    seen: Arc<Mutex<Vec<Sighting>>>,
    over: Arc<AtomicBool>,
}

impl Watch {
    /// Watches a Redis server, whose clock is so many milliseconds ahead of the true one.
    pub(crate) fn redis(&mut self, server: &str, socket: PathBuf, ahead: i64, locks: &[Watched]) {
        let post = self.post(server, locks);
        self.threads.push(std::thread::spawn(move || {
            while !post.is_over() {
                // It was killed, or closed the connection: it may be back in a moment.
                let _ = monitor::watch(&post, &socket, ahead);
                std::thread::sleep(PAUSE);
            }
        }));
    }

    /// Watches the file of an embedded store.
    pub(crate) fn file(&mut self, path: PathBuf, locks: &[Watched]) {
        let post = self.post("file", locks);
        self.threads
            .push(std::thread::spawn(move || file::watch(&post, &path)));
    }

    fn post(&self, server: &str, locks: &[Watched]) -> Post {
        Post {
            server: server.to_owned(),
            locks: locks.to_vec(),
            seen: Arc::clone(&self.seen),
            over: Arc::clone(&self.over),
        }
    }

    /// Ends it; what was seen, in the order in which it was.
    pub(crate) fn end(&mut self) -> Vec<Sighting> {
        self.over.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            thread.join().expect("who watches does not panic");
        }
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::take(&mut *seen)
    }
}

impl Post {
    fn is_over(&self) -> bool {
        self.over.load(Ordering::Relaxed)
    }

    fn note(&self, sightings: impl IntoIterator<Item = Sighting>) {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        seen.extend(sightings);
    }
}

#[cfg(test)]
mod tests;
