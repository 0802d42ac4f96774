//! From a seed to a plan: job lists with every policy, and what befalls hosts and store.

use std::sync::OnceLock;

use chrono_tz::Tz;
use cronlatch::config::{CatchUp, OnCrash, OnLost, OnOverlap, OnStoreDown, Scope};

use crate::chance::Dice;
use crate::plan::{
    Act, ForeignKey, HostPlan, JobOrder, JobPlan, Left, ListPlan, Plan, StoreKind, When,
};

/// What a plan is mostly about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Theme {
    Policies,
    Crashes,
    Restarts,
    Pauses,
    Outages,
    Network,
    Clocks,
    Lists,
    Losses,
    Triggers,
    Everything,
    Failovers,
    /// Losses under the eyes of a holder that cannot renew.
    Holders,
    Bursts,
    Shortages,
    ForeignKeys,
    Reloads,
    /// Jobs that people pause and resume.
    Orders,
    /// Hosts that run as many jobs as they may.
    Places,
}

pub(crate) const THEMES: [Theme; 19] = [
    Theme::Policies,
    Theme::Crashes,
    Theme::Restarts,
    Theme::Pauses,
    Theme::Outages,
    Theme::Network,
    Theme::Clocks,
    Theme::Lists,
    Theme::Losses,
    Theme::Triggers,
    Theme::Everything,
    Theme::Failovers,
    Theme::Holders,
    Theme::Bursts,
    Theme::Shortages,
    Theme::ForeignKeys,
    Theme::Reloads,
    Theme::Orders,
    Theme::Places,
];

/// When the faults begin, in milliseconds after the beginning.
const FIRST: i64 = 5_000;
/// How long the fleet is left alone at the end.
const CALM: i64 = 45_000;
/// The same after bursts: their runs are short.
const CALM_AFTER_BURSTS: i64 = 20_000;

/// Ordinary days, and the nights in which Berlin's clocks change.
const STARTS: [i64; 4] = [
    1_772_712_000_000,
    1_774_745_970_000,
    1_792_889_970_000,
    1_769_000_007_321,
];

struct Maker {
    dice: Dice,
    theme: Theme,
    ttl: i64,
}

/// The themes that are drawn. THEMES=11 leaves it at the first so many: seeds that were found before
/// a theme was added then mean what they did.
fn themes() -> &'static [Theme] {
    static COUNT: OnceLock<usize> = OnceLock::new();
    let count = *COUNT.get_or_init(|| {
        let first = std::env::var("THEMES").ok();
        let first = first.and_then(|n| n.parse().ok());
        first.filter(|n| *n > 0).unwrap_or(THEMES.len())
    });
    &THEMES[..count.min(THEMES.len())]
}

/// The theme of a seed.
pub(crate) fn theme_of(seed: u64) -> Theme {
    let themes = themes();
    themes[usize::try_from(seed % themes.len() as u64).unwrap_or(0)]
}

/// The plan of a seed.
pub(crate) fn plan(seed: u64) -> Plan {
    let mut dice = Dice::new(seed);
    let ttl = dice.pick(&[3_000, 3_000, 3_000, 6_000]);
    let theme = theme_of(seed);
    Maker { dice, theme, ttl }.plan(seed)
}

