//! Repeating a request to a store that does not reply.

use std::time::Duration;

use tokio::time::Instant;

use super::StoreError;

/// How a request is repeated.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RetryPace {
    /// For how long; an attempt that is under way then is dropped.
    limit: Duration,
    /// The first pause between two attempts; each further one is twice as long.
    first_pause: Duration,
    /// The longest pause.
    longest_pause: Duration,
    after: RetryAfter,
}

/// After which errors a request is repeated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RetryAfter {
    NoReply,
    AnyError,
}

impl RetryPace {
    /// Repeats after any error, quickly at first: for what must not be left undone.
    pub(crate) const fn any_error(limit: Duration) -> Self {
        Self {
            limit,
            first_pause: Duration::from_millis(50),
            longest_pause: Duration::from_secs(1),
            after: RetryAfter::AnyError,
        }
    }

    /// Repeats only while the store does not reply, four times a second: an error that it returns
    /// is for the caller to report.
    #[cfg(feature = "program")]
    pub(crate) const fn no_reply(limit: Duration) -> Self {
        let pause = Duration::from_millis(250);
        Self {
            limit,
            first_pause: pause,
            longest_pause: pause,
            after: RetryAfter::NoReply,
        }
    }

    fn repeats(self, error: &StoreError) -> bool {
        match self.after {
            RetryAfter::AnyError => true,
            RetryAfter::NoReply => matches!(
                error,
                StoreError::Unreachable(_) | StoreError::PartUnreachable(_)
            ),
        }
    }
}

/// Makes a request, and again as `how` has it. Returns the first reply, or the last error.
pub(crate) async fn retry<T, R>(
    how: RetryPace,
    mut request: impl FnMut() -> R,
) -> Result<T, StoreError>
where
    R: Future<Output = Result<T, StoreError>>,
{
    let until = Instant::now() + how.limit;
    let mut pause = how.first_pause;
    loop {
        let error = match tokio::time::timeout_at(until, request()).await {
            Ok(Ok(reply)) => return Ok(reply),
            Ok(Err(error)) if !how.repeats(&error) => return Err(error),
            Ok(Err(error)) => error,
            Err(_) => StoreError::unreachable(format!("no reply within {:?}", how.limit)),
        };
        if Instant::now() + pause >= until {
            return Err(error);
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(how.longest_pause);
    }
}
