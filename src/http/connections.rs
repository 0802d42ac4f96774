//! Accepts connections within limits: how many at once, how long a request may take, how long a connection may
//! live.
//!
//! When there are [`CONNECTIONS_MAX`], a new connection replaces the one that has been idle longest. A connection
//! is idle unless it has a request whose reply is not made yet; one that reads its reply slowly is idle too.
//! Therefore slow clients, however many, keep out nobody who sends a request. If every connection is busy, the new
//! one gets 503.

use std::collections::HashMap;
use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::AsyncWriteExt as _;
use tokio::sync::watch;
use tokio::task::{AbortHandle, Id, JoinSet};
use tokio::time::{Instant, sleep, timeout};

use super::ServerOrder;
use super::listener::{ClientStream, Listening, ServerSocket};
use super::routes::HttpRoutes;
use crate::ground::tasks::SpawnBoxed as _;

/// The most connections at once.
pub(super) const CONNECTIONS_MAX: usize = 256;
/// How long a client may take to send a request, and stay idle between two.
const HEAD_LIMIT: Duration = Duration::from_secs(10);
/// The longest head of a request, in bytes.
const HEAD_MAX: usize = 16 * 1024;
/// How long a connection lasts, whatever its client does.
const LIFETIME: Duration = Duration::from_secs(120);
/// How long the last reply of a connection may take.
const LAST_REPLY_LIMIT: Duration = Duration::from_secs(10);
/// How long the last replies of a server may take.
const SHUTDOWN_LIMIT: Duration = Duration::from_secs(1);
/// The pause after the system could not accept a connection, for lack of descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// How long sending 503 to a client may take.
const REFUSAL_LIMIT: Duration = Duration::from_millis(100);

/// What a client gets while every connection is busy.
const FULL: &[u8] = b"HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/json\r\n\
    Content-Length: 90\r\nRetry-After: 1\r\nConnection: close\r\n\r\n\
    {\"error\":{\"code\":\"unavailable\",\"status\":503,\"message\":\"too many connections\",\
    \"hint\":null}}";

/// Serves until it is stopped.
pub(super) async fn serve(
    listener: ServerSocket,
    routes: Arc<HttpRoutes>,
    mut orders: watch::Receiver<ServerOrder>,
) {
    let listening = match listener.listen() {
        Ok(listening) => listening,
        Err(error) => return tracing::error!("http: cannot listen: {error}"),
    };
    let mut connections = Connections {
        open: HashMap::new(),
        tasks: JoinSet::new(),
        routes,
        orders: orders.clone(),
    };
    connections.accept_until(&listening, &mut orders).await;
    drop(listening);
    let all = async { while connections.tasks.join_next().await.is_some() {} };
    let _ = timeout(SHUTDOWN_LIMIT, all).await;
}

struct Connections {
    open: HashMap<Id, OpenConnection>,
    tasks: JoinSet<()>,
    routes: Arc<HttpRoutes>,
    orders: watch::Receiver<ServerOrder>,
}

#[derive(Debug)]
struct OpenConnection {
    task: AbortHandle,
    activity: Arc<Activity>,
}

/// Since when a connection has been idle, in milliseconds from `origin`.
#[derive(Debug)]
struct Activity {
    /// When the server began: the same for all connections, so that they can be compared.
    origin: Instant,
    /// [`Activity::BUSY`] while a request has no reply yet.
    idle_since: AtomicU64,
}

impl Activity {
    const BUSY: u64 = u64::MAX;

    fn new(origin: Instant) -> Self {
        let activity = Self {
            origin,
            idle_since: AtomicU64::new(0),
        };
        activity.idle();
        activity
    }

    fn busy(&self) {
        self.idle_since.store(Self::BUSY, Ordering::Relaxed);
    }

    fn idle(&self) {
        let millis = u64::try_from(self.origin.elapsed().as_millis()).unwrap_or(Self::BUSY - 1);
        self.idle_since.store(millis, Ordering::Relaxed);
    }

