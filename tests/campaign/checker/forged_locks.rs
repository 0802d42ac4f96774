//! Forged sightings: what is right passes, and each kind of wrong is caught.

use super::{Death, Holding, Rule, Sight, Sighting, Story, Write};
use crate::support::runlog::Entry;

const OURS: &str = "h1:11:run-1:0123456789abcdef0123456789abcdef";
const OTHER: &str = "h2:22:run-2:fedcba9876543210fedcba9876543210";
const FOREIGN: &str = "an-outsider-1";

fn seen(at: i64, sight: Sight) -> Sighting {
    Sighting {
        at,
        server: "server 0".to_owned(),
        lock: "beat",
        sight,
    }
}

fn holding(token: &str, until: Option<i64>) -> Holding {
    Holding {
        token: token.to_owned(),
        until,
    }
}

fn look(at: i64, key: Option<Holding>) -> Sighting {
    let (process, beside) = ("p1".to_owned(), None);
    seen(
        at,
        Sight::Look {
            process,
            key,
            beside,
        },
    )
}

fn write(at: i64, write: Write, by: &[&str]) -> Sighting {
    let by = by.iter().map(|word| (*word).to_owned()).collect();
    let in_script = true;
    seen(
        at,
        Sight::Write {
            write,
            by,
            in_script,
        },
    )
}

fn set(token: &str, until: i64) -> Write {
    Write::Set {
        token: token.to_owned(),
        until: Some(until),
        if_free: false,
    }
}

fn found(sightings: Vec<Sighting>) -> Option<Rule> {
    with(sightings, |_| {})
}

fn with(sightings: Vec<Sighting>, forge: impl FnOnce(&mut Story)) -> Option<Rule> {
    let mut story = Story {
        sightings,
        ttl: 3_000,
        ..Story::default()
    };
    forge(&mut story);
    story.first_violation().map(|violation| {
        assert!(!violation.to_string().is_empty());
        story.timeline(violation.at);
        violation.rule
    })
}

/// A run that lives from 1,000 until then.
fn run(token: &str, last_sign: i64) -> Entry {
    Entry {
        job: "beat".to_owned(),
        run_id: token.split(':').nth(2).unwrap().to_owned(),
        host: "h1".to_owned(),
        fence: 1,
        attempt: 1,
        scheduled: None,
        pid: 1,
        start: 1_000,
        last_sign,
        ended: true,
    }
}

#[test]
fn a_lease_that_is_taken_renewed_and_released_by_its_holder_passes() {
    let story = vec![
        look(900, None),
        write(1_000, set(OURS, 4_000), &["EVALSHA", OURS]),
        write(
            2_000,
            Write::Extend { until: 5_000 },
            &["EVALSHA", OTHER, OURS],
        ),
        look(2_100, Some(holding(OURS, Some(5_000)))),
        write(2_500, Write::Delete, &["EVALSHA", OURS]),
        write(2_600, set(OTHER, 5_600), &["EVALSHA", OTHER]),
        // Its lease ran out.
        write(5_700, set(OURS, 8_700), &["EVALSHA", OURS]),
    ];
    assert_eq!(found(story), None);
}

#[test]
fn whoever_writes_the_lock_of_another_is_caught() {
    for wrong in [
        set(OTHER, 6_000),
        Write::Extend { until: 6_000 },
        Write::Delete,
    ] {
        for holder in [OURS, FOREIGN] {
            let story = vec![
                look(1_000, Some(holding(holder, Some(4_000)))),
                write(3_000, wrong.clone(), &["EVALSHA", OTHER]),
            ];
            assert_eq!(found(story), Some(Rule::OwnLock), "{wrong:?} of {holder}");
        }
    }
}

#[test]
fn a_lock_without_end_is_its_holders_for_ever() {
    let endless = holding(FOREIGN, None);
    let story = vec![
        look(1_000, Some(endless)),
        write(90_000, set(OURS, 93_000), &["EVALSHA", OURS]),
    ];
    assert_eq!(found(story), Some(Rule::OwnLock));
}

