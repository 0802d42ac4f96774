//! Which times an expression names.

use chrono_tz::Tz::UTC;

use super::{at, cron, next};
use crate::schedule::{IntervalError, Schedule};
use std::time::Duration;

/// The expression names just these instants of 2026 and later (UTC).
fn names(text: &str, expected: &[&str]) {
    let found = next(&cron(text, UTC), "2026-01-01T00:00:00Z", expected.len());
    assert_eq!(found, expected, "{text}");
}

#[test]
fn five_fields_mean_second_zero() {
    names(
        "30 2 * * *",
        &["2026-01-01T02:30:00Z", "2026-01-02T02:30:00Z"],
    );
}

#[test]
fn six_fields_begin_with_seconds() {
    names(
        "15,45 0 * * * *",
        &[
            "2026-01-01T00:00:15Z",
            "2026-01-01T00:00:45Z",
            "2026-01-01T01:00:15Z",
        ],
    );
}

#[test]
fn a_step_beyond_the_range_leaves_the_first_value() {
    names(
        "*/90 * * * *",
        &["2026-01-01T01:00:00Z", "2026-01-01T02:00:00Z"],
    );
    names(
        "*/99999999999999999999999 3 * * *",
        &["2026-01-01T03:00:00Z", "2026-01-02T03:00:00Z"],
    );
}

#[test]
fn a_value_with_a_step_runs_to_the_end_of_the_field() {
    names(
        "50/5 3 * * *",
        &[
            "2026-01-01T03:50:00Z",
            "2026-01-01T03:55:00Z",
            "2026-01-02T03:50:00Z",
        ],
    );
}

#[test]
fn seven_is_sunday_also_at_the_end_of_a_range() {
    // 2 January 2026 is a Friday.
    names(
        "0 0 * * 5-7",
        &[
            "2026-01-02T00:00:00Z",
            "2026-01-03T00:00:00Z",
            "2026-01-04T00:00:00Z",
            "2026-01-09T00:00:00Z",
        ],
    );
    names(
        "0 0 * * 7",
        &["2026-01-04T00:00:00Z", "2026-01-11T00:00:00Z"],
    );
}

#[test]
fn names_are_read_in_any_case_and_in_ranges() {
    names(
        "0 0 1 feb-Apr,DEC ?",
        &[
            "2026-02-01T00:00:00Z",
            "2026-03-01T00:00:00Z",
            "2026-04-01T00:00:00Z",
            "2026-12-01T00:00:00Z",
        ],
    );
    names(
        "0 0 ? * mon",
        &["2026-01-05T00:00:00Z", "2026-01-12T00:00:00Z"],
    );
}

#[test]
fn two_restricted_day_fields_match_either_way() {
    names(
        "0 0 13 * 5",
        &[
            "2026-01-02T00:00:00Z",
            "2026-01-09T00:00:00Z",
            "2026-01-13T00:00:00Z",
        ],
    );
}

#[test]
fn a_day_field_that_begins_with_a_star_must_match_too() {
    // Odd days that are Fridays.
    names(
        "0 0 */2 * 5",
        &[
            "2026-01-09T00:00:00Z",
            "2026-01-23T00:00:00Z",
            "2026-02-13T00:00:00Z",
        ],
    );
    names(
        "0 0 13 * */5",
        &["2026-02-13T00:00:00Z", "2026-03-13T00:00:00Z"],
    );
}

#[test]
fn last_days_and_numbered_weekdays() {
    names(
        "0 0 L * *",
        &["2026-01-31T00:00:00Z", "2026-02-28T00:00:00Z"],
    );
    names(
        "0 0 15,L * *",
        &["2026-01-15T00:00:00Z", "2026-01-31T00:00:00Z"],
    );
    names(
        "0 0 * * 5L",
        &["2026-01-30T00:00:00Z", "2026-02-27T00:00:00Z"],
    );
    names(
        "0 0 * * FRI#3",
        &["2026-01-16T00:00:00Z", "2026-02-20T00:00:00Z"],
    );
    names(
        "0 0 * * 7#5",
        &["2026-03-29T00:00:00Z", "2026-05-31T00:00:00Z"],
    );
}

