//! The phases of a change, as a host goes through them.

use std::time::Duration;

use crate::acceptor::Acceptor;
use cronlatch::store::protocol::{self, Key};
use cronlatch::store::quorum::{
    AcceptStatus, Ballot, Decision, PrepareMode, PrepareReply, PrepareStatus, Proposal, Requester,
    Transition, decide,
};
use cronlatch::store::{
    Claim, ClaimReply, ClaimTarget, Due, Finish, Grant, Kind, Late, Outcome, Overlap, Record,
};
use cronlatch::time::BootInstant;

use crate::ids::{self, Tick, Ticket, clock, fingerprint, instant, tick_of, ticks};
use crate::votes::rules::{Defect, NODES, Promises, QUORUM, Rules, TTL};
use crate::votes::world::{
    Ask, Gap, Host, Message, Phase, Run, Shared, Then, Wish, World, longest, target, ticket,
};
use crate::world::verdict;

/// Whom a host asks first, and who of the others promises at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Asked {
    pub(super) first: usize,
    pub(super) others: u8,
}

impl Host {
    /// The claim or the run that this host is about.
    fn ticket(&self, host: usize, wish: Wish) -> Ticket {
        match wish {
            Wish::Claim => ticket(host, self.next),
            Wish::Finish => ticket(host, self.ended.unwrap_or(self.next)),
        }
    }
}

impl World {
    /// What a host may begin now.
    pub(super) fn wish(&self, rules: &Rules, host: usize) -> Option<Wish> {
        let me = &self.hosts[host];
        let waits = match &me.phase {
            Phase::Idle => false,
            Phase::Asking { sent, .. } | Phase::Proposing { sent, .. } => *sent == self.now,
        };
        if !me.up || waits || me.run.is_some() {
            return None;
        }
        if me.ended.is_some() {
            return (me.tried < rules.tries).then_some(Wish::Finish);
        }
        let due = rules.occurrences.get(me.next)?;
        (*due <= self.now && me.tried < rules.tries).then_some(Wish::Claim)
    }

    /// Phase 1: a node is asked for its vote alone, then the others for their promises.
    pub(super) fn begin_change(&mut self, rules: &Rules, host: usize, wish: Wish, asked: Asked) {
        let now = self.now;
        let me = &mut self.hosts[host];
        me.begun += 1;
        me.tried += 1;
        let id = me.begun * 10 + u64::try_from(host).expect("few hosts");
        let ticket = me.ticket(host, wish);
        let vote = (PrepareMode::Vote, Ballot { number: 1, id });
        let reply = self.prepare(rules, (host, asked.first), ticket, (wish, vote));
        let ballot = Ballot {
            number: reply.promised,
            id,
        };
        let counts = self.takes_part(rules, (host, asked.first), ticket);
        self.hosts[host].phase = Phase::Asking {
            wish,
            ballot,
            sent: now,
            heard: Vec::new(),
        };
        if counts {
            self.hear(rules, host, asked.first, reply);
        }
        for node in (0..NODES).filter(|node| *node != asked.first) {
            let message = Message {
                host,
                node,
                ticket,
                ask: Ask::Promise(ballot),
            };
            match rules.promises {
                Promises::Late => self.net.push(message),
                Promises::Prompt if asked.others & (1 << node) != 0 => {
                    self.serve(rules, &message);
                }
                Promises::Prompt => {}
            }
        }
        if rules.promises == Promises::Prompt {
            self.decide(rules, host);
        }
    }

    fn prepare(
        &mut self,
        rules: &Rules,
        (_, node): (usize, usize),
        ticket: Ticket,
        (wish, question): (Wish, (PrepareMode, Ballot)),
    ) -> PrepareReply {
        self.at_node(rules, (node, Some(ticket)), |it, here| {
            it.prepare(here, &target(wish), question, std::time::Duration::ZERO)
        })
    }

    /// With a single phase a promise takes the lock: `SET lock token NX PX ttl`.
    fn takes_part(&mut self, rules: &Rules, (host, node): (usize, usize), ticket: Ticket) -> bool {
        if !rules.is(Defect::SinglePhase) || self.hosts[host].ended.is_some() {
            return true;
        }
        let now = self.now + rules.clocks[node];
        self.at_node(rules, (node, Some(ticket)), |it, _| {
            take_lock(it, now, ticket)
        })
    }

