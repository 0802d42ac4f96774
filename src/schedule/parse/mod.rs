//! Parses cron text. Errors have columns and help.
//!
//! The dialect is that of Debian's cron, with seconds, `L`, `5L` and `5#3` added. Libraries are not
//! used because they accept text that cron rejects, and report no columns.

mod field;
mod kind;
mod nickname;
pub(super) mod phrase;
mod piece;
mod refusal;

use self::field::{days_of_month, numbers, weekdays};
use self::kind::{HOUR, MINUTE, MONTH, SECOND};
use self::nickname::nickname;
use self::phrase::Reading;
use self::piece::Piece;
use self::refusal::{command_among, wrong_count};
use super::CronError;
use super::calendar::{Calendar, Days, Join};

/// Parsed cron text.
#[derive(Debug)]
pub(super) struct Parsed {
    pub(super) calendar: Calendar,
    /// Whether the minute or hour field begins with `*`.
    pub(super) wildcard: bool,
    /// The text with one space between fields and names in capitals.
    pub(super) text: String,
}

/// Reads cron text.
pub(super) fn cron(text: &str) -> Result<Parsed, CronError> {
    if let Some((column, odd)) = text.chars().enumerate().find(|(_, c)| !c.is_ascii()) {
        return Err(CronError::new(
            column..column + 1,
            format!("{odd:?} does not belong in a cron expression"),
            "use digits, names such as MON, and the signs * , - / # L",
        ));
    }
    // From here on a byte is a column.
    let fields = split_fields(text);
    let Some(first) = fields.first() else {
        return Err(CronError::new(
            0..text.len(),
            "the expression is empty",
            "write five fields: minute hour day-of-month month weekday",
        ));
    };
    if first.text.starts_with('@') {
        return nickname(&fields, *first);
    }
    if let Some(reading) = phrase::reading(text) {
        let hint = match reading {
            Reading::Cron(cron) => format!("write \"{cron}\""),
            Reading::Every(period) => format!("write `every: {period}` instead of `schedule:`"),
        };
        let end = fields.last().map_or(first.at, |last| last.columns().end);
        return Err(CronError::new(
            first.at..end,
            "a schedule is cron text, not words",
            hint,
        ));
    }
    if let Some(error) = command_among(&fields) {
        return Err(error);
    }
    match fields.as_slice() {
        [minute, hour, day, month, weekday] => five(None, [*minute, *hour, *day, *month, *weekday]),
        [second, minute, hour, day, month, weekday] => {
            five(Some(*second), [*minute, *hour, *day, *month, *weekday])
        }
        _ => Err(wrong_count(&fields)),
    }
}

fn split_fields(text: &str) -> Vec<Piece<'_>> {
    let mut fields = Vec::new();
    let mut start = None;
    for (at, byte) in text.bytes().chain([b' ']).enumerate() {
        match (byte.is_ascii_whitespace(), start) {
            (false, None) => start = Some(at),
            (true, Some(from)) => {
                fields.extend(text.get(from..at).map(|text| Piece { text, at: from }));
                start = None;
            }
            _ => {}
        }
    }
    fields
}

/// The bits of a field in the integer that has room for its largest value.
fn fitting<T: TryFrom<u64> + Default>(bits: u64) -> T {
    debug_assert!(T::try_from(bits).is_ok(), "{bits:b}");
    T::try_from(bits).unwrap_or_default()
}

fn five(second: Option<Piece<'_>>, fields: [Piece<'_>; 5]) -> Result<Parsed, CronError> {
    let [minute, hour, day, month, weekday] = fields;
    let seconds = match second {
        Some(second) => numbers(second, SECOND)?,
        None => 1,
    };
    let minutes = numbers(minute, MINUTE)?;
    let hours = fitting(numbers(hour, HOUR)?);
    let (of_month, last_of_month) = days_of_month(day)?;
    let months = fitting(numbers(month, MONTH)?);
    let weekdays = weekdays(weekday)?;
    let calendar = Calendar {
        seconds,
        minutes,
        hours,
        months,
        days: Days {
            of_month: fitting(of_month),
            last_of_month,
            weekdays,
            join: if day.begins_with_star() || weekday.begins_with_star() {
                Join::Both
            } else {
                Join::Either
            },
        },
    };
    if calendar.never_comes() {
        return Err(CronError::new(
            day.at..weekday.columns().end,
            "no such date ever comes",
            "check the day of the month against the month: \
             February has at most 29 days; April, June, September and November have 30",
        ));
    }
    let text = second.into_iter().chain(fields).map(|f| f.text);
    let text = text.collect::<Vec<_>>().join(" ").to_ascii_uppercase();
    Ok(Parsed {
        calendar,
        wildcard: minute.begins_with_star() || hour.begins_with_star(),
        text,
    })
}
