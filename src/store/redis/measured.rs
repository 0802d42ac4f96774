//! Requests as the bytes that a server receives, for the benchmarks that count instructions
//! (`benches/instructions`).

use std::time::Duration;

use super::codec::{claim, renew};
use super::script::Scripts;
use crate::names::Prefix;
use crate::store::{Claim, Renewal};

/// Writes requests as the store does, without a connection.
#[derive(Debug)]
pub struct Encoder {
    scripts: Scripts,
    prefix: Prefix,
}

impl Encoder {
    /// Prepares the scripts, which a store does once.
    pub fn new(prefix: Prefix) -> Self {
        Self {
            scripts: Scripts::new(),
            prefix,
        }
    }

    /// Returns the request of a claim.
    pub fn claim(&self, claim: &Claim) -> Vec<u8> {
        let call = claim::call(&self.prefix, claim, Duration::from_secs(30), None);
        self.scripts.claim.by_digest(&call).get_packed_command()
    }

    /// Returns the request of a batch of renewals.
    pub fn renew(&self, renewals: &[Renewal]) -> Vec<u8> {
        let call = renew::call(&self.prefix, renewals);
        self.scripts.renew.by_digest(&call).get_packed_command()
    }
}
