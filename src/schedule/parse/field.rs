//! One field of cron text: lists of values, ranges and steps, as bits.

use super::super::CronError;
use super::super::calendar::Weekdays;
use super::kind::{DAY, FieldKind, WEEKDAY};
use super::piece::Piece;
use super::refusal;

/// A field of numbers and names only, as bits.
pub(super) fn numbers(field: Piece<'_>, kind: FieldKind) -> Result<u64, CronError> {
    let mut bits = 0;
    for item in items(field, kind)? {
        bits |= range(item, kind)?;
    }
    Ok(bits)
}

/// The day-of-month field: bits, and whether it names the last day.
pub(super) fn days_of_month(field: Piece<'_>) -> Result<(u64, bool), CronError> {
    let (mut bits, mut last) = (0, false);
    for item in items(field, DAY)? {
        match item.text {
            "L" | "l" => last = true,
            _ => bits |= range(item, DAY)?,
        }
    }
    Ok((bits, last))
}

pub(super) fn weekdays(field: Piece<'_>) -> Result<Weekdays, CronError> {
    // 7 is Sunday too.
    let fold = |bits: u64| u8::try_from((bits | bits >> 7) & 0x7f).unwrap_or_default();
    let mut weekdays = Weekdays::default();
    for item in items(field, WEEKDAY)? {
        if let Some((day, nth)) = item.split('#') {
            let day = fold(1 << value(day, WEEKDAY)?);
            let index = match nth.text {
                "1" => 0,
                "2" => 1,
                "3" => 2,
                "4" => 3,
                "5" => 4,
                _ => {
                    return item.fail(
                        format!("{:?} is not a week of the month", nth.text),
                        "write 5#1 to 5#5 for the first to the fifth Friday",
                    );
                }
            };
            if let Some(nth) = weekdays.nth.get_mut(index) {
                *nth |= day;
            }
        } else if let Some(day) = item.text.strip_suffix(['L', 'l']) {
            if day.is_empty() {
                return item.fail(
                    "L alone is not a weekday",
                    "write 5L for the last Friday of the month",
                );
            }
            let day = Piece {
                text: day,
                at: item.at,
            };
            weekdays.last |= fold(1 << value(day, WEEKDAY)?);
        } else {
            weekdays.every |= fold(range(item, WEEKDAY)?);
        }
    }
    Ok(weekdays)
}

/// The items of a list; none may be empty.
fn items(field: Piece<'_>, kind: FieldKind) -> Result<Vec<Piece<'_>>, CronError> {
    let mut items = Vec::new();
    let mut rest = Some(field);
    while let Some(piece) = rest {
        let (item, more) = piece
            .split(',')
            .map_or((piece, None), |(item, more)| (item, Some(more)));
        rest = more;
        if item.text.is_empty() {
            return Err(CronError::new(
                // The comma beside the hole is what a person can see.
                item.at.saturating_sub(1).max(field.at)..(item.at + 1).min(field.columns().end),
                format!("empty list item in the {} field", kind.name),
                "remove the comma too many",
            ));
        }
        items.push(item);
    }
    Ok(items)
}

/// `*`, `a`, `a-b`, each perhaps with `/n`, as bits.
fn range(item: Piece<'_>, kind: FieldKind) -> Result<u64, CronError> {
    refusal::refuse_foreign(item, kind)?;
    let (base, step) = match item.split('/') {
        Some((base, step)) => (base, Some((step, step_of(step, kind)?))),
        None => (item, None),
    };
    let (from, until) = match base.text {
        "*" => (kind.least, kind.most),
        "?" if matches!(kind.name, "day-of-month" | "weekday") => (kind.least, kind.most),
        "?" => {
            return base.fail(
                format!("? does not belong in the {} field", kind.name),
                "write *; only the day fields may say ?",
            );
        }
        _ => match (base.split('-'), step) {
            (Some((from, until)), _) => bounds(base, from, until, kind)?,
            (None, None) => {
                let only = value(base, kind)?;
                (only, only)
            }
            (None, Some(_)) => (value(base, kind)?, kind.most),
        },
    };
    let step = step.map_or(1, |(_, step)| step);
    Ok((from..=until)
        .step_by(step)
        .fold(0, |bits, n| bits | 1 << n))
}

fn bounds(
    range: Piece<'_>,
    from: Piece<'_>,
    until: Piece<'_>,
    kind: FieldKind,
) -> Result<(u32, u32), CronError> {
    let (low, high) = (value(from, kind)?, value(until, kind)?);
    if low <= high {
        return Ok((low, high));
    }
    let hint = if kind.name == WEEKDAY.name && high == 0 {
        format!("write {low}-7: 7 is Sunday too")
    } else {
        format!(
            "write {low}-{},{}-{high}",
            if kind.most == 7 { 6 } else { kind.most },
            kind.least
        )
    };
    range.fail(format!("the range {} goes backward", range.text), hint)
}

fn step_of(step: Piece<'_>, kind: FieldKind) -> Result<usize, CronError> {
    let digits = !step.text.is_empty() && step.text.bytes().all(|b| b.is_ascii_digit());
    match (digits, step.text.trim_start_matches('0')) {
        (true, "") => step.fail("a step of 0 goes nowhere", "write a step of 1 or more"),
        // A step beyond the range leaves the first value only, however large it is.
        (true, number) => Ok(number.parse().unwrap_or(usize::MAX)),
        (false, _) => Err(CronError::new(
            step.at - 1..step.columns().end,
            format!("{:?} is not a step in the {} field", step.text, kind.name),
            "write a number after the slash, as in */5",
        )),
    }
}

/// A number or a name, within the field's bounds.
fn value(piece: Piece<'_>, kind: FieldKind) -> Result<u32, CronError> {
    let text = piece.text;
    if text.is_empty() {
        return Err(CronError::new(
            piece.at.saturating_sub(1)..piece.at + 1,
            format!("a value is missing in the {} field", kind.name),
            format!("write {} to {}", kind.least, kind.most),
        ));
    }
    if text.bytes().all(|b| b.is_ascii_digit()) {
        return match text.parse() {
            Ok(number) if (kind.least..=kind.most).contains(&number) => Ok(number),
            _ => piece.fail(
                format!("{text} is out of range in the {} field", kind.name),
                format!("write {} to {}", kind.least, kind.most),
            ),
        };
    }
    let index = kind.names.iter().position(|n| n.eq_ignore_ascii_case(text));
    match index.and_then(|index| u32::try_from(index).ok()) {
        Some(index) => Ok(kind.least + index),
        None => Err(refusal::unknown(piece, kind)),
    }
}
