//! A mapping whose fields are known: unknown and doubled keys are errors, fields are read by name.

use std::collections::HashMap;

use super::foreign;
use super::node::{KeyValue, Node, Value, quoted};
use super::problem::{Problem, Problems};
use super::source::Span;
use super::suggest;

/// Why a value is refused, without its place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ValueError {
    /// What is wrong.
    pub(super) message: String,
    /// What was expected, or a way out.
    pub(super) help: String,
    /// A place within the text of the value: its first character from 0, and how many.
    pub(super) within: Option<(usize, usize)>,
    /// The place, when it is not the value as a whole but an item of it.
    pub(super) item: Option<Span>,
    /// What is wrong with further items.
    pub(super) further: Option<Box<FurtherErrors>>,
}

/// More errors of one value.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct FurtherErrors(Vec<ValueError>);

impl ValueError {
    /// A value that is refused.
    pub(super) fn new(message: impl Into<String>, help: impl Into<String>) -> Self {
        Self {
            message: message.into(),
            help: help.into(),
            within: None,
            item: None,
            further: None,
        }
    }

    /// The trouble is with an item of the value.
    #[must_use]
    pub(super) fn with_item(mut self, item: &Node) -> Self {
        self.item = Some(item.span);
        self
    }

    /// Reads each item of a list; an error has those of all items.
    pub(super) fn of_each<I, T>(
        items: impl IntoIterator<Item = I>,
        mut read: impl FnMut(I) -> Result<T, Self>,
    ) -> Result<Vec<T>, Self> {
        let mut good = Vec::new();
        let mut wrong: Option<Self> = None;
        for item in items {
            match (read(item), &mut wrong) {
                (Ok(value), _) => good.push(value),
                (Err(error), None) => wrong = Some(error),
                (Err(error), Some(first)) => first.further.get_or_insert_default().0.push(error),
            }
        }
        wrong.map_or(Ok(good), Err)
    }

    /// The trouble at a node, and that of further items.
    pub(super) fn report(mut self, node: &Node, problems: &mut Problems) {
        let further = self.further.take().unwrap_or_default();
        problems.add(self.at(node));
        for error in further.0 {
            error.report(node, problems);
        }
    }

    /// The trouble at a node.
    pub(super) fn at(self, node: &Node) -> Problem {
        if let Some(item) = self.item {
            return Problem::new(item, self.message).help(self.help);
        }
        let mut span = node.span;
        if let (Some((from, width)), Value::Text(text)) = (self.within, &node.value) {
            let length = text.value.chars().count();
            // Only a text that stands on one line as it is can be pointed into: two more
            // characters are its quotes.
            let quotes = match span.width.checked_sub(length) {
                Some(0) => Some(0),
                Some(2) => Some(1),
                _ => None,
            };
            if let (None, Some(quote)) = (&text.written, quotes) {
                span.column += quote + from.min(length);
                span.width = width.max(1);
            }
        }
        Problem::new(span, self.message).help(self.help)
    }
}

/// The fields that a mapping may have.
#[derive(Debug)]
pub(super) struct Vocabulary {
    /// What the mapping is, for messages: `a job`.
    pub(super) what: &'static str,
    /// Its fields.
    pub(super) fields: &'static [&'static str],
    /// What to say about words that people use for something else.
    pub(super) other_words: &'static [(&'static str, &'static str)],
    /// Fields that belong elsewhere, and where.
    pub(super) elsewhere: &'static [(&'static [&'static str], &'static str)],
    /// Those of its fields that are read but have no effect yet, and what to do until then.
    pub(super) not_yet: &'static [(&'static str, &'static str)],
}

impl Vocabulary {
    /// Reports unknown and doubled keys. Returns the fields that were probably meant, which are
    /// then not missing.
    pub(super) fn check<'a>(
        &self,
        entries: impl IntoIterator<Item = &'a KeyValue>,
        problems: &mut Problems,
    ) -> Vec<&'static str> {
        let entries = entries.into_iter();
        let mut meant = Vec::new();
        let mut seen: HashMap<&str, Span> = HashMap::with_capacity(entries.size_hint().0);
        for entry in entries {
            if let Some(&first) = seen.get(entry.key.as_str()) {
                problems.add(doubled(entry, first));
                continue;
            }
            seen.insert(&entry.key, entry.span);
            if let Some((_, help)) = self.not_yet.iter().find(|(key, _)| *key == entry.key) {
                problems.add(
                    Problem::new(
                        entry.span,
                        format!("{} is not supported yet", quoted(&entry.key)),
                    )
                    .help(*help),
                );
                continue;
            }
            if self.fields.contains(&entry.key.as_str()) {
                continue;
            }
            let help = self.meant(&entry.key);
            meant.extend(
                self.fields
                    .iter()
                    .filter(|f| help.contains(&format!("`{f}`"))),
            );
            problems.add(
                Problem::new(
                    entry.span,
                    format!("{} is not a field of {}", quoted(&entry.key), self.what),
                )
                .help(help),
            );
        }
        meant
    }

    fn meant(&self, key: &str) -> String {
        if let Some(help) = foreign::meaning(key, self.other_words) {
            return help.to_owned();
        }
        let belongs = |(fields, _): &&(&[&str], &str)| fields.contains(&key);
        if let Some((_, place)) = self.elsewhere.iter().find(belongs) {
            return (*place).to_owned();
        }
        if let Some(field) = suggest::nearest(key, self.fields.iter().copied()) {
            return format!("did you mean `{field}`?");
        }
        let built = |field: &&&str| !self.not_yet.iter().any(|(key, _)| key == *field);
        let fields: Vec<&str> = self.fields.iter().filter(built).copied().collect();
        format!("its fields are {}", fields.join(", "))
    }
}