#[test]
fn what_others_than_scripts_do_is_followed_and_not_judged() {
    let outsider = |at, write| {
        let by = vec![FOREIGN.to_owned()];
        seen(
            at,
            Sight::Write {
                write,
                by,
                in_script: false,
            },
        )
    };
    let take = |until| Write::Set {
        token: FOREIGN.to_owned(),
        until: Some(until),
        if_free: true,
    };
    // The first finds the lock taken; the second has it.
    let story = |at, token| {
        vec![
            look(900, Some(holding(OURS, Some(2_000)))),
            outsider(1_000, take(4_000)),
            write(1_500, Write::Delete, &["EVALSHA", OURS]),
            outsider(2_000, take(5_000)),
            write(at, set(token, at + 3_000), &["EVALSHA", token]),
        ]
    };
    assert_eq!(found(story(5_001, OURS)), None);
    assert_eq!(found(story(4_900, OURS)), Some(Rule::OwnLock));
}

#[test]
fn only_a_lock_that_old_data_brought_up_gives_way_to_a_later_lease_and_only_once() {
    let revived = |process: &str| {
        let (process, key) = (process.to_owned(), Some(holding(OURS, Some(4_400))));
        seen(
            1_500,
            Sight::Look {
                process,
                key,
                beside: None,
            },
        )
    };
    let take_back = || write(2_000, set(OTHER, 5_000), &["EVALSHA", OTHER]);
    assert_eq!(
        found(vec![look(1_000, None), revived("p2"), take_back()]),
        None
    );
    assert_eq!(
        found(vec![look(1_000, None), revived("p1"), take_back()]),
        Some(Rule::OwnLock)
    );
    let again = write(2_100, set(OURS, 5_100), &["EVALSHA", OURS]);
    let story = vec![look(1_000, None), revived("p2"), take_back(), again];
    assert_eq!(found(story), Some(Rule::OwnLock));
}

#[test]
fn nothing_is_judged_while_nothing_is_known() {
    let story = vec![
        look(1_000, Some(holding(OURS, Some(4_000)))),
        seen(1_100, Sight::Unknown),
        write(2_000, set(OTHER, 5_000), &["EVALSHA", OTHER]),
    ];
    assert_eq!(found(story), None);
}

#[test]
fn a_lock_taken_from_a_living_run_is_caught_by_looks_alone() {
    let story = |last_sign| {
        let sightings = vec![
            look(1_000, Some(holding(OURS, Some(4_000)))),
            look(2_000, Some(holding(OTHER, Some(5_000)))),
        ];
        with(sightings, |story| story.runs.push(run(OURS, last_sign)))
    };
    assert_eq!(story(1_900), None);
    assert_eq!(story(2_500), Some(Rule::OwnLock));
}

#[test]
fn a_dead_holder_has_its_lock_for_one_ttl_and_no_longer() {
    let story = |at, beside: bool| {
        let key = (!beside)
            .then(|| Some(holding(OURS, Some(at + 100))))
            .flatten();
        let beside = beside.then(|| holding(OURS, Some(at + 100)));
        let process = "p1".to_owned();
        let sightings = vec![seen(
            at,
            Sight::Look {
                process,
                key,
                beside,
            },
        )];
        with(sightings, |story| {
            story.deaths.push(Death {
                host: "h1".to_owned(),
                pid: 11,
                at: 1_000,
            });
        })
    };
    for beside in [false, true] {
        assert_eq!(story(3_900, beside), None);
        assert_eq!(story(4_100, beside), Some(Rule::Progress));
    }
}

#[test]
fn a_lease_longer_than_a_ttl_or_without_end_is_caught() {
    assert_eq!(
        found(vec![look(1_000, Some(holding(OURS, Some(4_000))))]),
        None
    );
    assert_eq!(
        found(vec![look(1_000, Some(holding(OURS, Some(4_100))))]),
        Some(Rule::Progress)
    );
    let endless = holding(OURS, None);
    assert_eq!(
        found(vec![look(1_000, Some(endless))]),
        Some(Rule::Progress)
    );
    let apart = |story: &mut Story| story.clock_spread = 800;
    let promoted = |until| vec![look(1_000, Some(holding(OURS, Some(until))))];
    assert_eq!(with(promoted(4_800), apart), None);
    assert_eq!(with(promoted(4_900), apart), Some(Rule::Progress));
    // What other programs do is their affair.
    assert_eq!(
        found(vec![look(1_000, Some(holding(FOREIGN, Some(99_000))))]),
        None
    );
}