#[test]
fn nicknames_stand_for_their_fields() {
    for (nickname, text) in [
        ("@yearly", "0 0 1 1 *"),
        ("@annually", "0 0 1 1 *"),
        ("@monthly", "0 0 1 * *"),
        ("@weekly", "0 0 * * 0"),
        ("@daily", "0 0 * * *"),
        ("@midnight", "0 0 * * *"),
        ("@hourly", "0 * * * *"),
    ] {
        let from = "2026-03-07T11:30:00Z";
        assert_eq!(
            next(&cron(nickname, UTC), from, 5),
            next(&cron(text, UTC), from, 5)
        );
        assert_eq!(cron(nickname, UTC).to_string(), nickname);
    }
}

#[test]
fn leap_days_are_found_beyond_eight_years() {
    let leap = cron("0 0 29 2 *", UTC);
    assert_eq!(
        next(&leap, "2096-03-01T00:00:00Z", 1),
        ["2104-02-29T00:00:00Z"]
    );
    assert_eq!(
        leap.last_before(at("2104-02-29T00:00:00Z")),
        Some(at("2096-02-29T00:00:00Z"))
    );
    // A leap day that is a Sunday, across the year 2100, which has none.
    assert_eq!(
        next(&cron("0 0 29 2 */7", UTC), "2032-03-02T00:00:00Z", 3),
        [
            "2060-02-29T00:00:00Z",
            "2088-02-29T00:00:00Z",
            "2128-02-29T00:00:00Z"
        ]
    );
}

#[test]
fn the_canonical_text_has_single_spaces_and_capitals() {
    assert_eq!(
        cron("  */5\t9-17  * * mon-fri ", UTC).to_string(),
        "*/5 9-17 * * MON-FRI"
    );
}

#[test]
fn intervals_are_aligned_to_the_epoch() {
    let every = Schedule::every(Duration::from_millis(1500)).expect("a good interval");
    assert_eq!(
        next(&every, "1970-01-01T00:00:00Z", 3),
        [
            "1970-01-01T00:00:01.500Z",
            "1970-01-01T00:00:03Z",
            "1970-01-01T00:00:04.500Z"
        ]
    );
    assert_eq!(
        every.last_before(at("1970-01-01T00:00:03Z")),
        Some(at("1970-01-01T00:00:01.500Z"))
    );
    let quarter = Schedule::every(Duration::from_secs(900)).expect("a good interval");
    assert_eq!(
        next(&quarter, "2026-01-01T00:07:13.123Z", 1),
        ["2026-01-01T00:15:00Z"]
    );
    assert_eq!(quarter.to_string(), "every 15m");
}

#[test]
fn intervals_too_short_too_fine_or_too_long_are_refused() {
    assert_eq!(
        Schedule::every(Duration::from_millis(999)),
        Err(IntervalError::TooShort)
    );
    assert_eq!(
        Schedule::every(Duration::from_micros(1_000_500)),
        Err(IntervalError::TooFine)
    );
    assert_eq!(
        Schedule::every(Duration::from_secs(u64::MAX)),
        Err(IntervalError::TooLong)
    );
}

#[test]
fn the_shortest_distance_is_that_of_the_local_clock() {
    for (text, seconds) in [
        ("* * * * *", 60),
        ("*/15 * * * *", 900),
        ("*/7 * * * *", 240),
        ("0 0,1 * * *", 3600),
        ("0 0,23 * * *", 3600),
        ("30 2 * * *", 86_400),
        ("30 2 * * 1", 7 * 86_400),
        ("30 2 1 * *", 28 * 86_400),
        ("0 0,23 1 * *", 23 * 3600),
        ("0 0 29 2 *", 1461 * 86_400),
        ("* * * * * *", 1),
        ("59,0 59,0 23,0 * * *", 1),
        ("*/20 30 4 * * *", 20),
    ] {
        assert_eq!(
            cron(text, UTC).interval(),
            Duration::from_secs(seconds),
            "{text}"
        );
    }
}
