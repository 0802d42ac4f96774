//! One connection to a Redis server: address, password, TLS, and whether the server will do.
//!
//! What comes after a connection broke is the business of [`super::link`].

use std::sync::Once;
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::io::tcp::{TcpSettings, socket2::TcpKeepalive};
use redis::{
    AsyncConnectionConfig, Client, ConnectionInfo, ProtocolVersion, PushInfo, RedisError,
    TlsCertificates, Value,
};
use tokio::sync::mpsc::UnboundedSender;

use super::exchange::within;
use super::failure::RedisFailure;
use crate::store::endpoint::{Encryption, Endpoint};
use crate::store::{ErrorDetail, RedisSettings};

/// How long a connection may take to be made, name look-up, TLS and log-in included.
pub(super) const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);

/// How long the kernel keeps bytes that nobody acknowledges before it gives the connection up.
const USER_TIMEOUT: Duration = Duration::from_secs(5);

/// The oldest server whose scripts know flags.
const OLDEST: (u32, u32) = (7, 0);

/// What a server is to us.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Part {
    /// It keeps everything by itself.
    Alone,
    /// It is the master according to its Sentinels; a replica may take its place.
    Watched,
    /// It is one of a Cluster's, primary or replica.
    InCluster,
}

impl Part {
    /// What it is called in messages.
    pub(super) fn called(self) -> &'static str {
        match self {
            Self::Alone | Self::Watched => "the store",
            Self::InCluster => "a server of the store",
        }
    }
}

/// What the client library connects to, without the password file.
fn connection_info(endpoint: &Endpoint) -> ConnectionInfo {
    let info = endpoint.connection_info().clone();
    let redis = info
        .redis_settings()
        .clone()
        .set_protocol(ProtocolVersion::RESP3)
        // One right less to grant.
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

/// Connects within [`CONNECT_TIMEOUT`], logs in, and asks the server what it is.
///
/// What the server says unasked, and that the connection ended, goes to `pushes`. The connection
/// has no response time-out of its own.
pub(super) async fn connect(
    settings: &RedisSettings,
    part: Part,
    pushes: UnboundedSender<PushInfo>,
) -> Result<MultiplexedConnection, RedisFailure> {
    within(CONNECT_TIMEOUT, connect_unbounded(settings, part, pushes))
        .await
        .unwrap_or_else(|| {
            Err(RedisFailure::unreachable(format!(
                "no connection to {} within {CONNECT_TIMEOUT:?}",
                settings.shown()
            )))
        })
}

async fn connect_unbounded(
    settings: &RedisSettings,
    part: Part,
    pushes: UnboundedSender<PushInfo>,
) -> Result<MultiplexedConnection, RedisFailure> {
    let client = client(settings)?;
    let config = AsyncConnectionConfig::new()
        .set_connection_timeout(None)
        .set_response_timeout(None)
        .set_push_sender(pushes);
    let mut connection = client
        .get_multiplexed_async_connection_with_config(&config)
        .await
        .map_err(|e| log_in_failure(settings, &e))?;
    let hello = Hello::ask(&settings.shown(), &mut connection).await?;
    judge(&settings.shown(), part, &hello)?;
    Ok(connection)
}

/// Reads the password file and the authorities anew: both may have been replaced since.
pub(super) fn client(settings: &RedisSettings) -> Result<Client, RedisFailure> {
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

/// rustls takes no provider by itself when several are compiled in.
fn install_crypto() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // An error means that the program around the library has installed its own: as good.
        drop(rustls::crypto::ring::default_provider().install_default());
    });
}

pub(super) fn log_in_failure(settings: &RedisSettings, error: &RedisError) -> RedisFailure {
    let shown = settings.shown();
    let text = match error.code() {
        Some("WRONGPASS") => format!("{shown} does not accept the user name and password"),
        Some("NOAUTH") => {
            format!("{shown} wants a password: set password_file, or write it into the URL")
        }
        _ if error.kind() == redis::ErrorKind::RESP3NotSupported => format!(
            "{shown} is too old: cronlatch needs Redis {}.{} or later, or Valkey",
            OLDEST.0, OLDEST.1
        ),
        _ => return RedisFailure::of(&shown, error),
    };
    RedisFailure::refused(ErrorDetail::from(text).caused_by(error.clone()))
}

/// What a server says about itself in its reply to `HELLO`, which any user may send.
#[derive(Debug, Default)]
pub(super) struct Hello {
    version: String,
    /// `standalone`, `sentinel` or `cluster`.
    mode: String,
    /// `master`, or `replica` by one of its names.
    role: String,
}

