//! What the daemon shows of itself: the HTTP server, if its list has one, and the metrics. Start, what
//! the loop publishes, reload, end.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;

use super::{Daemon, DaemonSetup};
use crate::config::{HttpSettings, JobList};
use crate::ground::tasks;
use crate::http::{DaemonSnapshot, HttpError, HttpServer, ServerSetup, Views};
use crate::metrics::{
    DaemonGauges, ListState, Metrics, MetricsFile, MetricsFileTask, MetricsPage, Readiness,
    StoreReachability,
};
use crate::names::HostName;
use crate::store::{Store, StoreSettings};
use crate::time::BootInstant;

/// How long requests that have arrived may take once the daemon is done.
const CLOSING: Duration = Duration::from_secs(1);

/// What a server needs besides its settings.
#[derive(Debug)]
pub(super) struct FrontSetup {
    pub(super) store: StoreSettings,
    pub(super) host: HostName,
    pub(super) views: Arc<dyn Views>,
    pub(super) metrics: Metrics,
}

impl FrontSetup {
    /// What the server of this daemon needs.
    pub(super) fn of(setup: &DaemonSetup) -> Self {
        Self {
            store: setup.loaded.settings.clone(),
            host: setup.host.clone(),
            views: Arc::clone(&setup.views),
            metrics: Metrics::new(),
        }
    }
}

/// The server, and what it shows of the daemon.
#[derive(Debug)]
pub(super) struct Front {
    setup: FrontSetup,
    running: Option<RunningServer>,
    file: Option<MetricsFileTask>,
}

#[derive(Debug)]
struct RunningServer {
    server: HttpServer,
    snapshot: watch::Sender<DaemonSnapshot>,
}

impl Front {
    /// Starts the server if the list has one. It replies from now on.
    pub(super) fn start(setup: FrontSetup, list: &JobList) -> Result<Box<Self>, HttpError> {
        let mut front = Box::new(Self {
            setup,
            running: None,
            file: None,
        });
        if let Some(settings) = &list.http {
            front.running = Some(front.serve(settings, Arc::new(list.clone()))?);
        }
        Ok(front)
    }

    /// The counters that are shown.
    pub(super) fn metrics(&self) -> &Metrics {
        &self.setup.metrics
    }

    /// Keeps the metrics in a file from now on, if there is to be one.
    pub(super) fn keep_file(
        mut self: Box<Self>,
        file: Option<MetricsFile>,
        store: &Arc<dyn Store>,
    ) -> Box<Self> {
        let FrontSetup { host, metrics, .. } = &self.setup;
        let page = || MetricsPage::new(metrics.clone(), host.clone(), Arc::clone(store));
        self.file = file.map(|file| file.keep(page()));
        self
    }

    fn serve(
        &self,
        settings: &HttpSettings,
        list: Arc<JobList>,
    ) -> Result<RunningServer, HttpError> {
        let (snapshot, published) = watch::channel(DaemonSnapshot {
            list,
            obstacles: vec!["the daemon is starting".to_owned()],
            beat: None,
        });
        let server = HttpServer::start(ServerSetup {
            settings: settings.clone(),
            store: self.setup.store.clone(),
            host: self.setup.host.clone(),
            snapshot: published,
            views: Arc::clone(&self.setup.views),
            metrics: self.setup.metrics.clone(),
        })?;
        let tokens = match settings.token_file {
            Some(_) => "with the tokens of token_file",
            None => "without tokens",
        };
        tracing::info!(host = %self.setup.host, "serving HTTP on {}, {tokens}", server.address());
        Ok(RunningServer { server, snapshot })
    }

    /// Where other machines reach the server, if they do. A server that listens on all addresses is found
    /// under the name of its host.
    pub(super) fn address_for_others(&self) -> Option<String> {
        let server = &self.running.as_ref()?.server;
        if !server.settings().listen.is_beyond_loopback() {
            return None;
        }
        let address = server.address();
        let socket: SocketAddr = address.strip_prefix("http://")?.parse().ok()?;
        Some(if socket.ip().is_unspecified() {
            format!("http://{}:{}", self.setup.host, socket.port())
        } else {
            address.to_owned()
        })
    }

