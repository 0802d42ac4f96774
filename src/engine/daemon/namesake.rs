//! Another daemon that announces itself under the name of this host.
//!
//! The store keeps one announcement for each host name, so two such daemons replace each other's. A
//! daemon therefore looks, before each of its announcements, whose announcement is there. A daemon
//! that died, or that this one has replaced, leaves its last announcement once. A daemon whose
//! announcement is there in two versions is alive.
//!
//! A daemon that stops puts the announcement of a live namesake back, which otherwise would be
//! missing until that one announces itself again.
//!
//! It is logged, not refused: locks and tokens keep the two apart, so no occurrence runs twice, and
//! ending a daemon because of what another one announces would let a mistake on one machine stop the
//! jobs of another.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::Daemon;
use crate::store::{HostInfo, HostReport};
use crate::time::{BootInstant, Timestamp};

/// How often it is logged while it lasts.
const REPORT_AGAIN: Duration = Duration::from_secs(300);
/// A daemon that has announced nothing for this long has ended, or has another name now.
const GONE_AFTER: Duration = Duration::from_secs(30);
/// How long an announcement that is put back lasts after it was last seen: its daemon announces itself again within
/// ten seconds, if it lives.
const PUT_BACK_FOR: Duration = Duration::from_secs(12);

/// The announcement of another daemon under this host's name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Sighting {
    pid: u32,
    started_at: Timestamp,
    version: String,
    /// The store's clock when it was made.
    seen_at: Timestamp,
}

impl Sighting {
    /// The announcement under the name of `me`, if another daemon has made it.
    pub(super) fn among(hosts: &[HostReport], me: &HostInfo) -> Option<Self> {
        let of_me = |info: &HostInfo| (info.pid, info.started_at) == (me.pid, me.started_at);
        let same_name = |report: &&HostReport| report.info.host == me.host;
        let there = hosts.iter().find(same_name)?;
        (!of_me(&there.info)).then(|| Self {
            pid: there.info.pid,
            started_at: there.info.started_at,
            version: there.info.version.clone(),
            seen_at: there.seen_at,
        })
    }

    fn is_of_same_daemon(&self, other: &Self) -> bool {
        (self.pid, self.started_at) == (other.pid, other.started_at)
    }

    fn text(&self) -> String {
        format!(
            "process {}, up since {}, version {}",
            self.pid, self.started_at, self.version
        )
    }
}

/// What is known of other daemons under this host's name.
#[derive(Debug, Default)]
pub(super) struct Namesakes {
    /// The last sighting, and when it was.
    last: Option<(Sighting, BootInstant)>,
    /// The daemon that is certainly alive.
    alive: Option<String>,
    reported: Option<BootInstant>,
}

/// What is to be logged.
#[derive(Debug, PartialEq, Eq)]
enum NamesakeNews {
    Nothing,
    Shares(String),
    IsOver,
}

impl Namesakes {
    /// The other daemon, for people.
    pub(super) fn alive(&self) -> Option<&String> {
        self.alive.as_ref()
    }

    fn looked(&mut self, seen: Option<Sighting>, now: BootInstant) -> NamesakeNews {
        let Some(seen) = seen else {
            return self.nobody(now);
        };
        let again = self.last.as_ref().is_some_and(|(before, _)| {
            before.is_of_same_daemon(&seen) && before.seen_at != seen.seen_at
        });
        let text = seen.text();
        if self.last.as_ref().is_none_or(|(before, _)| *before != seen) {
            self.last = Some((seen, now));
        }
        if !again {
            return NamesakeNews::Nothing;
        }
        let is_news = self.alive.as_ref() != Some(&text);
        let is_old = |at: BootInstant| now.since(at) >= REPORT_AGAIN;
        self.alive = Some(text.clone());
        if !is_news && !self.reported.is_none_or(is_old) {
            return NamesakeNews::Nothing;
        }
        self.reported = Some(now);
        NamesakeNews::Shares(text)
    }