impl Maker {
    fn plan(mut self, seed: u64) -> Plan {
        let store = match self.theme {
            Theme::Losses
            | Theme::Clocks
            | Theme::Network
            | Theme::Failovers
            | Theme::Holders
            | Theme::ForeignKeys => StoreKind::Redis,
            _ if self.dice.chance(15) => StoreKind::Sqlite,
            _ => StoreKind::Redis,
        };
        let hosts = match self.theme {
            Theme::Holders => self.dice.pick(&[2, 2, 3]),
            Theme::Bursts => self.dice.pick(&[1, 2, 3]),
            _ => self.dice.pick(&[1, 2, 2, 3, 3, 4]),
        };
        let hosts: Vec<HostPlan> = (0..hosts).map(|_| self.host(store)).collect();
        let mut lists = vec![match self.theme {
            Theme::Bursts => self.burst(),
            Theme::Holders => self.long_runs(hosts.len()),
            Theme::Places => self.crowd(hosts.len()),
            _ => self.list(hosts.len()),
        }];
        let span = match self.theme {
            Theme::Bursts => 10_000,
            _ => self.dice.pick(&[15_000, 25_000, 40_000]),
        };
        let mut acts = Vec::new();
        for host in 0..hosts.len() {
            let at = self.dice.range(0, 2_500);
            acts.push((at, Act::Start { host, list: 0 }));
        }
        let count = match self.theme {
            Theme::Policies => 0,
            Theme::Everything => self.dice.range(3, 9),
            _ => self.dice.range(1, 5),
        };
        for _ in 0..count {
            let at = FIRST + self.dice.range(0, span);
            let kind = match self.theme {
                Theme::Everything => self.dice.pick(themes()),
                theme => theme,
            };
            self.faults(kind, at, hosts.len(), &mut lists, &mut acts);
        }
        let calm = acts.iter().map(|(at, act)| at + act.lasts()).max();
        let calm = calm.unwrap_or(0).max(FIRST + span) + 2_000;
        if store == StoreKind::Sqlite {
            // The clock of the store is the machine's.
            acts.retain(|(_, act)| !matches!(act, Act::Step { .. }));
        }
        let list = lists.len() - 1;
        for host in 0..hosts.len() {
            acts.push((calm, Act::Start { host, list }));
        }
        acts.sort_by_key(|(at, _)| *at);
        Plan {
            seed,
            start: self.dice.pick(&STARTS),
            store,
            hosts,
            lists,
            acts,
            calm,
            end: calm
                + match self.theme {
                    Theme::Bursts => CALM_AFTER_BURSTS,
                    _ => CALM,
                },
        }
    }

    fn host(&mut self, store: StoreKind) -> HostPlan {
        let offset = match (store, self.theme) {
            // One machine has one clock.
            (StoreKind::Sqlite, _) => 0,
            (_, Theme::Clocks | Theme::Everything) => {
                let some = [0, 0, -400, 700, -2_500, 2_500, 25_000, -20_000, 40_000];
                self.dice.pick(&some)
            }
            _ => self.dice.range(-80, 80),
        };
        let latency = self.dice.pick(&[1, 3, 3, 20]);
        HostPlan { offset, latency }
    }

    fn list(&mut self, hosts: usize) -> ListPlan {
        let jobs = (0..self.dice.pick(&[1, 1, 2, 2, 3]))
            .map(|n| self.job(&format!("job-{n}"), hosts))
            .collect();
        ListPlan {
            jobs,
            max_running: self.dice.chance(12).then_some(1),
            spread: if self.dice.chance(8) { 500 } else { 0 },
            drain_timeout: self.dice.pick(&[1_000, 5_000, 60_000]),
        }
    }

    /// Many jobs that come due at once, and short runs.
    fn burst(&mut self) -> ListPlan {
        let mut first = self.job("job-0", 1);
        first.when = When::Every(15_000);
        first.lock = None;
        first.start_deadline = self.dice.pick(&[10_000, 30_000]);
        first.work = self.dice.pick(&[(20, 100), (300, 900)]);
        let second = OnStoreDown::Run;
        let named = |n: usize| {
            let name = format!("job-{n}");
            let (on_store_down, first) = (first.on_store_down, first.clone());
            let on_store_down = if n.is_multiple_of(2) {
                second
            } else {
                on_store_down
            };
            JobPlan {
                name,
                on_store_down,
                ..first
            }
        };
        ListPlan {
            jobs: (0..self.dice.pick(&[40, 70, 90])).map(named).collect(),
            max_running: self.dice.chance(20).then_some(10),
            spread: 0,
            drain_timeout: 5_000,
        }
    }

    /// More jobs than a host may run at once.
    fn crowd(&mut self, hosts: usize) -> ListPlan {
        let mut list = self.list(hosts);
        for n in list.jobs.len()..self.dice.pick(&[2, 3, 5]) {
            let job = self.job(&format!("job-{n}"), hosts);
            list.jobs.push(job);
        }
        list.max_running = Some(self.dice.pick(&[1, 1, 2, 3]));
        list
    }

    /// Runs that go on while the next occurrences come due.
    fn long_runs(&mut self, hosts: usize) -> ListPlan {
        let mut list = self.list(hosts);
        for job in &mut list.jobs {
            job.when = When::Every(self.dice.pick(&[1_000, 2_000, 3_000]));
            job.work = self.dice.pick(&[(3_000, 6_000), (4_000, 9_000)]);
        }
        list
    }

