//! The servers that decide for a host, so that hosts with different lists of servers find each other.
//!
//! Two hosts whose lists name different nodes, or one of which names a single server, use two stores:
//! both stores would grant every occurrence. Therefore each host announces which servers it uses. If the
//! two lists share a server, both hosts find the other one's announcement there.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

/// The servers that decide together.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoreNodes {
    /// How many there are.
    pub count: usize,
    /// The `run_id` of each node that replied recently. Empty for a store that is not a majority: a
    /// server with its replicas, or a Cluster.
    pub servers: BTreeSet<String>,
}

impl StoreNodes {
    /// A store that is not a majority of several independent servers.
    pub fn one() -> Self {
        Self {
            count: 1,
            servers: BTreeSet::new(),
        }
    }

    /// Whether these cannot be the same servers. A node that does not reply is unknown, and may be one
    /// that the other host names.
    pub fn differ_from(&self, other: &Self) -> bool {
        self.count != other.count || self.servers.union(&other.servers).count() > self.count
    }

    /// Returns the servers as text that continues "uses".
    pub(crate) fn shown(&self, ours: &Self) -> String {
        let common = self.servers.intersection(&ours.servers).count();
        match self.count {
            1 => "one of these servers alone".to_owned(),
            n if ours.servers.is_empty() => format!("a majority of {n} servers"),
            n => format!("a majority of {n} servers, of which this host's list names {common}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::StoreNodes;

    fn nodes(count: usize, servers: &str) -> StoreNodes {
        StoreNodes {
            count,
            servers: servers.chars().map(String::from).collect(),
        }
    }

    #[test]
    fn lists_differ_when_together_they_name_more_servers_than_each() {
        let all = nodes(3, "abc");
        for same in ["abc", "ab", "a", "ad", "d", "de", ""] {
            let is_known = same.chars().all(|server| "abc".contains(server));
            assert_eq!(all.differ_from(&nodes(3, same)), !is_known, "{same}");
        }
        // A node of which only one of the two had a reply may be the one that the other misses.
        assert!(!nodes(3, "ab").differ_from(&nodes(3, "bc")));
        assert!(nodes(3, "ab").differ_from(&nodes(3, "cd")));
        assert!(all.differ_from(&nodes(5, "abc")));
        assert!(all.differ_from(&StoreNodes::one()));
        assert!(!StoreNodes::one().differ_from(&StoreNodes::one()));
    }
}
