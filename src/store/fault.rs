//! Faults of single keys, and batches that must not fail because of them.
//!
//! A key that holds something else than cronlatch writes, or that the user has no right to,
//! concerns the job it belongs to. [`apart`] keeps it from failing the jobs it shares a batch with.

use std::fmt;

use super::{ErrorDetail, StoreError};

/// What is wrong with one key (or row) of the store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyFault {
    /// The key, or the table and row of the embedded store.
    pub key: String,
    /// What kind of fault it is.
    pub kind: KeyFaultKind,
    /// What was found, for people.
    pub detail: ErrorDetail,
}

/// The kind of a [`KeyFault`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyFaultKind {
    /// It holds what cronlatch does not write: another type, or a value that cannot be read.
    Damaged,
    /// The store's user has no right to it.
    Forbidden,
}

impl KeyFaultKind {
    /// The word that `--json` uses.
    pub fn word(self) -> &'static str {
        match self {
            Self::Damaged => "damaged",
            Self::Forbidden => "forbidden",
        }
    }
}

impl fmt::Display for KeyFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.key, self.detail)
    }
}

impl KeyFault {
    /// What a person can do about it on one of several nodes.
    pub(crate) fn repair_on_node(&self) -> String {
        match self.kind {
            KeyFaultKind::Forbidden => self.repair(None),
            KeyFaultKind::Damaged => {
                "delete the key on this node; it is written anew from the other nodes".to_owned()
            }
        }
    }

    /// What a person can do about it. `job` is the job it belongs to, if that is known.
    pub fn repair(&self, job: Option<&str>) -> String {
        match (self.kind, job) {
            (KeyFaultKind::Forbidden, _) => format!(
                "give the store's user the right to the key (`~{}` in its ACL; docs/stores.md \
                 lists what cronlatch needs)",
                self.key
            ),
            (KeyFaultKind::Damaged, Some(job)) => format!(
                "restore the key from a backup, or delete what the store keeps of the job with \
                 `cronlatch forget {job} --force`; the job then starts from now"
            ),
            (KeyFaultKind::Damaged, None) => {
                "restore the key from a backup, or delete it".to_owned()
            }
        }
    }
}

/// Asks for a batch. If it fails because of one key, asks for each half on its own, down to the
/// single entry, so that only entries whose own keys are at fault fail.
///
/// Returns one result per entry, in order. Fails as a whole with any other error.
pub async fn apart<I, T, F>(
    items: Vec<I>,
    ask: impl Fn(Vec<I>) -> F,
) -> Result<Vec<Result<T, StoreError>>, StoreError>
where
    I: Clone,
    F: Future<Output = Result<Vec<T>, StoreError>>,
{
    let mut results = Vec::with_capacity(items.len());
    let mut parts = vec![items];
    while let Some(mut part) = parts.pop() {
        if part.is_empty() {
            continue;
        }
        match ask(part.clone()).await {
            Ok(answers) => results.extend(answers.into_iter().map(Ok)),
            Err(error @ StoreError::Key(_)) if part.len() == 1 => results.push(Err(error)),
            Err(StoreError::Key(_)) => {
                let second = part.split_off(part.len() / 2);
                parts.push(second);
                parts.push(part);
            }
            Err(error) => return Err(error),
        }
    }
    Ok(results)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fault(n: u32) -> StoreError {
        StoreError::Key(KeyFault {
            key: n.to_string(),
            kind: KeyFaultKind::Damaged,
            detail: "odd".into(),
        })
    }

    #[tokio::test]
    async fn only_the_entries_at_fault_fail_and_the_order_stays() {
        let bad = [3, 4, 9];
        let results = apart((0..10).collect(), async |part: Vec<u32>| {
            match part.iter().find(|n| bad.contains(n)) {
                Some(n) => Err(fault(*n)),
                None => Ok(part),
            }
        });
        let results = results.await.expect("no other error");
        let shown: Vec<_> = results.into_iter().map(Result::ok).collect();
        let expected: Vec<_> = (0..10)
            .map(|n| Some(n).filter(|n| !bad.contains(n)))
            .collect();
        assert_eq!(shown, expected);
    }

    #[tokio::test]
    async fn any_other_error_fails_the_batch() {
        let asked = apart(vec![1, 2], async |part: Vec<u32>| {
            if part.len() > 1 {
                return Err(fault(1));
            }
            Err::<Vec<u32>, _>(StoreError::unreachable("gone".to_owned()))
        });
        assert!(matches!(asked.await, Err(StoreError::Unreachable(_))));
    }
}
