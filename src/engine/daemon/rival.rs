//! A host, or a daemon of this host, that uses another store.

use crate::siblings::Sibling;
use crate::store::{HostInfo, HostReport, StoreNodes};

/// A live host, or a daemon of this one, that uses another store, and what to say of it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Rival {
    pub(super) who: String,
    pub(super) uses: String,
    pub(super) waits: bool,
}

impl Rival {
    /// The hosts other than `me` that use other servers.
    pub(super) fn all(me: &HostInfo, hosts: &[HostReport]) -> Vec<Self> {
        let Some(ours) = &me.nodes else {
            return Vec::new();
        };
        let differs = |theirs: &&StoreNodes| ours.differ_from(theirs);
        let rival = |report: &HostReport| {
            let theirs = report.info.nodes.as_ref().filter(differs)?;
            Some(Self {
                who: who(&report.info),
                uses: theirs.shown(ours),
                waits: report.info.waits.is_some(),
            })
        };
        let others = hosts.iter().filter(|report| report.info.host != me.host);
        others.filter_map(rival).collect()
    }

    /// The daemon of this host, if it uses another store.
    pub(super) fn of_sibling(sibling: &Sibling) -> Option<Self> {
        sibling.differs.then(|| Self {
            who: sibling.who(),
            uses: sibling.uses(),
            waits: sibling.waits,
        })
    }

    pub(super) fn text(&self) -> String {
        format!("{} uses {}", self.who, self.uses)
    }
}

/// How a host is named to people.
pub(super) fn who(host: &HostInfo) -> String {
    format!("host {}", host.host)
}