    fn nobody(&mut self, now: BootInstant) -> NamesakeNews {
        let last = self.last.as_ref().map(|(_, at)| now.since(*at));
        if last.is_some_and(|since| since < GONE_AFTER) || self.alive.take().is_none() {
            return NamesakeNews::Nothing;
        }
        *self = Self::default();
        NamesakeNews::IsOver
    }
}

/// The last announcement of a live namesake that one of this daemon's replaced.
#[derive(Debug, Clone, Default)]
pub(super) struct ReplacedNamesake(Arc<Mutex<Announced>>);

/// What was announced under this host's name of late.
#[derive(Debug, Default)]
struct Announced {
    /// How long this daemon was up at its newest announcement; `None` before its first one.
    sent: Option<Duration>,
    /// The announcement of the namesake, and when it was seen.
    seen: Option<(HostInfo, BootInstant)>,
}

impl ReplacedNamesake {
    /// This daemon is about to announce itself.
    pub(super) fn note_sent(&self, me: &HostInfo) {
        let mut announced = self.announced();
        announced.sent = announced.sent.max(me.up);
    }

    /// Notes whose announcement is there under the name of `me`.
    ///
    /// Before this daemon's first announcement it may be that of a predecessor that died. One that has
    /// replaced an announcement of this daemon is of a daemon that lives.
    pub(super) fn note_seen(&self, hosts: &[HostReport], me: &HostInfo, now: BootInstant) {
        let mut announced = self.announced();
        let Some(sent) = announced.sent else {
            return;
        };
        let there = hosts.iter().find(|report| report.info.host == me.host);
        match there.map(|report| &report.info) {
            Some(info) if (info.pid, info.started_at) != (me.pid, me.started_at) => {
                announced.seen = (!info.draining).then(|| (info.clone(), now));
            }
            // It is this daemon's own, unless a namesake that stops has put it back.
            Some(info) if info.up <= Some(sent) => {}
            Some(_) | None => announced.seen = None,
        }
    }

    /// Returns the announcement to put back, and how long it is valid.
    pub(super) fn to_put_back(&self, now: BootInstant) -> Option<(HostInfo, Duration)> {
        let (mut info, seen) = self.announced().seen.clone()?;
        let since = now.since(seen);
        let valid_for = PUT_BACK_FOR.saturating_sub(since);
        // Its daemon sees by this that it was put back.
        info.up = info.up.map(|up| up + since + Duration::from_millis(1));
        (!valid_for.is_zero()).then_some((info, valid_for))
    }

