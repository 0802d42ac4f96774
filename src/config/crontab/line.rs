//! One line of a crontab, by the rules of crontab(5).

/// What a line is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum CrontabLine<'a> {
    /// Nothing.
    Blank,
    /// A comment, without its `#`.
    Comment(&'a str),
    /// `NAME=value`.
    Setting { name: String, value: String },
    /// A schedule and what follows it.
    Job {
        schedule: LinePart<'a>,
        rest: LinePart<'a>,
    },
    /// None of these.
    Other(&'a str),
}

/// A part of a line and the column where it begins, in characters from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct LinePart<'a> {
    pub(super) text: &'a str,
    pub(super) column: usize,
}

/// Reads a line.
pub(super) fn read(line: &str) -> CrontabLine<'_> {
    let text = line.trim_matches([' ', '\t', '\r']);
    if text.is_empty() {
        return CrontabLine::Blank;
    }
    if let Some(comment) = text.strip_prefix('#') {
        return CrontabLine::Comment(comment);
    }
    if let Some((name, value)) = setting(text) {
        return CrontabLine::Setting { name, value };
    }
    let part = |text| LinePart {
        text,
        column: column_of(line, text),
    };
    match schedule_length(text) {
        Some(length) => {
            let (schedule, rest) = text.split_at(length);
            CrontabLine::Job {
                schedule: part(schedule),
                rest: part(rest.trim_start_matches([' ', '\t'])),
            }
        }
        None => CrontabLine::Other(text),
    }
}

/// The column of a part of the line.
fn column_of(line: &str, part: &str) -> usize {
    let at = (part.as_ptr() as usize).saturating_sub(line.as_ptr() as usize);
    line.get(..at)
        .map_or(1, |before| before.chars().count() + 1)
}

/// `NAME = value`; either may be quoted. Cron replaces no variables in the value.
fn setting(text: &str) -> Option<(String, String)> {
    let (name, rest) = match text.chars().next()? {
        quote @ ('"' | '\'') => text[1..].split_once(quote)?,
        _ => text.split_at(text.find(|c: char| c == '=' || c.is_whitespace())?),
    };
    let value = rest.trim_start().strip_prefix('=')?.trim();
    let is_name = !name.is_empty() && !name.starts_with('@') && !name.contains('*');
    is_name.then(|| (name.to_owned(), unquoted(value).to_owned()))
}

fn unquoted(value: &str) -> &str {
    let pair = |quote| value.strip_prefix(quote)?.strip_suffix(quote);
    pair('"').or_else(|| pair('\'')).unwrap_or(value)
}

/// The length of the schedule at the beginning of a job's line.
fn schedule_length(text: &str) -> Option<usize> {
    let wanted = if text.starts_with('@') { 1 } else { 5 };
    let mut rest = text;
    for field in 0..wanted {
        if field > 0 {
            rest = rest.trim_start_matches([' ', '\t']);
        }
        let end = rest.find([' ', '\t']).unwrap_or(rest.len());
        let is_field = wanted == 1 || looks_like_a_field(&rest[..end], field);
        if end == 0 || !is_field {
            return None;
        }
        rest = &rest[end..];
    }
    Some(text.len() - rest.len())
}

/// Whether a word may be the field of a schedule that has this index, from 0. It need not be valid.
pub(super) fn looks_like_a_field(word: &str, index: usize) -> bool {
    // Some crons take a `-` before the schedule, and then log nothing.
    let word = if index == 0 {
        word.trim_start_matches('-')
    } else {
        word
    };
    let signs = |c: char| c.is_ascii_digit() || "*,/-~?#LH".contains(c);
    if index < 3 {
        return !word.is_empty() && word.chars().all(signs);
    }
    // Months and weekdays have names.
    let is_name = |part: &str| part.len() >= 3 && part.chars().all(|c| c.is_ascii_alphabetic());
    word.split([',', '-', '/', '#'])
        .all(|part| part.chars().all(signs) || is_name(part))
}

/// Whether a text is a crontab: the first line that is not a comment is a setting or a schedule
/// with a command.
pub(in crate::config) fn is_crontab(text: &str) -> bool {
    let first = text
        .lines()
        .map(read)
        .find(|line| !matches!(line, CrontabLine::Blank | CrontabLine::Comment(_)));
    match first {
        Some(CrontabLine::Setting { name, .. }) => {
            name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
        }
        Some(CrontabLine::Job { rest, .. }) => !rest.text.is_empty(),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_read_by_the_rules_of_cron() {
        let job = |line: &'static str| match read(line) {
            CrontabLine::Job { schedule, rest } => {
                (schedule.text, schedule.column, rest.text, rest.column)
            }
            other => panic!("{other:?}"),
        };
        assert_eq!(job("5 4 * * sun echo x"), ("5 4 * * sun", 1, "echo x", 13));
        assert_eq!(job(" @daily\tx = 1"), ("@daily", 2, "x = 1", 9));
        assert_eq!(
            job("-*/5 * * jan-mar * a=b c"),
            ("-*/5 * * jan-mar *", 1, "a=b c", 20)
        );
        let setting = |line: &str| match read(line) {
            CrontabLine::Setting { name, value } => (name, value),
            other => panic!("{other:?}"),
        };
        let of = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        assert_eq!(setting("MAILTO=\"\""), of("MAILTO", ""));
        assert_eq!(setting(" A = ' x ' \r"), of("A", " x "));
        assert_eq!(setting("\"B\"=a b"), of("B", "a b"));
        assert_eq!(read("\t# x"), CrontabLine::Comment(" x"));
        assert_eq!(read(" \t\r"), CrontabLine::Blank);
        assert!(matches!(read("hello world"), CrontabLine::Other(_)));
        assert!(matches!(read("* * * *"), CrontabLine::Other(_)));
    }

    #[test]
    fn job_lists_are_not_crontabs() {
        for list in [
            "jobs: []",
            "- name: a",
            "store: redis://h\njobs:\n",
            "{}",
            "",
            "# x",
            "a: b = c",
        ] {
            assert!(!is_crontab(list), "{list}");
        }
        for crontab in [
            "# x\n\nSHELL=/bin/sh\n",
            "@daily x",
            "*/5 * * * * x",
            "0 5 * * mon root x",
        ] {
            assert!(is_crontab(crontab), "{crontab}");
        }
    }
}
