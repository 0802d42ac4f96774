//! Schedules in English or in systemd's words: not accepted, but understood well enough to show the
//! cron text.

/// What a phrase means.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Reading {
    /// Cron text.
    Cron(String),
    /// The period of `every:`.
    Every(String),
}

/// What `every day at 2am`, `mondays at 9:30`, `every 5 minutes` and the like mean; `None` for text
/// that is not such a phrase.
pub(crate) fn reading(text: &str) -> Option<Reading> {
    let lower = text.trim().trim_end_matches('.').to_ascii_lowercase();
    if !lower.contains(|c: char| c.is_ascii_alphabetic() || c == ':') || lower.starts_with('@') {
        return None;
    }
    let words: Vec<&str> = lower
        .split([' ', '\t', ','])
        .filter(|word| !word.is_empty() && !FILLERS.contains(word))
        .collect();
    if is_duration(&lower) {
        return Some(Reading::Every(lower));
    }
    if let Some(period) = period(&words) {
        return Some(period);
    }
    let mut phrase = Phrase::default();
    for word in &words {
        phrase.add(word)?;
    }
    phrase.cron().map(Reading::Cron)
}

/// `90s`, `5m`, `1h`: alone it is a period. (`at 9h` is a time.)
fn is_duration(text: &str) -> bool {
    let digits = text.trim_end_matches(['s', 'm', 'h', 'd']);
    text.len() == digits.len() + 1 && digits.parse::<u32>().is_ok_and(|count| count > 0)
}

/// Words that add no meaning.
const FILLERS: [&str; 9] = [
    "at", "on", "the", "every", "each", "and", "o'clock", "in", "of",
];

/// `5 minutes`, `minute`, `2 hours`, `hour`.
fn period(words: &[&str]) -> Option<Reading> {
    let (count, unit) = match words {
        [unit] => (1, *unit),
        [count, unit] => (count.parse::<u32>().ok()?, *unit),
        _ => return None,
    };
    let letter = match unit.trim_end_matches('s') {
        "second" | "sec" => 's',
        "minute" | "min" | "minutely" => 'm',
        "hour" | "hr" if words.len() == 2 => 'h',
        "day" if words.len() == 2 => 'd',
        "week" if words.len() == 2 => 'w',
        _ => return None,
    };
    (count > 0).then(|| Reading::Every(format!("{count}{letter}")))
}

#[derive(Debug, Clone, Copy, Default)]
struct TimeOfDay {
    hour: u32,
    minute: u32,
}

/// What has been read of a phrase so far.
#[derive(Debug, Default)]
struct Phrase {
    time: Option<TimeOfDay>,
    days: Vec<&'static str>,
    unit: Option<Unit>,
    day_of_month: Option<&'static str>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Unit {
    Hour,
    Day,
    Week,
    Month,
    Year,
}

const WEEKDAYS: [(&str, &str); 7] = [
    ("sun", "SUN"),
    ("mon", "MON"),
    ("tue", "TUE"),
    ("wed", "WED"),
    ("thu", "THU"),
    ("fri", "FRI"),
    ("sat", "SAT"),
];

impl Phrase {
    /// Takes up a word; `None` when it has no place in such a phrase.
    fn add(&mut self, word: &str) -> Option<()> {
        let unit = match word.trim_end_matches('s') {
            "hourly" | "hour" => Some(Unit::Hour),
            "daily" | "day" | "night" | "nightly" => Some(Unit::Day),
            "weekly" | "week" => Some(Unit::Week),
            "monthly" | "month" => Some(Unit::Month),
            "yearly" | "annually" | "year" => Some(Unit::Year),
            _ => None,
        };
        match word {
            _ if unit.is_some() => once(&mut self.unit, unit?),
            "midnight" => once(&mut self.time, TimeOfDay::default()),
            "noon" | "midday" => once(
                &mut self.time,
                TimeOfDay {
                    hour: 12,
                    minute: 0,
                },
            ),
            "weekday" | "weekdays" | "workday" | "workdays" => {
                self.days.push("MON-FRI");
                Some(())
            }
            "weekend" | "weekends" => {
                self.days.push("SAT");
                self.days.push("SUN");
                Some(())
            }
            "first" | "1st" => once(&mut self.day_of_month, "1"),
            "last" => once(&mut self.day_of_month, "L"),
            "*-*-*" => Some(()),
            "am" | "pm" => {
                let time = self.time.take()?;
                self.time = Some(half_of_day(time, word)?);
                Some(())
            }
            _ => match weekday(word) {
                Some(day) => {
                    self.days.push(day);
                    Some(())
                }
                None => once(&mut self.time, time(word)?),
            },
        }
    }

    fn cron(&self) -> Option<String> {
        let days = self.days.join(",");
        let TimeOfDay { hour, minute } = self.time.unwrap_or_default();
        let at = format!("{minute} {hour}");
        let says_when = self.time.is_some();
        match (self.unit, self.day_of_month, days.as_str()) {
            (None, None, "") if says_when => Some(format!("{at} * * *")),
            (None | Some(Unit::Week | Unit::Day), None, days @ ("MON-FRI" | "SAT,SUN")) => {
                Some(format!("{at} * * {days}"))
            }
            (None | Some(Unit::Month), Some("1"), days)
                if self.days.len() == 1 && days.len() == 3 =>
            {
                Some(format!("{at} * * {days}#1"))
            }
            (None | Some(Unit::Week), None, days) if !days.is_empty() => {
                Some(format!("{at} * * {days}"))
            }
            (Some(Unit::Month | Unit::Day), Some(day), "") => Some(format!("{at} {day} * *")),
            (Some(unit), None, "") => Some(match (unit, says_when) {
                (Unit::Hour, false) => "@hourly".to_owned(),
                (Unit::Hour, true) => return None,
                (Unit::Day, false) => "@daily".to_owned(),
                (Unit::Day, true) => format!("{at} * * *"),
                (Unit::Week, false) => "@weekly".to_owned(),
                (Unit::Week, true) => format!("{at} * * 0"),
                (Unit::Month, false) => "@monthly".to_owned(),
                (Unit::Month, true) => format!("{at} 1 * *"),
                (Unit::Year, false) => "@yearly".to_owned(),
                (Unit::Year, true) => format!("{at} 1 1 *"),
            }),
            _ => None,
        }
    }
}

