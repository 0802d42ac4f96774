//! `/healthz`: the daemon works. `/readyz`: it can run jobs.

use std::sync::Arc;
use std::time::Duration;

use hyper::StatusCode;
use serde::Serialize;
use tokio::sync::Mutex;
use tokio::time::{Instant, timeout};

use super::DaemonSnapshot;
use super::reply::{self, HttpReply};
use crate::store::Store;
use crate::time::BootInstant;

/// A loop that has not run for this long hangs. It runs every second.
const BEAT_LIMIT: Duration = Duration::from_secs(30);
/// How long the store may take to return its clock.
const STORE_LIMIT: Duration = Duration::from_secs(3);
/// How long a reply of the store is used again, so that many probes cost one request.
const FRESH: Duration = Duration::from_secs(1);

#[derive(Serialize)]
struct Healthy {
    healthy: bool,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    reasons: Vec<String>,
}

#[derive(Serialize)]
struct Ready {
    ready: bool,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    reasons: Vec<String>,
}

/// Whether the daemon's loop runs.
pub(super) fn healthz(snapshot: &DaemonSnapshot, now: BootInstant) -> HttpReply {
    let silent = snapshot.beat.map(|beat| now.since(beat));
    let hangs = silent.filter(|silent| *silent > BEAT_LIMIT);
    let reasons = hangs.map(|silent| {
        let seconds = silent.as_secs();
        format!("the daemon's loop has not run for {seconds} s")
    });
    let body = Healthy {
        healthy: reasons.is_none(),
        reasons: reasons.into_iter().collect(),
    };
    reply::json(status(body.healthy), &body)
}

/// The last question to the store whether it replies.
#[derive(Debug)]
pub(super) struct StoreProbe {
    store: Arc<dyn Store>,
    last: Mutex<Option<(Instant, Option<String>)>>,
}

impl StoreProbe {
    pub(super) fn new(store: Arc<dyn Store>) -> Self {
        Self {
            store,
            last: Mutex::new(None),
        }
    }

    /// Returns why the store does not reply; `None` if it does. Requests at the same time share one
    /// question.
    async fn obstacle(&self) -> Option<String> {
        let mut last = self.last.lock().await;
        if let Some((at, obstacle)) = &*last
            && at.elapsed() < FRESH
        {
            return obstacle.clone();
        }
        let obstacle = match timeout(STORE_LIMIT, self.store.now()).await {
            Ok(Ok(_)) => None,
            Ok(Err(error)) => Some(error.to_string()),
            Err(_) => Some(format!("the store did not reply within {STORE_LIMIT:?}")),
        };
        *last = Some((Instant::now(), obstacle.clone()));
        obstacle
    }
}

/// Whether the daemon can run jobs: the store replies, the clock is correct, and it does not drain.
pub(super) async fn readyz(snapshot: &DaemonSnapshot, probe: &StoreProbe) -> HttpReply {
    let mut reasons = snapshot.obstacles.clone();
    reasons.extend(probe.obstacle().await);
    let body = Ready {
        ready: reasons.is_empty(),
        reasons,
    };
    reply::json(status(body.ready), &body)
}

fn status(is_well: bool) -> StatusCode {
    if is_well {
        StatusCode::OK
    } else {
        StatusCode::SERVICE_UNAVAILABLE
    }
}
