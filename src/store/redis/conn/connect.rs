//! Opens a connection to a Redis server: address, password, TLS, and the check of the server's role.
//!
//! [`link`](super::link) replaces a connection that broke.

use std::sync::Once;
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::io::tcp::{TcpSettings, socket2::TcpKeepalive};
use redis::{
    AsyncConnectionConfig, Client, ConnectionInfo, ProtocolVersion, PushInfo, RedisError,
    TlsCertificates,
};
use tokio::sync::mpsc::UnboundedSender;

use super::exchange::within;
use super::hello::{Hello, OLDEST, Part, judge};
use super::other_encryption::{self, KnownFailure};
use super::timed::TimedConnection;
use crate::store::endpoint::{Encryption, Endpoint};
use crate::store::redis::failure::RedisFailure;
use crate::store::{ErrorDetail, RedisSettings};

/// How long it may take to connect, including name look-up, TLS and log-in.
pub(in crate::store::redis) const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);

/// How long sent bytes may stay unacknowledged before the kernel closes the connection.
const USER_TIMEOUT: Duration = Duration::from_secs(5);

/// Returns the connection settings of the client library, without the password file.
fn connection_info(endpoint: &Endpoint) -> ConnectionInfo {
    let info = endpoint.connection_info().clone();
    let redis = info
        .redis_settings()
        .clone()
        .set_protocol(ProtocolVersion::RESP3)
        // Otherwise the user would need the right to CLIENT SETINFO.
        .set_skip_set_lib_name();
    let tcp = TcpSettings::default()
        .set_nodelay(true)
        .set_keepalive(
            TcpKeepalive::new()
                .with_time(Duration::from_secs(5))
                .with_interval(Duration::from_secs(2))
                .with_retries(3),
        )
        .set_user_timeout(USER_TIMEOUT);
    info.set_redis_settings(redis).set_tcp_settings(tcp)
}

/// Connects within [`CONNECT_TIMEOUT`], logs in, and checks the role of the server.
///
/// Push messages, including the end of the connection, go to `pushes`. The connection has no response
/// time-out.
pub(in crate::store::redis) async fn connect(
    settings: &RedisSettings,
    part: Part,
    pushes: UnboundedSender<PushInfo>,
) -> Result<MultiplexedConnection, RedisFailure> {
    let known = KnownFailure::default();
    let connecting = Box::pin(async {
        let mut connection = open(settings, &known, &without_time_outs(pushes)).await?;
        check(settings, part, &mut connection).await?;
        Ok(connection)
    });
    in_time(settings, &known, connecting).await
}

/// As [`connect`], with a connection that says when each reply arrived, and for a caller that may stop waiting earlier:
/// notes why the connection cannot be made.
pub(super) async fn connect_timed(
    settings: &RedisSettings,
    known: &KnownFailure,
    part: Part,
    pushes: UnboundedSender<PushInfo>,
) -> Result<TimedConnection, RedisFailure> {
    let config = without_time_outs(pushes);
    let connecting = Box::pin(async {
        let client = client(settings)?;
        let opening = Box::pin(TimedConnection::open(&client, &config));
        let mut connection = explained(settings, known, opening).await?;
        check(settings, part, connection.inner_mut()).await?;
        Ok(connection)
    });
    in_time(settings, known, connecting).await
}

fn without_time_outs(pushes: UnboundedSender<PushInfo>) -> AsyncConnectionConfig {
    AsyncConnectionConfig::new()
        .set_connection_timeout(None)
        .set_response_timeout(None)
        .set_push_sender(pushes)
}

async fn check(
    settings: &RedisSettings,
    part: Part,
    connection: &mut MultiplexedConnection,
) -> Result<(), RedisFailure> {
    let hello = Hello::ask(&settings.shown(), connection).await?;
    judge(&settings.shown(), part, &hello)
}

/// Waits for a connection at most [`CONNECT_TIMEOUT`].
async fn in_time<T>(
    settings: &RedisSettings,
    known: &KnownFailure,
    connecting: impl Future<Output = Result<T, RedisFailure>>,
) -> Result<T, RedisFailure> {
    within(CONNECT_TIMEOUT, connecting)
        .await
        .unwrap_or_else(|| {
            Err(known.or_late(format!(
                "no connection to {} within {CONNECT_TIMEOUT:?}",
                settings.shown()
            )))
        })
}