    /// A node has promised. Its reply counts if its host still waits for it.
    fn hear(&mut self, rules: &Rules, host: usize, node: usize, reply: PrepareReply) {
        let Phase::Asking { wish, heard, .. } = &mut self.hosts[host].phase else {
            return;
        };
        let wish = *wish;
        heard.push((node, Shared::new(reply)));
        if rules.promises == Promises::Late && self.knows_enough(host, wish) {
            self.decide(rules, host);
        }
    }

    /// Whether the product would wait for no more: a majority counts, and knows of the open run.
    fn knows_enough(&self, host: usize, wish: Wish) -> bool {
        use cronlatch::store::quorum::{Doubt, QuorumCheck, check_quorum, merge};
        let Phase::Asking { heard, .. } = &self.hosts[host].phase else {
            return false;
        };
        let replies: Vec<PrepareReply> = heard
            .iter()
            .map(|(_, reply)| PrepareReply::clone(reply))
            .collect();
        let all = replies.len() == NODES;
        match check_quorum(&replies, QUORUM) {
            QuorumCheck::Met {
                counted,
                horizon: None,
            } => {
                let token = self.hosts[host].ticket(host, wish).token();
                let merged = merge(&replies, &counted, QUORUM, (true, Some(&token)));
                all || merged.doubt != Doubt::FewKnow
            }
            QuorumCheck::Met { .. } | QuorumCheck::Recovering(_) | QuorumCheck::TooFew => all,
        }
    }

    /// The rules are applied to what a majority knows, and phase 2 begins.
    pub(super) fn decide(&mut self, rules: &Rules, host: usize) {
        let me = &self.hosts[host];
        let Phase::Asking {
            wish,
            ballot,
            sent,
            heard,
        } = me.phase.clone()
        else {
            return;
        };
        let replies: Vec<PrepareReply> = heard
            .iter()
            .map(|(_, reply)| PrepareReply::clone(reply))
            .collect();
        let ticket = me.ticket(host, wish);
        let token = ticket.token();
        let at = (&target(wish), ballot);
        let resolved = match wish {
            Wish::Claim => {
                let claim = self.claim_of(rules, host, ticket);
                decide(
                    at,
                    &replies,
                    QUORUM,
                    Requester::new(Some(&token)),
                    |lock, job, clock| {
                        let (reply, effects) = protocol::claim(lock, job, clock, &claim);
                        let taken = matches!(reply, ClaimReply::Granted { .. });
                        Transition {
                            reply: Self::then(rules, &reply),
                            effects,
                            taken,
                        }
                    },
                )
            }
            Wish::Finish => {
                let finish = finish_of(rules, host, ticket);
                decide(
                    at,
                    &replies,
                    QUORUM,
                    Requester::holder(&token),
                    |lock, job, clock| {
                        let (_, effects) = protocol::finish(lock, job, clock, &finish);
                        Transition::of(Then::On, effects)
                    },
                )
            }
        };
        match resolved {
            Decision::TooFew => self.hosts[host].phase = Phase::Idle,
            Decision::Recovering(_) => self.answered(host, sent, (wish, Then::Wait)),
            Decision::Reply(then) => self.answered(host, sent, (wish, then)),
            Decision::Propose {
                proposal,
                trust,
                reply: then,
                ..
            } => {
                let proposal = Shared::new(*proposal);
                self.net.extend((0..NODES).map(|node| Message {
                    host,
                    node,
                    ticket,
                    ask: Ask::Propose(proposal.clone()),
                }));
                let starts = matches!(then, Then::Start { .. });
                self.hosts[host].phase = Phase::Proposing {
                    wish,
                    ballot,
                    sent,
                    taken: 0,
                    trust,
                    then: then.clone(),
                };
                if rules.is(Defect::SinglePhase) && starts {
                    self.answered(host, sent, (wish, then));
                }
            }
        }
    }

    fn then(rules: &Rules, reply: &ClaimReply) -> Then {
        match reply {
            ClaimReply::Granted { fence, .. } => Then::Start { fence: *fence },
            ClaimReply::Early { .. } | ClaimReply::Recovering { .. } => Then::Wait,
            ClaimReply::Gap { last, horizon, .. } => {
                let last = tick_of(*last);
                let horizon = horizon.map_or(last, tick_of);
                let gap = rules.occurrences.iter();
                let unknown = gap.filter(|at| last < **at && **at <= horizon).copied();
                Then::Fill(Gap {
                    last,
                    unknown: unknown.collect(),
                })
            }
            _ => Then::On,
        }
    }

