//! Batches that must not fail because of one entry whose keys cannot be used. Hosts use it for reads
//! and registrations of many jobs.

use super::contract::StoreError;

/// Sends a batch. If it fails because of one key, sends each half by itself, down to single entries, so
/// that only the entries whose own keys have a fault fail.
///
/// Returns one result per entry, in order. Any other error fails the whole batch.
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
    use crate::store::{KeyFault, KeyFaultKind};

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
