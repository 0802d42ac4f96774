//! One connection to a Redis server: address, password, TLS, and whether the server will do.
//!
//! What comes after a connection broke is the business of [`super::link`].

use std::sync::Once;
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::io::tcp::{TcpSettings, socket2::TcpKeepalive};
use redis::{
    AsyncConnectionConfig, Client, ConnectionAddr, ConnectionInfo, IntoConnectionInfo as _,
    ProtocolVersion, PushInfo, RedisError, TlsCertificates, Value,
};
use tokio::sync::mpsc::UnboundedSender;

use super::exchange::within;
use super::failure::RedisFailure;
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

/// The client library's view of the settings, without the password file.
pub(crate) fn connection_info(settings: &RedisSettings) -> Result<ConnectionInfo, String> {
    // The library's errors do not repeat the URL.
    let info = settings
        .url
        .0
        .as_str()
        .into_connection_info()
        .map_err(|e| explain(&e))?;
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
    Ok(info.set_redis_settings(redis).set_tcp_settings(tcp))
}

/// Where the server is, and which of its databases: what does not depend on who logs in.
pub(crate) fn server_address(settings: &RedisSettings) -> String {
    connection_info(settings).map_or_else(
        |_| settings.shown(),
        |info| format!("{}/{}", info.addr(), info.redis_settings().db()),
    )
}

fn explain(error: &RedisError) -> String {
    let said = error.to_string();
    if said.contains("did not parse") {
        return "its host or port cannot be read, as in redis://10.0.0.5:6379/0".to_owned();
    }
    said
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
    let hello: Value = redis::cmd("HELLO")
        .query_async(&mut connection)
        .await
        .map_err(|e| RedisFailure::of(&settings.shown(), &e))?;
    judge(&settings.shown(), part, &hello)?;
    Ok(connection)
}

/// Reads the password file and the authorities anew: both may have been replaced since.
pub(super) fn client(settings: &RedisSettings) -> Result<Client, RedisFailure> {
    let mut info = connection_info(settings).map_err(RedisFailure::refused)?;
    if let Some(path) = &settings.password_file {
        let password = std::fs::read_to_string(path).map_err(|e| {
            let text = format!("the password file {} cannot be read: {e}", path.display());
            RedisFailure::refused(ErrorDetail::from(text).caused_by(e))
        })?;
        let redis = info
            .redis_settings()
            .clone()
            .set_password(password.trim_end_matches(['\r', '\n']));
        info = info.set_redis_settings(redis);
    }
    let tls = matches!(info.addr(), ConnectionAddr::TcpTls { .. });
    if tls {
        install_crypto();
    }
    let shown = settings.shown();
    match &settings.ca_file {
        Some(path) if tls => {
            let pem = std::fs::read(path).map_err(|e| {
                let text = format!("the CA file {} cannot be read: {e}", path.display());
                RedisFailure::refused(ErrorDetail::from(text).caused_by(e))
            })?;
            let certificates = TlsCertificates {
                client_tls: None,
                root_cert: Some(pem),
            };
            Client::build_with_tls(info, certificates).map_err(|e| {
                let text = format!("the CA file {}: {e}", path.display());
                RedisFailure::refused(ErrorDetail::from(text).caused_by(e))
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

/// Whether a server that answers `HELLO` so can be the store.
fn judge(shown: &str, part: Part, hello: &Value) -> Result<(), RedisFailure> {
    let field = |name: &str| match hello {
        Value::Map(pairs) => pairs.iter().find_map(|(key, value)| {
            (text(key).as_deref() == Some(name))
                .then(|| text(value))
                .flatten()
        }),
        _ => None,
    };
    let version = field("version").unwrap_or_default();
    let mut numbers = version.split('.').map(|n| n.parse().unwrap_or(0));
    let number = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    // Valkey began at 7.2 and tells its own version.
    if number < OLDEST {
        return Err(RedisFailure::refused(format!(
            "{shown} is version {version:?}: cronlatch needs Redis {}.{} or later, or Valkey",
            OLDEST.0, OLDEST.1
        )));
    }
    match (field("mode").as_deref(), part) {
        (Some("cluster"), Part::InCluster) => return Ok(()),
        (_, Part::InCluster) => {
            return Err(RedisFailure::refused(format!(
                "{shown} is no server of a Redis Cluster: name it as a single one, redis://"
            )));
        }
        (Some("cluster"), Part::Alone | Part::Watched) => {
            return Err(RedisFailure::refused(format!(
                "{shown} is a server of a Redis Cluster: name some of its servers, as in \
                 redis+cluster://10.0.0.1:6379,10.0.0.2:6379"
            )));
        }
        (Some("sentinel"), Part::Alone | Part::Watched) => {
            return Err(RedisFailure::refused(format!(
                "{shown} is a Sentinel: name its master, as in \
                 redis+sentinel://10.0.0.1:26379,10.0.0.2:26379/mymaster"
            )));
        }
        _ => {}
    }
    match field("role").as_deref() {
        Some("replica" | "slave") if part == Part::Watched => Err(RedisFailure::unreachable(
            format!("{shown} is named as master, and is a replica: it is being replaced"),
        )),
        Some("replica" | "slave") => Err(RedisFailure::replica(format!(
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
        match judge("redis://h", part, &hello(version, mode, role)) {
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
