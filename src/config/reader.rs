//! The one place that calls `serde_yaml`: from text to a tree of nodes with places.
//!
//! `serde_yaml` does not pass positions to visitors, but adds the position to every error that a
//! visitor returns. So the visitor of a scalar stores the value and *fails*. The caller (the
//! visitor of a mapping or list) takes the stored value and the position in the error, and
//! continues, because the parser has consumed the scalar. Thus one parser, and one pass, give both
//! values and exact places, aliases included. A mapping or list stands where its first key or
//! element does.
//!
//! An error costs more than the scalar. Most scalars are parts of the text as they are, and lie in it
//! where they stand: for these no error is needed (`YamlReader::place_of`).
//!
//! A long list is read in several parts at the same time ([`super::parts`]).

use std::cell::{Cell, RefCell};
use std::fmt::{self, Write as _};

use serde::de::{
    DeserializeSeed, Deserializer, EnumAccess, Error as _, MapAccess, SeqAccess, Visitor,
};

use super::nesting;
use super::node::{KeyValue, Node, Text, Value};
use super::parts;
use super::problem::Problem;
use super::source::{Source, Span};
use super::syntax;

/// Reads one file; `None` when it holds nothing but comments.
pub(super) fn read(source: &Source, file: usize) -> Result<Option<Node>, Problem> {
    nesting::check(source, file)?;
    match parts::read(source, file) {
        Some(root) => Ok(Some(root)),
        None => read_whole(source, file),
    }
}

/// Reads one file as a whole.
pub(super) fn read_whole(source: &Source, file: usize) -> Result<Option<Node>, Problem> {
    let text = ParsedText {
        text: &source.text,
        added: 0,
        begins: 0,
        lines_before: 0,
    };
    read_text(source, file, text, NODES_FREE)
}

/// A text that is parsed, and its place in the file.
#[derive(Clone, Copy)]
pub(super) struct ParsedText<'t> {
    pub(super) text: &'t str,
    /// How many bytes at its start are not from the file: a line, or none.
    pub(super) added: usize,
    /// The byte of the file with which it begins.
    pub(super) begins: usize,
    /// How many lines of the file come before the first line of `text`.
    pub(super) lines_before: usize,
}

/// Reads a text of a file; `None` when it holds nothing but comments. It may contain `values` more values than
/// its length allows.
pub(super) fn read_text(
    source: &Source,
    file: usize,
    text: ParsedText<'_>,
    values: usize,
) -> Result<Option<Node>, Problem> {
    let reader = YamlReader {
        source,
        file,
        parsed: text,
        is_within: Cell::new(false),
        line: Cell::new(text.lines_before),
        aside: RefCell::new(None),
        error_text: RefCell::default(),
        budget: Cell::new(values + NODES_PER_BYTE * text.text.len()),
        problem: RefCell::new(None),
    };
    let result = reader.deserialize(serde_yaml::Deserializer::from_str(text.text));
    let node = match result {
        Ok(node) => node,
        Err(error) => match reader.aside.take() {
            Some(scalar) => reader.scalar(scalar, reader.place(&error)),
            None => {
                return Err(reader
                    .problem
                    .take()
                    .unwrap_or_else(|| syntax::explain(source, file, &error)));
            }
        },
    };
    Ok(match node.value {
        Value::Null => None,
        _ => Some(node),
    })
}

/// A text without aliases has less than one value a byte, but aliases can make a small file into
/// a tree that fills the memory. Lists that repeat a few anchored fields stay far below this.
const NODES_PER_BYTE: usize = 10;
/// This number is always allowed.
const NODES_FREE: usize = 100_000;

/// What a visitor of a scalar puts aside.
enum Scalar {
    Null,
    Bool(bool),
    Number(String),
    Text(String),
}

#[derive(Clone, Copy)]
struct Position {
    line: usize,
    column: usize,
}

