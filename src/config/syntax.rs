//! What a YAML syntax error probably means.

use super::nesting;
use super::problem::Problem;
use super::source::{Source, Span};

/// An error of the YAML reader, at its place, with a way out where one is known.
pub(super) fn explain(source: &Source, file: usize, error: &serde_yaml::Error) -> Problem {
    let text = error.to_string();
    if text.contains("more than one document") {
        return Problem::new(
            second_document(source, file),
            "a job list is one YAML document",
        )
        .help("remove the `---`, or split the list into files of one directory");
    }
    if text.contains("control characters are not allowed")
        && let Some(problem) = control_character(source, file)
    {
        return problem;
    }
    let (line, column) = error
        .location()
        .map_or((1, 1), |place| (place.line(), place.column()));
    // The scanner may notice only at the line's end, or on the next line.
    let line = line.min(source.text.lines().count().max(1));
    let span = Span {
        file,
        line,
        column: column.min(source.line(line).chars().count() + 1),
        width: 1,
    };
    let message = match text.split(" at line ").next().unwrap_or(&text) {
        plain if plain.contains("recursion limit") => "nested too deeply".to_owned(),
        plain if plain.contains("repetition limit") => {
            "aliases (`*name`) repeat too much".to_owned()
        }
        plain => strip_path(plain).to_owned(),
    };
    let problem = Problem::new(span, format!("not valid YAML: {message}"));
    let problem = match opened(&text) {
        Some((line, column)) if line != span.line => problem.other(
            Span {
                line,
                column,
                ..span
            },
            "it begins at",
        ),
        _ => problem,
    };
    problem.help(hint(source, span, &text))
}

/// Where the thing begins whose end was not found: the reader names it as context.
fn opened(text: &str) -> Option<(usize, usize)> {
    let (_, context) = text.split_once(", while ")?;
    if !context.contains("quoted scalar") && !context.contains("flow") {
        return None;
    }
    let (line, column) = context.rsplit_once(" at line ")?.1.split_once(" column ")?;
    Some((line.parse().ok()?, column.parse().ok()?))
}

/// Without the path that the reader puts before its own messages.
fn strip_path(message: &str) -> &str {
    ["tags such as", "too many values", "unknown anchor"]
        .iter()
        .find_map(|known| message.find(known).map(|at| &message[at..]))
        .unwrap_or(message)
}

/// The first character that YAML does not allow: the reader gives no line for it.
fn control_character(source: &Source, file: usize) -> Option<Problem> {
    let found = |(index, line): (usize, &str)| {
        let (at, c) = line.chars().enumerate().find(|(_, c)| !is_allowed(*c))?;
        Some((index + 1, at + 1, c))
    };
    let mut lines = source.text.split('\n').enumerate();
    let (line, column, c) = lines.find_map(found)?;
    let span = Span {
        file,
        line,
        column,
        width: 1,
    };
    let code = u32::from(c);
    let (name, escape) = match c {
        // A text of a list cannot have it either.
        '\0' => ("NUL", None),
        '\x07' => ("BEL", Some("\\a".to_owned())),
        '\x08' => ("backspace", Some("\\b".to_owned())),
        '\x0b' => ("vertical tab", Some("\\v".to_owned())),
        '\x0c' => ("form feed", Some("\\f".to_owned())),
        '\x1b' => ("ESC", Some("\\e".to_owned())),
        '\x7f' => ("DEL", Some("\\x7f".to_owned())),
        _ if code < 0x100 => ("", Some(format!("\\x{code:02x}"))),
        _ => ("", Some(format!("\\u{code:04x}"))),
    };
    let help = match escape {
        Some(escape) => format!("remove it, or write `{escape}` within double quotes"),
        None => "remove it".to_owned(),
    };
    let character = match name {
        "" => format!("U+{code:04X}"),
        _ => format!("{name} (U+{code:04X})"),
    };
    let message = format!("not valid YAML: the character {character} is not allowed");
    let problem = Problem::new(span, message).help(help);
    let further = lines.find_map(found).map(|(line, ..)| line);
    Some(problem.help(further.map_or_else(String::new, |line| {
        format!("further lines have such characters, the next one is line {line}")
    })))
}

