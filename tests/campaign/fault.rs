//! The faults that a campaign draws from, and their seeded order.

use crate::chance::Chance;

/// What can go wrong with one host, or with the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    /// The daemon is stopped in its tracks, then goes on.
    PauseHost(usize),
    /// The daemon is killed, and started again.
    KillHost(usize),
    /// The daemon is told to drain, and started again.
    RestartHost(usize),
    /// What the host sends and gets disappears.
    CutOff(usize),
    /// The host's requests arrive, the answers do not.
    LoseReplies(usize),
    /// The host's connections are refused.
    Refuse(usize),
    /// Everything of the host takes so much longer.
    Slow(usize),
    /// The next answer to the host is cut off, and its connection closed.
    CutReply(usize),
    /// A server of the store does not answer.
    PauseServer(usize),
    /// All connections to a server are closed.
    KillClients(usize),
    /// A server forgets its scripts.
    ForgetScripts(usize),
    /// A server is killed and comes back with nothing.
    LoseServer(usize),
}

impl Fault {
    /// The host it concerns; the others concern all.
    pub(crate) fn host(self) -> Option<usize> {
        match self {
            Self::PauseHost(host)
            | Self::KillHost(host)
            | Self::RestartHost(host)
            | Self::CutOff(host)
            | Self::LoseReplies(host)
            | Self::Refuse(host)
            | Self::Slow(host)
            | Self::CutReply(host) => Some(host),
            Self::PauseServer(_)
            | Self::KillClients(_)
            | Self::ForgetScripts(_)
            | Self::LoseServer(_) => None,
        }
    }

    /// How long it lasts at the least and at the most, in milliseconds. Around the TTL of the
    /// campaign's jobs: some of each kind are shorter than a lease, some longer.
    fn lasts(self) -> (u64, u64) {
        match self {
            Self::CutReply(_) | Self::KillClients(_) | Self::ForgetScripts(_) => (10, 11),
            Self::KillHost(_) | Self::RestartHost(_) | Self::LoseServer(_) => (100, 2_000),
            Self::PauseServer(_) => (300, 4_500),
            _ => (300, 6_000),
        }
    }
}

/// One fault of a plan.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Planned {
    pub(crate) fault: Fault,
    /// Milliseconds from the start of the campaign.
    pub(crate) from: u64,
    pub(crate) until: u64,
}

/// The plan of a campaign: what a seed makes of so many milliseconds.
///
/// At most one fault of a host and one of the store at a time; now and then all is left alone for
/// long enough that something may be asked of the fleet.
pub(crate) fn plan(
    seed: u64,
    millis: u64,
    hosts: usize,
    of_store: &[Fault],
    net: bool,
) -> Vec<Planned> {
    let mut chance = Chance::new(seed);
    let mut plan: Vec<Planned> = Vec::new();
    let mut now = 1_000;
    while now < millis {
        let host = usize::try_from(chance.between(0, hosts as u64)).expect("a few hosts");
        let mut of_host = vec![
            Fault::PauseHost(host),
            Fault::KillHost(host),
            Fault::RestartHost(host),
        ];
        if net {
            of_host.extend([
                Fault::CutOff(host),
                Fault::LoseReplies(host),
                Fault::Refuse(host),
                Fault::Slow(host),
                Fault::CutReply(host),
            ]);
        }
        let fault = if !of_store.is_empty() && chance.between(0, 4) == 0 {
            chance.one_of(of_store)
        } else {
            chance.one_of(&of_host)
        };
        let (least, most) = fault.lasts();
        let until = now + chance.between(least, most);
        let busy = plan
            .iter()
            .any(|other| other.until >= now && other.fault.host() == fault.host());
        if !busy {
            plan.push(Planned {
                fault,
                from: now,
                until,
            });
        }
        now += match chance.between(0, 6) {
            0 => 9_000,
            _ => chance.between(200, 1_500),
        };
    }
    plan
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_gives_the_same_plan_again_and_another_seed_another() {
        let text = |seed| {
            format!(
                "{:?}",
                plan(seed, 60_000, 3, &[Fault::PauseServer(0)], true)
            )
        };
        assert_eq!(text(1), text(1));
        assert_ne!(text(1), text(2));
    }

    #[test]
    fn a_host_has_one_fault_at_a_time() {
        for seed in 0..50 {
            let plan = plan(
                seed,
                120_000,
                3,
                &[Fault::PauseServer(0), Fault::KillClients(1)],
                true,
            );
            assert!(plan.len() > 10, "{plan:?}");
            for (at, one) in plan.iter().enumerate() {
                let clash = plan[at + 1..]
                    .iter()
                    .any(|next| next.fault.host() == one.fault.host() && next.from <= one.until);
                assert!(!clash, "{plan:?}");
            }
        }
    }
}
