//! From a request to its reply.

use std::sync::Arc;
use std::time::Duration;

use http_body_util::{BodyExt as _, LengthLimitError, Limited};
use hyper::body::Incoming;
use hyper::header::{ACCEPT, CONTENT_LENGTH};
use hyper::http::request::Parts;
use hyper::{HeaderMap, Method, Request, StatusCode};
use tokio::sync::{Semaphore, watch};
use tokio::time::timeout;

use super::health::{StoreProbe, healthz, readyz};
use super::listener::Transport;
use super::query::QueryParameters;
use super::reply::{self, BodyFormat, HttpFailure, HttpReply};
use super::{
    DaemonSnapshot, FleetAction, FleetView, ServerSetup, ViewError, ViewSource, ViewText, Views,
    access,
};
use crate::config::Tokens;
use crate::ground::tasks;
use crate::metrics::{MetricsPage, TextFormat};
use crate::store::Store;
use crate::time::BootInstant;

/// How many views are made at once: each may be as large as the list and its history.
const VIEWS_AT_ONCE: usize = 2;
/// How long a request waits for its turn.
const TURN_LIMIT: Duration = Duration::from_secs(10);
/// How long the store may take for a view.
const VIEW_LIMIT: Duration = Duration::from_secs(30);
/// The largest body of a request, in bytes.
const BODY_MAX: usize = 64 * 1024;
/// How long the body of a request may take.
const BODY_LIMIT: Duration = Duration::from_secs(10);
/// How many actions are carried out at once.
const ACTIONS_AT_ONCE: usize = 4;

/// What a path leads to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum HttpRoute {
    Health,
    Ready,
    Metrics,
    OpenApi,
    FleetView(FleetView),
    FleetAction(FleetAction),
}

impl HttpRoute {
    /// The paths; `docs/openapi.json` describes the same ones.
    const ALL: [(&'static str, Self); 16] = [
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
        ("/api/v1/logs", Self::FleetView(FleetView::Logs)),
        ("/api/v1/pause", Self::FleetAction(FleetAction::Pause)),
        ("/api/v1/resume", Self::FleetAction(FleetAction::Resume)),
        ("/api/v1/trigger", Self::FleetAction(FleetAction::Trigger)),
        ("/api/v1/kill", Self::FleetAction(FleetAction::Kill)),
    ];

    fn of(path: &str) -> Option<Self> {
        let mut all = Self::ALL.into_iter();
        all.find(|(known, _)| *known == path)
            .map(|(_, route)| route)
    }

    /// The methods that it takes.
    fn methods(self) -> (&'static [Method], &'static str) {
        match self {
            Self::FleetAction(_) => (&[Method::POST], "POST"),
            _ => (&[Method::GET, Method::HEAD], "GET, HEAD"),
        }
    }
}

/// Who asks, as far as the path needs to know.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Caller {
    /// Somebody who may read.
    Reader,
    /// Who has the token of this name, which has the right to act.
    Actor(String),
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
    action_turns: Semaphore,
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
            action_turns: Semaphore::new(ACTIONS_AT_ONCE),
        }
    }

    /// Replies to a request. Only an action has its body read.
    pub(super) async fn reply(
        &self,
        request: Request<Incoming>,
        transport: Transport,
    ) -> HttpReply {
        let (head, body) = request.into_parts();
        let reply = self.reply_to(&head, body, transport).await;
        let reply = reply.unwrap_or_else(|failure| failure.reply());
        let (method, path) = (&head.method, head.uri.path());
        tracing::debug!("http: {method} {path}: {}", reply.status().as_u16());
        reply
    }

    async fn reply_to(
        &self,
        head: &Parts,
        body: Incoming,
        transport: Transport,
    ) -> Result<HttpReply, HttpFailure> {
        let (route, caller) =
            self.route(&head.method, head.uri.path(), &head.headers, transport)?;
        let query = QueryParameters::parse(head.uri.query()).map_err(bad_request)?;
        match (route, caller) {
            (HttpRoute::FleetAction(action), Caller::Actor(token)) => {
                query.of(&[]).map_err(bad_request)?;
                self.act(action, &read_body(body).await?, &token).await
            }
            (route, _) => self.serve(route, &query, &head.headers).await,
        }
    }

    /// Finds what is asked for, if the caller may ask for it.
    fn route(
        &self,
        method: &Method,
        path: &str,
        headers: &HeaderMap,
        transport: Transport,
    ) -> Result<(HttpRoute, Caller), HttpFailure> {
        let length = headers.get(CONTENT_LENGTH).and_then(|it| it.to_str().ok());
        if length.and_then(|it| it.parse().ok()) > Some(BODY_MAX) {
            return Err(body_too_large());
        }
        let Some(route) = HttpRoute::of(path) else {
            return Err(HttpFailure::new(
                StatusCode::NOT_FOUND,
                "there is nothing at this path; docs/http.md lists the paths",
            ));
        };
        let (methods, shown) = route.methods();
        if !methods.contains(method) {
            return Err(HttpFailure::method(shown));
        }
        let tokens = self.tokens.borrow();
        let caller = match route {
            HttpRoute::Health | HttpRoute::Ready => Caller::Reader,
            HttpRoute::FleetAction(_) => {
                Caller::Actor(access::check_to_act(headers, tokens.as_ref())?)
            }
            HttpRoute::FleetView(FleetView::Logs) => {
                access::check_for_output(headers, transport, tokens.as_ref())?;
                Caller::Reader
            }
            _ => {
                access::check(headers, transport, tokens.as_ref())?;
                Caller::Reader
            }
        };
        Ok((route, caller))
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
            // It has no right to.
            HttpRoute::FleetAction(_) => Err(HttpFailure::method("POST")),
        }
    }

    fn source(&self, snapshot: DaemonSnapshot) -> ViewSource {
        ViewSource {
            store: Arc::clone(&self.store),
            settings: self.setup.store.clone(),
            host: self.setup.host.clone(),
            list: snapshot.list,
        }
    }

    /// Carries out an action. Once begun it goes on to its end, also if the client goes away.
    async fn act(
        &self,
        action: FleetAction,
        body: &[u8],
        token: &str,
    ) -> Result<HttpReply, HttpFailure> {
        let turn = timeout(TURN_LIMIT, self.action_turns.acquire()).await;
        let Ok(Ok(_turn)) = turn else {
            return Err(HttpFailure::unavailable(
                "other actions are being carried out; nothing was done; try again",
            ));
        };
        let source = self.source(self.setup.snapshot.borrow().clone());
        let views = Arc::clone(&self.setup.views);
        let (body, token) = (body.to_vec(), token.to_owned());
        let task = tasks::spawn(async move {
            let done = views.act(action, &body, &token, &source).await;
            match &done {
                Ok(_) => tracing::info!(%token, "http: {action:?} was carried out"),
                Err(error) => tracing::debug!(%token, "http: {action:?} failed: {error:?}"),
            }
            done
        });
        let done = task.await.map_err(|_| {
            let error = "the action failed unexpectedly; `cronlatch status` shows what was done";
            HttpFailure::new(StatusCode::INTERNAL_SERVER_ERROR, error)
        })?;
        let format = match action {
            FleetAction::Trigger => BodyFormat::Json,
            FleetAction::Pause | FleetAction::Resume | FleetAction::Kill => BodyFormat::JsonLines,
        };
        done.map(|made| whole(made, format)).map_err(failure)
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
        let source = self.source(snapshot);
        let views: &dyn Views = &*self.setup.views;
        let made = timeout(VIEW_LIMIT, views.view(view, query, &source)).await;
        let format = match view {
            FleetView::Status | FleetView::Explain => BodyFormat::Json,
            FleetView::Calendar => BodyFormat::Calendar,
            FleetView::Jobs
            | FleetView::History
            | FleetView::Runs
            | FleetView::Hosts
            | FleetView::Logs => BodyFormat::JsonLines,
        };
        let Ok(made) = made else {
            let error = format!("the store did not reply within {VIEW_LIMIT:?}");
            return Err(HttpFailure::unavailable(error));
        };
        made.map(|made| whole(made, format)).map_err(failure)
    }
}

