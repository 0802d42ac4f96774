//! What a server reports about itself.

use std::collections::HashMap;
use std::time::Duration;

use super::rights::{self, Rights};
use crate::store::redis::{Inspector, NoAnswer};
use crate::store::{RedisSettings, StoreError};
use crate::time::BootInstant;

/// The settings that the looks read.
const SETTINGS: [&str; 10] = [
    "appendfsync",
    "cluster-allow-replica-migration",
    "cluster-migration-barrier",
    "cluster-node-timeout",
    "cluster-require-full-coverage",
    "min-replicas-to-write",
    "min-replicas-max-lag",
    "min-slaves-to-write",
    "min-slaves-max-lag",
    "save",
];

/// All facts of a server.
#[derive(Debug, Default)]
pub(super) struct Facts {
    /// The server, without its password.
    pub(super) shown: String,
    /// How many replicas a claim waits for.
    pub(super) wait_replicas: u32,
    info: HashMap<String, String>,
    /// Empty where the user may not ask.
    config: HashMap<String, String>,
    /// What the user may do; `None` when it could not be asked.
    pub(super) rights: Option<Rights>,
    /// The typical round trip.
    pub(super) round_trip: Duration,
}

impl Facts {
    /// Asks a server.
    pub(super) async fn of(
        settings: &RedisSettings,
        raw_keys: &[String],
    ) -> Result<Self, StoreError> {
        let mut server = Inspector::connect(settings).await?;
        let mut facts = Self {
            shown: settings.shown(),
            wait_replicas: settings.wait_replicas,
            ..Self::default()
        };
        for section in ["server", "memory", "persistence", "replication"] {
            match server.info(section).await {
                Ok(text) => facts.info.extend(pairs(&text)),
                Err(NoAnswer::Denied) => break,
                Err(NoAnswer::Failed(error)) => return Err(error),
            }
        }
        for name in SETTINGS {
            match server.texts(&["CONFIG", "GET", name]).await {
                Ok(words) => {
                    if let [name, value] = words.as_slice() {
                        facts.config.insert(name.clone(), value.clone());
                    }
                }
                // Managed services know no CONFIG at all.
                Err(NoAnswer::Denied | NoAnswer::Failed(StoreError::Refused(_))) => break,
                Err(NoAnswer::Failed(error)) => return Err(error),
            }
        }
        let place = match facts.info("redis_mode") {
            Some("cluster") => rights::ServerKind::InCluster,
            _ => rights::ServerKind::Alone,
        };
        facts.rights = Some(rights::ask(&mut server, settings, place, raw_keys).await?);
        facts.round_trip = round_trip(&mut server).await?;
        Ok(facts)
    }

    /// A field of INFO.
    pub(super) fn info(&self, name: &str) -> Option<&str> {
        self.info.get(name).map(String::as_str)
    }

    /// A field of INFO that is a number.
    pub(super) fn number(&self, name: &str) -> Option<u64> {
        self.info(name)?.parse().ok()
    }

    /// A setting, if the user may ask.
    pub(super) fn setting(&self, name: &str) -> Option<&str> {
        self.config.get(name).map(String::as_str)
    }

    #[cfg(test)]
    pub(super) fn forged(info: &[(&str, &str)], config: &[(&str, &str)]) -> Self {
        let owned = |pairs: &[(&str, &str)]| {
            pairs
                .iter()
                .map(|(k, v)| ((*k).to_owned(), (*v).to_owned()))
                .collect()
        };
        Self {
            shown: "redis://h".to_owned(),
            info: owned(info),
            config: owned(config),
            ..Self::default()
        }
    }
}

fn pairs(text: &str) -> impl Iterator<Item = (String, String)> {
    text.lines().filter_map(|line| {
        let (name, value) = line.trim_end().split_once(':')?;
        Some((name.to_owned(), value.to_owned()))
    })
}

/// The median of five.
async fn round_trip(server: &mut Inspector) -> Result<Duration, StoreError> {
    let mut times = Vec::new();
    for _ in 0..5 {
        let sent = BootInstant::now();
        match server.ask(&["PING"]).await {
            Ok(_) | Err(NoAnswer::Denied) => times.push(BootInstant::now().since(sent)),
            // A reply as well: a server that cannot save its data to disk rejects even this.
            Err(NoAnswer::Failed(error)) if error.takes_no_writes() => {
                times.push(BootInstant::now().since(sent));
            }
            Err(NoAnswer::Failed(error)) => return Err(error),
        }
    }
    times.sort();
    Ok(times.get(times.len() / 2).copied().unwrap_or_default())
}