impl Hello {
    /// Asks the server at the other end; `shown` is its URL without password.
    pub(super) async fn ask(
        shown: &str,
        connection: &mut MultiplexedConnection,
    ) -> Result<Self, RedisFailure> {
        let reply = redis::cmd("HELLO").query_async(connection).await;
        let reply: Value = reply.map_err(|e| RedisFailure::of(shown, &e))?;
        Ok(Self::read(&reply))
    }

    fn read(reply: &Value) -> Self {
        let field = |name: &str| match reply {
            Value::Map(pairs) => pairs.iter().find_map(|(key, value)| {
                (text(key).as_deref() == Some(name))
                    .then(|| text(value))
                    .flatten()
            }),
            _ => None,
        };
        Self {
            version: field("version").unwrap_or_default(),
            mode: field("mode").unwrap_or_default(),
            role: field("role").unwrap_or_default(),
        }
    }

    pub(super) fn is_sentinel(&self) -> bool {
        self.mode == "sentinel"
    }

    pub(super) fn is_replica(&self) -> bool {
        matches!(self.role.as_str(), "replica" | "slave")
    }
}

/// Checks whether a server can be the store.
fn judge(shown: &str, part: Part, hello: &Hello) -> Result<(), RedisFailure> {
    let version = &hello.version;
    let mut numbers = version.split('.').map(|n| n.parse().unwrap_or(0));
    let number = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    // Valkey began at 7.2 and tells its own version.
    if number < OLDEST {
        return Err(RedisFailure::refused(format!(
            "{shown} is version {version:?}: cronlatch needs Redis {}.{} or later, or Valkey",
            OLDEST.0, OLDEST.1
        )));
    }
    match (hello.mode.as_str(), part) {
        ("cluster", Part::InCluster) => return Ok(()),
        (_, Part::InCluster) => {
            return Err(RedisFailure::refused(format!(
                "{shown} is no server of a Redis Cluster: name it as a single one, redis://"
            )));
        }
        ("cluster", Part::Alone | Part::Watched) => {
            return Err(RedisFailure::refused(format!(
                "{shown} is a server of a Redis Cluster: name some of its servers, as in \
                 redis+cluster://10.0.0.1:6379,10.0.0.2:6379"
            )));
        }
        ("sentinel", Part::Alone | Part::Watched) => {
            return Err(RedisFailure::refused(format!(
                "{shown} is a Sentinel: name its master, as in \
                 redis+sentinel://10.0.0.1:26379,10.0.0.2:26379/mymaster"
            )));
        }
        _ => {}
    }
    match part {
        Part::Watched if hello.is_replica() => Err(RedisFailure::unreachable(format!(
            "{shown} is named as master, and is a replica: it is being replaced"
        ))),
        _ if hello.is_replica() => Err(RedisFailure::replica(format!(
            "{shown} is a read-only replica: name its master"
        ))),
        _ => Ok(()),
    }
}

fn text(value: &Value) -> Option<String> {
    match value {
        Value::BulkString(bytes) => Some(String::from_utf8_lossy(bytes).into_owned()),
        Value::SimpleString(text) | Value::VerbatimString { text, .. } => Some(text.clone()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hello(version: &str, mode: &str, role: &str) -> Value {
        let pair = |k: &str, v: &str| {
            (
                Value::BulkString(k.into()),
                Value::BulkString(v.as_bytes().to_vec()),
            )
        };
        Value::Map(vec![
            pair("server", "redis"),
            pair("version", version),
            pair("mode", mode),
            pair("role", role),
        ])
    }

    fn judged(version: &str, mode: &str, role: &str) -> String {
        judged_as(Part::Alone, version, mode, role)
    }

    fn judged_as(part: Part, version: &str, mode: &str, role: &str) -> String {
        match judge("redis://h", part, &Hello::read(&hello(version, mode, role))) {
            Ok(()) => "taken".to_owned(),
            Err(e) => e.text().to_owned(),
        }
    }

    #[test]
    fn only_a_new_enough_single_master_will_do() {
        for version in ["7.0.0", "7.2.5", "8.1.0", "10.0.1"] {
            assert_eq!(judged(version, "standalone", "master"), "taken");
        }
        assert!(judged("6.2.14", "standalone", "master").contains("7.0 or later"));
        assert!(judged("", "standalone", "master").contains("7.0 or later"));
        assert!(judged("7.0.0", "cluster", "master").contains("Cluster"));
        assert!(judged("7.0.0", "sentinel", "master").contains("Sentinel"));
        for role in ["master", "replica"] {
            assert_eq!(
                judged_as(Part::InCluster, "7.0.0", "cluster", role),
                "taken"
            );
        }
        assert!(judged_as(Part::InCluster, "7.0.0", "standalone", "master").contains("single"));
        assert!(judged("7.0.0", "standalone", "replica").contains("replica"));
    }
}
