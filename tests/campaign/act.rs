//! How each fault is done, and undone.

use std::time::Duration;

use nix::sys::signal::Signal;

use crate::fault::{Fault, JOINS, Reach, Trouble};
use crate::fleet::{Fleet, HOSTS};
use crate::ground::Kind;
use crate::list::SHARED_KEY;
use crate::net::{Party, Way};
use crate::plan::Planned;
use crate::support::RedisServer;

/// How long an outsider wants the lock for, in milliseconds: longer than it keeps it.
const OUTSIDER_TTL: &str = "2800";

/// Deletes a lock that still holds the token, as everybody does who takes one.
const GIVE_BACK: &str = "if redis.call('GET', KEYS[1]) == ARGV[1] then \
                         return redis.call('DEL', KEYS[1]) end return 0";

impl Fleet {
    /// Before a fault begins.
    pub(crate) fn prepare(&mut self, planned: &Planned) {
        if planned.fault.host().is_none() {
            // What is on record now may be gone in a moment.
            self.collect_before_fault();
        }
    }

    /// Begins a fault.
    pub(crate) fn begin(&mut self, planned: &Planned) {
        match planned.fault {
            Fault::PauseHost(host) => self.signal(host, Signal::SIGSTOP),
            Fault::KillHost(host) => self.kill(host),
            Fault::RestartHost(host) => self.signal(host, Signal::SIGTERM),
            Fault::Join => self.start_host(JOINS),
            Fault::StepClock(host, step) => self.step_clock(host, step),
            Fault::Net(host, reach, trouble) => self.set_net(host, reach, Some(trouble)),
            Fault::PauseServer(at) => self.ground.servers()[at].pause(),
            Fault::StallServer(at) => {
                let millis = (planned.until - planned.from).to_string();
                self.try_on(at, &["CLIENT", "PAUSE", &millis, "ALL"]);
            }
            Fault::KillClients(at) => self.ground.servers()[at].kill_clients(),
            Fault::ForgetScripts(at) => self.try_on(at, &["SCRIPT", "FLUSH"]),
            Fault::LoseServer(at) => self.ground.servers_mut()[at].stop(),
            Fault::RewindServer(at) => self.try_on(at, &["SAVE"]),
            // A replica refuses.
            Fault::FlushServer(at) => self.try_on(at, &["FLUSHALL"]),
            Fault::FailOver(at) => self.ground.fail_over(at),
            Fault::Isolate(at) => self.isolate(at, Way::Late),
            Fault::Split(at, host) => {
                self.isolate(at, Way::Late);
                self.keep_to(host, at, Way::Late);
            }
            Fault::Halve(at) => self.halve(at, Way::Late),
            Fault::VanishReplicas => self.vanish_replicas(),
            Fault::Outsider => {
                let token = outsider(planned);
                let take = ["SET", SHARED_KEY, &token, "NX", "PX", OUTSIDER_TTL];
                (0..self.ground.servers().len()).for_each(|at| self.try_on(at, &take));
            }
            // Nobody plans it.
            Fault::Starved | Fault::Headless => {}
            Fault::KillAll => self.kill_all(),
            Fault::PauseHolder => self.pause_holder(),
            Fault::LoseUnderHolder => self.lose_under_holder(),
            Fault::SplitHolder => self.split_holder(),
        }
    }

    /// Ends it.
    pub(crate) fn end(&mut self, planned: &Planned) {
        match planned.fault {
            Fault::PauseHost(host) => self.signal(host, Signal::SIGCONT),
            Fault::KillHost(host) => self.start_host(host),
            Fault::RestartHost(host) => {
                self.await_exit(host);
                self.start_host(host);
            }
            Fault::Join => {
                self.signal(JOINS, Signal::SIGTERM);
                self.await_exit(JOINS);
            }
            Fault::StepClock(host, _) => self.step_clock(host, 0),
            Fault::Net(host, reach, _) => self.set_net(host, reach, None),
            Fault::PauseServer(at) => self.ground.servers()[at].resume(),
            Fault::LoseServer(at) => {
                let server = &mut self.ground.servers_mut()[at];
                server.forget_snapshot();
                server.crash_and_restart();
                self.ground.register();
            }
            Fault::RewindServer(at) => {
                self.ground.servers_mut()[at].crash_and_restart();
                self.ground.register();
            }
            Fault::Isolate(at) => self.isolate(at, Way::Open),
            Fault::Split(at, host) => {
                self.isolate(at, Way::Open);
                self.keep_to(host, at, Way::Open);
            }
            Fault::Halve(at) => self.halve(at, Way::Open),
            Fault::VanishReplicas => self.bring_replicas_back(),
            Fault::Outsider => {
                let give = ["EVAL", GIVE_BACK, "1", SHARED_KEY, &outsider(planned)];
                (0..self.ground.servers().len()).for_each(|at| self.try_on(at, &give));
            }
            Fault::StallServer(_)
            | Fault::KillClients(_)
            | Fault::ForgetScripts(_)
            | Fault::FlushServer(_)
            | Fault::FailOver(_)
            | Fault::Starved
            | Fault::Headless
            | Fault::KillAll
            | Fault::PauseHolder
            | Fault::LoseUnderHolder
            | Fault::SplitHolder => {}
        }
    }

