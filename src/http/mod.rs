//! The HTTP server of a daemon: health, metrics, and the views of the fleet that commands print.
//!
//! The server has a thread, a runtime and a store connection of its own. A client, however slow, and
//! a large reply therefore delay no run; and the server still replies when the daemon's loop hangs,
//! which is what `/healthz` reports. It learns about the daemon only through a [`DaemonSnapshot`]. What
//! a request changes goes through the store, as what a command changes does.
//!
//! | file | contents |
//! | --- | --- |
//! | `listener` | the socket, TCP or Unix |
//! | `connections` | accepting, limits and time-outs |
//! | `access` | who may ask and who may act: `Host`, `Origin`, tokens |
//! | `routes` | from a request to its reply |
//! | `health` | `/healthz` and `/readyz` |
//! | `query` | the parameters of a request |
//! | `reply` | replies and errors |
//!
//! What the API replies and does comes from [`Views`], which the commands implement: the same bytes as
//! `--json`. Engine, store and guard do not know this module, except for `engine::daemon::front`, which
//! starts and ends the server, gives it a new list, and publishes the snapshots.

mod access;
mod connections;
mod health;
mod listener;
mod query;
mod reply;
mod routes;

use std::io;
use std::sync::Arc;
use std::sync::mpsc as blocking;
use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::{oneshot, watch};

use crate::config::{HttpSettings, JobList, ListenAddress, TokenFileError, Tokens};
use crate::ground::tasks;
use crate::metrics::Metrics;
use crate::names::HostName;
use crate::store::{self, Store, StoreError, StoreSettings};
use crate::time::BootInstant;
use listener::ServerSocket;
pub(crate) use query::QueryParameters;
use routes::HttpRoutes;

/// What the daemon publishes about itself.
#[derive(Debug, Clone)]
pub(crate) struct DaemonSnapshot {
    /// The list in force.
    pub(crate) list: Arc<JobList>,
    /// Why the daemon is not ready, each in a few words; empty when it is.
    pub(crate) obstacles: Vec<String>,
    /// When the loop last ran; `None` before it runs.
    pub(crate) beat: Option<BootInstant>,
}

/// What is shown of the fleet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FleetView {
    /// `status --json`.
    Status,
    /// `next FILE --json`.
    Jobs,
    /// `history --json`.
    History,
    /// The runs in progress, from `status`.
    Runs,
    /// The live hosts, from `status`.
    Hosts,
    /// `explain JOB --json`.
    Explain,
    /// The coming occurrences as iCalendar.
    Calendar,
    /// `logs --json` of a run of this host.
    Logs,
}

/// What may be done to the fleet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FleetAction {
    /// `pause`.
    Pause,
    /// `resume`.
    Resume,
    /// `trigger`.
    Trigger,
    /// `kill`.
    Kill,
}

/// What views are made from.
#[derive(Debug)]
pub(crate) struct ViewSource {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) settings: StoreSettings,
    pub(crate) host: HostName,
    pub(crate) list: Arc<JobList>,
}

/// A view as text.
#[derive(Debug)]
pub(crate) struct ViewText {
    /// One JSON object, one a line, or a calendar.
    pub(crate) text: String,
    /// What is missing in it, because a part of the store cannot be read.
    pub(crate) missing: Option<String>,
    /// How far into the output of a run it reaches, if it shows one.
    pub(crate) position: Option<OutputPosition>,
}

/// How far into the output of a run a view reaches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct OutputPosition {
    /// How many bytes of the output were stored up to there, also in files that are removed by now.
    pub(crate) offset: u64,
    /// Whether nothing more can follow.
    pub(crate) is_complete: bool,
}

/// Why there is no view.
#[derive(Debug)]
pub(crate) enum ViewError {
    /// The request is invalid.
    Request(String),
    /// The store does not reply.
    Unavailable(String),
    /// There is no such thing here.
    NotFound(String),
    /// It cannot be done now: a lock is held, or a run has ended.
    Conflict(String),
    /// A defect.
    Internal(String),
}

/// Makes views, and acts. The commands implement it.
#[async_trait]
pub(crate) trait Views: std::fmt::Debug + Send + Sync {
    /// Returns a view, restricted by the parameters of the request.
    async fn view(
        &self,
        view: FleetView,
        query: &QueryParameters,
        source: &ViewSource,
    ) -> Result<ViewText, ViewError>;

    /// Does something, as the body of the request says, for the holder of the token with this name. Returns
    /// what was done; `missing` is what was not.
    async fn act(
        &self,
        action: FleetAction,
        body: &[u8],
        token: &str,
        source: &ViewSource,
    ) -> Result<ViewText, ViewError>;
}

