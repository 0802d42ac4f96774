//! Several nodes, of which a majority decides (`store::quorum`), searched as one store is.
//!
//! A node is the product's own plain form of one (`store::quorum::Acceptor`), which is compared
//! with the scripts call by call; what several nodes say together, and what follows from it, is
//! decided by the product's own `decide`, with the rules of `store::protocol`. Written again here
//! is only what lies around these: who is asked when, and what is lost. Each host asks a different
//! node first and nobody keeps to another's vote, so that proposals meet as often as they can.
//!
//! | file | tells |
//! | --- | --- |
//! | [`rules`] | what such a world is made of |
//! | [`world`] | a state: nodes, hosts, network, and what an onlooker remembers |
//! | [`host`] | the phases of a change, as a host goes through them |
//! | [`search`] | steps, claims about every state, and the search |
//! | [`worlds`], [`defects`] | the tests |

mod defects;
mod host;
mod rules;
mod search;
mod world;
mod worlds;
