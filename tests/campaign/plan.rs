//! The seeded order of faults.

use crate::chance::Chance;
use crate::fault::Fault;
use crate::ground::Kind;

/// How long all others have their time before one that is aimed, in milliseconds.
const AIMED: u64 = 9_000;

/// How long the fleet then has for itself, to run and hold what the aimed fault is aimed at.
const SETTLED: u64 = 2_500;

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
/// long enough that something may be asked of the fleet. What is aimed comes by turns, and alone.
pub(crate) fn plan(kind: Kind, seed: u64, millis: u64, hosts: usize) -> Vec<Planned> {
    let mut chance = Chance::new(seed);
    let of_store = Fault::of_store(kind, hosts);
    let mut plan: Vec<Planned> = Vec::new();
    let mut aimed = in_turn(kind, seed);
    let mut next_aimed = AIMED;
    let mut now = 1_000;
    while now < millis {
        if now >= next_aimed {
            let until = plan.iter().map(|other| other.until).max().unwrap_or(0);
            let from = now.max(until) + SETTLED;
            let fault = aimed.next().expect("they come round again");
            let until = from + fault.lasts().0;
            plan.push(Planned { fault, from, until });
            now = until + 1;
            next_aimed = now + AIMED;
            continue;
        }
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

/// The aimed faults over and over; the seed says with which it begins.
fn in_turn(kind: Kind, seed: u64) -> impl Iterator<Item = Fault> {
    let all = Fault::aimed(kind);
    let first = usize::try_from(seed % all.len() as u64).expect("a few faults");
    all.into_iter().cycle().skip(first)
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
    fn what_is_aimed_comes_in_every_campaign_and_alone() {
        for (kind, seed) in KINDS
            .iter()
            .flat_map(|kind| (0..20).map(move |seed| (kind, seed)))
        {
            let plan = of(kind, seed);
            for fault in Fault::aimed(Kind::named(kind)) {
                assert!(plan.iter().any(|planned| planned.fault == fault));
            }
            for (at, one) in plan.iter().enumerate() {
                let alone = plan.iter().enumerate().all(|(other_at, other)| {
                    other_at == at || other.until < one.from || one.until < other.from
                });
                assert!(alone || !one.fault.is_aimed(), "{plan:?}");
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
            let all = hosts.chain(Fault::of_store(kind, 3));
            for fault in all.chain(Fault::aimed(kind)) {
                assert!(drawn.contains(&fault), "{fault:?}");
            }
        }
    }
}
