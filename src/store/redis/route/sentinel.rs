//! Asks the Sentinels which server is master.
//!
//! This is written by hand because the client library believes the first Sentinel that replies. Here
//! all are asked at once, a majority of those that are configured must reply, and the newest
//! configuration among the replies counts: a Sentinel that was cut off together with the old master is
//! outvoted or has an older configuration. The link checks the role of the server when it connects, and
//! asks the Sentinels again every second.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Value};
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::ground::tasks::SpawnBoxed as _;
use crate::store::redis::conn::connect::{CONNECT_TIMEOUT, open};
use crate::store::redis::conn::hello::Hello;
use crate::store::redis::conn::link::ServerSource;
use crate::store::redis::conn::other_encryption::KnownFailure;
use crate::store::redis::failure::RedisFailure;
use crate::store::{RedisSettings, SentinelSettings, StoreError};

/// How long one Sentinel may take to reply.
const ANSWER_LIMIT: Duration = Duration::from_millis(500);
/// How long the other Sentinels have after a majority has replied.
const STRAGGLERS: Duration = Duration::from_millis(100);

/// The Sentinels of one master.
#[derive(Debug)]
pub(super) struct Sentinels {
    settings: SentinelSettings,
    all: Vec<Arc<Sentinel>>,
    /// The master that was named last.
    known: Mutex<Option<RedisSettings>>,
}

#[derive(Debug)]
struct Sentinel {
    settings: RedisSettings,
    master: String,
    connection: tokio::sync::Mutex<Option<MultiplexedConnection>>,
}

/// The reply of a Sentinel.
#[derive(Debug, Clone, PartialEq, Eq)]
enum MasterReport {
    /// The address of the master.
    Master(MasterVote),
    /// It does not know a master of this name. The masters that it knows.
    Unknown(Vec<String>),
}

/// The address of a master, and the epoch of the configuration that names it.
#[derive(Debug, Clone, PartialEq, Eq)]
struct MasterVote {
    host: String,
    port: u16,
    epoch: u64,
}

/// Returns the settings of the master that the Sentinels name now.
pub(crate) async fn master_of(settings: &SentinelSettings) -> Result<RedisSettings, StoreError> {
    Ok(Sentinels::new(settings).master().await?)
}

impl Sentinels {
    pub(super) fn new(settings: &SentinelSettings) -> Arc<Self> {
        let sentinels = settings.sentinels.iter().map(|sentinel| {
            Arc::new(Sentinel {
                settings: sentinel.clone(),
                master: settings.master.clone(),
                connection: tokio::sync::Mutex::default(),
            })
        });
        Arc::new(Self {
            all: sentinels.collect(),
            settings: settings.clone(),
            known: Mutex::default(),
        })
    }

    /// Returns the server that is master now.
    async fn master(&self) -> Result<RedisSettings, RedisFailure> {
        let named = self.ask().await?;
        let master = self.settings_of(&named);
        let before = self.known().replace(master.clone());
        if let Some(before) = before.filter(|before| before.endpoint != master.endpoint) {
            tracing::warn!(
                "Sentinel master {} has moved from {} to {}",
                self.settings.master,
                before.shown(),
                master.shown()
            );
        }
        Ok(master)
    }

    async fn ask(&self) -> Result<MasterVote, RedisFailure> {
        let needed = self.all.len() / 2 + 1;
        let mut asked = JoinSet::new();
        for sentinel in &self.all {
            let sentinel = Arc::clone(sentinel);
            asked.spawn_boxed(async move { sentinel.ask().await });
        }
        let mut named = Vec::new();
        let mut others = Vec::new();
        let mut unknown = 0;
        let mut failures = Vec::new();
        let mut until = Instant::now() + ANSWER_LIMIT + STRAGGLERS;
        while let Ok(Some(reply)) = tokio::time::timeout_at(until, asked.join_next()).await {
            match reply {
                Ok(Ok(MasterReport::Master(master))) => named.push(master),
                Ok(Ok(MasterReport::Unknown(known))) => {
                    unknown += 1;
                    others.extend(known);
                }
                Ok(Err(failure)) => failures.push(failure),
                // The runtime is ending.
                Err(_) => {}
            }
            if named.len() == needed {
                until = until.min(Instant::now() + STRAGGLERS);
            }
        }
        if named.len() >= needed
            && let Some(newest) = newest(&named)
        {
            return Ok(newest.clone());
        }
        if unknown > 0 && named.is_empty() {
            return Err(self.unknown_master(others));
        }
        Err(self.too_few(named.len(), needed, &failures))
    }

    fn unknown_master(&self, mut others: Vec<String>) -> RedisFailure {
        others.sort();
        others.dedup();
        let known = if others.is_empty() {
            "none".to_owned()
        } else {
            others.join(", ")
        };
        RedisFailure::refused(format!(
            "the Sentinels know no master named {:?}; they know: {known}",
            self.settings.master
        ))
    }

    fn too_few(&self, count: usize, needed: usize, failures: &[RedisFailure]) -> RedisFailure {
        let all = self.all.len();
        let refusal = failures.iter().find(|failure| !failure.is_outage());
        let why = refusal.or(failures.first()).map_or_else(
            || format!("no reply within {ANSWER_LIMIT:?}"),
            |failure| failure.text().to_owned(),
        );
        let text = format!(
            "{count} of {all} Sentinels name the master {}, {needed} must: {why}",
            self.settings.master
        );
        let detail = match refusal.or(failures.first()) {
            Some(failure) => failure.detail().reworded(text),
            None => text.into(),
        };
        if refusal.is_some() {
            RedisFailure::refused(detail)
        } else {
            RedisFailure::unreachable(detail)
        }
    }