struct YamlReader<'s> {
    source: &'s Source,
    file: usize,
    parsed: ParsedText<'s>,
    /// Whether the reader is within a mapping or list.
    is_within: Cell<bool>,
    /// The index of the line of the last scalar that had a place of its own in the text.
    line: Cell<usize>,
    aside: RefCell<Option<Scalar>>,
    /// The text of the last error, so that its memory is used again.
    error_text: RefCell<String>,
    budget: Cell<usize>,
    /// An error of our own that ends the reading, with its place.
    problem: RefCell<Option<Problem>>,
}

/// The place in an error of `serde_yaml`. Its type is hidden behind `serde`'s traits here, so the
/// place is read from its text, which ends in ` at line L column C` unless both are 1.
fn place_in(text: &str) -> Position {
    // Word by word from the end: this is done for each value of a list.
    let mut words = text.rsplit(' ');
    let mut number_after = |name: &str| {
        let number = words.next()?.parse().ok()?;
        (words.next()? == name).then_some(number)
    };
    let place = number_after("column").zip(number_after("line"));
    match place.filter(|_| words.next() == Some("at")) {
        Some((column, line)) => Position { line, column },
        None => Position { line: 1, column: 1 },
    }
}

impl YamlReader<'_> {
    fn place(&self, error: &impl fmt::Display) -> Position {
        let mut text = self.error_text.borrow_mut();
        text.clear();
        // Writing to a `String` does not fail.
        let _ = write!(text, "{error}");
        let place = place_in(&text);
        Position {
            line: place.line + self.parsed.lines_before,
            ..place
        }
    }

    /// Where a scalar stands that is a part of the text as it is, between quotes or without; `None` if
    /// that must be asked of the parser.
    fn place_of(&self, scalar: &str) -> Option<Position> {
        if !self.source.has_plain_places || !self.is_within.get() {
            return None;
        }
        let text = self.parsed.text;
        let at = scalar.as_ptr().addr().checked_sub(text.as_ptr().addr())?;
        let (before, behind) = (text.get(..at)?, text.get(at + scalar.len()..)?);
        let quote = |c: &char| matches!(c, '"' | '\'');
        let opening = before.chars().next_back().filter(quote);
        // A part of a text in quotes that goes on over several lines has no quote on one side.
        if opening != behind.chars().next().filter(quote) {
            return None;
        }
        let begin = at - usize::from(opening.is_some());
        let offset = begin.checked_sub(self.parsed.added)? + self.parsed.begins;
        let (line, column) = self.source.ascii_place(offset, self.line.get())?;
        self.line.set(line - 1);
        Some(Position { line, column })
    }

    /// Returns the node of a result of `serde_yaml`: the tree, or the scalar put aside.
    fn node<E: fmt::Display>(&self, result: Result<Option<Node>, E>) -> Result<Option<Node>, E> {
        result.or_else(|error| match self.aside.take() {
            Some(scalar) => Ok(Some(self.scalar(scalar, self.place(&error)))),
            None => Err(error),
        })
    }

    fn scalar(&self, scalar: Scalar, place: Position) -> Node {
        let place = self.behind_properties(place);
        let rest = self.source.rest(place.line, place.column);
        let raw = || -> String {
            rest.chars()
                .take_while(|c| c.is_ascii_alphanumeric() || matches!(c, '+' | '-' | '.' | '_'))
                .collect()
        };
        let written = |fallback: String| match raw() {
            raw if raw.is_empty() => fallback,
            raw => raw,
        };
        let value = match scalar {
            Scalar::Null => Value::Null,
            Scalar::Bool(value) => Value::Bool(value, written(value.to_string())),
            Scalar::Number(number) => Value::Number(written(number)),
            Scalar::Text(value) => Value::Text(Text {
                value,
                written: None,
            }),
        };
        let width = width(rest, &value);
        Node {
            span: Span {
                file: self.file,
                line: place.line,
                column: place.column,
                width,
            },
            value,
        }
    }

    /// The position of a scalar is that of its anchor or tag, if it has one; the value follows.
    fn behind_properties(&self, mut place: Position) -> Position {
        loop {
            let rest = self.source.rest(place.line, place.column);
            if !rest.starts_with(['&', '!']) {
                return place;
            }
            let skipped = rest.chars().take_while(|c| *c != ' ').count();
            let spaces = rest.chars().skip(skipped).take_while(|c| *c == ' ').count();
            if spaces == 0 {
                return place;
            }
            place.column += skipped + spaces;
        }
    }

    fn span(&self, first: Option<Span>) -> Span {
        first.unwrap_or(Span::of_file(self.file))
    }
}

