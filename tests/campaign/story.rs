//! The input of the checker: the campaign's faults, and what it accepts for each.

use crate::checker::{Away, Dark, Death, Span, Story, Suffered};
use crate::fault::Fault;
use crate::fleet::{Fleet, HOSTS};
use crate::ground::Kind;
use crate::list;
use crate::plan::Planned;

/// How long before a fault and after it nothing is asked of whom it troubles, in milliseconds.
const AROUND: i64 = 6_000;

/// How much longer, where another server has to take the place of one: those who watch over it
/// must notice and agree.
const SUCCESSION: i64 = 4_000;

/// How long hosts may take until they have found a master that serves again, in milliseconds.
const BACK: i64 = 3_000;

/// How long after its start the fleet is asked for something, in milliseconds.
const START: i64 = 4_000;

/// Everything that is known of a campaign that began and was decided then. Beside the planned faults
/// those count that nobody planned.
pub(crate) fn of(
    fleet: &mut Fleet,
    plan: &[Planned],
    (mut faults, unplanned): (Vec<Suffered>, &[(Fault, Vec<Span>)]),
    (began, decided): (i64, i64),
) -> Story {
    let kind = fleet.ground().kind();
    let mut suffered: Vec<(Fault, Span)> = plan
        .iter()
        .zip(&faults)
        .map(|(planned, fault)| (planned.fault, fault.span))
        .collect();
    for (fault, spans) in unplanned {
        for span in spans.iter().copied() {
            suffered.push((*fault, span));
            let text = format!("{fault:?}, unplanned");
            faults.push(Suffered { span, text });
        }
    }
    let (records, sightings, deaths) = fleet.ended();
    let clocks = *fleet.ground().clocks();
    Story {
        jobs: fleet.jobs().rules.clone(),
        runs: fleet.log().entries(),
        records,
        readings: fleet.readings(),
        faults,
        decided: Some(Span {
            from: began + START,
            until: decided,
        }),
        quiet: quiet(kind, began + START, decided, &suffered),
        calm: calm(kind, began + START, decided, &suffered),
        dark: dark(kind, &suffered),
        forgotten: forgotten(kind, &suffered, fleet.unread()),
        clock_ahead: kind.ahead(&clocks),
        clock_behind: kind.behind(&clocks),
        clock_spread: kind.spread(&clocks),
        sightings,
        votes: kind == Kind::Redlock,
        deaths: deaths
            .into_iter()
            .map(|death| heard_last(death, &suffered))
            .collect(),
        ttl: list::TTL,
        deadline: list::DEADLINE,
    }
}

/// What a fault troubles: a span in which nothing is asked of a host, with what follows it.
fn trouble(kind: Kind, fault: Fault, span: Span) -> Span {
    let succession = fault.may_lose_data(kind) || fault == Fault::VanishReplicas;
    let after = match fault {
        // A master serves again, as was seen.
        Fault::Headless => BACK,
        _ if kind.fails_over() && succession => AROUND + SUCCESSION,
        _ => AROUND,
    };
    Span {
        from: span.from - AROUND,
        until: span.until + after,
    }
}

/// The spans in which the store and at least one host had been left alone for a while.
fn quiet(kind: Kind, began: i64, until: i64, faults: &[(Fault, Span)]) -> Vec<Span> {
    let of_host = |host: usize| {
        // A host that is stopped while it writes keeps the file locked.
        let locks = |fault: &Fault| kind == Kind::Sqlite && matches!(fault, Fault::PauseHost(_));
        let concerns = |fault: &Fault| fault.host().is_none_or(|of| of == host) || locks(fault);
        let troubles = faults
            .iter()
            .filter(|(fault, _)| fault.hinders() && concerns(fault));
        let troubles = troubles.map(|(fault, span)| trouble(kind, *fault, *span));
        between(troubles.collect(), began, until)
    };
    (0..HOSTS.len()).flat_map(of_host).collect()
}

/// The spans in which nothing and nobody had been troubled for a while.
fn calm(kind: Kind, began: i64, until: i64, faults: &[(Fault, Span)]) -> Vec<Span> {
    let troubles = faults.iter().filter(|(fault, _)| fault.hinders());
    let troubles = troubles.map(|(fault, span)| trouble(kind, *fault, *span));
    between(troubles.collect(), began, until)
}

