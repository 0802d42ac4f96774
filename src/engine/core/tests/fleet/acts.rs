//! What the hosts of the box do: claims, renewals, runs, verdicts.

use super::super::super::event::{Action, ClaimId, ClaimSpec, DropSpec, Event};
use super::{Fleet, JOB, Run, Started, Step, TTL, fingerprint, name};
use crate::names::{RunId, Token};
use crate::store::protocol;
use crate::store::{Claim, ClaimTarget, Due, Finish, Grant, Outcome, Record};
use crate::time::{BootInstant, Timestamp};

impl Fleet {
    pub(super) fn act(&mut self, host: usize, action: Action) {
        match action {
            Action::Claim(spec) => self.claim(host, spec),
            Action::Cancel { claim, .. } => {
                if let Some((token, _)) = self.hosts[host].tokens.remove(&claim) {
                    self.send_finish(host, token, None, None, true);
                }
            }
            Action::GiveBack { grant, .. } => {
                self.send_finish(host, grant.token, None, None, true);
            }
            Action::Start {
                claim,
                at,
                kind,
                attempt,
                grant,
                ..
            } => {
                let wait = (grant.starts_at).map(|it| it.since(self.clock(0).boot).as_millis());
                let begins = self.now + i64::try_from(wait.unwrap_or(0)).expect("small");
                self.started.push(Started {
                    at,
                    attempt,
                    from: begins,
                    until: None,
                });
                let run = Run {
                    token: grant.token,
                    at,
                    kind,
                    id: grant.run_id,
                    attempt,
                };
                self.hosts[host].runs.insert(claim, run);
                let ends = begins + self.dice.roll(10, self.longest_run);
                self.plan(ends, host, Step::RunEnds(claim));
                self.plan(self.now + 1000, host, Step::Renew(claim));
            }
            Action::AwaitRelease { claim, limit, .. } => {
                let limit = i64::try_from(limit.as_millis()).expect("small").min(300);
                let at = self.now + self.dice.roll(1, limit + 2);
                self.plan(at, host, Step::Woken(claim));
            }
            Action::Settle { run_id, .. } => self.soon(host, Step::Settle(run_id)),
            Action::Register { .. } => self.soon(host, Step::Register),
            Action::QueryLedger { .. } => self.soon(host, Step::Look),
            Action::Drops(spec) => self.drops(host, spec),
            Action::StartWithoutStore { .. } => {
                panic!("this fleet always waits for its store")
            }
            Action::Report { .. } => {}
        }
    }

    pub(super) fn claim(&mut self, host: usize, spec: ClaimSpec) {
        let run_id = RunId::new();
        let token = Token::new(&self.hosts[host].name, &run_id);
        let claim = Box::new(Claim {
            lock: self.lock.clone(),
            token: token.clone(),
            run_id: run_id.clone(),
            ttl: TTL,
            what: ClaimTarget::Occurrence {
                job: name(),
                kind: spec.kind,
                due: Due {
                    scheduled_at: spec.at,
                    not_before: spec.not_before,
                    deadline: spec.deadline,
                    prev: spec.prev,
                    fingerprint: fingerprint(),
                    gap: spec.gap,
                    late: spec.late,
                    max_reruns: spec.terms.max_reruns,
                    max_attempts: spec.terms.max_attempts,
                    rerun_window: spec.terms.rerun_window,
                    lead: spec.lead,
                },
                overlap: spec.overlap,
                keep: crate::store::Retention::of_records(100),
            },
        });
        self.hosts[host].tokens.insert(spec.claim, (token, run_id));
        self.send_claim(host, spec.claim, claim, 1);
    }

    fn drops(&mut self, host: usize, spec: DropSpec) {
        let run_id = RunId::new();
        let token = Token::new(&self.hosts[host].name, &run_id);
        let claim = Box::new(Claim {
            lock: self.lock.clone(),
            token: token.clone(),
            run_id: run_id.clone(),
            ttl: TTL,
            what: ClaimTarget::Drops {
                job: name(),
                fingerprint: fingerprint(),
                answer: spec.answer,
                keep: crate::store::Retention::of_records(100),
            },
        });
        self.hosts[host].tokens.insert(spec.claim, (token, run_id));
        self.send_claim(host, spec.claim, claim, 1);
    }

    pub(super) fn send_claim(&mut self, host: usize, id: ClaimId, claim: Box<Claim>, after: i64) {
        if self.resends {
            self.plan(
                self.now + after + 150,
                host,
                Step::NoAnswer(id, claim.clone()),
            );
        }
        if !self.dice.chance(self.loss) {
            let at = self.now + after + self.dice.roll(0, 40);
            self.plan(at, host, Step::Claim(id, claim));
        }
    }

    pub(super) fn send_finish(
        &mut self,
        host: usize,
        token: Token,
        record: Option<Record>,
        run: Option<ClaimId>,
        give_back: bool,
    ) {
        let finish = Finish {
            lock: self.lock.clone(),
            token,
            record,
            job: Some(name()),
            give_back,
            keep: crate::store::Retention::of_records(100),
        };
        self.soon(host, Step::Finish(Box::new(finish), run));
    }

    pub(super) fn finish(&mut self, host: usize, finish: Box<Finish>, run: Option<ClaimId>) {
        if self.dice.chance(self.loss) {
            // Lost on the way; it is sent again.
            let later = self.now + 200;
            self.plan(later, host, Step::Finish(finish, run));
            return;
        }
        let clock = self.store_clock();
        let (_, effects) = protocol::finish(&mut self.state, &mut self.job, clock, &finish);
        self.keep(effects);
        if self.dice.chance(self.loss) {
            let later = self.now + 200;
            self.plan(later, host, Step::Finish(finish, run));
        } else if let Some(claim) = run {
            self.hosts[host].runs.remove(&claim);
            self.soon(host, Step::Closed);
        }
    }

    pub(super) fn renew(&mut self, host: usize, claim: ClaimId) {
        let Some(run) = self.hosts[host].runs.get(&claim) else {
            return;
        };
        let renewal = Grant {
            lock: self.lock.clone(),
            token: run.token.clone(),
            run_id: run.id.clone(),
            fence: 0,
            ttl: TTL,
            sent: BootInstant::BOOT,
            starts_at: None,
        }
        .renewal();
        let clock = self.store_clock();
        protocol::renew(&mut self.state, &mut self.job, clock, &renewal);
        self.plan(self.now + 1000, host, Step::Renew(claim));
    }

    pub(super) fn run_ends(&mut self, host: usize, claim: ClaimId) {
        let now = Timestamp::from_millis(self.now);
        let Some(run) = self.hosts[host].runs.remove(&claim) else {
            return;
        };
        self.end_of(&run, self.now);
        let record = Record {
            run_id: Some(run.id.clone()),
            scheduled_at: Some(run.at),
            started_at: Some(now),
            finished_at: Some(now),
            host: Some(self.hosts[host].name.clone()),
            exit_code: Some(0),
            attempts: run.attempt,
            ..Record::blank(name(), run.kind, Outcome::Succeeded)
        };
        let token = run.token.clone();
        // It stays, so that its lease is renewed until the verdict has arrived.
        self.hosts[host].runs.insert(claim, run);
        self.feed(host, Event::RunEnded { job: JOB });
        self.send_finish(host, token, Some(record), Some(claim), false);
    }
}
