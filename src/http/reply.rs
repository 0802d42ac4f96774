//! Replies, and errors as JSON.

use http_body_util::Full;
use hyper::body::Bytes;
use hyper::header::{
    ALLOW, CACHE_CONTROL, CONNECTION, CONTENT_TYPE, HeaderName, HeaderValue, RETRY_AFTER,
    WWW_AUTHENTICATE, X_CONTENT_TYPE_OPTIONS,
};
use hyper::{Response, StatusCode};
use serde::Serialize;

use super::OutputPosition;
use crate::metrics::TextFormat;
use crate::observe::plain;

/// Names what a view lacks.
const MISSING: HeaderName = HeaderName::from_static("cronlatch-missing");

/// How many bytes a command had written at the end of a reply, and whether more can follow.
const OFFSET: HeaderName = HeaderName::from_static("cronlatch-offset");
const PROGRESS: HeaderName = HeaderName::from_static("cronlatch-progress");

/// A whole reply.
pub(super) type HttpReply = Response<Full<Bytes>>;

/// What a body is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum BodyFormat {
    /// One JSON object.
    Json,
    /// One JSON object a line.
    JsonLines,
    /// Metrics.
    Metrics(TextFormat),
    /// iCalendar.
    Calendar,
}

impl BodyFormat {
    fn media_type(self) -> &'static str {
        match self {
            Self::Json => "application/json",
            Self::JsonLines => "application/x-ndjson",
            Self::Metrics(format) => format.media_type(),
            Self::Calendar => "text/calendar; charset=utf-8",
        }
    }
}

/// A reply with a body.
pub(super) fn with(status: StatusCode, format: BodyFormat, body: String) -> HttpReply {
    let mut reply = Response::new(Full::new(Bytes::from(body)));
    *reply.status_mut() = status;
    let headers = reply.headers_mut();
    let media_type = HeaderValue::from_static(format.media_type());
    headers.insert(CONTENT_TYPE, media_type);
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    let no_sniff = HeaderValue::from_static("nosniff");
    headers.insert(X_CONTENT_TYPE_OPTIONS, no_sniff);
    reply
}

/// A reply with a JSON object.
pub(super) fn json(status: StatusCode, value: &impl Serialize) -> HttpReply {
    let mut text = serde_json::to_string(value).unwrap_or_else(|_| "{}".to_owned());
    text.push('\n');
    with(status, BodyFormat::Json, plain(&text).into_owned())
}

/// A view of which something is missing.
pub(super) fn incomplete(mut reply: HttpReply, missing: &str) -> HttpReply {
    let text: String = missing
        .chars()
        .map(|c| if matches!(c, ' '..='~') { c } else { '?' })
        .collect();
    if let Ok(text) = HeaderValue::from_str(&text) {
        reply.headers_mut().insert(MISSING, text);
    }
    reply
}

/// The output of a run, with how far it is.
pub(super) fn positioned(mut reply: HttpReply, position: OutputPosition) -> HttpReply {
    let headers = reply.headers_mut();
    headers.insert(OFFSET, HeaderValue::from(position.offset));
    let progress = if position.is_complete {
        "complete"
    } else {
        "in-progress"
    };
    headers.insert(PROGRESS, HeaderValue::from_static(progress));
    reply
}

/// Why a request gets nothing else.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct HttpFailure {
    status: StatusCode,
    error: String,
    header: Option<(HeaderName, &'static str)>,
}

#[derive(Serialize)]
struct HttpErrorObject<'a> {
    error: HttpErrorBody<'a>,
}

/// The same names as those of the errors of commands, with the status in place of the exit code.
#[derive(Serialize)]
struct HttpErrorBody<'a> {
    code: &'static str,
    status: u16,
    message: &'a str,
    hint: Option<&'a str>,
}

/// The word for a status.
fn code(status: StatusCode) -> &'static str {
    match status {
        StatusCode::BAD_REQUEST => "usage",
        StatusCode::UNAUTHORIZED => "unauthorized",
        StatusCode::FORBIDDEN => "forbidden",
        StatusCode::NOT_FOUND => "not_found",
        StatusCode::METHOD_NOT_ALLOWED => "method_not_allowed",
        StatusCode::CONFLICT => "not_acquired",
        StatusCode::REQUEST_TIMEOUT => "timeout",
        StatusCode::UNSUPPORTED_MEDIA_TYPE => "unsupported_media_type",
        StatusCode::PAYLOAD_TOO_LARGE => "too_large",
        StatusCode::SERVICE_UNAVAILABLE => "unavailable",
        _ => "internal",
    }
}

impl HttpFailure {
    pub(super) fn new(status: StatusCode, error: impl Into<String>) -> Self {
        Self {
            status,
            error: error.into(),
            header: None,
        }
    }

    /// The path exists, and this method is not one of its own.
    pub(super) fn method(allowed: &'static str) -> Self {
        let error = format!("this path takes {allowed}");
        Self {
            header: Some((ALLOW, allowed)),
            ..Self::new(StatusCode::METHOD_NOT_ALLOWED, error)
        }
    }

    /// No token, or a wrong one.
    pub(super) fn token(error: &str) -> Self {
        Self {
            header: Some((WWW_AUTHENTICATE, "Bearer realm=\"cronlatch\"")),
            ..Self::new(StatusCode::UNAUTHORIZED, error)
        }
    }

    /// It may succeed a little later.
    pub(super) fn unavailable(error: impl Into<String>) -> Self {
        Self {
            header: Some((RETRY_AFTER, "1")),
            ..Self::new(StatusCode::SERVICE_UNAVAILABLE, error)
        }
    }

    /// The request is too large to be read to its end.
    pub(super) fn too_large(error: String) -> Self {
        Self {
            header: Some((CONNECTION, "close")),
            ..Self::new(StatusCode::PAYLOAD_TOO_LARGE, error)
        }
    }

    pub(super) fn reply(&self) -> HttpReply {
        let (message, hint) = match self.error.split_once("\nhelp: ") {
            Some((message, hint)) => (message, Some(hint)),
            None => (self.error.as_str(), None),
        };
        let body = HttpErrorObject {
            error: HttpErrorBody {
                code: code(self.status),
                status: self.status.as_u16(),
                message,
                hint,
            },
        };
        let mut reply = json(self.status, &body);
        if let Some((name, value)) = &self.header {
            let value = HeaderValue::from_static(value);
            reply.headers_mut().insert(name, value);
        }
        reply
    }
}