    fn job(&mut self, name: &str, hosts: usize) -> JobPlan {
        let dice = &mut self.dice;
        let every = dice.pick(&[1_000, 2_000, 3_000, 5_000, 5_000, 7_000]);
        let mut job = JobPlan::plain(name, every);
        if dice.chance(10) {
            let (text, zone) = dice.pick(&[
                ("*/5 * * * * *", Tz::UTC),
                ("*/10 * * * * *", Tz::Europe__Berlin),
                ("7,37 * 2,3 * * *", Tz::Europe__Berlin),
            ]);
            job.when = When::Cron(text, zone);
        }
        job.ttl = self.ttl;
        job.jitter = if dice.chance(8) { 500 } else { 0 };
        job.lock = dice.chance(30).then(|| "pair".to_owned());
        job.scope = dice.pick(&[Scope::Fleet; 8]);
        if dice.chance(15) {
            job.scope = dice.pick(&[Scope::Host, Scope::None]);
        }
        job.on_overlap = match dice.range(0, 3) {
            0 => OnOverlap::Skip,
            1 => OnOverlap::Wait,
            _ => OnOverlap::Queue {
                limit: dice.pick(&[1, 2, 4, 10]),
            },
        };
        job.start_deadline = dice.pick(&[1_000, 3_000, 10_000, 30_000, 30_000]);
        job.catch_up = dice.pick(&[
            CatchUp::None,
            CatchUp::Latest,
            CatchUp::Latest,
            CatchUp::All,
        ]);
        job.catch_up_window = dice.pick(&[5_000, 20_000, 30_000, 30_000]);
        if dice.chance(35) {
            let max_reruns = dice.pick(&[1, 2, 3]);
            job.on_crash = OnCrash::Rerun { max_reruns };
        }
        if dice.chance(5) {
            job.on_lost = OnLost::Continue;
        }
        job.on_store_down = match dice.range(0, 10) {
            0 | 1 => OnStoreDown::Run,
            2 | 3 => OnStoreDown::Skip,
            _ => OnStoreDown::Wait,
        };
        job.timeout = dice.chance(10).then(|| dice.range(1_000, 4_000));
        if dice.chance(20) {
            job.retry = Some((dice.pick(&[2, 3]), 500));
            job.fails = 40;
        } else if dice.chance(10) {
            job.fails = 30;
        }
        if hosts > 1 && dice.chance(8) {
            job.hosts = vec![dice.below(hosts)];
        }
        job.work = dice.pick(&[
            (20, 100),
            (20, 100),
            (300, 900),
            (1_500, 4_000),
            (4_000, 9_000),
        ]);
        job.stubborn = dice.chance(10);
        job
    }