/// Where a value without a place of its own stands: at its key, or in the line before it.
pub(super) fn adopt(node: &mut Node, span: Span) {
    if node.span.line == 0 {
        node.span = span;
    }
}

fn width(rest: &str, value: &Value) -> usize {
    let mut chars = rest.chars();
    let counted = match (chars.next(), value) {
        (Some(quote @ ('"' | '\'')), Value::Text(_)) => {
            let mut escaped = false;
            let mut closed = 0;
            let inner = chars
                .take_while(|&c| {
                    let end = c == quote && !escaped;
                    escaped = quote == '"' && c == '\\' && !escaped;
                    closed = usize::from(end);
                    !end
                })
                .count();
            1 + inner + closed
        }
        (_, Value::Text(Text { value, .. })) => {
            let first = value.lines().next().unwrap_or("");
            if rest.starts_with(first) {
                first.chars().count()
            } else {
                1
            }
        }
        (_, Value::Bool(_, raw) | Value::Number(raw)) => raw.len(),
        _ => 1,
    };
    counted.max(1)
}

impl<'de> DeserializeSeed<'de> for &YamlReader<'_> {
    type Value = Node;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Node, D::Error> {
        let left = self.budget.get();
        if left == 0 {
            return Err(D::Error::custom(
                "too many values: aliases (`*name`) repeat too much",
            ));
        }
        self.budget.set(left - 1);
        deserializer.deserialize_any(self)
    }
}

impl YamlReader<'_> {
    fn put<E: serde::de::Error>(&self, scalar: Scalar) -> Result<Node, E> {
        *self.aside.borrow_mut() = Some(scalar);
        // No text: the error only carries the place.
        Err(E::custom(""))
    }
}

