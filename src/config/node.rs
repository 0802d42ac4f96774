//! YAML as a tree in which every value knows its place.

use super::source::Span;

/// A value and where it stands.
#[derive(Debug, Clone)]
pub(super) struct Node {
    /// Where it begins.
    pub(super) span: Span,
    /// What it is.
    pub(super) value: Value,
}

/// What a node is.
#[derive(Debug, Clone)]
pub(super) enum Value {
    /// `null`, `~` or nothing.
    Null,
    /// `true` or `false`, as written.
    Bool(bool, String),
    /// A number, as written: `1.10` stays `1.10`.
    Number(String),
    /// Any other scalar.
    Text(Text),
    /// A sequence.
    List(Vec<Node>),
    /// A mapping, in the order of the file.
    Map(Vec<KeyValue>),
    /// A text with a variable that is not set, as written, where this command does without it.
    Unset(String),
    /// Something whose error has been reported already.
    Broken,
}

/// A text and, if variables were replaced in it, how it was written.
#[derive(Debug, Clone)]
pub(super) struct Text {
    /// The text.
    pub(super) value: String,
    /// As written, when that differs: what the environment holds may be secret.
    pub(super) written: Option<String>,
}

/// A key and its value.
#[derive(Debug, Clone)]
pub(super) struct KeyValue {
    /// The key.
    pub(super) key: String,
    /// Where the key stands.
    pub(super) span: Span,
    /// The value.
    pub(super) value: Node,
}

impl Node {
    /// The text of a scalar, numbers and booleans as they are written.
    pub(super) fn text(&self) -> Option<&str> {
        match &self.value {
            Value::Text(text) => Some(&text.value),
            Value::Number(raw) | Value::Bool(_, raw) => Some(raw),
            Value::Null | Value::List(_) | Value::Map(_) | Value::Unset(_) | Value::Broken => None,
        }
    }

    /// The text of a scalar as [`Self::text`]; any other node comes back.
    pub(super) fn into_text(self) -> Result<String, Self> {
        match self.value {
            Value::Text(text) => Ok(text.value),
            Value::Number(raw) | Value::Bool(_, raw) => Ok(raw),
            _ => Err(self),
        }
    }

    /// What stands there, for a message; never a value from the environment.
    pub(super) fn found(&self) -> String {
        let text = match &self.value {
            Value::Null | Value::Broken => return "nothing".to_owned(),
            Value::List(_) => return "a list".to_owned(),
            Value::Map(_) => return "a mapping".to_owned(),
            Value::Text(Text {
                written: Some(written),
                ..
            }) => written,
            Value::Text(Text { value, .. }) => value,
            Value::Number(raw) | Value::Bool(_, raw) | Value::Unset(raw) => raw,
        };
        quoted(text)
    }
}

/// A text in back quotes, on one line and of bounded length.
pub(super) fn quoted(text: &str) -> String {
    const MAX: usize = 60;
    let mut line: String = text
        .chars()
        .take(MAX)
        .flat_map(|c| {
            if c.is_control() {
                c.escape_default().collect()
            } else {
                vec![c]
            }
        })
        .collect();
    if text.chars().nth(MAX).is_some() {
        line.push('…');
    }
    format!("`{line}`")
}
