//! What a simulated host does as the product does it.

use cronlatch::store::Outcome;

use crate::plan::{Act, HostPlan, JobPlan, ListPlan, Plan, StoreKind};
use crate::world::World;

const START: i64 = 1_772_712_000_000;

/// One host with one job, which is due every five seconds.
fn plan(edit: impl FnOnce(&mut JobPlan), mut acts: Vec<(i64, Act)>) -> Plan {
    let mut job = JobPlan::plain("job", 5_000);
    edit(&mut job);
    acts.insert(0, (0, Act::Start { host: 0, list: 0 }));
    let host = HostPlan {
        offset: 0,
        latency: 1,
    };
    Plan {
        seed: 0,
        start: START,
        store: StoreKind::Redis,
        hosts: vec![host],
        lists: vec![ListPlan {
            jobs: vec![job],
            max_running: None,
            spread: 0,
            drain_timeout: 0,
        }],
        acts,
        calm: 12_000,
        end: 20_000,
    }
}

/// How the first run ended, as its host recorded it.
fn outcome_of_first(plan: &Plan) -> Outcome {
    let mut world = World::new(plan, false);
    world.run();
    let trace = &world.sim.trace;
    let first = &trace.starts[0];
    let mut added = trace.added.iter();
    let record = added.find(|it| {
        let id = it.record.run_id.as_ref();
        id.is_some_and(|id| id.as_str() == first.run_id)
    });
    record.expect("it has a record").record.outcome
}

#[test]
fn a_run_that_ended_by_itself_while_its_daemon_was_stopped_keeps_its_verdict() {
    // Its lease ends three seconds after the instant, the guard begins to end it more than a second before that, and
    // its daemon goes on when that is long over.
    let ended = |work: i64| {
        let pause = Act::Pause {
            host: 0,
            lasts: 6_000,
        };
        let acts = vec![(5_200, pause)];
        outcome_of_first(&plan(|job| job.work = (work, work), acts))
    };
    assert_eq!(ended(1_500), Outcome::Succeeded);
    assert_eq!(ended(4_000), Outcome::LeaseLost, "the guard ended it");
}
