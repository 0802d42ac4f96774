//! `${VAR}`, `${VAR:-default}` and `$$` in string values.

use std::collections::BTreeSet;

use super::environment::{Environment, NotText};
use super::node::{Node, Text, Value, quoted};
use super::problem::{Problem, Problems};
use super::suggest;

/// Replaces the variables of every string value of a tree.
pub(super) fn apply(node: &mut Node, environment: &Environment, problems: &mut Problems) {
    match &mut node.value {
        Value::List(list) => {
            for item in list {
                apply(item, environment, problems);
            }
        }
        Value::Map(entries) => {
            for entry in entries {
                apply(&mut entry.value, environment, problems);
            }
        }
        Value::Text(text) if text.value.contains('$') => match expand(&text.value, environment) {
            Ok(value) if value == text.value => {}
            Ok(value) => {
                let written = std::mem::take(&mut text.value);
                *text = Text {
                    value,
                    written: Some(written),
                };
            }
            Err(trouble) => {
                problems.add(trouble.problem(node));
                node.value = Value::Broken;
            }
        },
        _ => {}
    }
}

/// The names of the variables that the string values of a tree need and that are not set.
pub(super) fn unset_variables(node: &Node, environment: &Environment) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    collect_unset(node, &mut environment.clone(), &mut names);
    names
}

fn collect_unset(node: &Node, environment: &mut Environment, names: &mut BTreeSet<String>) {
    match &node.value {
        Value::List(list) => {
            for item in list {
                collect_unset(item, environment, names);
            }
        }
        Value::Map(entries) => {
            for entry in entries {
                collect_unset(&entry.value, environment, names);
            }
        }
        Value::Text(text) => {
            // An error names the first variable only: it counts as set when the next one is looked for.
            while let Err(ExpandError::Unset { name, .. }) = expand(&text.value, environment) {
                environment.set(&name, "x");
                names.insert(name);
            }
        }
        _ => {}
    }
}

#[derive(Debug, PartialEq, Eq)]
enum ExpandError {
    Unset { name: String, near: Option<String> },
    NotText(String),
    Form(String),
    Open,
    Deep,
}

/// How deeply defaults may be nested. Without a limit a text of 250 KB would use up the stack.
const DEEPEST: usize = 20;

impl ExpandError {
    fn problem(self, node: &Node) -> Problem {
        match self {
            Self::Unset { name, near } => {
                Problem::new(node.span, format!("the variable `{name}` is not set"))
                    .help(near.map_or_else(String::new, |n| format!("did you mean `${{{n}}}`?")))
                    .help(format!(
                        "set it, give it a default (`${{{name}:-…}}`), or write `$${{{name}}}` \
                         to leave it to the shell"
                    ))
            }
            Self::NotText(name) => {
                Problem::new(node.span, format!("the variable `{name}` is not UTF-8"))
            }
            Self::Form(inner) => Problem::new(
                node.span,
                format!("{} is not a variable", quoted(&format!("${{{inner}}}"))),
            )
            .help("expected `${NAME}` or `${NAME:-default}`; `$${` stands for a literal `${`"),
            Self::Deep => Problem::new(node.span, format!("more than {DEEPEST} nested defaults"))
                .help("`${A:-${B:-c}}` uses the first variable that is set; nest fewer"),
            Self::Open => Problem::new(node.span, "a `${` is not closed")
                .help("`$${` stands for a literal `${`"),
        }
    }
}

fn expand(text: &str, environment: &Environment) -> Result<String, ExpandError> {
    expand_within(text, environment, 0)
}

fn expand_within(
    text: &str,
    environment: &Environment,
    depth: usize,
) -> Result<String, ExpandError> {
    if depth > DEEPEST {
        return Err(ExpandError::Deep);
    }
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('$') {
        let (plain, tail) = rest.split_at(at);
        out.push_str(plain);
        if let Some(tail) = tail.strip_prefix("$$") {
            out.push('$');
            rest = tail;
        } else if let Some(tail) = tail.strip_prefix("${") {
            let end = closing(tail).ok_or(ExpandError::Open)?;
            out.push_str(&variable(&tail[..end], environment, depth)?);
            rest = &tail[end + 1..];
        } else {
            // `$NAME` and `$(…)` belong to the shell.
            out.push('$');
            rest = &tail[1..];
        }
    }
    out.push_str(rest);
    Ok(out)
}

