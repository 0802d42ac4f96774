//! Properties of every expression, zone and instant.

use std::str::FromStr as _;
use std::time::Duration;

use chrono::DateTime;
use chrono_tz::Tz;
use croner::parser::{CronParser, Seconds};
use proptest::prelude::*;

use crate::schedule::{Schedule, parse};
use crate::time::Timestamp;

/// A field of cron text: stars, values, ranges, lists and steps.
fn field(least: u32, most: u32) -> impl Strategy<Value = String> {
    let item = prop_oneof![
        (least..=most).prop_map(|n| n.to_string()),
        (least..=most, least..=most).prop_map(|(a, b)| format!("{}-{}", a.min(b), a.max(b))),
        (least..=most, least..=most, 1_u32..9).prop_map(|(a, b, n)| format!(
            "{}-{}/{n}",
            a.min(b),
            a.max(b)
        )),
        (least..=most, 1_u32..9).prop_map(|(a, n)| format!("{a}/{n}")),
    ];
    prop_oneof![
        4 => Just("*".to_owned()),
        2 => (1_u32..70).prop_map(|n| format!("*/{n}")),
        4 => prop::collection::vec(item, 1..3).prop_map(|items| items.join(",")),
    ]
}

fn days() -> impl Strategy<Value = String> {
    prop_oneof![9 => field(1, 31), 1 => Just("L".to_owned())]
}

fn weekdays() -> impl Strategy<Value = String> {
    prop_oneof![
        8 => field(0, 7),
        1 => (0_u32..=7).prop_map(|day| format!("{day}L")),
        1 => (0_u32..=7, 1_u32..=5).prop_map(|(day, nth)| format!("{day}#{nth}")),
    ]
}

fn expression() -> impl Strategy<Value = String> {
    let five = (field(0, 59), field(0, 23), days(), field(1, 12), weekdays())
        .prop_map(|(m, h, d, mo, w)| format!("{m} {h} {d} {mo} {w}"));
    (prop::option::weighted(0.3, field(0, 59)), five).prop_map(|(second, five)| match second {
        Some(second) => format!("{second} {five}"),
        None => five,
    })
}

fn zone() -> impl Strategy<Value = Tz> {
    prop::sample::select(vec![
        Tz::UTC,
        Tz::Europe__Berlin,
        Tz::America__New_York,
        Tz::Australia__Lord_Howe,
        Tz::America__Havana,
        Tz::Africa__Casablanca,
        Tz::Africa__Cairo,
        Tz::Pacific__Chatham,
        Tz::Pacific__Apia,
        Tz::Antarctica__Troll,
    ])
}

