//! `%` in the command of a crontab: the first one ends the command, and what follows is its input.

/// Splits a line at its first `%`. Further ones end lines of the input; `\%` is a percent sign.
///
/// The rules are those of Vixie cron, down to `\\%`: a backslash protects the next character, and
/// stays unless that is a `%`.
pub(super) fn split(text: &str) -> (String, Option<String>) {
    let mut command = String::with_capacity(text.len());
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        match c {
            '\\' => match chars.next() {
                Some('%') => command.push('%'),
                Some(protected) => command.extend(['\\', protected]),
                None => command.push('\\'),
            },
            '%' => return (command, input(chars.as_str())),
            c => command.push(c),
        }
    }
    (command, None)
}

/// The input without its last line end; `None` if it is empty.
fn input(text: &str) -> Option<String> {
    if text.is_empty() {
        return None;
    }
    let mut input = String::with_capacity(text.len());
    let mut escaped = false;
    for c in text.chars() {
        match (c, escaped) {
            ('%', true) => input.push('%'),
            ('%', false) => input.push('\n'),
            // Unlike in the command, a backslash that is protected itself protects the next character, too.
            ('\\', true) => input.push('\\'),
            ('\\', false) => {}
            (c, true) => input.extend(['\\', c]),
            (c, false) => input.push(c),
        }
        escaped = c == '\\';
    }
    if escaped {
        input.push('\\');
    }
    // Cron adds a line end where there is none, and a here-document always ends with one.
    if input.ends_with('\n') {
        input.pop();
    }
    Some(input)
}

/// The command with its input, as a here-document.
pub(super) fn as_script(command: &str, input: Option<&str>) -> String {
    let Some(input) = input else {
        return command.to_owned();
    };
    let mut delimiter = "INPUT".to_owned();
    while input.lines().any(|line| line == delimiter) {
        delimiter.push('_');
    }
    format!(
        "{{\n{}\n}} <<'{delimiter}'\n{input}\n{delimiter}\n",
        command.trim_end()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_percent_sign_begins_the_input() {
        let of = |text| {
            let (command, input) = split(text);
            (command, input.unwrap_or_else(|| "none".to_owned()))
        };
        let pair = |command: &str, input: &str| (command.to_owned(), input.to_owned());
        assert_eq!(of("date +\\%F"), pair("date +%F", "none"));
        assert_eq!(
            of("mail x%one%two \\% three"),
            pair("mail x", "one\ntwo % three")
        );
        assert_eq!(of("a%"), pair("a", "none"));
        assert_eq!(of("a%b%"), pair("a", "b"));
        assert_eq!(of("a%%b"), pair("a", "\nb"));
        // A backslash protects the next backslash, and the `%` is bare again.
        assert_eq!(of("a \\\\%b"), pair("a \\\\", "b"));
        assert_eq!(of("a \\n \\"), pair("a \\n \\", "none"));
        assert_eq!(of("a%b \\n \\"), pair("a", "b \\n \\"));
        assert_eq!(of("a%\\\\%"), pair("a", "\\%"));
    }

    #[test]
    fn input_reaches_the_command_unchanged() {
        let input = "$HOME `x` \\ 'y'\nINPUT\nINPUT_\n\nlast";
        let script = as_script("cat; cat", Some(input));
        let output = std::process::Command::new("/bin/sh")
            .args(["-c", &script])
            .output()
            .expect("a shell");
        assert_eq!(
            String::from_utf8_lossy(&output.stdout),
            format!("{input}\n")
        );
    }
}