    fn faults(
        &mut self,
        theme: Theme,
        at: i64,
        hosts: usize,
        lists: &mut Vec<ListPlan>,
        acts: &mut Vec<(i64, Act)>,
    ) {
        let host = self.dice.below(hosts);
        match theme {
            Theme::Policies | Theme::Everything => {}
            Theme::Crashes => self.crash(at, host, hosts, lists.len() - 1, acts),
            Theme::Restarts => self.restart(at, host, hosts, lists.len() - 1, acts),
            Theme::Pauses => self.pause(at, host, hosts, acts),
            Theme::Outages => {
                let lasts = self.dice.pick(&[300, 1_500, 3_000, 8_000, 14_000, 28_000]);
                acts.push((
                    at,
                    match self.dice.range(0, 3) {
                        0 => Act::StoreFreeze { lasts },
                        1 => Act::StoreDown {
                            lasts,
                            refuses: true,
                        },
                        _ => Act::StoreDown {
                            lasts,
                            refuses: false,
                        },
                    },
                ));
            }
            Theme::Network => acts.push((at, self.network(host))),
            Theme::Clocks => {
                if self.dice.chance(50) {
                    let by = self.dice.pick(&[
                        -2_000,
                        2_000,
                        10_000,
                        -10_000,
                        25_000,
                        3_600_000,
                        10_900_000,
                        -3_600_000,
                        -10_900_000,
                    ]);
                    acts.push((at, Act::Step { host, by }));
                } else {
                    let lasts = self.dice.pick(&[1_500, 4_000, 8_000]);
                    let refuses = self.dice.chance(50);
                    acts.push((at, Act::StoreDown { lasts, refuses }));
                }
            }
            Theme::Lists => self.change_list(at, hosts, lists, acts),
            Theme::Reloads => self.reload(at, hosts, lists, acts),
            Theme::Losses => acts.push((
                at,
                match self.dice.range(0, 4) {
                    0 => Act::StoreWipe,
                    1 => Act::StoreSnapshot,
                    2 => Act::StoreRestore,
                    _ => Act::Crash { host },
                },
            )),
            Theme::Failovers => self.failover(at, acts),
            Theme::Holders => {
                let lasts = self.dice.pick(&[1_000, 4_000, 8_000]);
                let left = self.dice.pick(&[Left::Nothing, Left::Saved, Left::Replica]);
                match left {
                    Left::Saved => acts.push((at - 1_500, Act::StoreSnapshot)),
                    Left::Replica => acts.push((at - 1_500, Act::ReplicaStops)),
                    Left::Nothing => {}
                }
                acts.push((at, Act::LossUnderHolder { lasts, left }));
            }
            Theme::Bursts => self.strain(at, acts),
            Theme::Shortages => {
                let lasts = self.dice.pick(&[500, 2_000, 6_000, 15_000]);
                let all = self.dice.chance(25);
                for host in (0..hosts).filter(|it| all || *it == host) {
                    acts.push((at, Act::Short { host, lasts }));
                }
            }
            Theme::ForeignKeys => self.foreign_key(at, &lists[lists.len() - 1], acts),
            Theme::Places => match self.dice.range(0, 6) {
                0..=2 => self.crash(at, host, hosts, lists.len() - 1, acts),
                3 => self.restart(at, host, hosts, lists.len() - 1, acts),
                4 => self.pause(at, host, hosts, acts),
                _ => self.faults(Theme::Outages, at, hosts, lists, acts),
            },
            Theme::Orders => self.order(at, (host, hosts), &lists[0], acts),
            Theme::Triggers => {
                let list = &lists[0];
                let job = list.jobs[self.dice.below(list.jobs.len())].name.clone();
                acts.push((at, Act::Trigger { host, job }));
                if self.dice.chance(40) {
                    let later = at + self.dice.range(10, 3_000);
                    acts.push((later, Act::KillTrigger { host }));
                }
            }
        }
        if theme == Theme::Losses && self.dice.chance(70) {
            let list = lists.len() - 1;
            let at = at + self.dice.range(500, 8_000);
            acts.push((at, Act::Start { host, list }));
        }
    }

    /// A job is paused and resumed, in order or not, while hosts come and go.
    fn order(
        &mut self,
        at: i64,
        (host, hosts): (usize, usize),
        list: &ListPlan,
        acts: &mut Vec<(i64, Act)>,
    ) {
        let name = list.jobs[self.dice.below(list.jobs.len())].name.clone();
        let order = |order| Act::Order {
            host,
            job: name.clone(),
            order,
        };
        let lasts = self.dice.chance(40).then(|| self.dice.range(500, 8_000));
        acts.push((at, order(JobOrder::Pause { lasts })));
        let later = at + self.dice.range(200, 12_000);
        if self.dice.chance(80) {
            acts.push((later, order(JobOrder::Resume)));
        }
        if self.dice.chance(30) {
            let by = self.dice.range(0, 15_000);
            acts.push((later + 1_000, order(JobOrder::LatePause { by })));
        }
        if self.dice.chance(50) {
            let at = at + self.dice.range(-2_000, 4_000);
            self.crash(at, host, hosts, 0, acts);
        }
    }

    /// A replica that may lack the newest writes becomes the master, after an outage or at once.
    fn failover(&mut self, at: i64, acts: &mut Vec<(i64, Act)>) {
        let lacks = self.dice.pick(&[None, Some(50), Some(500), Some(3_000)]);
        if let Some(lacks) = lacks {
            acts.push((at - lacks, Act::ReplicaStops));
        }
        let lasts = self.dice.pick(&[0, 0, 1_500, 5_000]);
        if lasts > 0 {
            let refuses = self.dice.chance(50);
            acts.push((at, Act::StoreDown { lasts, refuses }));
        }
        acts.push((at + lasts, Act::Failover));
    }