    fn settings_of(&self, named: &MasterVote) -> RedisSettings {
        self.settings.servers.at(&named.host, named.port)
    }

    /// The master that was named last.
    pub(super) fn last_named(&self) -> Option<RedisSettings> {
        self.known().clone()
    }

    fn known(&self) -> MutexGuard<'_, Option<RedisSettings>> {
        // No code that holds the guard can panic in the middle of a change.
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[async_trait]
impl ServerSource for Sentinels {
    async fn server(&self) -> Result<RedisSettings, RedisFailure> {
        self.master().await
    }
}

/// Returns the address that most of the Sentinels with the newest configuration name.
fn newest(named: &[MasterVote]) -> Option<&MasterVote> {
    let epoch = named.iter().map(|named| named.epoch).max()?;
    let newest = || named.iter().filter(|named| named.epoch == epoch);
    newest().max_by_key(|one| newest().filter(|other| other == one).count())
}

impl Sentinel {
    async fn ask(&self) -> Result<MasterReport, RedisFailure> {
        let mut kept = self.connection.lock().await;
        let known = KnownFailure::default();
        let asked = async {
            let mut connection = match kept.take() {
                Some(connection) => connection,
                None => self.connect(&known).await?,
            };
            let said = self.ask_on(&mut connection).await?;
            Ok::<_, RedisFailure>((said, connection))
        };
        match tokio::time::timeout(ANSWER_LIMIT, asked).await {
            Ok(Ok((said, connection))) => {
                *kept = Some(connection);
                Ok(said)
            }
            Ok(Err(failure)) => Err(failure),
            Err(_) => Err(known.or_late(format!(
                "{}: no reply within {ANSWER_LIMIT:?}",
                self.settings.shown()
            ))),
        }
    }

    async fn connect(&self, known: &KnownFailure) -> Result<MultiplexedConnection, RedisFailure> {
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(None)
            .set_response_timeout(Some(CONNECT_TIMEOUT));
        let mut connection = open(&self.settings, known, &config).await?;
        let shown = self.settings.shown();
        if Hello::ask(&shown, &mut connection).await?.is_sentinel() {
            Ok(connection)
        } else {
            Err(RedisFailure::refused(format!(
                "{shown} is not a Sentinel: write the host and the port of the Sentinels (usually \
                 26379)"
            )))
        }
    }

    async fn ask_on(
        &self,
        connection: &mut MultiplexedConnection,
    ) -> Result<MasterReport, RedisFailure> {
        let ask = |what: &str| {
            let mut command = redis::cmd("SENTINEL");
            command.arg(what);
            command
        };
        let address: Option<(String, u16)> = ask("GET-MASTER-ADDR-BY-NAME")
            .arg(&self.master)
            .query_async(connection)
            .await
            .map_err(|e| self.failure(&e))?;
        let Some((host, port)) = address else {
            // Only for the message. The user may not be allowed to send this.
            let others = ask("MASTERS").query_async::<Value>(connection).await;
            return Ok(MasterReport::Unknown(names(others.ok())));
        };
        let about = ask("MASTER")
            .arg(&self.master)
            .query_async::<Value>(connection)
            .await
            .map_err(|e| self.failure(&e))?;
        let epoch = field(about, "config-epoch").and_then(|epoch| epoch.parse().ok());
        Ok(MasterReport::Master(MasterVote {
            host,
            port,
            epoch: epoch.unwrap_or(0),
        }))
    }

    fn failure(&self, error: &redis::RedisError) -> RedisFailure {
        RedisFailure::of(&self.settings.shown(), error)
    }
}

/// Returns the names of the masters in a reply to `SENTINEL MASTERS`.
fn names(masters: Option<Value>) -> Vec<String> {
    let masters: Vec<Value> = masters
        .and_then(|masters| redis::from_redis_value(masters).ok())
        .unwrap_or_default();
    masters
        .into_iter()
        .filter_map(|master| field(master, "name"))
        .collect()
}

/// Returns a field of a map, or of a list of names and values.
fn field(value: Value, name: &str) -> Option<String> {
    let mut fields: std::collections::HashMap<String, String> =
        redis::from_redis_value(value).ok()?;
    fields.remove(name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::Endpoint;

    fn named(host: &str, epoch: u64) -> MasterVote {
        MasterVote {
            host: host.to_owned(),
            port: 6379,
            epoch,
        }
    }

    fn picked(named: &[MasterVote]) -> &str {
        newest(named).map_or("", |named| named.host.as_str())
    }

    #[test]
    fn the_newest_configuration_counts_however_many_know_an_old_one() {
        assert_eq!(picked(&[]), "");
        assert_eq!(picked(&[named("a", 1), named("a", 1), named("b", 2)]), "b");
        assert_eq!(picked(&[named("b", 2), named("a", 1), named("b", 2)]), "b");
        assert_eq!(picked(&[named("a", 1), named("b", 1), named("b", 1)]), "b");
    }

    #[test]
    fn the_master_is_entered_as_configured_wherever_it_is() {
        let settings = crate::store::check_url("rediss+sentinel://u:p@s/m/3");
        let Ok(crate::store::StoreSettings::Sentinel(settings)) = settings else {
            panic!("{settings:?}");
        };
        let sentinels = Sentinels::new(&settings);
        let endpoint = |host: &str| sentinels.settings_of(&named(host, 0)).endpoint;
        let expected = |url| Endpoint::parse(url).expect("a sound URL");
        assert_eq!(
            endpoint("10.0.0.1"),
            expected("rediss://u:p@10.0.0.1:6379/3")
        );
        assert_eq!(endpoint("::1"), expected("rediss://u:p@[::1]:6379/3"));
    }
}
