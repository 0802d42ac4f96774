//! From a request to its reply.

use std::sync::Arc;
use std::time::Duration;

use hyper::body::Incoming;
use hyper::header::{ACCEPT, CONTENT_LENGTH};
use hyper::{HeaderMap, Method, Request, StatusCode};
use tokio::sync::{Semaphore, watch};
use tokio::time::timeout;

use super::health::{StoreProbe, healthz, readyz};
use super::listener::Transport;
use super::query::QueryParameters;
use super::reply::{self, BodyFormat, HttpFailure, HttpReply};
use super::{DaemonSnapshot, FleetView, ServerSetup, ViewError, ViewSource, Views, access};
use crate::config::Tokens;
use crate::metrics::{MetricsPage, TextFormat};
use crate::store::Store;
use crate::time::BootInstant;

/// How many views are made at once: each may be as large as the list and its history.
const VIEWS_AT_ONCE: usize = 2;
/// How long a request waits for its turn.
const TURN_LIMIT: Duration = Duration::from_secs(10);
/// How long the store may take for a view.
const VIEW_LIMIT: Duration = Duration::from_secs(30);
/// The largest body of a request, in bytes. No path reads one.
const BODY_MAX: u64 = 64 * 1024;

/// What a path leads to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum HttpRoute {
    Health,
    Ready,
    Metrics,
    OpenApi,
    FleetView(FleetView),
}

impl HttpRoute {
    /// The paths; `docs/openapi.json` describes the same ones.
    const ALL: [(&'static str, Self); 11] = [
        ("/healthz", Self::Health),
        ("/readyz", Self::Ready),
        ("/metrics", Self::Metrics),
        ("/api/v1/openapi.json", Self::OpenApi),
        ("/api/v1/status", Self::FleetView(FleetView::Status)),
        ("/api/v1/jobs", Self::FleetView(FleetView::Jobs)),
        ("/api/v1/history", Self::FleetView(FleetView::History)),
        ("/api/v1/runs", Self::FleetView(FleetView::Runs)),
        ("/api/v1/hosts", Self::FleetView(FleetView::Hosts)),
        ("/api/v1/explain", Self::FleetView(FleetView::Explain)),
        ("/api/v1/calendar.ics", Self::FleetView(FleetView::Calendar)),
    ];

    fn of(path: &str) -> Option<Self> {
        let mut all = Self::ALL.into_iter();
        all.find(|(known, _)| *known == path)
            .map(|(_, route)| route)
    }
}

/// The description of the API for programs.
const OPEN_API: &str = include_str!("../../docs/openapi.json");

/// What replies are made from.
#[derive(Debug)]
pub(super) struct HttpRoutes {
    setup: ServerSetup,
    store: Arc<dyn Store>,
    tokens: watch::Receiver<Option<Tokens>>,
    probe: StoreProbe,
    metrics: MetricsPage,
    turns: Semaphore,
}

impl HttpRoutes {
    pub(super) fn new(
        setup: ServerSetup,
        store: Arc<dyn Store>,
        tokens: watch::Receiver<Option<Tokens>>,
    ) -> Self {
        let metrics = setup.metrics.clone();
        let metrics = MetricsPage::new(metrics, setup.host.clone(), Arc::clone(&store));
        Self {
            setup,
            metrics,
            probe: StoreProbe::new(Arc::clone(&store)),
            store,
            tokens,
            turns: Semaphore::new(VIEWS_AT_ONCE),
        }
    }

    /// Replies to a request. The body of the request is not read.
    pub(super) async fn reply(&self, request: Request<Incoming>, way: Transport) -> HttpReply {
        let (head, _) = request.into_parts();
        let path = head.uri.path();
        let reply = self
            .route(&head.method, path, &head.headers, way)
            .and_then(|route| {
                Ok((
                    route,
                    QueryParameters::parse(head.uri.query()).map_err(bad_request)?,
                ))
            });
        let reply = match reply {
            Ok((route, query)) => self.serve(route, &query, &head.headers).await,
            Err(failure) => Err(failure),
        };
        let reply = reply.unwrap_or_else(|failure| failure.reply());
        tracing::debug!("http: {} {path}: {}", head.method, reply.status().as_u16());
        reply
    }

