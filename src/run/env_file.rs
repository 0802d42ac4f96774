//! `env_file`: lines of `NAME=value`, read at every start.

use std::path::Path;

use super::not_prepared::NotPrepared;
use crate::guard::Lack;

/// Reads the file; the error names the file and, where there is one, the line.
pub(super) fn read(path: &Path) -> Result<Vec<(String, String)>, NotPrepared> {
    let text = std::fs::read_to_string(path).map_err(|error| NotPrepared {
        reason: format!("cannot read env_file {}: {error}", path.display()),
        lack: Lack::of(&error),
    })?;
    parse(&text).map_err(|(line, what)| {
        // The line itself may hold a secret.
        format!("env_file {} line {line}: {what}", path.display()).into()
    })
}

fn parse(text: &str) -> Result<Vec<(String, String)>, (usize, &'static str)> {
    let mut variables = Vec::new();
    for (number, line) in (1..).zip(text.lines()) {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') || line.starts_with(';') {
            continue;
        }
        let line = line.strip_prefix("export ").unwrap_or(line);
        let (name, value) = line.split_once('=').ok_or((number, "no '='"))?;
        let name = name.trim_end();
        if name.is_empty() || name.contains(char::is_whitespace) {
            return Err((number, "no variable name before '='"));
        }
        if value.contains('\0') {
            return Err((number, "a NUL character"));
        }
        variables.push((name.to_owned(), unquoted(value.trim()).to_owned()));
    }
    Ok(variables)
}

/// The text without one pair of quotes around it.
fn unquoted(value: &str) -> &str {
    for quote in ['"', '\''] {
        if let Some(inner) = value
            .strip_prefix(quote)
            .and_then(|rest| rest.strip_suffix(quote))
        {
            return inner;
        }
    }
    value
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_comments_and_quotes_are_read_as_systemd_reads_them() {
        let text = "# a comment\n\nA=1\nexport B = two words \nC=\"x = y\"\nD=''\n;E=5\n";
        let read = parse(text).expect("it is well formed");
        let read: Vec<_> = read.iter().map(|(k, v)| (k.as_str(), v.as_str())).collect();
        let expected = [("A", "1"), ("B", "two words"), ("C", "x = y"), ("D", "")];
        assert_eq!(read, expected);
    }

    #[test]
    fn an_error_names_the_line_and_not_what_it_holds() {
        assert_eq!(parse("A=1\nsecret\n"), Err((2, "no '='")));
        assert_eq!(parse("=x"), Err((1, "no variable name before '='")));
    }

    #[test]
    fn a_lone_quote_stays() {
        assert_eq!(unquoted("\""), "\"");
    }
}
