//! Text that is rejected with specific help: the syntax of other programs, and common mistakes.

use super::super::CronError;
use super::kind::{FieldKind, MONTH, WEEKDAY};
use super::piece::Piece;

/// A line of a crontab holds its command, and perhaps a user, after the five fields.
pub(super) fn command_among(fields: &[Piece<'_>]) -> Option<CronError> {
    let sixth = fields.get(5)?;
    let is_path = |piece: &Piece<'_>| piece.text.starts_with(['/', '.']);
    let is_word = |piece: &Piece<'_>| piece.text.starts_with(|c: char| c.is_ascii_alphabetic());
    let more = fields.iter().skip(6);
    if !(is_path(sixth) || more.clone().any(|piece| is_path(piece) || is_word(piece))) {
        return None;
    }
    let end = fields.last().map_or(sixth.at, |last| last.columns().end);
    Some(CronError::new(
        sixth.at..end,
        "a command stands where the schedule should end",
        "write the five fields alone; the command goes to `command:`, a user to `user:`",
    ))
}

pub(super) fn wrong_count(fields: &[Piece<'_>]) -> CronError {
    let columns = match (fields.first(), fields.get(6), fields.last()) {
        // Too many: what is too much.
        (_, Some(seventh), Some(last)) => seventh.at..last.columns().end,
        (Some(first), _, Some(last)) => first.at..last.columns().end,
        _ => 0..0,
    };
    let hint = match fields.len() {
        0..5 => "write five fields: minute hour day-of-month month weekday",
        7 => "there is no year field: write five fields, or six with seconds first",
        _ => "write five fields, or six with seconds first",
    };
    CronError::new(
        columns,
        match fields.len() {
            1 => "1 field, expected five or six".to_owned(),
            n => format!("{n} fields, expected five or six"),
        },
        hint,
    )
}

pub(super) fn unknown(piece: Piece<'_>, kind: FieldKind) -> CronError {
    let upper = piece.text.to_ascii_uppercase();
    let what = format!("{:?} is not a {}", piece.text, kind.name);
    let begins = |k: FieldKind| k.names.iter().find(|name| upper.starts_with(**name));
    let hint = if let Some(name) = begins(kind) {
        format!("write {name}")
    } else if let Some(other) = [MONTH, WEEKDAY].into_iter().find(|k| begins(*k).is_some()) {
        format!("that is a {}: it goes into the {0} field", other.name)
    } else {
        let names = match (kind.names.first(), kind.names.last()) {
            (Some(first), Some(last)) => format!(", or {first} to {last}"),
            _ => String::new(),
        };
        format!("write {} to {}{names}", kind.least, kind.most)
    };
    CronError::new(piece.columns(), what, hint)
}

/// Characters that other programs accept, each with what to write instead.
pub(super) fn refuse_foreign(item: Piece<'_>, kind: FieldKind) -> Result<(), CronError> {
    let upper = item.text.to_ascii_uppercase();
    let is_word = |letter: char| {
        upper
            .strip_suffix(letter)
            .is_some_and(|rest| rest.is_empty() || rest.bytes().all(|b| b.is_ascii_digit()))
    };
    if item.text.contains('~') || upper == "H" || upper.starts_with("H/") || upper.starts_with("H(")
    {
        return item.fail(
            format!("{} asks for a random time", item.text),
            "write a fixed time and set `jitter:`, which is the same on all hosts",
        );
    }
    if is_word('W') {
        return item.fail(
            format!("{} (nearest working day) is not supported", item.text),
            "write a fixed day, or a numbered weekday such as 1#1 for the first Monday",
        );
    }
    if upper.starts_with("L-") || is_word('L') {
        return item.fail(
            format!("{} does not belong in the {} field", item.text, kind.name),
            "L stands alone in the day-of-month field; 5L in the weekday field is the last Friday",
        );
    }
    if item.text.contains('#') {
        return item.fail(
            format!("# does not belong in the {} field", kind.name),
            "5#3 in the weekday field is the third Friday",
        );
    }
    Ok(())
}
