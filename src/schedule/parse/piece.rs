//! A piece of cron text, with its columns.

use std::ops::Range;

use super::super::CronError;

/// A piece of the text and where it begins.
#[derive(Debug, Clone, Copy)]
pub(super) struct Piece<'a> {
    pub(super) text: &'a str,
    pub(super) at: usize,
}

impl<'a> Piece<'a> {
    pub(super) fn columns(self) -> Range<usize> {
        self.at..self.at + self.text.len()
    }

    /// Splits at the first `separator`, which belongs to neither side.
    pub(super) fn split(self, separator: char) -> Option<(Piece<'a>, Piece<'a>)> {
        let (left, right) = self.text.split_once(separator)?;
        let right = Piece {
            text: right,
            at: self.at + left.len() + separator.len_utf8(),
        };
        Some((
            Piece {
                text: left,
                at: self.at,
            },
            right,
        ))
    }

    pub(super) fn begins_with_star(self) -> bool {
        self.text.starts_with(['*', '?'])
    }

    pub(super) fn fail<T>(
        self,
        what: impl Into<String>,
        hint: impl Into<String>,
    ) -> Result<T, CronError> {
        Err(CronError::new(self.columns(), what, hint))
    }
}