/// What these spans leave.
fn between(mut spans: Vec<Span>, began: i64, until: i64) -> Vec<Span> {
    let (mut left, mut from) = (Vec::new(), began);
    spans.sort_by_key(|span| span.from);
    for span in spans {
        if from < span.from {
            left.push(Span {
                from,
                until: span.from,
            });
        }
        from = from.max(span.until);
    }
    if from < until {
        left.push(Span { from, until });
    }
    left
}

/// When certainly nobody could claim anything: no daemon ran, or the only server did not. A daemon that
/// is stopped runs no more than one that is dead, and one that drains claims nothing. Where the machine
/// had no time for anybody, nothing is certain.
fn dark(kind: Kind, faults: &[(Fault, Span)]) -> Vec<Dark> {
    let spans = |which: &dyn Fn(&Fault) -> bool| {
        let of = faults.iter().filter(|(fault, _)| which(fault));
        of.map(|(_, span)| *span).collect::<Vec<Span>>()
    };
    let away = |host: usize| {
        spans(&|fault| match fault {
            Fault::KillAll => true,
            Fault::PauseHost(of) | Fault::KillHost(of) | Fault::RestartHost(of) => *of == host,
            _ => false,
        })
    };
    let no_host = (0..HOSTS.len())
        .map(away)
        .reduce(|one, other| both(&one, &other));
    let no_store = spans(&|fault| kind == Kind::Redis && *fault == Fault::PauseServer(0));
    let uncertain = spans(&|fault| *fault == Fault::Starved);
    let joined = spans(&|fault| *fault == Fault::Join);
    let meets = |spans: &[Span], span: &Span| spans.iter().any(|other| other.meets(*span));
    let no_host = no_host
        .into_iter()
        .flatten()
        .filter(|span| !meets(&joined, span));
    let all = no_host.map(|span| (span, Away::Hosts));
    let all = all.chain(no_store.iter().map(|span| (*span, Away::Store)));
    all.filter(|(span, _)| !meets(&uncertain, span))
        .map(|(span, why)| Dark { span, why })
        .collect()
}

/// The time that is in a span of each.
fn both(one: &[Span], other: &[Span]) -> Vec<Span> {
    let pairs = one.iter().flat_map(|a| other.iter().map(move |b| (a, b)));
    let shared = pairs.map(|(a, b)| Span {
        from: a.from.max(b.from),
        until: a.until.min(b.until),
    });
    shared.filter(|span| span.from < span.until).collect()
}

/// Around each loss of data verdicts may be lost with it: those that nobody had read.
fn forgotten(kind: Kind, faults: &[(Fault, Span)], unread: &[Span]) -> Vec<Span> {
    let loses = |fault: &Fault| fault.may_lose_data(kind);
    let losses = faults.iter().filter(|(fault, _)| loses(fault));
    let spans = losses.map(|(fault, span)| (*span, trouble(kind, *fault, *span)));
    if kind.forgets() {
        let troubles = spans.map(|(_, trouble)| trouble);
        return troubles.chain(unread.iter().copied()).collect();
    }
    // Of independent nodes a single loss is nobody's; several, one soon after the other, may be a
    // majority's. A node that is away then counts as lost.
    let away = |fault: &Fault| {
        loses(fault)
            || matches!(
                fault,
                Fault::PauseServer(_) | Fault::StallServer(_) | Fault::Net(..)
            )
    };
    spans
        .filter(|(span, trouble)| {
            let others = faults
                .iter()
                .filter(|(fault, other)| away(fault) && other != span);
            others
                .into_iter()
                .any(|(_, other)| other.from <= trouble.until && trouble.from <= other.until)
        })
        .map(|(_, trouble)| trouble)
        .collect()
}

/// A death, from when nothing that its daemon had sent was under way any more.
fn heard_last(mut death: Death, faults: &[(Fault, Span)]) -> Death {
    let delays = faults.iter().filter(|(fault, _)| fault.delays());
    for (_, span) in delays {
        if span.from <= death.at && death.at <= span.until + AROUND {
            death.at = death.at.max(span.until + 200);
        }
    }
    death
}

#[cfg(test)]
mod tests {
    use super::*;

    const STARVED: (Fault, Span) = (
        Fault::Starved,
        Span {
            from: 30_000,
            until: 32_000,
        },
    );
    const END: i64 = 100_000;

