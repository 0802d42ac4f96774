//! The faults that a campaign draws from.

use crate::ground::Kind;

/// What can go wrong with a host, with its ways to the servers, or with the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    /// The daemon is stopped in its tracks, then goes on.
    PauseHost(usize),
    /// The daemon is killed, and started again.
    KillHost(usize),
    /// The daemon drains, and is started again.
    RestartHost(usize),
    /// A host that was not there joins the fleet, and leaves it again.
    Join,
    /// The daemon's clock is set so many milliseconds on, or back, and set right again.
    StepClock(usize, i64),
    /// The ways of a host fail.
    Net(usize, Reach, Trouble),
    /// A server of the store does not answer.
    PauseServer(usize),
    /// A server takes requests and keeps them for a while (`CLIENT PAUSE`).
    StallServer(usize),
    /// All connections to a server are closed.
    KillClients(usize),
    /// A server forgets its scripts.
    ForgetScripts(usize),
    /// A server is killed and comes back with nothing.
    LoseServer(usize),
    /// A server is killed and comes back with what it had when the fault began.
    RewindServer(usize),
    /// A server is emptied (`FLUSHALL`).
    FlushServer(usize),
    /// Another server is made master while this one lives, because somebody asked for it.
    FailOver(usize),
    /// A server is cut off from all others and from those who watch over them; hosts reach it.
    Isolate(usize),
    /// As `Isolate`, and this host reaches no other server.
    Split(usize, usize),
    /// The servers are cut into two halves that do not reach each other; one begins here. Hosts reach
    /// all.
    Halve(usize),
    /// All servers that are replicas at this moment are killed, and come back.
    VanishReplicas,
    /// Unplanned: this machine had no processor time for anybody.
    Starved,
    /// Unplanned: the Sentinels named no master that could serve.
    Headless,
    /// Another program takes the lock that it shares with a job, as the usual recipe says.
    Outsider,
    /// Aimed at `catch_up`: all daemons are killed, and started again several intervals later.
    KillAll,
    /// Aimed: the daemon whose run of `long` has just begun is stopped until its lease is over and
    /// the job due again.
    PauseHolder,
    /// Aimed: the daemon whose `long` runs is stopped for less than its lease, and the only server
    /// is killed and comes back with nothing, before the job is due again.
    LoseUnderHolder,
    /// Aimed: the host whose `long` is nearly over stays with the master, and both are cut off from
    /// everybody else before the job is due again.
    SplitHolder,
}

/// Which of a host's ways.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reach {
    All,
    /// That to this server.
    One(usize),
}

/// What happens on a way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Trouble {
    /// What is sent disappears.
    CutOff,
    /// What is sent arrives when it is over.
    Late,
    /// Requests arrive, the answers do not.
    LoseReplies,
    /// Connections are refused.
    Refuse,
    /// Everything takes so much longer.
    Slow,
    /// The next answer is cut off, and its connection closed.
    CutReply,
    /// What is open leads nowhere any more, and nobody says so.
    HalfOpen,
}

const TROUBLES: [Trouble; 7] = [
    Trouble::CutOff,
    Trouble::Late,
    Trouble::LoseReplies,
    Trouble::Refuse,
    Trouble::Slow,
    Trouble::CutReply,
    Trouble::HalfOpen,
];

/// The number of the host that joins and leaves, after those that are there from the start.
pub(crate) const JOINS: usize = 3;

/// How far a clock is set: around the TTL, and beyond what is accepted of a host at all.
const STEPS: [i64; 4] = [-5_000, 1_200, 4_000, 45_000];

impl Fault {
    /// What can go wrong with a host.
    pub(crate) fn of_host(kind: Kind, host: usize) -> Vec<Self> {
        // By how often each is drawn.
        let mut all = vec![
            Self::PauseHost(host),
            Self::PauseHost(host),
            Self::KillHost(host),
            Self::KillHost(host),
            Self::RestartHost(host),
            Self::RestartHost(host),
            Self::Join,
        ];
        if kind == Kind::Sqlite {
            return all;
        }
        all.extend(
            STEPS
                .map(|step| Self::StepClock(host, step))
                .iter()
                .skip(host % 2)
                .step_by(2),
        );
        for trouble in TROUBLES {
            all.push(Self::Net(host, Reach::All, trouble));
        }
        if kind.servers() > 1 {
            for (at, trouble) in TROUBLES.into_iter().enumerate() {
                all.push(Self::Net(host, Reach::One(at % kind.servers()), trouble));
            }
        }
        all
    }

