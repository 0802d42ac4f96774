//! The map of a Cluster: which server serves which slot. It is pure data; the
//! [`router`](super::router) keeps it current.

use std::fmt;

use redis::Value;

use super::slot::SLOTS;
use crate::store::RedisSettings;
use crate::store::redis::codec::reply::{Items, integer, text};
use crate::store::redis::failure::RedisFailure;

/// How a Cluster is laid out, for `doctor`.
#[derive(Debug)]
pub(crate) struct Layout {
    /// The servers that serve slots.
    pub(crate) primaries: Vec<RedisSettings>,
    /// How many slots no server serves.
    pub(crate) unserved: usize,
    /// Whether its servers report `cluster_state:ok`.
    pub(crate) in_order: bool,
}

/// The address of a server.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Address {
    pub(super) host: String,
    pub(super) port: u16,
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.host.contains(':') {
            write!(f, "[{}]:{}", self.host, self.port)
        } else {
            write!(f, "{}:{}", self.host, self.port)
        }
    }
}

impl Address {
    /// Reads the `HOST:PORT` of a redirect. A server that does not know its own address omits the host,
    /// which then is that of the server that was asked.
    pub(super) fn read(text: &str, asked: &Self) -> Option<Self> {
        let (host, port) = text.rsplit_once(':')?;
        Some(Self::known(host, port.parse().ok()?, asked))
    }

    fn known(host: &str, port: u16, asked: &Self) -> Self {
        let host = if host.is_empty() || host == "?" {
            asked.host.clone()
        } else {
            host.to_owned()
        };
        Self { host, port }
    }
}

/// One server's map of the slots.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct SlotMap {
    /// For each slot, the position of its primary in `servers`.
    owners: Vec<Option<u16>>,
    /// The primaries in the order of the map, then servers that redirects named.
    servers: Vec<Address>,
    replicas: Vec<Address>,
    /// How far the map can be trusted.
    pub(super) trust: MapTrust,
}

/// How far a map can be trusted. Of two maps the greater one is used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct MapTrust {
    /// Whether the server finds the Cluster in order (`cluster_state:ok`).
    pub(super) in_order: bool,
    /// `cluster_current_epoch`: grows with every failover.
    pub(super) epoch: u64,
}

impl MapTrust {
    /// Reads the reply to `CLUSTER INFO`.
    pub(super) fn read(info: &str) -> Self {
        let field = |name: &str| {
            info.lines()
                .find_map(|line| line.strip_prefix(name))
                .map(str::trim)
        };
        Self {
            in_order: field("cluster_state:") == Some("ok"),
            epoch: field("cluster_current_epoch:")
                .and_then(|epoch| epoch.parse().ok())
                .unwrap_or(0),
        }
    }
}

impl SlotMap {
    /// Reads the reply of the server at `asked` to `CLUSTER SLOTS`.
    pub(super) fn read(
        reply: Value,
        asked: &Address,
        trust: MapTrust,
    ) -> Result<Self, RedisFailure> {
        let mut map = Self {
            owners: vec![None; usize::from(SLOTS)],
            servers: Vec::new(),
            replicas: Vec::new(),
            trust,
        };
        let mut ranges = Items::of(reply)?;
        while !ranges.is_empty() {
            let mut range = Items::of(ranges.next()?)?;
            let (from, until) = (slot(&range.next()?)?, slot(&range.next()?)?);
            let Some(primary) = server(range.next()?, asked)? else {
                continue;
            };
            let owner = map.position(primary);
            for slot in from..=until {
                map.owners[usize::from(slot)] = Some(owner);
            }
            while !range.is_empty() {
                map.replicas.extend(server(range.next()?, asked)?);
            }
        }
        Ok(map)
    }

    fn position(&mut self, address: Address) -> u16 {
        let at = self
            .servers
            .iter()
            .position(|known| *known == address)
            .unwrap_or_else(|| {
                self.servers.push(address);
                self.servers.len() - 1
            });
        // A Cluster has at most as many servers as slots.
        u16::try_from(at).unwrap_or(u16::MAX)
    }

    /// Returns the server that serves the slot.
    pub(super) fn owner(&self, slot: u16) -> Option<&Address> {
        let owner = *self.owners.get(usize::from(slot))?;
        self.servers.get(usize::from(owner?))
    }