/// Whether YAML allows a character as it is (YAML 1.1, section 5.1).
fn is_allowed(c: char) -> bool {
    matches!(
        c,
        '\t' | '\n'
            | '\r'
            | ' '..='~'
            | '\u{85}'
            | '\u{a0}'..='\u{d7ff}'
            | '\u{e000}'..='\u{fffd}'
            | '\u{10000}'..='\u{10ffff}'
    )
}

fn second_document(source: &Source, file: usize) -> Span {
    let mut seen_content = false;
    let mut number = 1;
    for (index, line) in source.text.lines().enumerate() {
        if seen_content && line.starts_with("---") {
            number = index + 1;
            break;
        }
        let bare = line.trim();
        seen_content |= !bare.is_empty() && !bare.starts_with('#');
    }
    Span {
        file,
        line: number,
        column: 1,
        width: 3,
    }
}

fn hint(source: &Source, span: Span, text: &str) -> String {
    let line = source.line(span.line);
    let value = line.split_once(": ").map_or("", |(_, v)| v.trim());
    let key = line
        .split(':')
        .next()
        .unwrap_or("")
        .trim_start_matches([' ', '-']);
    let indent = &line[..line.len() - line.trim_start().len()];
    let before: String = line.chars().take(span.column).collect();
    let until: String = line.chars().take(span.column - 1).collect();
    if indent.contains('\t') || (text.contains("cannot start any token") && before.contains('\t')) {
        return "YAML is indented with spaces, never with tabs".to_owned();
    }
    if let Some(open) = behind_a_quote(&until) {
        return tail_help(line, open);
    }
    if value.starts_with(['*', '@', '%', '`']) {
        return format!("quote it: {key}: \"{value}\"");
    }
    if text.contains("mapping values are not allowed") {
        return "quote a value that contains `: `, and indent the fields of one job alike"
            .to_owned();
    }
    if text.contains("did not find expected ',' or") {
        return "a `[` or `{` is not closed".to_owned();
    }
    if text.contains("unexpected end of stream") {
        return "a quote is not closed".to_owned();
    }
    if text.contains("did not find expected key") || text.contains("did not find expected '-'") {
        return "indent the fields of one job alike; begin each job with `- `".to_owned();
    }
    if text.contains("could not find expected ':'") {
        return "write `key: value`, with a space after the colon".to_owned();
    }
    if text.contains("recursion limit") {
        return nesting::LIMIT.to_owned();
    }
    if text.contains("unknown anchor") {
        return "`*name` repeats what `&name` marks earlier in the same file; a string that \
                begins with `*` needs quotes"
            .to_owned();
    }
    if text.contains("tags such as") {
        return "quote a string that begins with `!`".to_owned();
    }
    String::new()
}

/// Where the quoted text begins that ends just before the error: what follows a closing quote is no
/// part of the value.
fn behind_a_quote(until: &str) -> Option<usize> {
    let quoted = until.trim_end();
    let quote = quoted.chars().next_back().filter(|c| "\"'".contains(*c))?;
    let inner = &quoted[..quoted.len() - 1];
    let open = inner.rfind(quote)?;
    // The value begins with the quote; one within a plain text opens nothing.
    let before = quoted[..open].trim_end();
    before.ends_with([':', '-', ',', '[', '{']).then_some(open)
}

fn tail_help(line: &str, open: usize) -> String {
    let (before, whole) = line.split_at(open);
    let key = before
        .trim_end()
        .strip_suffix(':')
        .and_then(|before| before.rsplit([' ', ',', '{', '-']).next())
        .map_or_else(String::new, |key| format!("{key}: "));
    // In a mapping or list on one line the value ends before what comes next.
    let end = if before.contains(['{', '[']) {
        whole.find([',', '}', ']'])
    } else {
        whole.find(" #")
    };
    let whole = whole[..end.unwrap_or(whole.len())].trim_end();
    let what = "the closing quote ends the value, and more text follows";
    if whole.contains('\'') {
        return format!(
            "{what}: write {key}| and the whole text below it, indented; it then needs no quotes \
             of YAML"
        );
    }
    format!("{what}: put quotes around the whole: {key}'{whole}'")
}
