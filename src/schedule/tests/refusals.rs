//! What is rejected, where the error points, and its help.

use std::fmt::Write as _;

use chrono_tz::Tz::UTC;

use crate::schedule::Schedule;

/// The expression, marks under the offending columns, and the error.
fn shown(text: &str) -> String {
    let error = Schedule::cron(text, UTC).expect_err(text);
    let mut shown = String::new();
    let marks = "^".repeat(error.columns.len().max(1));
    let indent = " ".repeat(error.columns.start);
    writeln!(shown, "{text}\n{indent}{marks} {}", error.what).expect("text grows");
    writeln!(shown, "  {}", error.hint).expect("text grows");
    shown
}

#[test]
fn refusals_point_at_the_fault_and_advise() {
    let texts = [
        "",
        "   ",
        "* * * *",
        "* * * * * * *",
        "*/5 * * * * /usr/bin/backup --all",
        "*/5 * * * * /usr/bin/backup",
        "*/5 * * * * root /usr/bin/backup",
        "60 * * * *",
        "* 24 * * *",
        "* * 0 * *",
        "* * 32 * *",
        "* * * 13 *",
        "* * * * 8",
        "-1 * * * *",
        "1, * * * *",
        ",1 * * * *",
        "1,,2 * * * *",
        "10-5 * * * *",
        "* * * * FRI-SUN",
        "* * * * FRI-MON",
        "* * * NOV-FEB *",
        "*/0 * * * *",
        "*/ * * * *",
        "*/x * * * *",
        "5- * * * *",
        "MON * * * *",
        "* * * MON *",
        "* * * * JAN",
        "* * * * monday",
        "* * * * xyz",
        "? * * * *",
        "* * L-3 * *",
        "* * 15W * *",
        "* * * * L",
        "* * * * 5#6",
        "* * * * 5#",
        "* * 5#3 * *",
        "* L * * *",
        "H * * * *",
        "0~30 * * * *",
        "@reboot",
        "@dialy",
        "@every 5m",
        "@every",
        "0 0 31 2 *",
        "0 0 30 2 *",
        "0 0 31 4,6,9,11 *",
        "30 2 * * *\u{a0}",
        "1.5 * * * *",
        "+5 * * * *",
        "99999999999 * * * *",
    ];
    let all: Vec<String> = texts.iter().map(|text| shown(text)).collect();
    insta::assert_snapshot!(all.join("\n"));
}

#[test]
fn a_weekday_saves_a_date_that_never_comes() {
    // Both day fields restricted: Mondays in February match.
    assert!(Schedule::cron("0 0 31 2 1", UTC).is_ok());
    // The 29th of February comes, and so do all of these.
    for text in ["0 0 29 2 *", "0 0 */28 2 1", "0 0 L 2 *", "0 0 * 2 0#5"] {
        assert!(Schedule::cron(text, UTC).is_ok(), "{text}");
    }
    // Never: the fifth Monday of the month lies after the 28th.
    assert!(Schedule::cron("0 0 */30 2 1#5", UTC).is_err());
}