    fn announced(&self) -> MutexGuard<'_, Announced> {
        // No code that holds the guard can panic in the middle of a change.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Daemon {
    /// Looked whose announcement the store has under this host's name.
    pub(super) fn namesake(&mut self, seen: Option<Sighting>) {
        let before = self.namesakes.alive().cloned();
        let report = self.namesakes.looked(seen, BootInstant::now());
        let host = &self.host;
        match report {
            NamesakeNews::Nothing => {}
            NamesakeNews::Shares(other) => tracing::error!(
                %host,
                "another daemon announces itself under this host's name ({other}): jobs with \
                 `scope: host` run on one of the two only, and requests reach either. No job \
                 runs twice because of this. Give each its own name (--host, CRONLATCH_HOST)"
            ),
            NamesakeNews::IsOver => tracing::info!(
                %host,
                "no other daemon announces itself under this host's name any more"
            ),
        }
        if self.namesakes.alive() != before.as_ref() {
            self.announce();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::stub::host_info;
    use crate::time::seconds_after_boot as at;

    fn sighting(pid: u32, seen_at: i64) -> Sighting {
        Sighting {
            pid,
            started_at: Timestamp::EPOCH,
            version: "0".to_owned(),
            seen_at: Timestamp::from_secs(seen_at),
        }
    }

    fn announced(pid: u32, up: u64) -> HostInfo {
        HostInfo {
            pid,
            up: Some(Duration::from_secs(up)),
            ..host_info("web1")
        }
    }

    fn there(info: HostInfo) -> Vec<HostReport> {
        let seen_at = Timestamp::EPOCH;
        vec![HostReport { info, seen_at }]
    }

    #[test]
    fn a_predecessor_and_one_that_stops_are_not_put_back_and_a_live_namesake_is() {
        let (replaced, me) = (ReplacedNamesake::default(), announced(1, 100));
        let put_back = |now| {
            let info = replaced.to_put_back(at(now));
            info.map(|(info, valid_for)| (info.pid, valid_for.as_secs()))
        };
        replaced.note_seen(&there(announced(7, 5)), &me, at(100));
        assert_eq!(put_back(100), None, "it may have died");
        replaced.note_sent(&me);
        replaced.note_seen(&there(me.clone()), &me, at(105));
        assert_eq!(put_back(105), None);
        replaced.note_seen(&there(announced(7, 15)), &me, at(110));
        assert_eq!(put_back(115), Some((7, 7)));
        replaced.note_seen(&there(me.clone()), &me, at(120));
        assert_eq!(put_back(120), Some((7, 2)), "it was there lately");
        assert_eq!(put_back(140), None, "it has been silent for too long");
        replaced.note_seen(&[], &me, at(121));
        assert_eq!(put_back(121), None, "it has removed its announcement");
        replaced.note_seen(&there(announced(7, 25)), &me, at(122));
        let stops = HostInfo {
            draining: true,
            ..announced(7, 26)
        };
        replaced.note_seen(&there(stops), &me, at(123));
        assert_eq!(put_back(123), None, "it stops");
    }

    #[test]
    fn a_daemon_whose_announcement_was_put_back_has_no_live_namesake() {
        let (one, other) = (ReplacedNamesake::default(), ReplacedNamesake::default());
        let (me, namesake) = (announced(1, 100), announced(7, 100));
        one.note_sent(&me);
        other.note_sent(&namesake);
        one.note_seen(&there(namesake.clone()), &me, at(100));
        other.note_seen(&there(me.clone()), &namesake, at(100));
        let (info, _) = other.to_put_back(at(100)).expect("it lives");
        one.note_seen(&there(info), &me, at(101));
        assert_eq!(one.to_put_back(at(101)), None);
    }

    #[test]
    fn a_predecessor_that_died_is_no_second_daemon() {
        let mut names = Namesakes::default();
        for now in [100, 110, 120] {
            let reported = names.looked(Some(sighting(7, 99)), at(now));
            assert_eq!(reported, NamesakeNews::Nothing, "its last announcement");
        }
        for now in [130, 140, 200] {
            assert_eq!(names.looked(None, at(now)), NamesakeNews::Nothing);
        }
        // Two that died one after the other.
        assert_eq!(
            names.looked(Some(sighting(8, 220)), at(220)),
            NamesakeNews::Nothing
        );
        assert_eq!(
            names.looked(Some(sighting(9, 230)), at(230)),
            NamesakeNews::Nothing
        );
        assert_eq!(names.alive(), None);
    }

    #[test]
    fn a_daemon_that_announces_itself_again_is_reported_every_five_minutes_until_it_is_gone() {
        let mut names = Namesakes::default();
        assert_eq!(
            names.looked(Some(sighting(7, 99)), at(100)),
            NamesakeNews::Nothing
        );
        let shares = names.looked(Some(sighting(7, 109)), at(110));
        assert!(matches!(shares, NamesakeNews::Shares(_)), "{shares:?}");
        assert!(names.alive().is_some_and(|text| text.contains("process 7")));
        let reported = (12..=60)
            .filter(|round| {
                names.looked(Some(sighting(7, round * 10)), at(100)) != NamesakeNews::Nothing
            })
            .count();
        assert_eq!(reported, 0);
        let again = names.looked(Some(sighting(7, 700)), at(410));
        assert!(matches!(again, NamesakeNews::Shares(_)), "{again:?}");
        // It may announce itself less often than this daemon looks.
        assert_eq!(names.looked(None, at(439)), NamesakeNews::Nothing);
        assert!(names.alive().is_some());
        assert_eq!(names.looked(None, at(440)), NamesakeNews::IsOver);
        assert_eq!(names.looked(None, at(450)), NamesakeNews::Nothing);
        assert_eq!(names.alive(), None);
    }
}
