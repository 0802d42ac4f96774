//! Names in ASCII: what a name with other characters may be written as.

/// Letters of Latin alphabets as people of their languages write them in ASCII.
const LETTERS: [(&str, &str); 24] = [
    ("ä", "ae"),
    ("ö", "oe"),
    ("ü", "ue"),
    ("ß", "ss"),
    ("æ", "ae"),
    ("øœ", "oe"),
    ("å", "aa"),
    ("þ", "th"),
    ("àáâãāăą", "a"),
    ("çćč", "c"),
    ("ďđð", "d"),
    ("èéêëēėęě", "e"),
    ("ğģ", "g"),
    ("ìíîïīįı", "i"),
    ("ķ", "k"),
    ("ļłľ", "l"),
    ("ñńňņ", "n"),
    ("òóôõōő", "o"),
    ("ŕř", "r"),
    ("śşšș", "s"),
    ("ťţț", "t"),
    ("ùúûūůűų", "u"),
    ("ýÿ", "y"),
    ("źżž", "z"),
];

/// A name near to this one of letters, digits, `.`, `_` and `-`; empty when nothing is left.
pub(super) fn in_ascii(name: &str) -> String {
    let mut plain = String::with_capacity(name.len());
    for c in name.trim().chars() {
        if c.is_ascii_alphanumeric() || "._-".contains(c) {
            plain.push(c);
        } else if let Some(letters) = letters(c) {
            plain.push_str(&letters);
        } else if !plain.ends_with('-') {
            plain.push('-');
        }
    }
    plain.truncate(60);
    plain.trim_matches('-').to_owned()
}

fn letters(c: char) -> Option<String> {
    let small = c.to_lowercase().next()?;
    let (_, letters) = LETTERS.iter().find(|(known, _)| known.contains(small))?;
    let mut letters = (*letters).to_owned();
    if c.is_uppercase()
        && let Some(first) = letters.get_mut(..1)
    {
        first.make_ascii_uppercase();
    }
    Some(letters)
}

#[cfg(test)]
mod tests {
    use super::in_ascii;

    #[test]
    fn names_keep_their_letters_in_ascii() {
        for (name, plain) in [
            ("Überweisung", "Ueberweisung"),
            ("Straße", "Strasse"),
            ("sauvegarde générale", "sauvegarde-generale"),
            ("Łódź", "Lodz"),
            ("nightly  backup!", "nightly-backup"),
            ("備份", ""),
            ("db 備份 1", "db-1"),
        ] {
            assert_eq!(in_ascii(name), plain);
        }
    }
}
