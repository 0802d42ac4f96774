//! The last of a run's output, for its record.

/// What a record of a run that succeeded keeps.
const KEPT: usize = 2 * 1024;
/// What a record of any other run keeps.
const KEPT_ON_FAILURE: usize = 4 * 1024;

/// The newest lines, at most [`KEPT_ON_FAILURE`] bytes of them.
#[derive(Debug, Default)]
pub(super) struct FailureTail {
    text: String,
}

impl FailureTail {
    pub(super) fn push(&mut self, line: &str) {
        let line = newest(line, KEPT_ON_FAILURE);
        if !self.text.is_empty() {
            self.text.push('\n');
        }
        self.text.push_str(line);
        // Cut in strides: a flood of short lines must not move the text at each of them.
        if self.text.len() > 2 * KEPT_ON_FAILURE {
            self.text = newest(&self.text, KEPT_ON_FAILURE).to_owned();
        }
    }

    /// What the record keeps; `None` when there was no output.
    pub(super) fn keep(&self, succeeded: bool) -> Option<String> {
        let most = if succeeded { KEPT } else { KEPT_ON_FAILURE };
        (!self.text.is_empty()).then(|| newest(&self.text, most).to_owned())
    }
}

/// The end of `text`, at most `most` bytes, beginning at a character.
fn newest(text: &str, most: usize) -> &str {
    let mut start = text.len().saturating_sub(most);
    while !text.is_char_boundary(start) {
        start += 1;
    }
    &text[start..]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_keeps_its_end_and_a_failure_keeps_more_of_it() {
        let mut tail = FailureTail::default();
        for n in 0..100_000 {
            tail.push(&format!("line {n}"));
        }
        let success = tail.keep(true).expect("there was output");
        let failure = tail.keep(false).expect("there was output");
        assert!(success.len() <= KEPT && failure.len() <= KEPT_ON_FAILURE);
        assert!(failure.len() > success.len());
        assert!(success.ends_with("line 99998\nline 99999"));
    }

    #[test]
    fn characters_are_never_cut_in_two() {
        let mut tail = FailureTail::default();
        tail.push(&"ä€".repeat(3000));
        assert!(tail.keep(true).is_some_and(|text| text.len() <= KEPT));
    }

    #[test]
    fn silence_keeps_nothing() {
        assert_eq!(FailureTail::default().keep(false), None);
    }
}
