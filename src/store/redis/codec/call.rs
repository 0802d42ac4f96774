//! The keys and arguments of a call, and how single arguments are written. A script sees them as
//! `KEYS` and `ARGV`.

use std::fmt::{Display, Write};
use std::time::Duration;

use crate::time::Timestamp;

/// The keys and arguments of a call. The arguments are one text, because a claim has more than twenty of
/// them.
#[derive(Debug, Clone, Default)]
pub(in crate::store::redis) struct Call {
    pub(in crate::store::redis) keys: Vec<String>,
    args: String,
    /// Where each argument ends.
    ends: Vec<usize>,
}

impl Call {
    pub(in crate::store::redis) fn key(&mut self, key: impl Into<String>) -> &mut Self {
        self.keys.push(key.into());
        self
    }

    pub(in crate::store::redis) fn arg(&mut self, arg: &(impl Display + ?Sized)) -> &mut Self {
        // Writing to a text cannot fail.
        let _ = write!(self.args, "{arg}");
        self.ends.push(self.args.len());
        self
    }

    /// Returns the arguments in order.
    pub(in crate::store::redis) fn args(&self) -> impl ExactSizeIterator<Item = &str> {
        let mut begin = 0;
        self.ends.iter().map(move |end| {
            let arg = &self.args[begin..*end];
            begin = *end;
            arg
        })
    }

    /// Returns how many bytes all keys and arguments have.
    pub(in crate::store::redis) fn size(&self) -> usize {
        self.keys.iter().map(String::len).sum::<usize>() + self.args.len()
    }
}

/// Writes an instant in milliseconds, or an empty text.
pub(in crate::store::redis) fn optional(at: Option<Timestamp>) -> String {
    at.map(|at| at.millis().to_string()).unwrap_or_default()
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
