//! The part of shell syntax that is needed to find operators and words: quotes, comments,
//! substitutions and here-documents.

/// An operator outside quotes and substitutions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Operator {
    /// `|` or `|&`.
    Pipe,
    /// `||`.
    Or,
    /// `&&`.
    And,
    /// `;` or the end of a line.
    Sequence,
    /// `&`.
    Background,
}

/// The operators of a script, in order, each with its byte offset.
pub(super) fn operators(script: &str) -> Vec<(usize, Operator)> {
    let mut found = Vec::new();
    let mut reader = ScriptReader::new(script);
    while let Some((at, c)) = reader.next_outside_quotes() {
        let next = reader.peek();
        let operator = match (c, next) {
            ('|', Some('|')) => Operator::Or,
            ('|', _) => Operator::Pipe,
            ('&', Some('&')) => Operator::And,
            // `2>&1`, `&>file`.
            ('&', Some('>')) => continue,
            ('&', _) if script[..at].ends_with(['>', '<']) => continue,
            ('&', _) => Operator::Background,
            (';' | '\n', _) => Operator::Sequence,
            _ => continue,
        };
        if matches!(operator, Operator::Or | Operator::And) || next == Some('&') {
            reader.skip();
        }
        found.push((at, operator));
    }
    found
}

/// Walks over the characters outside quotes, comments, substitutions and here-documents.
struct ScriptReader<'a> {
    text: &'a str,
    at: usize,
    /// The delimiters of here-documents that begin on the next line.
    documents: Vec<String>,
}

impl<'a> ScriptReader<'a> {
    fn new(text: &'a str) -> Self {
        Self {
            text,
            at: 0,
            documents: Vec::new(),
        }
    }

    fn rest(&self) -> &'a str {
        self.text.get(self.at..).unwrap_or("")
    }

    fn peek(&self) -> Option<char> {
        self.rest().chars().next()
    }

    fn skip(&mut self) {
        self.at += self.peek().map_or(0, char::len_utf8);
    }

    fn next_outside_quotes(&mut self) -> Option<(usize, char)> {
        loop {
            let at = self.at;
            let c = self.peek()?;
            self.skip();
            match c {
                '\\' => self.skip(),
                '\'' => self.until('\''),
                '"' => self.quoted(),
                '`' => self.until('`'),
                '$' if self.peek() == Some('(') => self.substitution(),
                '#' if at == 0 || self.text[..at].ends_with([' ', '\t', '\n', ';']) => {
                    let end = self.rest().find('\n').unwrap_or(self.rest().len());
                    self.at += end;
                }
                '<' if self.rest().starts_with('<') && !self.rest().starts_with("<<") => {
                    self.document();
                }
                '\n' => {
                    self.bodies();
                    return Some((at, c));
                }
                c => return Some((at, c)),
            }
        }
    }

    fn until(&mut self, quote: char) {
        self.at += match self.rest().find(quote) {
            Some(end) => end + quote.len_utf8(),
            None => self.rest().len(),
        };
    }

    fn quoted(&mut self) {
        while let Some(c) = self.peek() {
            self.skip();
            match c {
                '\\' => self.skip(),
                '"' => return,
                _ => {}
            }
        }
    }

    /// `$(…)` and `$((…))`, up to the closing bracket.
    fn substitution(&mut self) {
        let mut depth = 0_usize;
        while let Some(c) = self.peek() {
            self.skip();
            match c {
                '\\' => self.skip(),
                '\'' => self.until('\''),
                '"' => self.quoted(),
                '(' => depth += 1,
                ')' => {
                    depth -= 1;
                    if depth == 0 {
                        return;
                    }
                }
                _ => {}
            }
        }
    }

    /// `<<EOF`, `<<-'EOF'`.
    fn document(&mut self) {
        self.skip();
        let rest = self.rest().trim_start_matches(['-', ' ']);
        let word: String = rest
            .chars()
            .take_while(|c| !c.is_whitespace() && !";|&)".contains(*c))
            .filter(|c| !"'\"\\".contains(*c))
            .collect();
        if !word.is_empty() {
            self.documents.push(word);
        }
    }

    /// Skips the here-documents of the line that has ended.
    fn bodies(&mut self) {
        for delimiter in std::mem::take(&mut self.documents) {
            loop {
                let rest = self.rest();
                let line = rest.split('\n').next().unwrap_or("");
                self.at += (line.len() + 1).min(rest.len());
                if line.trim_start_matches('\t') == delimiter || self.at >= self.text.len() {
                    break;
                }
            }
        }
    }
}

/// The first word of a text without its quotes, and the byte offset at which the word ends.
pub(crate) fn word(text: &str) -> Option<(String, usize)> {
    let start = text.len() - text.trim_start().len();
    let mut word = String::new();
    let mut quote = None;
    let mut chars = text
        .char_indices()
        .skip_while(|(at, _)| *at < start)
        .peekable();
    let mut end = text.len();
    while let Some((at, c)) = chars.next() {
        match (c, quote) {
            ('\\', None) => word.extend(chars.next().map(|(_, c)| c)),
            ('\\', Some('"')) => match chars.next_if(|(_, c)| "$`\"\\".contains(*c)) {
                Some((_, escaped)) => word.push(escaped),
                None => word.push('\\'),
            },
            (c, Some(open)) if c == open => quote = None,
            ('"' | '\'', None) => quote = Some(c),
            (c, None) if c.is_whitespace() || "|&;<>()".contains(c) => {
                end = at;
                break;
            }
            (c, _) => word.push(c),
        }
    }
    (end > start).then_some((word, end))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operators_within_quotes_and_documents_are_text() {
        let of = |script: &str| -> Vec<Operator> {
            operators(script).into_iter().map(|(_, op)| op).collect()
        };
        assert_eq!(
            of("a | b || c && d; e &"),
            [
                Operator::Pipe,
                Operator::Or,
                Operator::And,
                Operator::Sequence,
                Operator::Background,
            ]
        );
        for plain in [
            "a '|' \"| ; &\" \\| \\;",
            "a $(b | c) `d | e` $((1 | 2))",
            "a > x 2>&1 # | b",
            "a &> x",
            "a >&2",
            "a <<'E'",
        ] {
            assert_eq!(of(plain), Vec::<Operator>::new(), "{plain}");
        }
        assert_eq!(
            of("a <<E | b\nx | y\nE\nc"),
            [Operator::Pipe, Operator::Sequence,]
        );
        assert_eq!(of("a |& b"), [Operator::Pipe]);
    }

    #[test]
    fn words_lose_their_quotes() {
        assert_eq!(word("  'a b'c\\ d e"), Some(("a bc d".to_owned(), 11)));
        assert_eq!(word("a;b"), Some(("a".to_owned(), 1)));
        assert_eq!(word("  "), None);
        assert_eq!(word("''"), Some((String::new(), 2)));
        assert_eq!(word("\"a\\n\\$\""), Some(("a\\n$".to_owned(), 7)));
    }
}
