//! Which servers a host lets decide, so that hosts whose lists name other ones notice each other.
//!
//! Two lists of which one names other servers of a majority than the other, or a single server
//! instead, make two stores: each would grant every occurrence. Hosts that announce themselves say
//! which servers they use; where the two lists have a server in common, they find each other there.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

/// The servers that decide together.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoreNodes {
    /// How many there are.
    pub count: usize,
    /// The `run_id` of each one that answered a moment ago; none for a store that is one, be it a
    /// server with its replicas or a Cluster.
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

    /// Whether these cannot be the same servers. Which ones do not answer is not known: they may
    /// be those that the other names.
    pub fn differ_from(&self, other: &Self) -> bool {
        self.count != other.count || self.servers.union(&other.servers).count() > self.count
    }

    /// In words, after "uses".
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
