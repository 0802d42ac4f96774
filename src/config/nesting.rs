//! Refuses a text whose lists and mappings are nested so deeply that reading it takes minutes.
//!
//! The YAML scanner looks at every open `[` and `{` with each token, so its time grows with the
//! square of their number: 200,000 of them take a minute, before the reader's own limit (128
//! levels) is looked at. This look takes one pass. It knows enough of YAML to leave alone what
//! stands in quotes, comments and plain texts; what it mistakes in a block text counts only if a
//! thousand brackets more are opened than closed.

use super::problem::Problem;
use super::source::{Source, Span};

/// The scanner is fast up to here, and the reader refuses far less.
const DEEPEST: usize = 1_000;

/// Where the text is nested too deeply, as the reader would put it.
pub(super) fn check(source: &Source, file: usize) -> Result<(), Problem> {
    let mut open = OpenScope::default();
    let mut too_deep = None;
    for (number, line) in source.lines() {
        let at = open.line(line);
        too_deep = too_deep.or(at.map(|at| Span {
            file,
            line: number,
            column: line[..at].chars().count() + 1,
            width: 1,
        }));
    }
    let Some(span) = too_deep else {
        return Ok(());
    };
    let help = if open.depth == 0 {
        LIMIT
    } else {
        "a `[` or `{` is not closed"
    };
    Err(Problem::new(span, "not valid YAML: nested too deeply").help(help))
}

/// What the reader takes; the help for what is nested more deeply, and closed.
pub(super) const LIMIT: &str = "lists and mappings can be nested 128 levels deep";

/// What is open at the end of a line.
#[derive(Debug, Default)]
struct OpenScope {
    depth: usize,
    /// The quote that is open.
    quote: Option<u8>,
}

impl OpenScope {
    /// Reads a line; returns the first byte where it is too deep.
    fn line(&mut self, line: &str) -> Option<usize> {
        let mut too_deep = None;
        let mut begin = 0;
        if self.depth == 0 {
            self.quote = None;
            begin = value_of(line);
            if !line[begin..].starts_with(['[', '{']) {
                return None;
            }
        }
        let mut next = begin;
        while let Some(at) = sign_from(line, next) {
            let sign = line.as_bytes()[at];
            let before = || line[begin..at].chars().next_back().unwrap_or(' ');
            next = at + 1;
            match (self.quote, sign) {
                // The escaped character counts for nothing.
                (Some(b'"'), b'\\') => next += 1,
                (Some(quote), sign) if sign == quote => self.quote = None,
                (None, b'#') if before().is_whitespace() => break,
                (None, b'"' | b'\'') if !before().is_alphanumeric() => self.quote = Some(sign),
                (None, b'[' | b'{') => {
                    self.depth += 1;
                    if self.depth > DEEPEST {
                        too_deep.get_or_insert(at);
                    }
                }
                (None, b']' | b'}') => self.depth = self.depth.saturating_sub(1),
                _ => {}
            }
        }
        too_deep
    }
}

/// The first sign at or after this byte that may open or close something, or prevent that.
fn sign_from(line: &str, from: usize) -> Option<usize> {
    let is_sign = |byte: &u8| {
        matches!(
            byte,
            b'"' | b'\'' | b'\\' | b'#' | b'[' | b']' | b'{' | b'}'
        )
    };
    let further = line.as_bytes().get(from..)?.iter().position(is_sign)?;
    Some(from + further)
}

/// Where the value of a line begins: behind its indentation, its dashes and its key.
fn value_of(line: &str) -> usize {
    let mut at = 0;
    loop {
        let rest = &line[at..];
        let trimmed = rest.trim_start();
        at += rest.len() - trimmed.len();
        match trimmed.strip_prefix(['-', '?']) {
            Some(after) if after.starts_with(char::is_whitespace) => at += 1,
            _ => break,
        }
    }
    let rest = &line[at..];
    if rest.starts_with(['[', '{']) {
        return at;
    }
    let after_key = rest.find(": ").map_or(at, |colon| at + colon + 2);
    let value = &line[after_key..];
    after_key + (value.len() - value.trim_start().len())
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn is_refused(text: &str) -> bool {
        check(&Source::new(Path::new("jobs.yaml"), text.to_owned()), 0).is_err()
    }

    #[test]
    fn what_is_nested_is_refused_wherever_it_stands() {
        for (open, before) in [
            ("[", ""),
            ("[", "- - "),
            ("{a: ", "x-a: "),
            ("[{", "jobs: "),
            ("[\n", "jobs:\n  "),
            ("[ 'x', \"]\\\"\", ", "a: "),
            ("[ \"\\é]\", ", "a: "),
        ] {
            let text = |count| format!("{before}{}", open.repeat(count));
            assert!(is_refused(&text(DEEPEST + 1)), "{before}{open}");
            assert!(!is_refused(&text(10)), "{before}{open}");
        }
    }

    #[test]
    fn brackets_of_other_texts_do_not_count() {
        for line in [
            "command: echo [\n",
            "command: \"[[[\"\n",
            "command: '{{{'\n",
            "command: [a, \"[\", '{', it's] # [[[\n",
            "command: [a, b] # [[[\n",
            "# [ { [\n",
            "  [ -d /x ] && { echo; }\n",
            "- x [ {\n",
        ] {
            assert!(!is_refused(&line.repeat(3 * DEEPEST)), "{line}");
        }
    }
}
