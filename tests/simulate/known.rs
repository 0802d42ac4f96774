//! Promises that the code is known to break, each by a name that goes when its fix comes.
//!
//! A plan with the feature of a defect is left out of the judgement of that defect's rules, in
//! `make test` and `make simulate` alike; `make simulate ALL=1` leaves nothing out.

use cronlatch::config::OnStoreDown;

use crate::judge::Rule;
use crate::plan::{Act, JobPlan, Plan};

/// A defect that is known: plans with this feature may break these rules.
#[derive(Debug)]
pub(crate) struct Known {
    pub(crate) name: &'static str,
    feature: fn(&Plan) -> bool,
    rules: &'static [Rule],
}

/// All of them; `docs/simulate.md` says which seed shows which.
pub(crate) const KNOWN: [Known; 3] = [
    Known {
        name: "every host records what on_store_down: skip skipped",
        feature: |plan| {
            stalled(plan) && any_job(plan, |job| job.on_store_down == OnStoreDown::Skip)
        },
        rules: &[Rule::TwoVerdicts, Rule::Untrue, Rule::Foretold],
    },
    Known {
        name: "what ran without the store is recorded as skipped or missed, too",
        feature: |plan| stalled(plan) && any_job(plan, |job| job.on_store_down == OnStoreDown::Run),
        rules: &[
            Rule::TwoVerdicts,
            Rule::Untrue,
            Rule::Silence,
            Rule::DoesNotCount,
        ],
    },
    Known {
        name: "a claim for a verdict alone is run without the store",
        feature: |plan| {
            plan.lists.iter().any(|list| list.max_running.is_some())
                && any_job(plan, |job| job.on_store_down == OnStoreDown::Run)
        },
        rules: &[Rule::MaxRunning, Rule::CatchUp],
    },
];

/// The defect that explains why the plan breaks the rule, if one does.
pub(crate) fn of(plan: &Plan, rule: Rule) -> Option<&'static str> {
    let mut known = KNOWN.iter();
    let known = known.find(|known| known.rules.contains(&rule) && (known.feature)(plan));
    known.map(|known| known.name)
}

fn any_job(plan: &Plan, is_it: fn(&JobPlan) -> bool) -> bool {
    plan.lists.iter().flat_map(|list| &list.jobs).any(is_it)
}

fn any_act(plan: &Plan, is_it: fn(&Act) -> bool) -> bool {
    plan.acts.iter().any(|(_, act)| is_it(act))
}

/// The store, the network or a daemon stood still for a while.
fn stalled(plan: &Plan) -> bool {
    any_act(plan, |act| act.lasts() > 0)
}