    fn claim_of(&self, rules: &Rules, host: usize, ticket: Ticket) -> Claim {
        let at = rules.occurrences[ticket.number];
        let gap = self.hosts[host].gap.as_ref();
        Claim {
            lock: ids::lock(),
            token: ticket.token(),
            run_id: ticket.run_id(),
            ttl: ticks(TTL),
            what: ClaimTarget::Occurrence {
                job: ids::job(0),
                kind: Kind::Schedule,
                due: Due {
                    scheduled_at: instant(at),
                    not_before: instant(at),
                    deadline: instant(at + 100),
                    prev: Some(instant(rules.before(ticket.number))),
                    fingerprint: fingerprint(0),
                    gap: gap.map(Gap::answer),
                    late: Late::Miss,
                    max_reruns: 0,
                    max_attempts: 0,
                    rerun_window: Duration::ZERO,
                    lead: Duration::ZERO,
                },
                overlap: Overlap::Skip,
                keep: cronlatch::store::Retention::of_records(100),
            },
        }
    }

    /// A request reaches its node, and the answer its host.
    pub(super) fn serve(&mut self, rules: &Rules, message: &Message) {
        let Message {
            host, node, ticket, ..
        } = *message;
        match &message.ask {
            Ask::Promise(ballot) => {
                let wish = match &self.hosts[host].phase {
                    Phase::Asking { wish, .. } => *wish,
                    Phase::Idle | Phase::Proposing { .. } => Wish::Claim,
                };
                let question = (wish, (PrepareMode::Promise, *ballot));
                let reply = self.prepare(rules, (host, node), ticket, question);
                if reply.status == PrepareStatus::Promised
                    && self.takes_part(rules, (host, node), ticket)
                    && matches!(&self.hosts[host].phase, Phase::Asking { ballot: asked, .. } if asked == ballot)
                {
                    self.hear(rules, host, node, reply);
                }
            }
            Ask::Propose(proposal) => {
                let by = (node, Some(ticket));
                let no_promise = rules.is(Defect::NoPromise);
                let said = self.at_node(rules, by, |it, here| {
                    if no_promise {
                        it.register.promised = proposal.ballot;
                    }
                    it.accept(here, proposal)
                });
                if !matches!(said, AcceptStatus::Preempted | AcceptStatus::Held) {
                    self.write(rules, proposal);
                }
                self.hear_taken(rules, host, proposal, said);
            }
            Ask::Withdraw(ballot) => {
                let (ballot, token) = (*ballot, ticket.token());
                self.at_node(rules, (node, Some(ticket)), |it, here| {
                    it.withdraw(here, true, ballot, &token)
                });
            }
            Ask::Extend(sent, again) => {
                let renewal = Grant {
                    lock: ids::lock(),
                    token: ticket.token(),
                    run_id: ticket.run_id(),
                    fence: 0,
                    ttl: ticks(TTL),
                    sent: BootInstant::BOOT,
                    starts_at: None,
                }
                .renewal();
                let said = self.at_node(rules, (node, Some(ticket)), |it, here| {
                    it.extend(here, &renewal, longest(), *again)
                });
                if !*again {
                    self.hear_extended((host, node), *sent, said);
                }
            }
        }
    }

    fn write(&mut self, rules: &Rules, proposal: &Proposal) {
        for record in proposal.records.iter().map(|it| &it.record) {
            let said = match record.outcome {
                Outcome::Interrupted => verdict::INTERRUPTED,
                Outcome::Skipped => verdict::SKIPPED,
                Outcome::Missed => verdict::MISSED,
                Outcome::Unknown => verdict::UNKNOWN,
                _ => verdict::RAN,
            };
            let Some(from) = record.scheduled_at.map(tick_of) else {
                continue;
            };
            let until = record.until.map_or(from, tick_of);
            for (index, at) in rules.occurrences.iter().enumerate() {
                if from <= *at && *at <= until {
                    self.seen.verdicts[index] |= said;
                }
            }
        }
    }

