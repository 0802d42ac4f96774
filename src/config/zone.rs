//! Time zones: IANA names, and a clear reply to everything else that people write for one.

use chrono_tz::Tz;

use super::suggest;

/// Reads the name of an IANA time zone; the error is a way out.
pub(crate) fn parse(text: &str) -> Result<Tz, String> {
    text.parse().map_err(|_| help(text))
}

/// Abbreviations of zone times, and a zone that uses each.
///
/// An abbreviation names one offset, at one time of the year, and often in several countries.
const ABBREVIATIONS: [(&str, &str); 46] = [
    ("ACST", "Australia/Adelaide"),
    ("ADT", "America/Halifax"),
    ("AEDT", "Australia/Sydney"),
    ("AEST", "Australia/Sydney"),
    ("AKDT", "America/Anchorage"),
    ("AKST", "America/Anchorage"),
    ("AST", "America/Halifax"),
    ("AWST", "Australia/Perth"),
    ("BRT", "America/Sao_Paulo"),
    ("BST", "Europe/London"),
    ("CAT", "Africa/Maputo"),
    ("CDT", "America/Chicago"),
    ("CEST", "Europe/Berlin"),
    ("CET", "Europe/Berlin"),
    ("CST", "America/Chicago"),
    ("EAT", "Africa/Nairobi"),
    ("EDT", "America/New_York"),
    ("EEST", "Europe/Athens"),
    ("EET", "Europe/Athens"),
    ("EST", "America/New_York"),
    ("ET", "America/New_York"),
    ("GST", "Asia/Dubai"),
    ("HKT", "Asia/Hong_Kong"),
    ("HST", "Pacific/Honolulu"),
    ("ICT", "Asia/Bangkok"),
    ("IDT", "Asia/Jerusalem"),
    ("IST", "Asia/Kolkata"),
    ("JST", "Asia/Tokyo"),
    ("KST", "Asia/Seoul"),
    ("MDT", "America/Denver"),
    ("MESZ", "Europe/Berlin"),
    ("MET", "Europe/Berlin"),
    ("MEZ", "Europe/Berlin"),
    ("MSK", "Europe/Moscow"),
    ("MST", "America/Denver"),
    ("NZDT", "Pacific/Auckland"),
    ("NZST", "Pacific/Auckland"),
    ("PDT", "America/Los_Angeles"),
    ("PKT", "Asia/Karachi"),
    ("PST", "America/Los_Angeles"),
    ("PT", "America/Los_Angeles"),
    ("SAST", "Africa/Johannesburg"),
    ("SGT", "Asia/Singapore"),
    ("WEST", "Europe/Lisbon"),
    ("WET", "Europe/Lisbon"),
    ("WIB", "Asia/Jakarta"),
];

fn zone_of_abbreviation(text: &str) -> Option<&'static str> {
    let known = |(name, _): &&(&str, &str)| name.eq_ignore_ascii_case(text);
    ABBREVIATIONS.iter().find(known).map(|(_, zone)| *zone)
}

fn help(text: &str) -> String {
    let text = text.trim();
    if matches!(
        text.to_ascii_lowercase().as_str(),
        "local" | "localtime" | "system"
    ) {
        return "the local zone may differ between hosts: name a zone, such as `Europe/Berlin`"
            .to_owned();
    }
    if let Some(zone) = zone_of_abbreviation(text) {
        return format!(
            "this is the abbreviation of an offset, which changes in the course of the year or \
             has several meanings; name a place, such as `{zone}`"
        );
    }
    if is_offset(text) {
        return "this is an offset, not a zone; name a place, such as `Europe/Berlin`, or write \
                `UTC`"
            .to_owned();
    }
    let names = || chrono_tz::TZ_VARIANTS.iter().map(|zone| zone.name());
    // People write the city alone, or in small letters.
    let plain = text.replace(' ', "_");
    let city = |name: &str| {
        name.rsplit('/')
            .next()
            .is_some_and(|n| n.eq_ignore_ascii_case(&plain))
    };
    let near = names()
        .find(|name| name.eq_ignore_ascii_case(&plain))
        .or_else(|| names().find(|name| city(name)))
        // Names without a place are abbreviations and old ways, which nobody misspells.
        .or_else(|| suggest::nearest(text, names().filter(|name| name.contains('/'))))
        .or_else(|| suggest::nearest(text, ["UTC"]));
    match near {
        Some(name) => format!("did you mean `{name}`?"),
        None => "expected an IANA time zone such as `Europe/Berlin` or `UTC`".to_owned(),
    }
}

/// `+02:00`, `UTC+2`, `GMT-5`.
fn is_offset(text: &str) -> bool {
    let upper = text.to_ascii_uppercase();
    let rest = upper.trim_start_matches("UTC").trim_start_matches("GMT");
    rest.strip_prefix(['+', '-']).is_some_and(|digits| {
        !digits.is_empty() && digits.chars().all(|c| c.is_ascii_digit() || c == ':')
    })
}

/// What is allowed, but probably not meant: names of zones that do not do what they look like.
pub(super) fn doubtful(text: &str) -> Option<String> {
    let upper = text.to_ascii_uppercase();
    match upper.as_str() {
        "EST" | "MST" | "HST" => {
            let place = zone_of_abbreviation(&upper)?;
            return Some(format!(
                "`{text}` keeps one offset all year, without daylight saving time; `{place}` is \
                 the zone of a place"
            ));
        }
        "CET" | "EET" | "MET" | "WET" => {
            let place = zone_of_abbreviation(&upper)?;
            return Some(format!(
                "`{text}` changes to daylight saving time, although its name is that of the \
                 winter time; `{place}` is the zone of a place"
            ));
        }
        _ => {}
    }
    let offset = upper.strip_prefix("ETC/GMT")?;
    let (sign, hours) = offset.split_at_checked(1)?;
    let direction = match sign {
        "+" => "behind",
        "-" => "ahead of",
        _ => return None,
    };
    let plural = if hours == "1" { "hour" } else { "hours" };
    (!hours.trim_start_matches('0').is_empty()).then(|| {
        format!(
            "`{text}` is {hours} {plural} {direction} UTC: the sign is the opposite of the usual \
             one, and there is no daylight saving time"
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_zone_gets_a_zone_to_write_instead() {
        let texts = [
            "CEST",
            "mesz",
            "IST",
            "UTC+2",
            "+01:00",
            "local",
            "berlin",
            "new york",
            "Europe/Berln",
            "america/new_york",
            "utc ",
            "UCT1",
            "xyzzy",
        ];
        let all = texts.map(|text| {
            let help = parse(text).expect_err(text);
            format!("{text}: {help}\n")
        });
        insta::assert_snapshot!(all.concat());
    }

    #[test]
    fn names_that_look_like_something_else_are_doubtful() {
        let texts = ["EST", "CET", "Etc/GMT+5", "Etc/GMT-1"];
        let all = texts.map(|text| {
            assert!(parse(text).is_ok(), "{text}");
            format!("{}\n", doubtful(text).expect(text))
        });
        insta::assert_snapshot!(all.concat());
        for plain in ["UTC", "Europe/Berlin", "Etc/GMT", "Etc/GMT+0", "GMT"] {
            assert_eq!(doubtful(plain), None);
        }
    }

    #[test]
    fn every_abbreviation_leads_to_a_zone_of_a_place() {
        for (name, zone) in ABBREVIATIONS {
            assert!(zone.contains('/') && zone.parse::<Tz>().is_ok(), "{name}");
        }
    }
}