    /// Notes the server that `MOVED` named for a slot.
    pub(super) fn moved(&mut self, slot: u16, to: Address) {
        let owner = self.position(to);
        if let Some(kept) = self.owners.get_mut(usize::from(slot)) {
            *kept = Some(owner);
        }
    }

    /// The servers that serve slots.
    pub(super) fn primaries(&self) -> Vec<Address> {
        let mut serving: Vec<u16> = self.owners.iter().flatten().copied().collect();
        serving.sort_unstable();
        serving.dedup();
        serving
            .into_iter()
            .filter_map(|at| self.servers.get(usize::from(at)).cloned())
            .collect()
    }

    pub(super) fn replicas(&self) -> &[Address] {
        &self.replicas
    }

    /// How many slots no server serves.
    pub(super) fn unserved(&self) -> usize {
        self.owners.iter().filter(|owner| owner.is_none()).count()
    }

    /// Whether no server serves some slot.
    pub(super) fn has_gap(&self) -> bool {
        self.unserved() > 0
    }
}

fn slot(value: &Value) -> Result<u16, RedisFailure> {
    u16::try_from(integer(value)?)
        .ok()
        .filter(|slot| *slot < SLOTS)
        .ok_or_else(|| RedisFailure::corrupt(format!("CLUSTER SLOTS names the slot {value:?}")))
}

/// Reads `[host, port, id, …]`; `None` for a server without an address.
fn server(value: Value, asked: &Address) -> Result<Option<Address>, RedisFailure> {
    let mut items = Items::of(value)?;
    let host = match items.next()? {
        Value::Nil => String::new(),
        host => text(host)?,
    };
    let port = u16::try_from(integer(&items.next()?)?).unwrap_or(0);
    Ok((port != 0).then(|| Address::known(&host, port, asked)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked() -> Address {
        Address {
            host: "10.0.0.1".to_owned(),
            port: 6379,
        }
    }

    fn bulk(text: &str) -> Value {
        Value::BulkString(text.as_bytes().to_vec())
    }

    fn node(host: Value, port: i64) -> Value {
        Value::Array(vec![
            host,
            Value::Int(port),
            bulk("id"),
            Value::Array(vec![]),
        ])
    }

    fn map() -> SlotMap {
        let reply = Value::Array(vec![
            Value::Array(vec![
                Value::Int(0),
                Value::Int(99),
                node(bulk("10.0.0.2"), 1),
                node(bulk("10.0.0.3"), 2),
            ]),
            Value::Array(vec![
                Value::Int(100),
                Value::Int(16382),
                node(Value::Nil, 3),
            ]),
        ]);
        let trust = MapTrust::read("cluster_state:ok\r\ncluster_current_epoch:7\r\n");
        SlotMap::read(reply, &asked(), trust).expect("a map")
    }

    #[test]
    fn every_slot_has_its_owner_and_what_is_served_by_none_is_known() {
        let map = map();
        assert_eq!(
            map.owner(0).map(ToString::to_string).as_deref(),
            Some("10.0.0.2:1")
        );
        assert_eq!(map.owner(99).map(|a| a.port), Some(1));
        // A server that does not know its own host has the address at which it was asked.
        assert_eq!(
            map.owner(100).map(ToString::to_string).as_deref(),
            Some("10.0.0.1:3")
        );
        assert_eq!(map.owner(16383), None);
        assert!(map.has_gap());
        assert_eq!(map.primaries().len(), 2);
        assert_eq!(map.replicas().len(), 1);
    }

    #[test]
    fn a_redirect_moves_one_slot() {
        let mut map = map();
        let to = Address::read(":9", &asked()).expect("an address");
        map.moved(5, to.clone());
        assert_eq!(map.owner(5), Some(&to));
        assert_eq!(map.owner(6).map(|a| a.port), Some(1));
        assert_eq!(to.host, "10.0.0.1");
        let v6 = Address::read("fe80::1:7", &asked()).expect("an address");
        assert_eq!(v6.to_string(), "[fe80::1]:7");
    }

    #[test]
    fn a_server_that_sees_no_majority_is_believed_less_than_one_that_does() {
        let torn = MapTrust::read("cluster_state:fail\r\ncluster_current_epoch:9\r\n");
        assert!(torn < map().trust);
        assert!(map().trust < MapTrust::read("cluster_state:ok\ncluster_current_epoch:8\n"));
    }
}