impl<'de> Visitor<'de> for &YamlReader<'_> {
    type Value = Node;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any YAML without tags")
    }

    fn visit_bool<E: serde::de::Error>(self, v: bool) -> Result<Node, E> {
        self.put(Scalar::Bool(v))
    }

    fn visit_i64<E: serde::de::Error>(self, v: i64) -> Result<Node, E> {
        self.put(Scalar::Number(v.to_string()))
    }

    fn visit_i128<E: serde::de::Error>(self, v: i128) -> Result<Node, E> {
        self.put(Scalar::Number(v.to_string()))
    }

    fn visit_u64<E: serde::de::Error>(self, v: u64) -> Result<Node, E> {
        self.put(Scalar::Number(v.to_string()))
    }

    fn visit_u128<E: serde::de::Error>(self, v: u128) -> Result<Node, E> {
        self.put(Scalar::Number(v.to_string()))
    }

    fn visit_f64<E: serde::de::Error>(self, v: f64) -> Result<Node, E> {
        self.put(Scalar::Number(v.to_string()))
    }

    fn visit_borrowed_str<E: serde::de::Error>(self, v: &'de str) -> Result<Node, E> {
        let scalar = Scalar::Text(v.to_owned());
        match self.place_of(v) {
            Some(place) => Ok(self.scalar(scalar, place)),
            None => self.put(scalar),
        }
    }

    fn visit_str<E: serde::de::Error>(self, v: &str) -> Result<Node, E> {
        self.put(Scalar::Text(v.to_owned()))
    }

    fn visit_unit<E: serde::de::Error>(self) -> Result<Node, E> {
        self.put(Scalar::Null)
    }

    /// An empty document; it has no place and nothing follows it.
    fn visit_none<E: serde::de::Error>(self) -> Result<Node, E> {
        Ok(Node {
            span: Span::of_file(self.file),
            value: Value::Null,
        })
    }

    fn visit_enum<A: EnumAccess<'de>>(self, data: A) -> Result<Node, A::Error> {
        let (tag, _) = data.variant::<String>()?;
        Err(A::Error::custom(format_args!(
            "tags such as `!{tag}` are not supported"
        )))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Node, A::Error> {
        self.is_within.set(true);
        let mut list: Vec<Node> = Vec::new();
        while let Some(mut node) = self.node(seq.next_element_seed(self))? {
            if let Some(before) = list.last() {
                adopt(&mut node, before.span);
            }
            list.push(node);
        }
        Ok(Node {
            span: self.span(list.first().map(|n| n.span)),
            value: Value::List(list),
        })
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Node, A::Error> {
        self.is_within.set(true);
        let mut entries: Vec<KeyValue> = Vec::new();
        while let Some(key) = self.node(map.next_key_seed(self))? {
            let place = key.span;
            let name = match key.into_text() {
                Ok(name) => name,
                Err(key) => {
                    *self.problem.borrow_mut() = Some(
                        Problem::new(
                            place,
                            format!("a key must be a string, not {}", key.found()),
                        )
                        .help("write `key: value`"),
                    );
                    return Err(A::Error::custom("a key must be a string"));
                }
            };
            let value = map.next_value_seed(self).map(Some);
            let Some(mut value) = self.node(value)? else {
                continue;
            };
            if matches!(value.value, Value::Null) {
                value.span = place;
            }
            adopt(&mut value, place);
            entries.push(KeyValue {
                key: name,
                span: place,
                value,
            });
        }
        Ok(Node {
            span: self.span(entries.first().map(|e| e.span)),
            value: Value::Map(entries),
        })
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use proptest::prelude::*;

    use super::*;

    /// The tree or the error, once with places from the text and once with those from the parser.
    fn both(text: &str) -> [String; 2] {
        let mut source = Source::new(Path::new("jobs.yaml"), text.to_owned());
        [true, false].map(|from_text| {
            source.has_plain_places &= from_text;
            format!("{:?}", read_whole(&source, 0))
        })
    }

    #[test]
    fn places_are_found_in_the_text_as_the_parser_has_them() {
        for text in [
            "a: x\n'b' :   \"y\"\nc: [ d, 'e',\n \"\" ]\n",
            "a: \"\\\n   x\"\nb: 'c\n\n  d'\ne: f\n g\n",
            "ä: ö\na: ü\nb: 'c'\n",
            "x\n---\ny\n",
            "x",
            "a: &b x\nc: *b\nd: !!str y\n",
            "a: x\rb: y\n",
            "\u{feff}a: x\u{2028}b: y\n",
            "a: |\n  x\nb: >-\n  y\nc: 5\nd: true\ne:\nf: 0x1f\ng: ~\n",
            "{\"a\":\"b\",\"c\":[\"d\"]}",
        ] {
            let [from_text, from_parser] = both(text);
            assert_eq!(from_text, from_parser, "{text}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2000))]

        #[test]
        fn places_in_any_text_are_those_of_the_parser(
            text in "(a: |b: |- |  |'c'|\"d\"|\"\\\\\n| #|&e |!!str |\\[|\\]|\\{|\\}|, |\n|\n|\r|ä|x|\\||5|: ){0,30}"
        ) {
            let [from_text, from_parser] = both(&text);
            prop_assert_eq!(from_text, from_parser);
        }
    }
}