/// The reply with what was made, and what is missing in it.
fn whole(made: ViewText, format: BodyFormat) -> HttpReply {
    let mut reply = reply::with(StatusCode::OK, format, made.text);
    if let Some(position) = made.position {
        reply = reply::positioned(reply, position);
    }
    match made.missing {
        None => reply,
        Some(missing) => reply::incomplete(reply, &missing),
    }
}

fn failure(error: ViewError) -> HttpFailure {
    match error {
        ViewError::Request(error) => bad_request(error),
        ViewError::Unavailable(error) => HttpFailure::unavailable(error),
        ViewError::NotFound(error) => HttpFailure::new(StatusCode::NOT_FOUND, error),
        ViewError::Conflict(error) => HttpFailure::new(StatusCode::CONFLICT, error),
        ViewError::Internal(error) => HttpFailure::new(StatusCode::INTERNAL_SERVER_ERROR, error),
    }
}

async fn read_body(body: Incoming) -> Result<Vec<u8>, HttpFailure> {
    let whole = timeout(BODY_LIMIT, Limited::new(body, BODY_MAX).collect()).await;
    let Ok(whole) = whole else {
        let error = format!("the body did not arrive within {BODY_LIMIT:?}");
        return Err(HttpFailure::new(StatusCode::REQUEST_TIMEOUT, error));
    };
    match whole {
        Ok(whole) => Ok(whole.to_bytes().into()),
        Err(error) if error.is::<LengthLimitError>() => Err(body_too_large()),
        Err(error) => Err(bad_request(format!("the body cannot be read: {error}"))),
    }
}

fn body_too_large() -> HttpFailure {
    HttpFailure::too_large(format!(
        "the body of a request has at most {BODY_MAX} bytes"
    ))
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