    /// A node's answer to a proposal.
    fn hear_taken(&mut self, rules: &Rules, host: usize, proposal: &Proposal, said: AcceptStatus) {
        let Phase::Proposing {
            wish,
            ballot,
            sent,
            taken,
            trust,
            then,
        } = &mut self.hosts[host].phase
        else {
            return;
        };
        if *ballot != proposal.ballot {
            return;
        }
        *taken += usize::from(trust.counts(said));
        let enough = if rules.is(Defect::MinorityCounts) {
            1
        } else {
            QUORUM
        };
        if *taken >= enough {
            let (sent, answer) = (*sent, (*wish, then.clone()));
            self.answered(host, sent, answer);
        }
    }

    /// A host waits no longer for a majority to take what it proposed.
    pub(super) fn give_up(&mut self, host: usize) {
        let me = &mut self.hosts[host];
        let phase = std::mem::replace(&mut me.phase, Phase::Idle);
        if let Phase::Proposing {
            wish: Wish::Claim,
            ballot,
            then: Then::Start { .. },
            ..
        } = phase
        {
            let ticket = me.ticket(host, Wish::Claim);
            self.net.extend((0..NODES).map(|node| Message {
                host,
                node,
                ticket,
                ask: Ask::Withdraw(ballot),
            }));
        }
    }

    /// A request is answered; a grant whose lease is not over starts the job.
    fn answered(&mut self, host: usize, sent: Tick, (wish, then): (Wish, Then)) {
        let now = self.now;
        let me = &mut self.hosts[host];
        me.phase = Phase::Idle;
        let fence = match then {
            Then::Start { fence } => fence,
            Then::On => {
                match wish {
                    Wish::Claim => me.next += 1,
                    Wish::Finish => me.ended = None,
                }
                (me.tried, me.gap) = (0, None);
                return;
            }
            Then::Wait => return,
            Then::Fill(gap) => {
                me.tried -= 1;
                // Those that are neither dropped nor decided are caught up with, oldest first.
                me.gap = Some(gap);
                return;
            }
        };
        let index = me.next;
        (me.next, me.tried, me.gap) = (index + 1, 0, None);
        if now >= sent + TTL {
            return;
        }
        me.run = Some(Run {
            index,
            end: sent + TTL,
            renewing: None,
        });
        self.seen.starts[index] += 1;
        self.seen.fence_fell |= fence <= self.seen.fence;
        self.seen.fence = self.seen.fence.max(fence);
    }

    /// A renewal goes to all nodes at once.
    pub(super) fn renew(&mut self, host: usize) {
        let now = self.now;
        if let Some(run) = &mut self.hosts[host].run {
            run.renewing = Some((now, 0));
            let ticket = ticket(host, run.index);
            self.net.extend((0..NODES).map(|node| Message {
                host,
                node,
                ticket,
                ask: Ask::Extend(now, false),
            }));
        }
    }

    /// A job ends by itself, and its verdict goes out.
    pub(super) fn end_run(&mut self, rules: &Rules, host: usize) {
        let Some(run) = self.hosts[host].run.take() else {
            return;
        };
        self.hosts[host].ended = Some(run.index);
        self.hosts[host].tried = 0;
        if rules.is(Defect::SinglePhase) {
            let token = ticket(host, run.index).token();
            for node in 0..NODES {
                self.at_node(rules, (node, None), |it, _| {
                    if matches!(&it.key, Key::Value { text, .. } if text == token.as_str()) {
                        it.key = Key::Absent;
                    }
                });
            }
        }
    }
}

/// A vote of the single phase.
fn take_lock(node: &mut Acceptor, now: Tick, token: Ticket) -> bool {
    let own = token.token();
    if matches!(&node.key, Key::Value { text, .. } if text != own.as_str()) {
        return false;
    }
    node.key = Key::Value {
        text: own.as_str().to_owned(),
        end: Some(clock(now + TTL).lease),
    };
    true
}

fn finish_of(rules: &Rules, host: usize, ticket: Ticket) -> Finish {
    let at = rules.occurrences[ticket.number];
    Finish {
        lock: ids::lock(),
        token: ticket.token(),
        record: Some(Record {
            run_id: Some(ticket.run_id()),
            scheduled_at: Some(instant(at)),
            host: Some(ids::host_name(host)),
            attempts: 1,
            ..Record::blank(ids::job(0), Kind::Schedule, Outcome::Succeeded)
        }),
        job: Some(ids::job(0)),
        give_back: false,
        keep: cronlatch::store::Retention::of_records(100),
    }
}
