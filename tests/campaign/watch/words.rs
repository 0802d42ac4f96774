//! Lines of `MONITOR`: `+SECONDS.MICROS [DB CLIENT] "WORD" …`, with backslashes in the words.

/// One command that a server carried out.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Line {
    /// By the server's clock, in milliseconds since the epoch.
    pub(super) at: i64,
    /// A script called it.
    pub(super) in_script: bool,
    pub(super) words: Vec<String>,
}

/// `None` for a line that is none of a command.
pub(super) fn parse(text: &str) -> Option<Line> {
    let text = text.trim_end().strip_prefix('+')?;
    let (time, rest) = text.split_once(" [")?;
    let (seconds, micros) = time.split_once('.')?;
    let at = seconds.parse::<i64>().ok()? * 1000 + micros.parse::<i64>().ok()? / 1000;
    let (client, rest) = rest.split_once("] ")?;
    Some(Line {
        at,
        in_script: client.ends_with(" lua"),
        words: words(rest)?,
    })
}

fn words(text: &str) -> Option<Vec<String>> {
    let mut words = Vec::new();
    let mut chars = text.chars();
    while let Some(quote) = chars.find(|c| *c != ' ') {
        if quote != '"' {
            return None;
        }
        let mut word = String::new();
        loop {
            match chars.next()? {
                '"' => break,
                '\\' => word.push(match chars.next()? {
                    'n' => '\n',
                    'r' => '\r',
                    't' => '\t',
                    // Bytes that are no text: it is enough that something stands there.
                    'x' => {
                        chars.by_ref().take(2).for_each(drop);
                        '\u{fffd}'
                    }
                    other => other,
                }),
                other => word.push(other),
            }
        }
        words.push(word);
    }
    Some(words)
}

#[test]
fn a_line_is_read_with_its_quotes_and_what_is_none_is_not() {
    let line = parse("+1795323560.012886 [0 lua] \"SET\" \"a b\" \"x\\\"y\\n\\xff\"\r\n").unwrap();
    let expected = Line {
        at: 1_795_323_560_012,
        in_script: true,
        words: ["SET", "a b", "x\"y\n\u{fffd}"].map(str::to_owned).to_vec(),
    };
    assert_eq!(line, expected);
    let line = parse("+1.000001 [0 127.0.0.1:77] \"ping\"").unwrap();
    assert!(!line.in_script);
    assert_eq!(parse("+OK\r\n"), None);
    assert_eq!(parse("+1.0 [0 lua] \"cut"), None);
}