/// Connects and logs in, without a limit. Finds out whether TLS is what keeps it from that: a caller whose limit is
/// over reports what is known by then.
pub(in crate::store::redis) async fn open(
    settings: &RedisSettings,
    known: &KnownFailure,
    config: &AsyncConnectionConfig,
) -> Result<MultiplexedConnection, RedisFailure> {
    let client = client(settings)?;
    let opening = Box::pin(client.get_multiplexed_async_connection_with_config(config));
    explained(settings, known, opening).await
}

/// Waits for a connection. If it fails, finds out whether TLS is why.
async fn explained<T>(
    settings: &RedisSettings,
    known: &KnownFailure,
    opening: impl Future<Output = Result<T, RedisError>>,
) -> Result<T, RedisFailure> {
    // Cancel-safe: neither has changed anything when it is given up.
    let opened = tokio::select! {
        biased;
        opened = opening => opened,
        never = other_encryption::look_for_none(settings, known) => match never {},
    };
    let error = match opened {
        Ok(connection) => return Ok(connection),
        Err(error) => error,
    };
    let may_be_tls = error.is_connection_dropped() || error.kind() == redis::ErrorKind::Parse;
    known.note(log_in_failure(settings, &error));
    if may_be_tls
        && !error.is_connection_refusal()
        && let Some(failure) = other_encryption::with_tls(settings).await
    {
        return Err(failure);
    }
    Err(known
        .get()
        .unwrap_or_else(|| log_in_failure(settings, &error)))
}

/// Reads the password file and the CA file again, because both may have been replaced.
fn client(settings: &RedisSettings) -> Result<Client, RedisFailure> {
    let mut info = connection_info(&settings.endpoint);
    if let Some(path) = &settings.password_file {
        let password = std::fs::read_to_string(path).map_err(|e| {
            let what = format!("the password file {} cannot be read", path.display());
            RedisFailure::refused(ErrorDetail::of(what, e))
        })?;
        let redis = info
            .redis_settings()
            .clone()
            .set_password(password.trim_end_matches(['\r', '\n']));
        info = info.set_redis_settings(redis);
    }
    let tls = settings.endpoint.encryption() == Encryption::Tls;
    if tls {
        install_crypto();
    }
    let shown = settings.shown();
    match &settings.ca_file {
        Some(path) if tls => {
            let pem = std::fs::read(path).map_err(|e| {
                let what = format!("the CA file {} cannot be read", path.display());
                RedisFailure::refused(ErrorDetail::of(what, e))
            })?;
            let certificates = TlsCertificates {
                client_tls: None,
                root_cert: Some(pem),
            };
            Client::build_with_tls(info, certificates).map_err(|e| {
                let what = format!("the CA file {}", path.display());
                RedisFailure::refused(ErrorDetail::of(what, e))
            })
        }
        Some(_) => Err(RedisFailure::refused(format!(
            "ca_file is for TLS only: write rediss:// instead of {shown}"
        ))),
        None => Client::open(info).map_err(|e| RedisFailure::of(&shown, &e)),
    }
}

/// Chooses the provider of rustls, which chooses none if several are compiled in.
fn install_crypto() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // An error means that the embedding program has installed its own provider.
        drop(rustls::crypto::ring::default_provider().install_default());
    });
}

fn log_in_failure(settings: &RedisSettings, error: &RedisError) -> RedisFailure {
    let shown = settings.shown();
    if error.kind() == redis::ErrorKind::Parse {
        // What the client library says of it has several lines, and names bytes.
        let text = format!(
            "{shown} answers, but not as a Redis server does: correct the address or the port"
        );
        return RedisFailure::unreachable(ErrorDetail::from(text).caused_by(error.clone()));
    }
    let text = match error.code() {
        Some("WRONGPASS") => format!("{shown} does not accept the user name and password"),
        Some("NOAUTH") => {
            format!("{shown} requires a password: set password_file, or write it into the URL")
        }
        _ if error.kind() == redis::ErrorKind::RESP3NotSupported => format!(
            "{shown} is too old: cronlatch needs Redis {}.{} or later, or Valkey",
            OLDEST.0, OLDEST.1
        ),
        _ => return RedisFailure::of(&shown, error),
    };
    RedisFailure::refused(ErrorDetail::from(text).caused_by(error.clone()))
}