    /// A command that a server may refuse, as it is a replica or has no such slot.
    pub(super) fn try_on(&self, server: usize, words: &[&str]) {
        let _ = self.ground.servers()[server].try_command(words);
    }

    fn set_net(&self, host: usize, reach: Reach, trouble: Option<Trouble>) {
        let doors = match reach {
            Reach::All => self.ground.all_doors(),
            Reach::One(server) => self.ground.doors_of(server),
        };
        let way = match trouble {
            None => Way::Open,
            Some(Trouble::CutOff) => Way::Silent,
            Some(Trouble::Late) => Way::Late,
            Some(Trouble::LoseReplies) => Way::Deaf,
            Some(Trouble::Refuse) => Way::Refused,
            Some(Trouble::Slow) => Way::Slow(Duration::from_millis(120)),
            Some(Trouble::CutReply) => Way::CutReply,
            Some(Trouble::HalfOpen) => {
                self.ground.net().forget(Party::Host(host), &doors);
                return;
            }
        };
        self.ground.net().set(Party::Host(host), &doors, way);
    }

    /// Cuts a server off from its like, and from those who watch over it.
    pub(super) fn isolate(&self, server: usize, way: Way) {
        let net = self.ground.net();
        let own = self.ground.doors_of(server);
        for other in (0..self.ground.servers().len()).filter(|other| *other != server) {
            net.set(Party::Server(other), &own, way);
            net.set(Party::Server(server), &self.ground.doors_of(other), way);
        }
        for sentinel in 0..self.ground.sentinels() {
            net.set(Party::Sentinel(sentinel), &own, way);
        }
    }

    /// Cuts half of the servers, from this one on, off from the other half.
    fn halve(&self, first: usize, way: Way) {
        let count = self.ground.servers().len();
        let (one, other): (Vec<usize>, Vec<usize>) =
            (0..count).partition(|at| (at + count - first) % count < count / 2);
        for (from, to) in one
            .iter()
            .flat_map(|a| other.iter().flat_map(move |b| [(*a, *b), (*b, *a)]))
        {
            let doors = self.ground.doors_of(to);
            self.ground.net().set(Party::Server(from), &doors, way);
        }
    }

    fn vanish_replicas(&mut self) {
        let is_replica = |server: &RedisServer| {
            let role = server.try_command(&["ROLE"]);
            role.is_ok_and(|role| format!("{role:?}").contains("slave"))
        };
        let servers = self.ground.servers().iter().enumerate();
        self.vanished = servers
            .filter(|(_, server)| is_replica(server))
            .map(|(at, _)| at)
            .collect();
        for at in &self.vanished {
            self.ground.servers_mut()[*at].stop();
        }
    }

    /// As replicas of the present master; replicas in a Cluster remember their master.
    fn bring_replicas_back(&mut self) {
        let master = self.ground.master();
        for at in std::mem::take(&mut self.vanished) {
            self.ground.servers_mut()[at].crash_and_restart();
            if let (Kind::Sentinel, Some(master)) = (self.ground.kind(), master) {
                let port = self.ground.port_of(master).to_string();
                self.try_on(at, &["REPLICAOF", "127.0.0.1", &port]);
            }
        }
        self.ground.register();
    }

    /// Leaves a host with the way to one server.
    pub(super) fn keep_to(&self, host: usize, server: usize, way: Way) {
        debug_assert!(host < HOSTS.len());
        let own = self.ground.doors_of(server);
        let mut doors = self.ground.all_doors();
        doors.retain(|door| !own.contains(door));
        self.ground.net().set(Party::Host(host), &doors, way);
    }
}

/// The token of another program, unlike any of ours and unlike that of the next one.
fn outsider(planned: &Planned) -> String {
    format!("an-outsider-{}", planned.from)
}
