//! Requests over HTTP: bounded in time, without redirects, and with errors that keep secrets.

use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use rustls::crypto::ring;
use ureq::tls::{Certificate, RootCerts, TlsConfig};
use ureq::{Agent, Error};

use super::failure::{Again, SendFailure};

/// How many bytes of a reply are read, so that its connection can be used again.
const REPLY_MAX: u64 = 16 * 1024;

/// A request.
#[derive(Clone)]
pub(in crate::notify) struct Request<'a> {
    /// Where it goes.
    pub(in crate::notify) url: &'a str,
    /// Its headers.
    pub(in crate::notify) headers: Vec<(&'a str, &'a str)>,
    /// What is posted; `None` for a GET.
    pub(in crate::notify) body: Option<&'a str>,
}

/// Sends requests. Clones share their connections.
#[derive(Clone, Default)]
pub(crate) struct HttpClient(Arc<OnceLock<Agent>>);

impl fmt::Debug for HttpClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("HttpClient")
    }
}

impl HttpClient {
    /// Sends a request and waits for the status.
    pub(in crate::notify) fn send(
        &self,
        request: &Request<'_>,
        limit: Duration,
    ) -> Result<(), SendFailure> {
        // The authorities are read when they are first needed.
        let agent = self.0.get_or_init(agent);
        let sent = if let Some(body) = request.body {
            let mut post = agent.post(request.url);
            for (name, value) in &request.headers {
                post = post.header(*name, *value);
            }
            let post = post.config().timeout_global(Some(limit)).build();
            post.send(body)
        } else {
            let mut get = agent.get(request.url);
            for (name, value) in &request.headers {
                get = get.header(*name, *value);
            }
            let get = get.config().timeout_global(Some(limit)).build();
            get.call()
        };
        let mut reply = sent.map_err(|error| explain(&error, limit))?;
        let status = reply.status().as_u16();
        let asked = reply.headers().get("retry-after");
        let asked = asked.and_then(|value| value.to_str().ok()?.trim().parse().ok());
        let body = reply
            .body_mut()
            .with_config()
            .limit(REPLY_MAX)
            .read_to_vec();
        drop(body);
        judge(status, asked.map(Duration::from_secs))
    }
}

/// What a status means. What the receiver writes is not repeated: it may hold the URL.
fn judge(status: u16, retry_after: Option<Duration>) -> Result<(), SendFailure> {
    let why = format!("the receiver replied with HTTP status {status}");
    match (status, retry_after) {
        (200..=299, _) => Ok(()),
        (429 | 503, Some(pause)) => Err(SendFailure {
            why,
            again: Again::After(pause),
        }),
        (408 | 425 | 429 | 500..=599, _) => Err(SendFailure::later(why)),
        (300..=399, _) => Err(SendFailure::never(format!(
            "{why}, a redirect: name the final URL in the list"
        ))),
        (401 | 403 | 404 | 410, _) => Err(SendFailure::never(format!(
            "{why}: is the URL or the key right?"
        ))),
        _ => Err(SendFailure::never(why)),
    }
}

fn explain(error: &Error, limit: Duration) -> SendFailure {
    match error {
        Error::Timeout(_) => SendFailure::later(format!("no reply within {limit:.1?}")),
        Error::HostNotFound => SendFailure::later("the host of the URL was not found"),
        Error::Io(error) => SendFailure::later(error.to_string()),
        Error::ConnectionFailed => SendFailure::later("the connection failed"),
        Error::Rustls(error) => SendFailure::later(format!("TLS: {error}")),
        Error::Tls(text) => SendFailure::later(format!("TLS: {text}")),
        Error::InvalidProxyUrl => SendFailure::never("the proxy of the environment is not a URL"),
        Error::BadUri(_) | Error::Http(_) => {
            SendFailure::never("the URL or a header cannot be used")
        }
        // Their texts may repeat what was sent.
        _ => SendFailure::later("the receiver does not speak HTTP as expected"),
    }
}

fn agent() -> Agent {
    let found = rustls_native_certs::load_native_certs();
    if found.certs.is_empty() {
        tracing::warn!(
            "no certificate authorities found on this host: notifications over HTTPS fail; \
             install ca-certificates"
        );
    }
    let authorities = found.certs.iter();
    let authorities = authorities.map(|der| Certificate::from_der(der.as_ref()).to_owned());
    let tls = TlsConfig::builder()
        .root_certs(RootCerts::from(authorities))
        .unversioned_rustls_crypto_provider(Arc::new(ring::default_provider()))
        .build();
    Agent::config_builder()
        .http_status_as_error(false)
        .max_redirects(0)
        .max_redirects_will_error(false)
        .user_agent(concat!("cronlatch/", env!("CARGO_PKG_VERSION")))
        .tls_config(tls)
        .build()
        .new_agent()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_may_get_better_is_tried_again() {
        let again = |status, after: Option<u64>| {
            let judged = judge(status, after.map(Duration::from_secs));
            judged.err().map(|failure| failure.again)
        };
        assert_eq!(again(200, None), None);
        assert_eq!(again(204, None), None);
        assert_eq!(again(302, None), Some(Again::Never));
        assert_eq!(again(400, None), Some(Again::Never));
        assert_eq!(again(404, Some(1)), Some(Again::Never));
        assert_eq!(again(408, None), Some(Again::Later));
        assert_eq!(again(429, None), Some(Again::Later));
        let pause = Again::After(Duration::from_secs(7));
        assert_eq!(again(429, Some(7)), Some(pause));
        assert_eq!(again(503, Some(7)), Some(pause));
        assert_eq!(again(500, Some(7)), Some(Again::Later));
    }
}