/// A key that stands twice in one mapping.
pub(super) fn doubled(entry: &KeyValue, first: Span) -> Problem {
    Problem::new(entry.span, format!("{} is given twice", quoted(&entry.key)))
        .other(first, "first given at")
}

/// A mapping of known fields, and the one its missing fields are taken from.
#[derive(Debug, Clone, Copy)]
pub(super) struct Section<'a> {
    own: &'a [KeyValue],
    base: &'a [KeyValue],
}

impl<'a> Section<'a> {
    /// The fields of a mapping over those of `base` (`defaults:`).
    pub(super) fn new(own: &'a [KeyValue], base: &'a [KeyValue]) -> Self {
        Self { own, base }
    }

    /// The field, if it is given.
    pub(super) fn entry(&self, key: &str) -> Option<&'a KeyValue> {
        self.own_entry(key).or_else(|| self.inherited_entry(key))
    }

    /// The field, if this mapping itself has it.
    pub(super) fn own_entry(&self, key: &str) -> Option<&'a KeyValue> {
        self.own.iter().find(|e| e.key == key)
    }

    /// The field as the mapping below has it.
    pub(super) fn inherited_entry(&self, key: &str) -> Option<&'a KeyValue> {
        self.base.iter().find(|e| e.key == key)
    }

    /// The place of a field's value.
    pub(super) fn span(&self, key: &str) -> Option<Span> {
        self.entry(key).map(|e| e.value.span)
    }

    /// Reads a field; `None` when it is missing or was refused.
    pub(super) fn read<T>(
        &self,
        key: &str,
        problems: &mut Problems,
        parse: impl FnOnce(&Node) -> Result<T, ValueError>,
    ) -> Option<T> {
        let entry = self.entry(key)?;
        match &entry.value.value {
            Value::Unset(_) | Value::Broken => None,
            Value::Null => {
                problems.add(
                    Problem::new(entry.span, format!("{} has no value", quoted(key)))
                        .help("give it a value, or remove the line"),
                );
                None
            }
            _ => parse(&entry.value)
                .map_err(|trouble| trouble.report(&entry.value, problems))
                .ok(),
        }
    }

    /// Reads a field that may say `none`; `None` when it does, is missing or was refused.
    pub(super) fn read_or_none<T>(
        &self,
        key: &str,
        problems: &mut Problems,
        parse: impl FnOnce(&Node) -> Result<T, ValueError>,
    ) -> Option<T> {
        if self.entry(key)?.value.text() == Some("none") {
            return None;
        }
        self.read(key, problems, parse)
    }

    /// A mapping within this one that may also say `none`, which undoes an inherited one.
    pub(super) fn within_or_none(
        &self,
        key: &str,
        vocabulary: &Vocabulary,
        problems: &mut Problems,
    ) -> Option<Section<'a>> {
        if self.entry(key)?.value.text() == Some("none") {
            return None;
        }
        self.within(key, vocabulary, problems)
    }

    /// A mapping within this one, over the same mapping in `base`; its keys are checked.
    pub(super) fn within(
        &self,
        key: &str,
        vocabulary: &Vocabulary,
        problems: &mut Problems,
    ) -> Option<Section<'a>> {
        let mut part = |entry: Option<&'a KeyValue>| -> Option<&'a [KeyValue]> {
            let node = &entry?.value;
            match &node.value {
                Value::Map(entries) => {
                    vocabulary.check(entries, problems);
                    Some(entries)
                }
                Value::Unset(_) | Value::Broken => None,
                _ => {
                    problems.add(
                        Problem::new(
                            node.span,
                            format!("expected a mapping, found {}", node.found()),
                        )
                        .help(format!(
                            "write `{key}: {{ {}: … }}`",
                            vocabulary.fields.first().unwrap_or(&"…")
                        )),
                    );
                    None
                }
            }
        };
        let own = self.own_entry(key);
        let inherited = self
            .inherited_entry(key)
            .filter(|e| e.value.text() != Some("none"));
        let base = part(inherited);
        match (part(own), base) {
            (None, None) => None,
            (own, base) => Some(Section::new(own.unwrap_or(&[]), base.unwrap_or(&[]))),
        }
    }
}