    /// The store is slower than the burst wants it to be, or away at the wrong moment.
    fn strain(&mut self, at: i64, acts: &mut Vec<(i64, Act)>) {
        let lasts = self.dice.pick(&[2_000, 8_000, 15_000]);
        acts.push((
            at,
            match self.dice.range(0, 4) {
                0 => Act::StoreFreeze {
                    lasts: self.dice.pick(&[300, 1_500]),
                },
                _ => Act::StoreSlow {
                    lasts,
                    each: self.dice.pick(&[500, 2_000, 5_000, 10_000]),
                },
            },
        ));
    }

    /// Another program writes the key of a job's lock, and may delete it later.
    fn foreign_key(&mut self, at: i64, list: &ListPlan, acts: &mut Vec<(i64, Act)>) {
        let lock = list.jobs[self.dice.below(list.jobs.len())].lock_name();
        let lock = lock.to_owned();
        let key = ForeignKey {
            ttl: self
                .dice
                .pick(&[None, Some(1_000), Some(4_000), Some(15_000)]),
            other_type: self.dice.chance(40),
        };
        let ends = key.ttl.is_some();
        let deleted = self.dice.chance(if ends { 50 } else { 85 });
        let after = self.dice.pick(&[200, 1_000, 3_000, 10_000]);
        acts.push((
            at,
            Act::Seize {
                lock: lock.clone(),
                key,
            },
        ));
        if deleted {
            acts.push((at + after, Act::Unseize { lock }));
        }
    }

    fn crash(
        &mut self,
        at: i64,
        host: usize,
        hosts: usize,
        list: usize,
        acts: &mut Vec<(i64, Act)>,
    ) {
        let all = self.dice.chance(25);
        for victim in (0..hosts).filter(|it| all || *it == host) {
            let at = at + if all { self.dice.range(0, 300) } else { 0 };
            acts.push((
                at,
                if self.dice.chance(60) {
                    Act::Crash { host: victim }
                } else {
                    Act::Kill { host: victim }
                },
            ));
            if self.dice.chance(80) {
                let again = at + self.dice.pick(&[100, 1_000, 2_500, 4_000, 9_000, 20_000]);
                let host = victim;
                acts.push((again, Act::Start { host, list }));
            }
        }
    }

    fn restart(
        &mut self,
        at: i64,
        host: usize,
        hosts: usize,
        list: usize,
        acts: &mut Vec<(i64, Act)>,
    ) {
        let rolling = self.dice.chance(40);
        let apart = self.dice.pick(&[0, 500, 3_000]);
        for (n, victim) in (0_i64..).zip(0..hosts) {
            if !rolling && victim != host {
                continue;
            }
            let at = at + n * apart;
            let then = self.dice.chance(70).then_some(list);
            acts.push((at, Act::Drain { host: victim, then }));
            if then.is_none() {
                let again = at + self.dice.pick(&[1_000, 3_000, 8_000, 20_000]);
                let host = victim;
                acts.push((again, Act::Start { host, list }));
            }
        }
    }

    fn pause(&mut self, at: i64, host: usize, hosts: usize, acts: &mut Vec<(i64, Act)>) {
        let all = self.dice.chance(30);
        let lasts = self.dice.pick(&[500, 2_500, 4_000, 16_000, 28_000]);
        let whole = self.dice.chance(50);
        for host in (0..hosts).filter(|it| all || *it == host) {
            acts.push((
                at,
                if whole {
                    Act::Suspend { host, lasts }
                } else {
                    Act::Pause { host, lasts }
                },
            ));
        }
    }

    fn network(&mut self, host: usize) -> Act {
        let lasts = self.dice.pick(&[1_500, 5_000, 12_000]);
        if self.dice.chance(30) {
            return Act::Cut { host, lasts };
        }
        Act::Net {
            host,
            lasts,
            loss: self.dice.pick(&[0, 10, 40]),
            late: self.dice.pick(&[0, 10, 30]),
            copies: self.dice.pick(&[0, 20]),
        }
    }

    /// A new version of the list, and the restarts that bring it to the hosts.
    fn change_list(
        &mut self,
        at: i64,
        hosts: usize,
        lists: &mut Vec<ListPlan>,
        acts: &mut Vec<(i64, Act)>,
    ) {
        let list = self.changed_list(hosts, lists);
        lists.push(list);
        let list = lists.len() - 1;
        let apart = self.dice.pick(&[0, 200, 2_500]);
        let left_out = self.dice.chance(15).then(|| self.dice.below(hosts));
        for (n, host) in (0_i64..).zip(0..hosts) {
            let then = Some(list);
            // One host sleeps through the change, or dies with the old list.
            match left_out {
                Some(left_out) if left_out == host && self.dice.chance(60) => {
                    let lasts = self.dice.pick(&[4_000, 16_000, 34_000]);
                    acts.push((at, Act::Pause { host, lasts }));
                    acts.push((at + lasts + 3_000, Act::Drain { host, then }));
                }
                Some(left_out) if left_out == host => acts.push((at, Act::Kill { host })),
                _ => acts.push((at + n * apart, Act::Drain { host, then })),
            }
        }
    }

