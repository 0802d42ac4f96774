//! Suggestions for misspelt words.

/// The candidate nearest to a misspelt word, if one is near enough to be meant.
pub(super) fn nearest<'a>(
    word: &str,
    candidates: impl IntoIterator<Item = &'a str>,
) -> Option<&'a str> {
    let plain = |text: &str| text.to_lowercase().replace(['-', ' '], "_");
    let word = plain(word);
    let reach = match word.chars().count() {
        0 => return None,
        1..=3 => 1,
        4..=7 => 2,
        _ => 3,
    };
    candidates
        .into_iter()
        .map(|candidate| {
            let distance = strsim::damerau_levenshtein(&word, &plain(candidate));
            (distance, candidate)
        })
        .filter(|(distance, candidate)| *distance <= reach && *distance < candidate.len())
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, candidate)| candidate)
}

/// "did you mean …?", or what is allowed.
pub(super) fn help(word: &str, candidates: &[&str]) -> String {
    match nearest(word, candidates.iter().copied()) {
        Some(meant) => format!("did you mean `{meant}`?"),
        None => format!("expected {}", one_of(candidates)),
    }
}

/// "one of `a`, `b` or `c`".
pub(super) fn one_of(words: &[&str]) -> String {
    match words {
        [] => "nothing".to_owned(),
        [only] => format!("`{only}`"),
        [head @ .., last] => {
            let head: Vec<_> = head.iter().map(|w| format!("`{w}`")).collect();
            format!("{} or `{last}`", head.join(", "))
        }
    }
}
