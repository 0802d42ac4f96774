//! The seeded order of faults.

use crate::chance::Chance;
use crate::fault::Fault;
use crate::ground::Kind;

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
pub(crate) fn plan(kind: Kind, seed: u64, millis: u64, hosts: usize) -> Vec<Planned> {
    let mut chance = Chance::new(seed);
    let of_store = Fault::of_store(kind, hosts);
    let mut plan: Vec<Planned> = Vec::new();
    let mut now = 1_000;
    while now < millis {
        let host = usize::try_from(chance.between(0, hosts as u64)).expect("a few hosts");
        let fault = if !of_store.is_empty() && chance.between(0, 4) == 0 {
            chance.one_of(&of_store)
        } else {
            chance.one_of(&Fault::of_host(kind, host))
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
    use crate::ground::KINDS;

    fn of(kind: &str, seed: u64) -> Vec<Planned> {
        plan(Kind::named(kind), seed, 120_000, 3)
    }

    #[test]
    fn a_seed_gives_the_same_plan_again_and_another_seed_another() {
        let text = |seed| format!("{:?}", of("redis", seed));
        assert_eq!(text(1), text(1));
        assert_ne!(text(1), text(2));
    }

    #[test]
    fn a_host_has_one_fault_at_a_time() {
        for (kind, seed) in KINDS
            .iter()
            .flat_map(|kind| (0..20).map(move |seed| (kind, seed)))
        {
            let plan = of(kind, seed);
            assert!(plan.len() > 10, "{plan:?}");
            for (at, one) in plan.iter().enumerate() {
                let clash = plan[at + 1..]
                    .iter()
                    .any(|next| next.fault.host() == one.fault.host() && next.from <= one.until);
                assert!(!clash, "{plan:?}");
            }
        }
    }

    #[test]
    fn every_fault_of_a_kind_is_drawn_sooner_or_later() {
        for kind in KINDS {
            let drawn = (0..200).flat_map(|seed| of(kind, seed));
            let drawn: Vec<Fault> = drawn.map(|planned| planned.fault).collect();
            let kind = Kind::named(kind);
            let hosts = (0..3).flat_map(|host| Fault::of_host(kind, host));
            for fault in hosts.chain(Fault::of_store(kind, 3)) {
                assert!(drawn.contains(&fault), "{fault:?}");
            }
        }
    }
}