    /// Another version of the list.
    fn changed_list(&mut self, hosts: usize, lists: &[ListPlan]) -> ListPlan {
        let mut list = lists[lists.len() - 1].clone();
        let at_job = self.dice.below(list.jobs.len());
        match self.dice.range(0, 9) {
            6 => {
                let some = [Scope::Fleet, Scope::Host];
                let other = some.into_iter().find(|it| *it != list.jobs[at_job].scope);
                list.jobs[at_job].scope = other.unwrap_or(Scope::Fleet);
            }
            7 => list = lists[lists.len().saturating_sub(2)].clone(),
            1 | 8 => {
                let lock = list.jobs[at_job].lock.take();
                list.jobs[at_job].lock = lock.is_none().then(|| "other".to_owned());
            }
            2 => list.jobs[at_job].when = When::Every(self.dice.pick(&[2_000, 3_000, 4_000])),
            3 if list.jobs.len() > 1 => {
                list.jobs.remove(at_job);
            }
            4 => {
                let job = self.job(&format!("job-{}", lists.len() + 3), hosts);
                list.jobs.push(job);
            }
            _ => list.jobs[at_job].enabled ^= true,
        }
        list
    }

    /// The hosts read a changed list one after the other, perhaps while something else happens.
    fn reload(
        &mut self,
        at: i64,
        hosts: usize,
        lists: &mut Vec<ListPlan>,
        acts: &mut Vec<(i64, Act)>,
    ) {
        let list = if self.dice.chance(20) {
            // Another command, and nothing else.
            let mut list = lists[lists.len() - 1].clone();
            let at_job = self.dice.below(list.jobs.len());
            list.jobs[at_job].work = (10, 400);
            list
        } else {
            self.changed_list(hosts, lists)
        };
        lists.push(list);
        let list = lists.len() - 1;
        let apart = self.dice.pick(&[0, 0, 200, 2_500]);
        for (n, host) in (0_i64..).zip(0..hosts) {
            let at = at + n * apart;
            match self.dice.range(0, 12) {
                0 => acts.push((
                    at,
                    Act::Drain {
                        host,
                        then: Some(list),
                    },
                )),
                1 => {
                    // Twice in a row, with the list before in between.
                    let before = list - 1;
                    acts.push((at, Act::Reload { host, list }));
                    acts.push((at + 5, Act::Reload { host, list: before }));
                    acts.push((at + 900, Act::Reload { host, list }));
                }
                2 => {
                    acts.push((at - 20, Act::Pause { host, lasts: 4_000 }));
                    acts.push((at, Act::Reload { host, list }));
                }
                _ => acts.push((at, Act::Reload { host, list })),
            }
        }
        match self.dice.range(0, 10) {
            0 => {
                let refuses = self.dice.chance(50);
                let lasts = self.dice.pick(&[1_500, 4_000]);
                acts.push((at - 300, Act::StoreDown { lasts, refuses }));
            }
            1 => acts.push((at - 100, Act::StoreFreeze { lasts: 900 })),
            2 => {
                let host = self.dice.below(hosts);
                let (loss, late, copies) = (20, 20, 20);
                let lasts = 4_000;
                acts.push((
                    at - 500,
                    Act::Net {
                        host,
                        lasts,
                        loss,
                        late,
                        copies,
                    },
                ));
            }
            _ => {}
        }
    }
}

#[test]
fn a_file_has_the_clock_of_its_machine() {
    let of_file = |plan: &Plan| plan.store == StoreKind::Sqlite;
    let plans: Vec<Plan> = (1..3_000).map(plan).filter(of_file).collect();
    assert!(plans.len() > 100);
    let acts = plans.iter().flat_map(|plan| &plan.acts);
    let steps = acts.filter(|(_, act)| matches!(act, Act::Step { .. }));
    assert_eq!(steps.count(), 0);
}
