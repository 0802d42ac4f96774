//! Renewals: to all nodes at once, and a majority is enough.

use std::collections::BTreeSet;

use cronlatch::store::quorum::ExtendReply;
use cronlatch::store::{RenewReply, Renewal, StoreError};

use super::node::{Answer, Ask};
use super::part::Part;
use super::wire::NodeItem;
use super::{LIMIT, NOBODY, Quorum, requester};
use crate::message::{Message, Reply, Request};
use crate::trace::Held;
use crate::world::{Item, Sim};

/// How long the slower nodes are waited for once a majority has renewed all leases.
const GRACE: i64 = 5;

/// Renewals under way.
#[derive(Debug)]
pub(super) struct Renewing {
    message: Message,
    renewals: Vec<Renewal>,
    heard: Vec<(usize, Vec<ExtendReply>)>,
    silent: BTreeSet<usize>,
}

impl Renewing {
    /// Whether a majority has renewed each lease.
    fn is_decided(&self, quorum: usize) -> bool {
        (0..self.renewals.len()).all(|at| {
            let renewed = |(_, replies): &&(usize, Vec<ExtendReply>)| {
                matches!(replies[at], ExtendReply::Renewed | ExtendReply::Unrecorded)
            };
            self.heard.iter().filter(renewed).count() >= quorum
        })
    }
}

impl Quorum {
    pub(super) fn renew(&mut self, sim: &mut Sim, message: Message) {
        let Request::Renew(renewals) = &message.request else {
            return;
        };
        let id = sim.fresh();
        let renewals = renewals.clone();
        for node in 0..self.nodes.len() {
            let ask = Ask::Extend(renewals.clone(), false);
            self.ask(sim, requester(&message), (id, 0), (node, ask));
        }
        let renewing = Renewing {
            message,
            renewals,
            heard: Vec::new(),
            silent: (0..self.nodes.len()).collect(),
        };
        self.renewals.insert(id, renewing);
        let limit = NodeItem::Limit { op: id, step: 0 };
        sim.at(sim.now + LIMIT, Item::Node(limit));
    }

    /// A node has answered, or no more answers are waited for.
    pub(super) fn extended(&mut self, sim: &mut Sim, id: u64, node: usize, answer: Option<Answer>) {
        let quorum = self.quorum();
        let Some(it) = self.renewals.get_mut(&id) else {
            return;
        };
        match answer {
            Some(Answer::Extend(replies)) => {
                it.silent.remove(&node);
                it.heard.push((node, replies));
            }
            Some(_) => {
                it.silent.remove(&node);
            }
            None => it.silent.clear(),
        }
        if !it.silent.is_empty() {
            if it.is_decided(quorum) {
                let step = 0;
                let limit = NodeItem::Limit { op: id, step };
                sim.at(sim.now + GRACE, Item::Node(limit));
            }
            return;
        }
        let Some(it) = self.renewals.remove(&id) else {
            return;
        };
        let host = it.message.host;
        if it.heard.len() < quorum {
            self.seen.entry(host).or_default().away = true;
            let error = StoreError::Unreachable("too few nodes answer".into());
            return crate::store::answer(sim, &it.message, Err(error));
        }
        self.answered(sim.now, host);
        let replies: Vec<RenewReply> = (0..it.renewals.len())
            .map(|at| self.verdict(sim, &it, at))
            .collect();
        crate::store::answer(sim, &it.message, Ok(Box::new(Reply::Renew(replies))));
    }

    fn verdict(&mut self, sim: &mut Sim, it: &Renewing, at: usize) -> RenewReply {
        let count = |is: fn(ExtendReply) -> bool| {
            let said = it.heard.iter().filter(|(_, replies)| is(replies[at]));
            said.count()
        };
        let (quorum, never) = (self.quorum(), self.nodes.len() - self.quorum() + 1);
        let recorded = count(|it| it == ExtendReply::Renewed);
        let renewed = count(|it| matches!(it, ExtendReply::Renewed | ExtendReply::Unrecorded));
        let taken = count(|it| it == ExtendReply::Taken);
        let absent = count(|it| it == ExtendReply::Absent);
        let renewal = &it.renewals[at];
        if renewed >= quorum {
            let until = sim.now + i64::try_from(renewal.grant.ttl.as_millis()).unwrap_or(0);
            sim.trace.held.push(Held {
                at: sim.now,
                lock: renewal.grant.lock.name.clone(),
                token: Some(renewal.grant.token.as_str().to_owned()),
                until,
                exclusive: renewal.grant.lock.exclusive,
            });
            for (node, replies) in &it.heard {
                if replies[at] == ExtendReply::Absent {
                    let ask = Ask::Extend(vec![renewal.clone()], true);
                    self.ask(sim, requester(&it.message), NOBODY, (*node, ask));
                }
            }
            if recorded < quorum && renewal.grant.fence > 0 {
                self.bring_back(sim, &it.message, renewal);
            }
            RenewReply::Renewed
        } else if taken >= never {
            RenewReply::Taken
        } else if taken + absent >= never {
            RenewReply::Absent
        } else {
            RenewReply::Unanswered
        }
    }

    fn bring_back(&mut self, sim: &mut Sim, message: &Message, renewal: &Renewal) {
        let same = |part: &Part| matches!(part, Part::Reassert(it) if it.grant.token == renewal.grant.token);
        let mut parts = self.ops.values().flat_map(|op| &op.parts);
        if parts.any(same) {
            return;
        }
        let parts = [Part::Reassert(Box::new(renewal.clone()))].into();
        self.begin(sim, (requester(message), message.life), parts, None);
    }
}
