//! Runs a search, and shows what it found.

use std::hash::Hash;
use std::time::Instant;

use stateright::{Checker, Expectation, HasDiscoveries, Model};

/// A counterexample: its states, and the step out of each.
pub(crate) type Story<M> = Vec<(<M as Model>::State, Option<<M as Model>::Action>)>;

/// A model whose counterexamples are shown to people.
pub(crate) trait Told:
    Model<State: Clone + PartialEq + Hash + Send + Sync + 'static, Action: Clone + PartialEq>
    + Send
    + Sync
    + 'static
{
    /// Writes what is of interest in a state, and the step out of it.
    fn tell(
        told: &mut String,
        state: &Self::State,
        step: Option<&Self::Action>,
    ) -> std::fmt::Result;
}

/// Searches to the end, but for so many steps at most: every claim holds, every sight is seen, and the world
/// is no smaller than it was meant to be.
pub(crate) fn holds<M: Told>(model: M, steps: usize, floor: usize) {
    let begun = Instant::now();
    let checker = model.checker().target_max_depth(steps).spawn_bfs().join();
    let states = checker.unique_state_count();
    eprintln!("{states} states, {:?}", begun.elapsed());
    for property in checker.model().properties() {
        let found = checker.discovery(property.name);
        match (property.expectation, found) {
            (Expectation::Always | Expectation::Eventually, Some(path)) => {
                panic!("not so: {}\n{}", property.name, told::<M>(&path.into_vec()))
            }
            (Expectation::Sometimes, None) => panic!("never seen: {}", property.name),
            _ => {}
        }
    }
    assert!(checker.is_done(), "the search did not come to its end");
    assert!(
        states >= floor,
        "only {states} states: the world has shrunk"
    );
}

/// Searches a world with a mechanism taken out until a claim is seen to fail, and in this way.
pub(crate) fn fails<M: Told>(model: M, claim: &'static str, shape: impl Fn(&Story<M>) -> bool) {
    let begun = Instant::now();
    let until = HasDiscoveries::AnyOf([claim].into());
    let checker = model.checker().finish_when(until).spawn_bfs().join();
    let states = checker.unique_state_count();
    let Some(path) = checker.discovery(claim) else {
        panic!("{states} states, and no counterexample to: {claim}");
    };
    eprintln!("{states} states, {:?}", begun.elapsed());
    let story: Story<M> = path.into_vec();
    let told = told::<M>(&story);
    assert!(shape(&story), "not as expected: {claim}\n{told}");
    eprintln!("not so: {claim}\n{told}");
}

fn told<M: Told>(story: &Story<M>) -> String {
    let mut told = String::new();
    for (state, step) in story {
        let _ = M::tell(&mut told, state, step.as_ref());
    }
    told
}