/// Any millisecond from about 1993 to 2055.
fn instant() -> impl Strategy<Value = Timestamp> {
    (725_000_000_000_i64..2_700_000_000_000).prop_map(Timestamp::from_millis)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn neighbours_are_each_others_next_and_last(
        text in expression(), zone in zone(), from in instant(), part in 0.0..1.0_f64,
    ) {
        let Ok(schedule) = Schedule::cron(&text, zone) else { return Ok(()) };
        let next = schedule.next_after(from).expect("there is always a next");
        prop_assert!(next > from);
        let last = schedule.last_before(next).expect("there is always a last");
        prop_assert!(last <= from);
        prop_assert_eq!(schedule.next_after(last), Some(next));
        prop_assert!(schedule.is_occurrence(next));
        // From anywhere between the two, the answers are these two.
        let between = last.plus(next.since(last).mul_f64(part));
        prop_assert_eq!(schedule.next_after(between.max(last)), Some(next));
        if between > last {
            prop_assert_eq!(schedule.last_before(between), Some(last));
        }
    }

    #[test]
    fn occurrences_rise_and_keep_their_distance(
        text in expression(), zone in zone(), from in instant(),
    ) {
        let Ok(schedule) = Schedule::cron(&text, zone) else { return Ok(()) };
        // When the clock changes, two occurrences may come closer together by as much as it changes, but
        // never coincide. A wildcard schedule runs twice where the clock shows the same time twice.
        let shown = |at: Timestamp| {
            let utc = DateTime::from_timestamp_millis(at.millis()).expect("in range");
            utc.with_timezone(&zone).naive_local()
        };
        // The largest change is that of Apia in 2011, which skipped a day.
        let least = schedule.interval().saturating_sub(Duration::from_secs(25 * 3600));
        let end = Timestamp::from_millis(i64::MAX);
        let found: Vec<_> = schedule.between(from, end).take(12).collect();
        prop_assert_eq!(found.len(), 12);
        for pair in found.windows(2) {
            prop_assert!(pair[0] < pair[1]);
            let apart = pair[1].since(pair[0]);
            let twice = shown(pair[0]) == shown(pair[1]) && apart <= Duration::from_secs(25 * 3600);
            prop_assert!(twice || apart >= least.max(Duration::from_secs(1)));
        }
    }

    #[test]
    fn the_calendar_agrees_with_croner_on_plain_local_time(
        text in expression(), from in instant(),
    ) {
        let Ok(parsed) = parse::cron(&text) else { return Ok(()) };
        let fields: Vec<&str> = text.split(' ').collect();
        let [.., day, _, weekday] = fields.as_slice() else { unreachable!("five or six fields") };
        // croner combines the two day fields by a setting; this program, like Vixie cron, by a leading star.
        let both = day.starts_with('*') || weekday.starts_with('*');
        let parser = CronParser::builder().seconds(Seconds::Optional).dom_and_dow(both).sloppy_ranges(true).build();
        let croner = parser.parse(&text).expect("croner accepts what this program accepts");
        let local = from.millis() / 1000;
        let ours = parsed.calendar.next_from(local);
        let start = DateTime::from_timestamp(local, 0).expect("in range").naive_utc();
        let theirs = croner.find_next_occurrence(&start, true).ok();
        prop_assert_eq!(ours, theirs.map(|t| t.and_utc().timestamp()));
        let ours = parsed.calendar.last_until(local);
        let theirs = croner.find_previous_occurrence(&start, true).ok();
        prop_assert_eq!(ours, theirs.map(|t| t.and_utc().timestamp()));
    }

    #[test]
    fn no_text_makes_the_parser_panic_and_columns_lie_within_the_text(text in "[ -~é]{0,24}") {
        if let Err(error) = Schedule::cron(&text, Tz::UTC) {
            let length = text.chars().count();
            prop_assert!(error.columns.start <= error.columns.end);
            prop_assert!(error.columns.end <= length, "{:?} of {length}", error.columns);
        }
    }

    #[test]
    fn text_like_cron_makes_no_panic_either_and_its_errors_have_columns(
        text in "([*0-9,/#?L-]{1,4}|MON|JAN|@[a-z]{3,8}| ){1,11}",
    ) {
        if let Err(error) = Schedule::cron(&text, Tz::UTC) {
            prop_assert!(error.columns.end <= text.len(), "{:?}", error.columns);
            prop_assert!(error.columns.start < error.columns.end || text.is_empty());
        }
    }

    #[test]
    fn the_canonical_text_means_the_same(text in expression(), from in instant()) {
        let Ok(schedule) = Schedule::cron(&text, Tz::UTC) else { return Ok(()) };
        let again = Schedule::cron(&schedule.to_string(), Tz::UTC).expect("canonical text is good");
        prop_assert_eq!(schedule.next_after(from), again.next_after(from));
        prop_assert_eq!(schedule, again);
    }

    #[test]
    fn multiples_of_a_period_neighbour_each_other(millis in 1000_u64..10_000_000, from in instant()) {
        let every = Schedule::every(Duration::from_millis(millis)).expect("a good interval");
        let next = every.next_after(from).expect("there is always a next");
        prop_assert_eq!(every.last_before(next), Some(next.minus(Duration::from_millis(millis))));
        prop_assert!(next > from && next.since(from) <= Duration::from_millis(millis));
    }
}

#[test]
fn a_daily_job_runs_once_a_day_in_every_zone() {
    let daily = |zone| Schedule::cron("30 2 * * *", zone).expect("good cron text");
    for zone in chrono_tz::TZ_VARIANTS {
        let from = Timestamp::from_secs(1_767_225_600);
        let until = from.plus(Duration::from_secs(400 * 86_400));
        let count = daily(zone).between(from, until).count();
        assert_eq!(count, 400, "{zone}: one run a day, whatever its clock does");
    }
}

#[test]
fn an_unknown_zone_is_an_error() {
    assert!(Tz::from_str("Mars/Olympus").is_err());
}

#[test]
fn the_ends_of_time_have_no_further_occurrence() {
    let (first, last) = (
        Timestamp::from_millis(i64::MIN),
        Timestamp::from_millis(i64::MAX),
    );
    for text in ["* * * * *", "30 2 * * *", "*/5 * 29 2 *", "0 0 29 2 */7"] {
        for zone in [Tz::UTC, Tz::America__Havana, Tz::Pacific__Apia] {
            let schedule = Schedule::cron(text, zone).expect("good cron text");
            assert!(schedule.next_after(first).is_some(), "{text} in {zone}");
            assert!(schedule.last_before(last).is_some(), "{text} in {zone}");
            assert_eq!(schedule.next_after(last), None, "{text} in {zone}");
            assert_eq!(schedule.last_before(first), None, "{text} in {zone}");
        }
    }
    let every = Schedule::every(Duration::from_secs(7)).expect("a good interval");
    assert_eq!(every.next_after(last), None);
    assert!(every.last_before(last).is_some() && every.next_after(first).is_some());
}