    /// Finds what is asked for, if the client may ask for it.
    fn route(
        &self,
        method: &Method,
        path: &str,
        headers: &HeaderMap,
        way: Transport,
    ) -> Result<HttpRoute, HttpFailure> {
        let length = headers.get(CONTENT_LENGTH).and_then(|it| it.to_str().ok());
        if length.and_then(|it| it.parse().ok()) > Some(BODY_MAX) {
            let error = format!("the body of a request has at most {BODY_MAX} bytes");
            return Err(HttpFailure::too_large(error));
        }
        let Some(route) = HttpRoute::of(path) else {
            return Err(HttpFailure::new(
                StatusCode::NOT_FOUND,
                "there is nothing at this path; docs/http.md lists the paths",
            ));
        };
        if !matches!(*method, Method::GET | Method::HEAD) {
            return Err(HttpFailure::method("GET, HEAD"));
        }
        if !matches!(route, HttpRoute::Health | HttpRoute::Ready) {
            access::check(headers, way, self.tokens.borrow().as_ref())?;
        }
        Ok(route)
    }

    async fn serve(
        &self,
        route: HttpRoute,
        query: &QueryParameters,
        headers: &HeaderMap,
    ) -> Result<HttpReply, HttpFailure> {
        let snapshot = self.setup.snapshot.borrow().clone();
        match route {
            HttpRoute::Health => Ok(healthz(&snapshot, BootInstant::now())),
            HttpRoute::Ready => Ok(readyz(&snapshot, &self.probe).await),
            HttpRoute::Metrics => {
                query.of(&[]).map_err(bad_request)?;
                let accept = headers.get(ACCEPT).and_then(|it| it.to_str().ok());
                let format = TextFormat::accepted(accept);
                let text = self.metrics.text(format).await;
                Ok(reply::with(
                    StatusCode::OK,
                    BodyFormat::Metrics(format),
                    text,
                ))
            }
            HttpRoute::OpenApi => {
                query.of(&[]).map_err(bad_request)?;
                let text = OPEN_API.to_owned();
                Ok(reply::with(StatusCode::OK, BodyFormat::Json, text))
            }
            HttpRoute::FleetView(view) => self.view(view, query, snapshot).await,
        }
    }

    async fn view(
        &self,
        view: FleetView,
        query: &QueryParameters,
        snapshot: DaemonSnapshot,
    ) -> Result<HttpReply, HttpFailure> {
        let turn = timeout(TURN_LIMIT, self.turns.acquire()).await;
        let Ok(Ok(_turn)) = turn else {
            let error = "other requests are being served; try again";
            return Err(HttpFailure::unavailable(error));
        };
        let source = ViewSource {
            store: Arc::clone(&self.store),
            settings: self.setup.store.clone(),
            host: self.setup.host.clone(),
            list: snapshot.list,
        };
        let views: &dyn Views = &*self.setup.views;
        let made = timeout(VIEW_LIMIT, views.view(view, query, &source)).await;
        match made {
            Ok(Ok(text)) => {
                let format = match view {
                    FleetView::Status | FleetView::Explain => BodyFormat::Json,
                    FleetView::Calendar => BodyFormat::Calendar,
                    FleetView::Jobs | FleetView::History | FleetView::Runs | FleetView::Hosts => {
                        BodyFormat::JsonLines
                    }
                };
                let reply = reply::with(StatusCode::OK, format, text.text);
                Ok(match text.missing {
                    None => reply,
                    Some(missing) => reply::incomplete(reply, &missing),
                })
            }
            Ok(Err(ViewError::Request(error))) => Err(bad_request(error)),
            Ok(Err(ViewError::Unavailable(error))) => Err(HttpFailure::unavailable(error)),
            Ok(Err(ViewError::Internal(error))) => {
                Err(HttpFailure::new(StatusCode::INTERNAL_SERVER_ERROR, error))
            }
            Err(_) => {
                let error = format!("the store did not reply within {VIEW_LIMIT:?}");
                Err(HttpFailure::unavailable(error))
            }
        }
    }
}

fn bad_request(error: String) -> HttpFailure {
    HttpFailure::new(StatusCode::BAD_REQUEST, error)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::{HttpRoute, OPEN_API};

    #[test]
    fn the_description_has_the_paths_that_are_served() {
        let description: serde_json::Value = serde_json::from_str(OPEN_API).expect("JSON");
        let described = description["paths"].as_object().expect("paths");
        let described: BTreeSet<&str> = described.keys().map(String::as_str).collect();
        let served = HttpRoute::ALL.map(|(path, _)| path);
        assert_eq!(described, served.into_iter().collect());
    }
}
