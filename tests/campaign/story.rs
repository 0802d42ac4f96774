//! What the checker is told: the campaign's faults, and what is forgiven for each.

use crate::checker::{Death, Span, Story, Suffered};
use crate::fault::Fault;
use crate::fleet::{Fleet, HOSTS};
use crate::ground::{Kind, SERVER_CLOCKS};
use crate::list;
use crate::plan::Planned;

/// How long before a fault and after it nothing is asked of whom it troubles, in milliseconds.
const AROUND: i64 = 6_000;

/// How much longer, where another server has to take the place of one: those who watch over it
/// must notice and agree.
const SUCCESSION: i64 = 4_000;

/// How long after its start the fleet is asked for something, in milliseconds.
const START: i64 = 4_000;

/// Everything that is known of a campaign that began and was decided then.
pub(crate) fn of(
    fleet: &mut Fleet,
    plan: &[Planned],
    faults: Vec<Suffered>,
    (began, decided): (i64, i64),
) -> Story {
    let kind = fleet.ground().kind();
    let suffered: Vec<(Fault, Span)> = plan
        .iter()
        .zip(&faults)
        .map(|(planned, fault)| (planned.fault, fault.span))
        .collect();
    let (records, sightings, deaths) = fleet.ended();
    let clocks = || SERVER_CLOCKS.into_iter();
    let (earliest, latest) = (clocks().min().unwrap_or(0), clocks().max().unwrap_or(0));
    Story {
        jobs: list::JOBS.to_vec(),
        runs: fleet.log().entries(),
        records,
        faults,
        decided: Some(Span {
            from: began + START,
            until: decided,
        }),
        quiet: quiet(kind, began + START, decided, &suffered),
        forgotten: forgotten(kind, &suffered),
        clock_ahead: latest,
        clock_spread: if kind.fails_over() {
            latest - earliest
        } else {
            0
        },
        sightings,
        deaths: deaths
            .into_iter()
            .map(|death| heard_last(death, &suffered))
            .collect(),
        ttl: list::TTL,
    }
}

/// What a fault troubles: a span in which nothing is asked of a host, with what follows it.
fn trouble(kind: Kind, fault: Fault, span: Span) -> Span {
    let more = if kind.fails_over() && fault.may_lose_data(kind) {
        SUCCESSION
    } else {
        0
    };
    Span {
        from: span.from - AROUND,
        until: span.until + AROUND + more,
    }
}

/// The spans in which the store and at least one host had been left alone for a while.
fn quiet(kind: Kind, began: i64, until: i64, faults: &[(Fault, Span)]) -> Vec<Span> {
    let troubled = |host: usize| -> Vec<Span> {
        faults
            .iter()
            .filter(|(fault, _)| fault.hinders() && fault.host().is_none_or(|of| of == host))
            .map(|(fault, span)| trouble(kind, *fault, *span))
            .collect()
    };
    let mut quiet = Vec::new();
    for host in 0..HOSTS.len() {
        let mut from = began;
        let mut spans = troubled(host);
        spans.sort_by_key(|span| span.from);
        for span in spans {
            if from < span.from {
                quiet.push(Span {
                    from,
                    until: span.from,
                });
            }
            from = from.max(span.until);
        }
        if from < until {
            quiet.push(Span { from, until });
        }
    }
    quiet
}

/// Around each loss of data verdicts may be lost with it: those that nobody had read.
fn forgotten(kind: Kind, faults: &[(Fault, Span)]) -> Vec<Span> {
    let loses = |fault: &Fault| fault.may_lose_data(kind);
    let losses = faults.iter().filter(|(fault, _)| loses(fault));
    let spans = losses.map(|(fault, span)| (*span, trouble(kind, *fault, *span)));
    if kind.forgets() {
        return spans.map(|(_, trouble)| trouble).collect();
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