    /// The first and the last instant of the time that these spans leave out.
    fn excused(spans: &[Span]) -> (i64, i64) {
        let out: Vec<i64> = (0..END)
            .step_by(1_000)
            .filter(|at| !spans.iter().any(|span| span.holds(*at)))
            .collect();
        let (first, last) = (out[0], out[out.len() - 1]);
        let whole = (last - first) / 1_000 + 1;
        assert_eq!(
            i64::try_from(out.len()).unwrap(),
            whole,
            "one time: {out:?}"
        );
        (first, last)
    }

    #[test]
    fn starving_excuses_all_hosts_for_as_long_as_a_fault_and_no_longer() {
        for kind in crate::ground::KINDS {
            let kind = Kind::named(kind);
            // Servers that starve are replaced, where others can take their place.
            let until = 32_000 + AROUND + if kind.fails_over() { SUCCESSION } else { 0 };
            let begins = 30_000 - AROUND;
            let (first, last) = excused(&quiet(kind, 0, END, &[STARVED]));
            assert!(
                (begins..=begins + 1_000).contains(&first),
                "{kind:?}: {first}"
            );
            assert!((until - 1_000..=until).contains(&last), "{kind:?}: {last}");
            assert_eq!(
                excused(&calm(kind, 0, END, &[STARVED])),
                (first, last),
                "{kind:?}"
            );
        }
    }

    #[test]
    fn starving_loses_a_verdict_only_where_a_replica_may_take_the_place_of_its_server() {
        for kind in crate::ground::KINDS {
            let kind = Kind::named(kind);
            let lost = !forgotten(kind, &[STARVED], &[]).is_empty();
            assert_eq!(lost, kind.fails_over(), "{kind:?}");
        }
    }

    #[test]
    fn what_a_dead_daemon_had_sent_arrives_at_most_when_the_starving_is_over() {
        let died = |at| {
            let death = Death {
                host: "h".to_owned(),
                pid: 1,
                at,
            };
            heard_last(death, &[STARVED]).at
        };
        assert_eq!(died(31_000), 32_200);
        assert_eq!(died(29_999), 29_999, "before it nothing was late");
        assert_eq!(died(50_000), 50_000);
    }

    #[test]
    fn what_nobody_read_before_a_loss_is_not_asked_for_where_one_loss_is_enough() {
        let unread = Span {
            from: 10_000,
            until: 31_000,
        };
        let holds = |kind: Kind| {
            let spans = forgotten(kind, &[STARVED], &[unread]);
            spans.iter().any(|span| span.holds(11_000))
        };
        assert!(holds(Kind::Redis) && holds(Kind::Sentinel));
        assert!(!holds(Kind::Redlock) && !holds(Kind::Sqlite));
    }

    #[test]
    fn it_is_dark_while_no_daemon_runs_or_the_only_server_does_not() {
        let span = |from, until| Span { from, until };
        let dark = |kind, faults: &[(Fault, Span)]| {
            let dark = dark(kind, faults);
            let ends = dark
                .into_iter()
                .map(|it| (it.span.from, it.span.until, it.why));
            ends.collect::<Vec<_>>()
        };
        let away = [
            (Fault::KillHost(0), span(10_000, 12_000)),
            (Fault::PauseHost(1), span(9_000, 11_500)),
            (Fault::RestartHost(2), span(10_500, 13_000)),
        ];
        let hosts = (10_500, 11_500, Away::Hosts);
        assert_eq!(dark(Kind::Cluster, &away), [hosts]);
        assert_eq!(dark(Kind::Cluster, &away[1..]), [], "one was there");
        let joined = (Fault::Join, span(5_000, 10_600));
        assert_eq!(dark(Kind::Cluster, &[&away[..], &[joined]].concat()), []);
        let starved = (Fault::Starved, span(11_000, 12_100));
        assert_eq!(dark(Kind::Cluster, &[&away[..], &[starved]].concat()), []);
        let all = [(Fault::KillAll, span(20_000, 28_000))];
        assert_eq!(dark(Kind::Redlock, &all), [(20_000, 28_000, Away::Hosts)]);
        let server = [(Fault::PauseServer(0), span(30_000, 34_000))];
        assert_eq!(dark(Kind::Redis, &server), [(30_000, 34_000, Away::Store)]);
        assert_eq!(dark(Kind::Redlock, &server), [], "others are there");
    }
}