/// What a server is made from.
#[derive(Debug, Clone)]
pub(crate) struct ServerSetup {
    pub(crate) settings: HttpSettings,
    pub(crate) store: StoreSettings,
    pub(crate) host: HostName,
    pub(crate) snapshot: watch::Receiver<DaemonSnapshot>,
    pub(crate) views: Arc<dyn Views>,
    pub(crate) metrics: Metrics,
}

/// Why there is no server.
#[derive(Debug, thiserror::Error)]
pub(crate) enum HttpError {
    /// Somebody else listens there.
    #[error(
        "http: cannot listen on {listen}: it is in use, by another daemon of this host or another \
         program (`ss -ltnxp` lists them); stop that one, or change `listen`"
    )]
    InUse { listen: ListenAddress },
    /// The system refuses.
    #[error("http: cannot listen on {listen}: {error}")]
    Bind {
        listen: ListenAddress,
        error: io::Error,
    },
    /// The tokens cannot be used.
    #[error("http: {0}")]
    Tokens(#[from] TokenFileError),
    /// The store's settings cannot be used.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// There is no thread, or no runtime.
    #[error("http: cannot start its thread: {0}")]
    Thread(io::Error),
}

/// A running server. It ends when it is dropped.
#[derive(Debug)]
pub(crate) struct HttpServer {
    settings: HttpSettings,
    address: String,
    tokens: watch::Sender<Option<Tokens>>,
    stop: watch::Sender<ServerOrder>,
    ended: oneshot::Receiver<()>,
}

/// Whether a server continues.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ServerOrder {
    /// It continues.
    Serve,
    /// Requests that have arrived get their replies.
    Stop,
}

impl HttpServer {
    /// Listens, and starts the thread.
    pub(crate) fn start(setup: ServerSetup) -> Result<Self, HttpError> {
        let settings = setup.settings.clone();
        let tokens = read_tokens(&settings)?;
        let listener = ServerSocket::bind(&settings.listen)?;
        let address = listener.address();
        let (tokens, known_tokens) = watch::channel(tokens);
        let (stop, stopped) = watch::channel(ServerOrder::Serve);
        let (end, ended) = oneshot::channel();
        let (started, wait_started) = blocking::sync_channel(1);
        let serve = move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .map_err(HttpError::Thread);
            let runtime = match runtime {
                Ok(runtime) => runtime,
                Err(error) => return drop(started.send(Err(error))),
            };
            tasks::block_on(&runtime, async move {
                match store::open(&setup.store) {
                    Ok(store) => {
                        let routes = HttpRoutes::new(setup, store, known_tokens);
                        let _ = started.send(Ok(()));
                        connections::serve(listener, Arc::new(routes), stopped).await;
                    }
                    Err(error) => drop(started.send(Err(error.into()))),
                }
            });
            // A store call may hang in a blocking thread; the end must not wait for it.
            runtime.shutdown_background();
            let _ = end.send(());
        };
        std::thread::Builder::new()
            .name("http".to_owned())
            .spawn(serve)
            .map_err(HttpError::Thread)?;
        let gone = || HttpError::Thread(io::Error::other("it ended unexpectedly at its start"));
        wait_started.recv().map_err(|_| gone())??;
        Ok(Self {
            settings,
            address,
            tokens,
            stop,
            ended,
        })
    }

    /// What it was started with.
    pub(crate) fn settings(&self) -> &HttpSettings {
        &self.settings
    }

    /// Where it listens, with the port that the system chose.
    pub(crate) fn address(&self) -> &str {
        &self.address
    }

    /// Reads the tokens of these settings, which must have the same `listen`. Keeps the tokens that it
    /// has if they cannot be used.
    pub(crate) fn replace_tokens(&mut self, settings: &HttpSettings) -> Result<(), HttpError> {
        let tokens = read_tokens(settings)?;
        self.tokens.send_replace(tokens);
        self.settings = settings.clone();
        Ok(())
    }

    /// Ends it. Requests that have arrived get their replies, for at most `limit`.
    pub(crate) async fn close(self, limit: Duration) {
        self.stop.send_replace(ServerOrder::Stop);
        let _ = tokio::time::timeout(limit, self.ended).await;
    }
}

fn read_tokens(settings: &HttpSettings) -> Result<Option<Tokens>, TokenFileError> {
    settings.token_file.as_deref().map(Tokens::read).transpose()
}