/// Sets a value that may be given only once.
fn once<T>(slot: &mut Option<T>, value: T) -> Option<()> {
    slot.is_none().then(|| *slot = Some(value))
}

fn weekday(word: &str) -> Option<&'static str> {
    let (_, name) = WEEKDAYS.iter().find(|(head, _)| word.starts_with(head))?;
    let full = [
        "sunday",
        "monday",
        "tuesday",
        "wednesday",
        "thursday",
        "friday",
        "saturday",
    ];
    let singular = word.strip_suffix('s').unwrap_or(word);
    let is_short = word.len() == 3 || matches!(word, "tues" | "thur" | "thurs");
    (full.contains(&singular) || is_short).then_some(name)
}

/// `2am`, `2:30pm`, `02:30`, `14:00:00`, `2`.
fn time(word: &str) -> Option<TimeOfDay> {
    let (clock, half) = ["am", "pm", "h"]
        .iter()
        .find_map(|half| Some((word.strip_suffix(half)?, *half)))
        .unwrap_or((word, ""));
    let mut parts = clock.split(':').map(|part| {
        let digits = (1..=2).contains(&part.len()) && part.bytes().all(|b| b.is_ascii_digit());
        digits.then(|| part.parse::<u32>().ok()).flatten()
    });
    let hour = parts.next()??;
    let minute = parts.next().unwrap_or(Some(0))?;
    let second = parts.next().unwrap_or(Some(0))?;
    if hour > 23 || minute > 59 || second != 0 || parts.next().is_some() {
        return None;
    }
    let time = TimeOfDay { hour, minute };
    match half {
        "am" | "pm" => half_of_day(time, half),
        _ => Some(time),
    }
}

fn half_of_day(time: TimeOfDay, half: &str) -> Option<TimeOfDay> {
    let hour = match (time.hour, half) {
        (12, "am") => 0,
        (12, _) => 12,
        (1..12, "pm") => time.hour + 12,
        (1..12, _) => time.hour,
        _ => return None,
    };
    Some(TimeOfDay { hour, ..time })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn english_and_systemds_words_are_read_as_cron_text() {
        let cron = |text: &str| Some(Reading::Cron(text.to_owned()));
        let every = |text: &str| Some(Reading::Every(text.to_owned()));
        for (text, expected) in [
            ("every day at 2am", cron("0 2 * * *")),
            ("Every day at 2:30 PM", cron("30 14 * * *")),
            ("daily at 02:30", cron("30 2 * * *")),
            ("at 12am", cron("0 0 * * *")),
            ("02:30", cron("30 2 * * *")),
            ("daily", cron("@daily")),
            ("every hour", cron("@hourly")),
            ("hourly", cron("@hourly")),
            ("weekly", cron("@weekly")),
            ("every night at midnight", cron("0 0 * * *")),
            ("every monday at 9", cron("0 9 * * MON")),
            ("mondays and fridays at 9:15", cron("15 9 * * MON,FRI")),
            ("weekdays at 8am", cron("0 8 * * MON-FRI")),
            ("every weekend at noon", cron("0 12 * * SAT,SUN")),
            ("monthly at 3", cron("0 3 1 * *")),
            ("on the first day of the month at 3am", None),
            ("first of the month at 3am", cron("0 3 1 * *")),
            ("last of month", cron("0 0 L * *")),
            ("every first monday", cron("0 0 * * MON#1")),
            ("first monday of the month at 3am", cron("0 3 * * MON#1")),
            ("last monday", None),
            ("1h", every("1h")),
            ("90s", every("90s")),
            ("at 9h", cron("0 9 * * *")),
            ("every other day", None),
            ("Mon *-*-* 02:00:00", cron("0 2 * * MON")),
            ("*-*-* 02:00:00", cron("0 2 * * *")),
            ("every 5 minutes", every("5m")),
            ("every minute", every("1m")),
            ("every 2 hours", every("2h")),
            ("30 seconds", every("30s")),
        ] {
            assert_eq!(reading(text), expected, "{text}");
        }
    }

    #[test]
    fn what_is_read_can_be_written() {
        for text in [
            "every day at 2am",
            "weekdays at 8am",
            "weekly",
            "last of month",
            "first monday of the month",
        ] {
            let Some(Reading::Cron(cron)) = reading(text) else {
                panic!("{text}")
            };
            assert!(super::super::cron(&cron).is_ok(), "{cron}");
        }
    }

    #[test]
    fn cron_text_and_nonsense_are_no_phrases() {
        for text in [
            "* * * * *",
            "0 3 * * mon-fri",
            "61 2 * * *",
            "@daily",
            "*/5 * * * * /usr/bin/backup",
            "0 9 * * monday",
            "tomorrow",
            "every blue moon",
            "every hour at 5",
            "at 25:00",
            "",
        ] {
            assert_eq!(reading(text), None, "{text}");
        }
    }
}
