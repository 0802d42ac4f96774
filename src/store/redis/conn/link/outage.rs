//! What a link logs of an outage of its server. A process has several links to one server of a Cluster, and
//! logs its outage once.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use tracing::{debug, info, warn};

use super::Link;
use crate::store::redis::conn::hello::Part;
use crate::store::redis::failure::RedisFailure;

/// Those of all links of this process to servers of a Cluster.
static LOGGED: LoggedOutages = LoggedOutages(Mutex::new(BTreeMap::new()));

/// The servers whose outage was logged, by URL, and when each began.
#[derive(Debug)]
struct LoggedOutages(Mutex<BTreeMap<String, Instant>>);

impl LoggedOutages {
    /// Notes an outage. Returns whether it is to be logged.
    fn begin(&self, server: &str) -> bool {
        let mut logged = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if logged.contains_key(server) {
            return false;
        }
        logged.insert(server.to_owned(), Instant::now());
        true
    }

    /// Notes the end of an outage. Returns when it began, if it was logged.
    fn end(&self, server: &str) -> Option<Instant> {
        let mut logged = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        logged.remove(server)
    }
}

impl Link {
    /// Notes and logs that the server cannot be used.
    pub(super) fn log_outage(&self, failure: &RedisFailure) {
        let mut state = self.state();
        if state.outage.is_some() {
            return;
        }
        state.outage = Some(Instant::now());
        drop(state);
        // No other message reports a server of a Cluster, because the other servers still work.
        if self.part == Part::InCluster && LOGGED.begin(&self.shown) {
            let why = failure.text();
            if failure.is_outage() && !failure.rejects_writes() {
                warn!("a server of the store is unreachable: {why}");
            } else {
                warn!("a server of the store cannot be used: {why}");
            }
        } else {
            let what = self.part.called();
            debug!(error = failure.text(), "{what} is unreachable");
        }
    }

    /// Notes and logs that the server has replied.
    pub(super) fn log_end_of_outage(&self) {
        let Some(since) = self.state().outage.take() else {
            return;
        };
        if !self.log_recovery() {
            let (what, seconds) = (self.part.called(), since.elapsed().as_secs_f64());
            debug!(
                store = &self.shown,
                "{what} is reachable again after {seconds:.1} s"
            );
        }
    }

    /// A new link has connected. The links that saw the outage may be gone.
    pub(super) fn log_connection(&self) {
        if self.state().outage.is_none() {
            self.log_recovery();
        }
    }

    /// Returns whether there was anything to log.
    fn log_recovery(&self) -> bool {
        if self.part != Part::InCluster {
            return false;
        }
        let Some(since) = LOGGED.end(&self.shown) else {
            return false;
        };
        let (what, seconds) = (self.part.called(), since.elapsed().as_secs_f64());
        info!(
            store = &self.shown,
            "{what} can be used again after {seconds:.1} s"
        );
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_outage_is_logged_once_however_many_links_see_it() {
        let logged = LoggedOutages(Mutex::default());
        assert!(logged.begin("redis://a"));
        assert!(!logged.begin("redis://a"));
        assert!(logged.begin("redis://b"));
        assert!(logged.end("redis://a").is_some());
        assert!(logged.end("redis://a").is_none());
        assert!(logged.begin("redis://a"));
    }
}
