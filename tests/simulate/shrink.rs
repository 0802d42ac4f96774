//! Makes a failing plan smaller: whatever can be left out while the same rule stays broken.

use cronlatch::config::{CatchUp, OnCrash, OnLost, OnOverlap, OnStoreDown, Scope};

use crate::judge::Rule;
use crate::plan::{Act, HostPlan, JobPlan, Plan};

/// How many plans are tried at most.
const TRIES: usize = 1_500;

struct Shrinker<'a> {
    best: Plan,
    tries: usize,
    fails: &'a dyn Fn(&Plan) -> bool,
}

/// Returns a smaller plan that breaks the same rule.
pub(crate) fn shrink(plan: &Plan, rule: Rule) -> Plan {
    let fails = |plan: &Plan| crate::violations(plan).iter().any(|it| it.rule == rule);
    let mut shrinker = Shrinker {
        best: plan.clone(),
        tries: 0,
        fails: &fails,
    };
    while shrinker.tries < TRIES && shrinker.round() {}
    shrinker.best
}

impl Shrinker<'_> {
    fn try_one(&mut self, plan: Plan) -> bool {
        if plan == self.best || self.tries >= TRIES {
            return false;
        }
        self.tries += 1;
        let better = (self.fails)(&plan);
        if better {
            self.best = plan;
        }
        better
    }

    /// Returns whether anything could be left out.
    fn round(&mut self) -> bool {
        let mut better = self.acts();
        better |= self.jobs();
        better |= self.fields();
        better |= self.hosts();
        better |= self.times();
        better
    }

    fn acts(&mut self) -> bool {
        let mut better = false;
        let mut size = (self.best.acts.len() / 2).max(1);
        loop {
            let mut from = 0;
            while from < self.best.acts.len() {
                let mut plan = self.best.clone();
                let until = (from + size).min(plan.acts.len());
                plan.acts.drain(from..until);
                if self.try_one(plan) {
                    better = true;
                } else {
                    from += size;
                }
            }
            if size == 1 {
                return better;
            }
            size /= 2;
        }
    }

    fn jobs(&mut self) -> bool {
        let jobs = self.best.lists.iter().flat_map(|list| &list.jobs);
        let mut names: Vec<String> = jobs.map(|job| job.name.clone()).collect();
        names.sort();
        names.dedup();
        let mut better = false;
        for name in names {
            let mut plan = self.best.clone();
            for list in &mut plan.lists {
                list.jobs.retain(|job| job.name != name);
            }
            better |= self.try_one(plan);
        }
        better
    }

    /// Sets fields of jobs and lists to what is plain, in all lists at once.
    fn fields(&mut self) -> bool {
        let mut better = false;
        for at in 0..self.best.lists.len() {
            let edits: [fn(&mut Plan, usize); 3] = [
                |plan: &mut Plan, at: usize| plan.lists[at].max_running = None,
                |plan: &mut Plan, at: usize| plan.lists[at].spread = 0,
                |plan: &mut Plan, at: usize| plan.lists[at].drain_timeout = 5_000,
            ];
            for edit in edits {
                let mut plan = self.best.clone();
                edit(&mut plan, at);
                better |= self.try_one(plan);
            }
        }
        let jobs = self.best.lists.iter().flat_map(|list| &list.jobs);
        let mut names: Vec<String> = jobs.map(|job| job.name.clone()).collect();
        names.sort();
        names.dedup();
        for name in names {
            for edit in EDITS {
                let mut plan = self.best.clone();
                let jobs = plan.lists.iter_mut().flat_map(|list| &mut list.jobs);
                jobs.filter(|job| job.name == name).for_each(edit);
                better |= self.try_one(plan);
            }
        }
        better
    }

    fn hosts(&mut self) -> bool {
        let mut better = false;
        for host in 0..self.best.hosts.len() {
            let plain = HostPlan {
                offset: 0,
                latency: 1,
            };
            let mut plan = self.best.clone();
            plan.hosts[host] = plain;
            better |= self.try_one(plan);
        }
        let mut plan = self.best.clone();
        let last = plan.hosts.len() - 1;
        if last > 0 && !plan.acts.iter().any(|(_, act)| act.host() == Some(last)) {
            plan.hosts.pop();
            better |= self.try_one(plan);
        }
        better
    }

    fn times(&mut self) -> bool {
        let mut better = false;
        for share in [50, 75, 90] {
            let mut plan = self.best.clone();
            plan.end = plan.end * share / 100;
            better |= self.try_one(plan);
        }
        for at in 0..self.best.acts.len() {
            let mut plan = self.best.clone();
            plan.acts[at].0 = plan.acts[at].0 / 1_000 * 1_000;
            plan.acts.sort_by_key(|(at, _)| *at);
            better |= self.try_one(plan);
        }
        if self
            .best
            .acts
            .iter()
            .all(|(_, act)| !matches!(act, Act::Step { .. }))
        {
            let mut plan = self.best.clone();
            plan.start = 1_772_712_000_000;
            better |= self.try_one(plan);
        }
        better
    }
}

const EDITS: [fn(&mut JobPlan); 17] = [
    |job| job.jitter = 0,
    |job| job.lock = None,
    |job| job.scope = Scope::Fleet,
    |job| job.on_overlap = OnOverlap::Skip,
    |job| job.start_deadline = 300_000,
    |job| job.start_deadline = 30_000,
    |job| job.catch_up = CatchUp::Latest,
    |job| job.catch_up_window = 30_000,
    |job| job.on_crash = OnCrash::Ignore,
    |job| job.on_lost = OnLost::Kill,
    |job| job.on_store_down = OnStoreDown::Wait,
    |job| job.timeout = None,
    |job| job.retry = None,
    |job| job.fails = 0,
    |job| job.hosts.clear(),
    |job| job.work = (100, 100),
    |job| job.stubborn = false,
];
