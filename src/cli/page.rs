//! Text for people whose parts have tones: colours on a terminal, and none elsewhere or with
//! `NO_COLOR`.

use unicode_width::UnicodeWidthStr as _;

use crate::observe::{plain, plain_line};

/// What a part of a text means, which decides its colour.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Tone {
    /// No colour.
    #[default]
    Plain,
    /// The name of a column or of a section.
    Heading,
    /// As it should be.
    Good,
    /// It may need attention.
    Doubtful,
    /// It needs attention.
    Bad,
    /// Less important than what surrounds it.
    Faint,
}

impl Tone {
    /// The parameter of the escape sequence that begins it (ECMA-48, "select graphic rendition").
    fn parameter(self) -> Option<u8> {
        match self {
            Self::Plain => None,
            Self::Heading => Some(1),
            Self::Faint => Some(2),
            Self::Bad => Some(31),
            Self::Good => Some(32),
            Self::Doubtful => Some(33),
        }
    }
}

/// A text whose parts have tones.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Page {
    parts: Vec<(Tone, String)>,
}

impl Page {
    /// Adds text without a tone.
    pub(super) fn push(&mut self, text: impl Into<String>) {
        self.push_toned(Tone::Plain, text);
    }

    /// Adds text.
    pub(super) fn push_toned(&mut self, tone: Tone, text: impl Into<String>) {
        self.parts.push((tone, text.into()));
    }

    /// Adds another page.
    pub(super) fn append(&mut self, page: Self) {
        self.parts.extend(page.parts);
    }

    /// Returns the text without tones.
    pub(super) fn text(&self) -> String {
        self.parts.iter().map(|(_, text)| text.as_str()).collect()
    }

    /// Returns the text with the escape sequences of its tones. Every other character that would drive
    /// a terminal is shown instead.
    pub(super) fn coloured(&self) -> String {
        let mut coloured = String::new();
        for (tone, text) in &self.parts {
            match tone.parameter() {
                Some(parameter) if !text.is_empty() => {
                    coloured += &format!("\x1b[{parameter}m{}\x1b[0m", plain(text));
                }
                _ => coloured += &plain(text),
            }
        }
        coloured
    }
}

/// A cell of a table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Cell {
    tone: Tone,
    text: String,
}

impl Cell {
    /// A cell with a tone.
    pub(super) fn toned(tone: Tone, text: impl Into<String>) -> Self {
        let text = text.into();
        Self { tone, text }
    }
}

impl From<String> for Cell {
    fn from(text: String) -> Self {
        Self::toned(Tone::Plain, text)
    }
}

/// A table without lines, as wide as it needs to be: the columns are two blanks apart.
pub(super) fn table<const N: usize>(
    header: [&str; N],
    rows: impl IntoIterator<Item = [Cell; N]>,
) -> Page {
    let header = header.map(|name| Cell::toned(Tone::Heading, name));
    let on_one_line = |cell: Cell| Cell::toned(cell.tone, plain_line(&cell.text));
    let rows: Vec<[Cell; N]> = std::iter::once(header)
        .chain(rows)
        .map(|row| row.map(on_one_line))
        .collect();
    let mut widths = [0; N];
    for row in &rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = cell.text.width().max(*width);
        }
    }
    let mut page = Page::default();
    for row in rows {
        let cells = row.iter().rposition(|cell| !cell.text.is_empty());
        let last = cells.unwrap_or_default();
        for (column, cell) in row.into_iter().take(last + 1).enumerate() {
            let missing = widths[column] - cell.text.width();
            page.push_toned(cell.tone, cell.text);
            if column < last {
                page.push(" ".repeat(missing + 2));
            }
        }
        page.push("\n");
    }
    page
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cells<const N: usize>(texts: [&str; N]) -> [Cell; N] {
        texts.map(|text| Cell::from(text.to_owned()))
    }

    #[test]
    fn a_table_is_aligned_and_has_neither_lines_nor_trailing_blanks() {
        let rows = [
            cells(["1", "", ""]),
            cells(["Größe", "x", "y"]),
            cells(["日本", "x", ""]),
            cells(["", "", ""]),
            cells(["a\nb", "x", ""]),
        ];
        let text = table(["A", "LONG", ""], rows).text();
        let expected = "A         LONG\n1\nGröße     x     y\n日本      x\n\na\\u000ab  x\n";
        assert_eq!(text, expected);
    }

    #[test]
    fn only_tones_become_escape_sequences() {
        let mut page = Page::default();
        page.push("a\x1b[2J");
        page.push_toned(Tone::Bad, "b\x1b[0m\nc");
        page.push_toned(Tone::Good, "");
        assert_eq!(page.coloured(), "a\\u001b[2J\x1b[31mb\\u001b[0m\nc\x1b[0m");
        assert_eq!(page.text(), "a\x1b[2Jb\x1b[0m\nc");
        // The colour of a cell does not count for the width of its column.
        let row = [Cell::toned(Tone::Bad, "x"), Cell::from("y".to_owned())];
        let coloured = table(["AB", "C"], [row]).coloured();
        assert_eq!(
            coloured,
            "\x1b[1mAB\x1b[0m  \x1b[1mC\x1b[0m\n\x1b[31mx\x1b[0m   y\n"
        );
    }
}
