//! Jobs that a host holds back: another host uses another lock for them, or their ledger cannot be moved
//! to the new lock yet.

use std::time::Duration;

use crate::names::{HostName, JobName};
use crate::store::relocate::Relocated;
use crate::store::{HeldJob, HostReport, Lock, LockId};

/// Why a job is held back.
#[derive(Debug, Clone)]
pub(super) struct HeldBack {
    /// The lock of this host's list.
    pub(super) lock: LockId,
    pub(super) why: HoldReason,
}

/// What a job that is held back waits for.
#[derive(Debug, Clone)]
pub(super) enum HoldReason {
    /// These hosts live and use other locks.
    Hosts(Vec<(HostName, LockId)>),
    /// A run under another lock is still in progress.
    Run { lock: Lock, host: String },
    /// The store may have lost data. The ledger moves after this time at the earliest.
    Recovering(Duration),
    /// This host's clock is wrong, and it would take over a ledger of the whole fleet for itself, but claim
    /// nothing of what waits there.
    Clock,
    /// The ledgers cannot be read or moved now.
    Store(String),
}

impl HeldBack {
    /// What the job waits for, in plain words.
    fn reason(&self) -> String {
        match &self.why {
            HoldReason::Hosts(users) => {
                let users: Vec<_> = users
                    .iter()
                    .map(|(host, lock)| format!("{host} still uses {}", lock.shown()))
                    .collect();
                users.join(", ")
            }
            HoldReason::Run { lock, host } => {
                format!("a run on {host} still holds the lock {}", lock.name)
            }
            HoldReason::Recovering(left) => format!(
                "the store may have lost data: the ledger moves in {:.0} s at the earliest",
                left.as_secs_f64().ceil()
            ),
            HoldReason::Clock => "this host's clock is wrong, so it leaves what waits in the \
                                  ledger of the fleet to other hosts"
                .to_owned(),
            HoldReason::Store(error) => format!("its ledger cannot be moved now: {error}"),
        }
    }

    /// What the job waits for, what follows for this host, and what to do about it.
    pub(super) fn log_text(&self) -> String {
        let reason = self.reason();
        match &self.why {
            HoldReason::Hosts(users) => {
                let hosts: Vec<_> = users.iter().map(|(host, _)| host.to_string()).collect();
                format!(
                    "{reason}, so this host does not run the job. Start {} with this list",
                    hosts.join(", ")
                )
            }
            HoldReason::Run { .. } | HoldReason::Recovering(_) => {
                format!("{reason}, so this host does not run the job yet. This resolves itself")
            }
            HoldReason::Clock => {
                format!("{reason} and does not run the job yet. Correct the clock (NTP)")
            }
            HoldReason::Store(error) => format!(
                "its ledger cannot be moved now, so this host does not run the job yet; retrying: \
                 {error}"
            ),
        }
    }

    pub(super) fn held_job(&self, job: &JobName) -> HeldJob {
        let hosts = match &self.why {
            HoldReason::Hosts(users) => users.iter().map(|(host, _)| host.to_string()).collect(),
            _ => Vec::new(),
        };
        HeldJob {
            job: job.to_string(),
            lock: self.lock.shown(),
            hosts,
            reason: self.reason(),
        }
    }

    /// What a move of the ledger to `lock` waits for; `None` if the ledger is there.
    pub(super) fn of(lock: &LockId, relocated: Relocated) -> Option<Self> {
        let why = match relocated {
            Relocated::Home { .. } => return None,
            Relocated::Leased { lock, by, .. } => HoldReason::Run { lock, host: by },
            Relocated::Recovering { remaining } => HoldReason::Recovering(remaining),
            Relocated::Contended => HoldReason::Store("other hosts are moving it too".to_owned()),
        };
        Some(Self {
            lock: lock.clone(),
            why,
        })
    }
}

/// Another host that holds a job back because this one uses another lock.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Neighbour {
    pub(super) host: String,
    pub(super) job: String,
    pub(super) lock: String,
}

impl Neighbour {
    /// Those that wait for `host`.
    pub(super) fn of(host: &HostName, hosts: &[HostReport]) -> Vec<Self> {
        let waits = |held: &&HeldJob| held.hosts.iter().any(|other| *other == host.as_str());
        let of_one = |report: &HostReport| {
            let held = report.info.held_back.iter().filter(waits);
            let neighbour = |held: &HeldJob| Self {
                host: report.info.host.to_string(),
                job: held.job.clone(),
                lock: held.lock.clone(),
            };
            held.map(neighbour).collect::<Vec<_>>()
        };
        hosts.iter().flat_map(of_one).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::names::LockName;

    fn text(why: HoldReason) -> String {
        let lock = LockId::Fleet("new".into());
        HeldBack { lock, why }.log_text()
    }

    #[test]
    fn each_reason_says_what_follows_and_whether_somebody_must_act() {
        let host = |name| HostName::parse(name).expect("a name");
        let old = LockId::Fleet("old".into());
        let users = vec![(host("w1"), old.clone()), (host("w2"), old)];
        let hosts = text(HoldReason::Hosts(users));
        assert!(hosts.starts_with("w1 still uses "), "{hosts}");
        assert!(
            hosts.ends_with(", so this host does not run the job. Start w1, w2 with this list"),
            "{hosts}"
        );
        assert_eq!(
            text(HoldReason::Run {
                lock: Lock::named(&LockName::parse("old").expect("a name")),
                host: "w1".to_owned(),
            }),
            "a run on w1 still holds the lock old, so this host does not run the job yet. This \
             resolves itself"
        );
        let recovering = text(HoldReason::Recovering(Duration::from_millis(11_500)));
        assert!(
            recovering.contains("in 12 s at the earliest, so"),
            "{recovering}"
        );
        let store = text(HoldReason::Store("no reply".to_owned()));
        assert!(store.ends_with("retrying: no reply"), "{store}");
    }
}
