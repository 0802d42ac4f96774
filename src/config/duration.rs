//! Durations as people write them: `30s`, `1h30m`, `2d`, `250ms`, and a plain `0`.

use std::fmt::Write as _;
use std::time::Duration;

const UNITS: [(&str, u64); 6] = [
    ("ms", 1),
    ("s", 1000),
    ("m", 60_000),
    ("h", 3_600_000),
    ("d", 86_400_000),
    ("w", 7 * 86_400_000),
];

/// No duration of a job list is longer: 100 years.
const MAX: Duration = Duration::from_secs(100 * 365 * 86_400);

/// Why a text is no duration.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidDuration {
    /// A number that does not say what it counts.
    #[error("has no unit: write `{0}s`, `{0}m` or `{0}h`")]
    NoUnit(u64),
    /// A unit that is none.
    #[error("has an unknown unit `{0}`: use ms, s, m, h, d or w")]
    UnknownUnit(String),
    /// Beyond 100 years.
    #[error("is too long")]
    TooLong,
    /// Something else.
    #[error("is not a duration: write a number and a unit, such as `30s`, `15m` or `1h30m`")]
    Malformed,
}

/// Reads a duration: numbers with units (`ms`, `s`, `m`, `h`, `d`, `w`), or a plain `0`.
pub fn parse_duration(text: &str) -> Result<Duration, InvalidDuration> {
    let text = text.trim();
    if text.is_empty() {
        return Err(InvalidDuration::Malformed);
    }
    let mut millis: u64 = 0;
    let mut rest = text;
    while !rest.is_empty() {
        let digits = rest
            .find(|c: char| !c.is_ascii_digit())
            .unwrap_or(rest.len());
        let (number, tail) = rest.split_at(digits);
        if number.is_empty() {
            return Err(InvalidDuration::Malformed);
        }
        let number: u64 = number.parse().map_err(|_| InvalidDuration::TooLong)?;
        let tail = tail.trim_start();
        let letters = tail
            .find(|c: char| !c.is_alphabetic())
            .unwrap_or(tail.len());
        let (unit, tail) = tail.split_at(letters);
        let factor = match UNITS.iter().find(|(name, _)| *name == unit) {
            Some((_, factor)) => *factor,
            None if !unit.is_empty() => {
                return Err(InvalidDuration::UnknownUnit(unit.to_owned()));
            }
            None if !tail.is_empty() => return Err(InvalidDuration::Malformed),
            None if number == 0 && millis == 0 => 0,
            None => return Err(InvalidDuration::NoUnit(number)),
        };
        millis = number
            .checked_mul(factor)
            .and_then(|n| millis.checked_add(n))
            .ok_or(InvalidDuration::TooLong)?;
        rest = tail.trim_start();
    }
    let duration = Duration::from_millis(millis);
    if duration > MAX {
        return Err(InvalidDuration::TooLong);
    }
    Ok(duration)
}

/// A duration as it would be written in a job list, in whole milliseconds.
pub fn show_duration(duration: Duration) -> String {
    let mut millis = duration.as_millis();
    if millis == 0 {
        return "0s".to_owned();
    }
    let mut text = String::new();
    // Weeks are read but not written: people count longer times in days.
    for (name, factor) in UNITS.iter().rev().skip(1) {
        let count = millis / u128::from(*factor);
        millis %= u128::from(*factor);
        if count > 0 {
            let _ = write!(text, "{count}{name}");
        }
    }
    text
}

/// Writes about how long a duration is: days to the hour, hours to the minute, less to the second.
pub fn show_roughly(duration: Duration) -> String {
    let seconds = duration.as_secs();
    let step = match seconds {
        86_400.. => 3_600,
        3_600.. => 60,
        _ => 1,
    };
    let steps = (seconds + step / 2) / step;
    show_duration(Duration::from_secs(steps * step))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rough_duration_has_two_units_at_most() {
        for (seconds, text) in [
            (0, "0s"),
            (59, "59s"),
            (61, "1m1s"),
            (5_398, "1h30m"),
            (34_559_998, "400d"),
            (100_000, "1d4h"),
        ] {
            assert_eq!(show_roughly(Duration::from_secs(seconds)), text);
        }
    }
    use proptest::prelude::*;

    #[test]
    fn durations_are_read_as_written() {
        for (text, millis) in [
            ("0", 0),
            ("0s", 0),
            ("250ms", 250),
            ("30s", 30_000),
            ("1h30m", 5_400_000),
            ("1h 30m", 5_400_000),
            ("2d", 172_800_000),
            ("1w", 604_800_000),
        ] {
            assert_eq!(
                parse_duration(text),
                Ok(Duration::from_millis(millis)),
                "{text}"
            );
        }
    }

    #[test]
    fn what_is_no_duration_is_refused_with_the_reason() {
        assert_eq!(parse_duration("30"), Err(InvalidDuration::NoUnit(30)));
        assert_eq!(parse_duration("1h30"), Err(InvalidDuration::NoUnit(30)));
        assert_eq!(
            parse_duration("5min"),
            Err(InvalidDuration::UnknownUnit("min".to_owned()))
        );
        assert_eq!(
            parse_duration("3M"),
            Err(InvalidDuration::UnknownUnit("M".to_owned()))
        );
        for text in [
            "",
            "s",
            "-5s",
            "1.5h",
            "5 5",
            "99999999999999999999s",
            "200000000d",
        ] {
            assert!(parse_duration(text).is_err(), "{text}");
        }
    }

    proptest! {
        #[test]
        fn a_shown_duration_reads_back(millis in 0_u64..1_000_000_000_000) {
            let duration = Duration::from_millis(millis);
            prop_assert_eq!(parse_duration(&show_duration(duration)), Ok(duration));
        }

        #[test]
        fn no_text_makes_the_parser_panic(text in "\\PC*") {
            let _ = parse_duration(&text);
        }
    }
}
