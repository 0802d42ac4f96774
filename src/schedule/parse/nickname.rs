//! `@daily` and similar nicknames.

use super::super::CronError;
use super::piece::Piece;
use super::{Parsed, cron};

const NICKNAMES: [(&str, &str); 7] = [
    ("@yearly", "0 0 1 1 *"),
    ("@annually", "0 0 1 1 *"),
    ("@monthly", "0 0 1 * *"),
    ("@weekly", "0 0 * * 0"),
    ("@daily", "0 0 * * *"),
    ("@midnight", "0 0 * * *"),
    ("@hourly", "0 * * * *"),
];

/// What to do instead of `@reboot`.
const AT_BOOT: &str = "a systemd unit can start a program at boot";

pub(super) fn nickname(fields: &[Piece<'_>], name: Piece<'_>) -> Result<Parsed, CronError> {
    let lower = name.text.to_ascii_lowercase();
    if lower == "@every" {
        let period = fields.get(1).map_or("1m", |period| period.text);
        return name.fail(
            "@every is not a nickname here",
            format!("write `every: {period}` instead of `schedule:`"),
        );
    }
    if let Some(more) = fields.get(1) {
        return more.fail(
            format!("nothing may follow {}", name.text),
            "a nickname stands alone",
        );
    }
    if let Some((nickname, text)) = NICKNAMES.iter().find(|(n, _)| *n == lower) {
        let parsed = cron(text)?;
        return Ok(Parsed {
            text: (*nickname).to_owned(),
            ..parsed
        });
    }
    if lower == "@reboot" {
        return name.fail("@reboot is not a time", AT_BOOT);
    }
    if strsim::jaro("@reboot", &lower) > 0.9 {
        let hint = format!("if you mean @reboot, which is not a time: {AT_BOOT}");
        return name.fail(format!("unknown nickname {}", name.text), hint);
    }
    let likely = NICKNAMES
        .iter()
        .map(|(nickname, _)| *nickname)
        .max_by(|a, b| strsim::jaro(a, &lower).total_cmp(&strsim::jaro(b, &lower)))
        .unwrap_or("@daily");
    name.fail(
        format!("unknown nickname {}", name.text),
        format!(
            "did you mean {likely}? There are @yearly, @annually, @monthly, @weekly, @daily, \
             @midnight and @hourly"
        ),
    )
}
