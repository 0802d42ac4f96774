//! The description that a server gives of itself (`HELLO`), and whether it can be the store. It
//! decides by version, mode and role.

use redis::Value;
use redis::aio::MultiplexedConnection;

use crate::store::redis::failure::RedisFailure;

/// The oldest version whose scripts have flags.
pub(super) const OLDEST: (u32, u32) = (7, 0);

/// The role of a server in the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::store::redis) enum Part {
    /// It is the whole store.
    Alone,
    /// It is the master according to its Sentinels; a replica may take its place.
    Watched,
    /// It belongs to a Cluster, as primary or replica.
    InCluster,
}

impl Part {
    /// Returns its name in messages.
    pub(super) fn called(self) -> &'static str {
        match self {
            Self::Alone | Self::Watched => "the store",
            Self::InCluster => "a server of the store",
        }
    }
}

/// The reply to `HELLO`, which any user may send.
#[derive(Debug, Default)]
pub(in crate::store::redis) struct Hello {
    version: String,
    /// `standalone`, `sentinel` or `cluster`.
    mode: String,
    /// `master`, or `replica` by one of its names.
    role: String,
}

impl Hello {
    /// Sends `HELLO`. `shown` is the URL of the server without password.
    pub(in crate::store::redis) async fn ask(
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

    pub(in crate::store::redis) fn is_sentinel(&self) -> bool {
        self.mode == "sentinel"
    }

    pub(super) fn is_replica(&self) -> bool {
        matches!(self.role.as_str(), "replica" | "slave")
    }
}

/// Checks whether a server can be the store.
pub(super) fn judge(shown: &str, part: Part, hello: &Hello) -> Result<(), RedisFailure> {
    let version = &hello.version;
    let mut numbers = version.split('.').map(|n| n.parse().unwrap_or(0));
    let number = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    // Valkey began at 7.2 and reports its own version.
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
                "{shown} does not belong to a Redis Cluster: write redis:// instead of redis+cluster://"
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
            "{shown} is named as master, but is a replica: a failover is under way"
        ))),
        _ if hello.is_replica() => Err(RedisFailure::replica(format!(
            "{shown} is a read-only replica: write the URL of its master"
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
        assert!(judged_as(Part::InCluster, "7.0.0", "standalone", "master").contains("redis://"));
        assert!(judged("7.0.0", "standalone", "replica").contains("replica"));
    }
}
