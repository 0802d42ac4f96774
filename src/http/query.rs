//! The parameters of a request: `?job=web*&limit=5`.

/// The parameters, in their order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct QueryParameters(Vec<(String, String)>);

/// The most parameters of a request.
const COUNT_MAX: usize = 1_000;

impl QueryParameters {
    /// Parses the part of a URL behind `?`.
    pub(super) fn parse(text: Option<&str>) -> Result<Self, String> {
        let parts = text
            .unwrap_or("")
            .split('&')
            .filter(|part| !part.is_empty());
        let decoded = parts.take(COUNT_MAX).map(|part| {
            let (name, value) = part.split_once('=').unwrap_or((part, ""));
            Ok((decode(name)?, decode(value)?))
        });
        decoded.collect::<Result<_, String>>().map(Self)
    }

    /// The parameters. Fails if one is not among those `known`.
    pub(crate) fn of(&self, known: &[&str]) -> Result<&[(String, String)], String> {
        match (self.0.iter()).find(|(name, _)| !known.contains(&name.as_str())) {
            None => Ok(&self.0),
            Some((name, _)) if known.is_empty() => {
                Err(format!("unknown parameter {name:?}: this path takes none"))
            }
            Some((name, _)) => Err(format!(
                "unknown parameter {name:?}; the parameters are {}",
                known.join(", ")
            )),
        }
    }
}

/// Decodes `%XX`, and `+` as a blank, as forms have it.
fn decode(text: &str) -> Result<String, String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&byte, tail)) = rest.split_first() {
        rest = tail;
        match byte {
            b'+' => bytes.push(b' '),
            b'%' => {
                let digits = rest
                    .get(..2)
                    .and_then(|digits| std::str::from_utf8(digits).ok());
                let value = digits
                    .filter(|digits| digits.bytes().all(|b| b.is_ascii_hexdigit()))
                    .and_then(|digits| u8::from_str_radix(digits, 16).ok());
                bytes.push(value.ok_or("a parameter has a `%` without two hexadecimal digits")?);
                rest = &rest[2..];
            }
            byte => bytes.push(byte),
        }
    }
    let text = String::from_utf8(bytes).map_err(|_| "a parameter is not UTF-8".to_owned())?;
    if text.contains('\0') {
        return Err("a parameter has a NUL character".to_owned());
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_decoded_and_unknown_ones_refused() {
        let query =
            QueryParameters::parse(Some("job=web%2A&since=2+h&failed&&job=%C3%BC")).expect("right");
        let known = ["job", "since", "failed"];
        let pairs = query.of(&known).expect("known").iter();
        let pairs: Vec<_> = pairs.map(|(n, v)| (n.as_str(), v.as_str())).collect();
        let wanted = [
            ("job", "web*"),
            ("since", "2 h"),
            ("failed", ""),
            ("job", "ü"),
        ];
        assert_eq!(pairs, wanted);
        assert!(query.of(&["job"]).expect_err("one more").contains("since"));
        assert!(query.of(&[]).expect_err("none").contains("takes none"));
        for wrong in ["a=%", "a=%4", "a=%zz", "a=%+1", "a=%ff", "a=%00"] {
            assert!(QueryParameters::parse(Some(wrong)).is_err(), "{wrong}");
        }
        assert_eq!(
            QueryParameters::parse(None).expect("none").of(&[]),
            Ok(&[][..])
        );
    }

    proptest::proptest! {
        #[test]
        fn whatever_arrives_is_no_panic(text in ".{0,40}") {
            let _ = QueryParameters::parse(Some(&text));
        }
    }
}