    /// Whether a list with these settings changes the server.
    pub(super) fn differs(&self, settings: Option<&HttpSettings>) -> bool {
        self.running.as_ref().map(|it| it.server.settings()) != settings
    }

    /// Applies a new list: reads the tokens again, and listens elsewhere if `listen` has changed. If
    /// that fails, the server that is there goes on.
    pub(super) fn replace(&mut self, list: &JobList) {
        let known = self.running.as_mut();
        let (settings, running) = match (&list.http, known) {
            (None, None) => return,
            (None, Some(_)) => {
                self.close_running();
                tracing::info!(host = %self.setup.host, "HTTP is no longer served");
                return;
            }
            (Some(settings), running) => (settings, running),
        };
        let list = Arc::new(list.clone());
        let replaced = match running {
            Some(running) if running.server.settings().listen == settings.listen => {
                running
                    .snapshot
                    .send_modify(|shown| shown.list = Arc::clone(&list));
                running.server.replace_tokens(settings)
            }
            _ => self.serve(settings, Arc::clone(&list)).map(|running| {
                self.close_running();
                self.running = Some(running);
            }),
        };
        if let Err(error) = replaced {
            let instead = match &self.running {
                Some(running) => {
                    running.snapshot.send_modify(|shown| shown.list = list);
                    format!("continuing on {} as before", running.server.address())
                }
                None => "HTTP is not served".to_owned(),
            };
            tracing::error!(
                host = %self.setup.host,
                "cannot apply the HTTP settings of the new job list: {error}; {instead}. The rest of the list \
                 is in force"
            );
        }
    }

    /// Has requests see what the daemon is doing.
    pub(super) fn publish(&self, obstacles: impl FnOnce() -> Vec<String>) {
        if let Some(running) = &self.running {
            let obstacles = obstacles();
            running.snapshot.send_modify(|shown| {
                shown.obstacles = obstacles;
                shown.beat = Some(BootInstant::now());
            });
        }
    }

    fn close_running(&mut self) {
        if let Some(running) = self.running.take() {
            tasks::spawn(running.server.close(CLOSING));
        }
    }

    /// Ends the server; requests that have arrived get their replies. Removes the file.
    pub(super) async fn close(&mut self) {
        if let Some(file) = self.file.take() {
            file.remove();
        }
        if let Some(running) = self.running.take() {
            running.server.close(CLOSING).await;
        }
    }
}

impl Daemon {
    /// Has `/readyz` and `/healthz` see what the daemon is doing.
    pub(super) fn publish(&self) {
        self.front.publish(|| self.obstacles());
    }

    /// Has metrics show what the daemon is doing.
    pub(super) fn publish_metrics(&self) {
        let readiness = if self.shutdown.is_some() {
            Readiness::Draining
        } else if self.health.is_up() && self.obstacles().is_empty() {
            Readiness::Ready
        } else {
            Readiness::NotReady
        };
        self.link.reporter.metrics.set_daemon(DaemonGauges {
            readiness,
            store: if self.health.is_up() {
                StoreReachability::Up
            } else {
                StoreReachability::Down
            },
            clock_offset_ms: self.clock.offset(),
            list: self.config.clone(),
            newest_list: match self.reloads.refused() {
                Some(_) => ListState::Rejected,
                None => ListState::InForce,
            },
            unusable_keys: self.unusable.len(),
            held_back: self.admission.count(),
            started_at: self.started_at,
        });
    }

    /// Why this host cannot run jobs now.
    fn obstacles(&self) -> Vec<String> {
        let mut obstacles = Vec::new();
        if self.shutdown.is_some() {
            obstacles.push("the daemon is draining".to_owned());
        } else if !self.is_ready {
            obstacles.push("the daemon is starting".to_owned());
        }
        if self.clock.is_wrong() {
            let max = self.settings.max_clock_skew;
            obstacles.push(format!(
                "the clocks of this host and of the store are more than {max:?} apart \
                 (max_clock_skew)"
            ));
        }
        obstacles.extend(self.agreement.waits());
        obstacles
    }
}