/// Where the `}` is that closes an open `${`.
fn closing(text: &str) -> Option<usize> {
    let mut depth = 0_usize;
    let mut previous = ' ';
    for (at, c) in text.char_indices() {
        match c {
            '{' if previous == '$' => depth += 1,
            '}' if depth == 0 => return Some(at),
            '}' => depth -= 1,
            _ => {}
        }
        previous = c;
    }
    None
}

fn variable(inner: &str, environment: &Environment, depth: usize) -> Result<String, ExpandError> {
    let (name, default) = match inner.split_once(":-") {
        Some((name, default)) => (name, Some(default)),
        None => (inner, None),
    };
    let is_name = name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
        && name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
    if !is_name {
        return Err(ExpandError::Form(inner.to_owned()));
    }
    let value = environment
        .get(name)
        .map_err(|NotText| ExpandError::NotText(name.to_owned()))?;
    match (value, default) {
        (Some(value), None) => Ok(value.to_owned()),
        (Some(value), Some(_)) if !value.is_empty() => Ok(value.to_owned()),
        (_, Some(default)) => expand_within(default, environment, depth + 1),
        (None, None) => Err(ExpandError::Unset {
            name: name.to_owned(),
            near: suggest::nearest(name, environment.names()).map(str::to_owned),
        }),
    }
}

/// The names of all variables that stand in the values of a tree, used or only named as a default.
pub(super) fn variables(node: &Node) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    collect(node, &mut names);
    names
}

fn collect(node: &Node, names: &mut BTreeSet<String>) {
    match &node.value {
        Value::List(list) => list.iter().for_each(|item| collect(item, names)),
        Value::Map(entries) => entries.iter().for_each(|e| collect(&e.value, names)),
        Value::Text(Text {
            written: Some(written),
            ..
        }) => names.extend(written.replace("$$", "").split("${").skip(1).map(|rest| {
            let is_name = |c: &char| c.is_ascii_alphanumeric() || *c == '_';
            rest.chars().take_while(is_name).collect()
        })),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn with(text: &str) -> Result<String, ExpandError> {
        expand(
            text,
            &Environment::of(&[("A", "1"), ("EMPTY", ""), ("HOME", "/h")]),
        )
    }

    #[test]
    fn variables_are_replaced_and_everything_else_stays() {
        for (text, value) in [
            ("${A}", "1"),
            ("x${A}y${A}", "x1y1"),
            ("${NONE:-d}", "d"),
            ("${NONE:-}", ""),
            ("${A:-d}", "1"),
            ("${EMPTY}", ""),
            ("${EMPTY:-d}", "d"),
            ("${NONE:-${A}}/b", "1/b"),
            ("${NONE:-{}}", "{}"),
            ("$$", "$"),
            ("$${A}", "${A}"),
            ("$$$${A}", "$${A}"),
            ("$A $(date) $", "$A $(date) $"),
            ("ä${A}ö", "ä1ö"),
        ] {
            assert_eq!(with(text), Ok(value.to_owned()), "{text}");
        }
    }

    #[test]
    fn what_cannot_be_replaced_is_an_error() {
        assert_eq!(
            with("${HOMR}"),
            Err(ExpandError::Unset {
                name: "HOMR".to_owned(),
                near: Some("HOME".to_owned())
            })
        );
        assert_eq!(with("${A"), Err(ExpandError::Open));
        assert_eq!(with("${A%x}"), Err(ExpandError::Form("A%x".to_owned())));
        assert_eq!(with("${}"), Err(ExpandError::Form(String::new())));
        assert_eq!(with("${1}"), Err(ExpandError::Form("1".to_owned())));
    }

    #[test]
    fn defaults_within_defaults_are_limited() {
        let nested = |depth| format!("{}x{}", "${NONE:-".repeat(depth), "}".repeat(depth));
        assert_eq!(with(&nested(DEEPEST)), Ok("x".to_owned()));
        assert_eq!(with(&nested(50_000)), Err(ExpandError::Deep));
    }

    proptest! {
        #[test]
        fn no_text_makes_expansion_panic(text in "[$A{}:\\-ä ]{0,40}") {
            let _ = with(&text);
        }
    }
}