    /// What can go wrong with a store of this kind.
    pub(crate) fn of_store(kind: Kind, hosts: usize) -> Vec<Self> {
        let mut all = Vec::new();
        for server in 0..kind.servers() {
            all.extend([
                Self::PauseServer(server),
                Self::StallServer(server),
                Self::KillClients(server),
                Self::ForgetScripts(server),
                Self::LoseServer(server),
                Self::RewindServer(server),
                Self::FlushServer(server),
                Self::Outsider,
            ]);
            if kind.fails_over() {
                all.extend([
                    Self::FailOver(server),
                    Self::Isolate(server),
                    Self::Split(server, server % hosts),
                ]);
            }
        }
        if kind.fails_over() {
            all.extend([Self::VanishReplicas, Self::VanishReplicas]);
        }
        if kind == Kind::Cluster {
            all.extend((0..kind.servers()).map(Self::Halve));
        }
        all
    }

    /// Faults that come alone, most at the worst moment, on whichever host is concerned then. Each
    /// needs another mechanism of the product.
    pub(crate) fn aimed(kind: Kind) -> Vec<Self> {
        let mut all = vec![Self::PauseHolder, Self::KillAll];
        if kind == Kind::Redis {
            all.push(Self::LoseUnderHolder);
        }
        if kind == Kind::Sentinel {
            all.push(Self::SplitHolder);
        }
        all
    }

    /// Whether it comes alone, and is over when it has been carried out.
    pub(crate) fn is_aimed(self) -> bool {
        matches!(
            self,
            Self::KillAll | Self::PauseHolder | Self::LoseUnderHolder | Self::SplitHolder
        )
    }

    /// The host it concerns; the others concern all.
    pub(crate) fn host(self) -> Option<usize> {
        match self {
            Self::PauseHost(host)
            | Self::KillHost(host)
            | Self::RestartHost(host)
            | Self::StepClock(host, _)
            | Self::Net(host, ..) => Some(host),
            Self::Join => Some(JOINS),
            _ => None,
        }
    }

    /// Whether it hinders anybody: else nothing is forgiven for it.
    pub(crate) fn hinders(self) -> bool {
        self != Self::Outsider
    }

    /// Whether a server may have lost what it had acknowledged, or another one took its place.
    pub(crate) fn may_lose_data(self, kind: Kind) -> bool {
        match self {
            Self::LoseServer(_)
            | Self::RewindServer(_)
            | Self::FlushServer(_)
            | Self::LoseUnderHolder => true,
            // Long enough for its replica to take its place.
            Self::PauseServer(_)
            | Self::StallServer(_)
            | Self::FailOver(_)
            | Self::Isolate(_)
            | Self::Split(..)
            | Self::Halve(_)
            | Self::Starved
            | Self::SplitHolder => kind.fails_over(),
            _ => false,
        }
    }

    /// Whether what was sent before its end may be carried out only then.
    pub(crate) fn delays(self) -> bool {
        match self {
            Self::PauseServer(_)
            | Self::StallServer(_)
            | Self::Isolate(_)
            | Self::Split(..)
            | Self::Halve(_)
            | Self::Starved
            | Self::SplitHolder => true,
            Self::Net(_, _, trouble) => trouble != Trouble::CutReply,
            _ => false,
        }
    }

    /// How long it lasts at the least and at the most, in milliseconds. Around the TTL of the
    /// campaign's jobs: some of each kind are shorter than a lease, some longer.
    pub(crate) fn lasts(self) -> (u64, u64) {
        match self {
            Self::Net(_, _, Trouble::CutReply | Trouble::HalfOpen)
            | Self::KillClients(_)
            | Self::ForgetScripts(_)
            | Self::FlushServer(_)
            | Self::FailOver(_) => (10, 11),
            Self::KillHost(_) | Self::RestartHost(_) | Self::LoseServer(_) => (100, 2_000),
            Self::RewindServer(_) => (300, 3_000),
            Self::Join => (2_000, 8_000),
            Self::PauseServer(_) | Self::StallServer(_) => (300, 4_500),
            Self::Outsider => (500, 2_500),
            Self::VanishReplicas => (500, 8_000),
            // Until what came due meanwhile has been decided.
            Self::KillAll => (14_500, 14_501),
            // As long as it may wait for its moment, and a bit more than it then takes.
            Self::PauseHolder | Self::LoseUnderHolder => (15_000, 15_001),
            Self::SplitHolder => (23_000, 23_001),
            _ => (300, 6_000),
        }
    }
}
