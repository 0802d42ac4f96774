//! Suggestions for names that do not exist.

/// How alike two names must be (Jaro-Winkler) for one to be meant by the other.
const LIKENESS: f64 = 0.8;

/// Returns the name that is most like `wanted`, if it is like enough to be meant.
pub(super) fn nearest_name<'a>(
    wanted: &str,
    names: impl IntoIterator<Item = &'a str>,
) -> Option<&'a str> {
    let likeness = |name: &str| strsim::jaro_winkler(name, wanted);
    let names = names.into_iter().map(|name| (likeness(name), name));
    let nearest = names.max_by(|(a, _), (b, _)| a.total_cmp(b))?;
    (nearest.0 > LIKENESS).then_some(nearest.1)
}

#[cfg(test)]
mod tests {
    use super::nearest_name;

    #[test]
    fn the_name_that_was_meant_is_found() {
        let names = ["backup", "report"];
        assert_eq!(nearest_name("bakcup", names), Some("backup"));
        assert_eq!(nearest_name("vacuum", names), None);
        assert_eq!(nearest_name("backup", []), None);
    }
}