    fn idle_since(&self) -> Option<u64> {
        let since = self.idle_since.load(Ordering::Relaxed);
        (since != Self::BUSY).then_some(since)
    }
}

impl Connections {
    async fn accept_until(
        &mut self,
        listening: &Listening,
        orders: &mut watch::Receiver<ServerOrder>,
    ) {
        let origin = Instant::now();
        loop {
            // Every arm is cancel-safe.
            tokio::select! {
                accepted = listening.accept() => match accepted {
                    Ok(stream) => self.admit(stream, origin),
                    Err(error) => {
                        tracing::debug!("http: cannot accept a connection: {error}");
                        sleep(ACCEPT_PAUSE).await;
                    }
                },
                Some(ended) = self.tasks.join_next_with_id() => {
                    let id = ended.map_or_else(|error| error.id(), |(id, ())| id);
                    self.open.remove(&id);
                }
                _ = orders.wait_for(|order| *order == ServerOrder::Stop) => return,
            }
        }
    }

    fn admit(&mut self, mut stream: ClientStream, origin: Instant) {
        if self.open.len() >= CONNECTIONS_MAX && !self.evict() {
            self.tasks.spawn_boxed(async move {
                let _ = timeout(REFUSAL_LIMIT, stream.write_all(FULL)).await;
            });
            return;
        }
        let activity = Arc::new(Activity::new(origin));
        let serving = serve_one(
            stream,
            Arc::clone(&self.routes),
            Arc::clone(&activity),
            self.orders.clone(),
        );
        let task = self.tasks.spawn_boxed(serving);
        let connection = OpenConnection {
            task: task.clone(),
            activity,
        };
        self.open.insert(task.id(), connection);
    }

    /// Closes the connection that has been idle longest; false if every one is busy.
    fn evict(&mut self) -> bool {
        let idle = self.open.iter().filter_map(|(id, connection)| {
            let since = connection.activity.idle_since()?;
            Some((since, *id))
        });
        let Some((_, id)) = idle.min_by_key(|(since, _)| *since) else {
            return false;
        };
        if let Some(connection) = self.open.remove(&id) {
            connection.task.abort();
        }
        true
    }
}

async fn serve_one(
    stream: ClientStream,
    routes: Arc<HttpRoutes>,
    activity: Arc<Activity>,
    mut orders: watch::Receiver<ServerOrder>,
) {
    let transport = stream.transport();
    let service = service_fn(|request| {
        let (routes, activity) = (Arc::clone(&routes), Arc::clone(&activity));
        async move {
            activity.busy();
            let reply = routes.reply(request, transport).await;
            activity.idle();
            Ok::<_, Infallible>(reply)
        }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_LIMIT)
        .max_buf_size(HEAD_MAX)
        .serve_connection(TokioIo::new(stream), service);
    tokio::pin!(connection);
    tokio::select! {
        ended = connection.as_mut() => return log(ended),
        () = sleep(LIFETIME) => {}
        _ = orders.wait_for(|order| *order == ServerOrder::Stop) => {}
    }
    connection.as_mut().graceful_shutdown();
    if let Ok(ended) = timeout(LAST_REPLY_LIMIT, connection).await {
        log(ended);
    }
}

fn log(ended: hyper::Result<()>) {
    if let Err(error) = ended {
        tracing::debug!("http: a connection ended: {error}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_is_idle_except_while_its_request_has_no_reply() {
        let activity = Activity::new(Instant::now());
        assert!(activity.idle_since().is_some());
        activity.busy();
        assert_eq!(activity.idle_since(), None);
        activity.idle();
        assert!(activity.idle_since().is_some());
    }

    #[test]
    fn the_reply_while_every_connection_is_busy_is_as_long_as_it_says() {
        let text = std::str::from_utf8(FULL).expect("text");
        let (head, body) = text.split_once("\r\n\r\n").expect("a body");
        assert!(head.contains(&format!("Content-Length: {}\r\n", body.len())));
        let json: serde_json::Value = serde_json::from_str(body).expect("JSON");
        assert_eq!(json["error"]["status"], 503);
    }
}
