//! The keys and arguments of a call, and how single arguments are written. A script sees them as
//! `KEYS` and `ARGV`.

use std::fmt::{self, Display, Write as _};
use std::time::Duration;

use crate::time::Timestamp;

/// The keys and arguments of a call.
#[derive(Debug, Clone, Default)]
pub(in crate::store::redis) struct Call {
    keys: Texts,
    args: Texts,
}

impl Call {
    pub(in crate::store::redis) fn key(&mut self, key: &(impl Display + ?Sized)) -> &mut Self {
        self.keys.push(key);
        self
    }

    pub(in crate::store::redis) fn arg(&mut self, arg: &(impl Display + ?Sized)) -> &mut Self {
        self.args.push(arg);
        self
    }

    /// Returns the keys in order.
    pub(in crate::store::redis) fn keys(&self) -> impl ExactSizeIterator<Item = &str> {
        self.keys.iter()
    }

    /// Returns the arguments in order.
    pub(in crate::store::redis) fn args(&self) -> impl ExactSizeIterator<Item = &str> {
        self.args.iter()
    }

    /// Replaces each key that is equal to `from`.
    pub(in crate::store::redis) fn replace_key(&mut self, from: &str, to: &str) {
        if !self.keys().any(|key| key == from) {
            return;
        }
        let mut keys = Texts::default();
        for key in self.keys.iter() {
            keys.push(if key == from { to } else { key });
        }
        self.keys = keys;
    }

    /// Returns how many bytes all keys and arguments have.
    pub(in crate::store::redis) fn size(&self) -> usize {
        self.keys.text.len() + self.args.text.len()
    }
}

/// Several texts in one allocation, because a claim has more than twenty of them.
#[derive(Debug, Clone, Default)]
struct Texts {
    text: String,
    /// Where each of them ends.
    ends: Vec<usize>,
}

impl Texts {
    fn push(&mut self, text: &(impl Display + ?Sized)) {
        if self.ends.is_empty() {
            // Most calls fit in this, so the texts are not moved while they grow.
            self.text.reserve(512);
            self.ends.reserve(32);
        }
        // Writing to a text cannot fail.
        let _ = write!(self.text, "{text}");
        self.ends.push(self.text.len());
    }

    fn iter(&self) -> impl ExactSizeIterator<Item = &str> {
        let mut begin = 0;
        self.ends.iter().map(move |end| {
            let text = &self.text[begin..*end];
            begin = *end;
            text
        })
    }
}

/// An instant in milliseconds, or an empty text.
pub(in crate::store::redis) fn optional_instant(at: Option<Timestamp>) -> impl Display {
    optional(at.map(Timestamp::millis))
}

/// An argument, or an empty text.
pub(in crate::store::redis) fn optional<T: Display>(arg: Option<T>) -> impl Display {
    Optional(arg)
}

struct Optional<T>(Option<T>);

impl<T: Display> Display for Optional<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|arg| arg.fmt(f))
    }
}

/// Writes 1 or 0.
pub(in crate::store::redis) fn flag(flag: bool) -> &'static str {
    if flag { "1" } else { "0" }
}

/// Returns a TTL in milliseconds within the limits of Redis: at least one, and at most ten years.
pub(in crate::store::redis) fn millis(ttl: Duration) -> u128 {
    const TEN_YEARS: u128 = 10 * 365 * 24 * 3600 * 1000;
    ttl.as_millis().clamp(1, TEN_YEARS)
}
