//! Finds out whether a server uses TLS although its URL does not say so, or the other way round.
//!
//! No error says this: a server without TLS waits for the end of the line of which it takes the greeting for the
//! beginning, and a server with TLS closes the connection. A second connection speaks as the server may expect.

use std::convert::Infallible;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::store::RedisSettings;
use crate::store::endpoint::Encryption;
use crate::store::redis::failure::RedisFailure;

/// How long a greeting of TLS may have no reply before this is asked. Attempts to connect have a limit, which may
/// be half a second.
const SILENT_FOR: Duration = Duration::from_millis(200);
/// How long the second connection may take.
const LIMIT: Duration = Duration::from_millis(300);

/// The first message of a client of TLS 1.2: 32 bytes that should be random, no session, two suites, no
/// compression, no extensions. A server with TLS replies to it, if only that it wants another one.
const GREETING: &[u8] = b"\x16\x03\x01\x00\x2f\x01\x00\x00\x2b\x03\x03\
    0123456789abcdef0123456789abcdef\x00\x00\x04\xc0\x2f\xc0\x2b\x01\x00";

/// Why a connection cannot be made, as far as that is known when the limit of the caller is over.
#[derive(Debug, Clone, Default)]
pub(in crate::store::redis) struct KnownFailure(Arc<OnceLock<RedisFailure>>);

impl KnownFailure {
    /// Only the first one counts.
    pub(super) fn note(&self, failure: RedisFailure) {
        drop(self.0.set(failure));
    }

    pub(in crate::store::redis) fn get(&self) -> Option<RedisFailure> {
        self.0.get().cloned()
    }

    /// The failure, or that there was no reply in time.
    pub(in crate::store::redis) fn or_late(&self, text: String) -> RedisFailure {
        self.get()
            .unwrap_or_else(|| RedisFailure::unreachable(text))
    }
}

/// Notes once the greeting of TLS has had no reply for a while and the server has proved to be one without TLS.
/// Never returns: only the connection itself shows whether it can be made.
pub(super) async fn look_for_none(settings: &RedisSettings, known: &KnownFailure) -> Infallible {
    if settings.endpoint.encryption() == Encryption::Tls {
        tokio::time::sleep(SILENT_FOR).await;
        // An error is a reply, too: the server may want a password first.
        if matches!(first_byte(settings, b"PING\r\n").await, Some(b'+' | b'-')) {
            known.note(RedisFailure::unreachable(format!(
                "{} does not use TLS: write redis:// instead of rediss:// (with Sentinels, leave out \
                 `tls: true`), or correct the port",
                settings.shown()
            )));
        }
    }
    std::future::pending().await
}

/// Whether a server that closed a connection without TLS is one with TLS.
pub(super) async fn with_tls(settings: &RedisSettings) -> Option<RedisFailure> {
    if settings.endpoint.encryption() == Encryption::Tls {
        return None;
    }
    // A message of the handshake, or an alert.
    let is_tls = matches!(first_byte(settings, GREETING).await, Some(0x15 | 0x16));
    is_tls.then(|| {
        RedisFailure::unreachable(format!(
            "{} uses TLS: write rediss:// instead of redis:// (with Sentinels, `tls: true`), or correct \
             the port",
            settings.shown()
        ))
    })
}

/// Returns the first byte of the reply to this message.
async fn first_byte(settings: &RedisSettings, message: &[u8]) -> Option<u8> {
    let address = settings.endpoint.host_and_port()?;
    let asked = async {
        let mut connection = TcpStream::connect(address).await?;
        connection.write_all(message).await?;
        connection.read_u8().await
    };
    tokio::time::timeout(LIMIT, asked).await.ok()?.ok()
}
