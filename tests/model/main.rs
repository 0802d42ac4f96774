//! The protocol, searched to the end over small worlds.
//!
//! Every state of a world is built from the very functions that the embedded store runs and that
//! the Lua scripts are compared with (`store::protocol`); hosts follow the engine's rules. The
//! searcher tries every order of every step: delays, copies, lost answers, crashes, expiry. Then
//! the protocol is taken apart, one mechanism at a time, and each time a counterexample is found.
//!
//! | file | tells |
//! | --- | --- |
//! | [`rules`] | what a world is made of |
//! | [`ids`] | time in ticks, tokens and names |
//! | [`world`] | a state: store, hosts, network, and what an onlooker remembers |
//! | [`store`] | a request reaches the store |
//! | [`host`] | what a host does |
//! | [`search`] | steps, and claims about every state |
//! | [`check`] | the search |
//! | [`worlds`], [`defects`] | the tests |
//! | [`votes`] | several nodes, of which a majority decides (`store::quorum`) |

#[path = "../support/acceptor.rs"]
mod acceptor;
mod check;
mod defects;
mod host;
mod ids;
mod rules;
mod search;
mod store;
mod votes;
mod world;
mod worlds;
