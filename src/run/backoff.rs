//! How long to wait before the next attempt of a run.

use std::time::Duration;

use crate::config::Retry;

/// The delay after attempt `attempt` (1 is the first): doubles from `delay` up to `max_delay`,
/// and with `jitter` is drawn between half of that and the whole.
pub(super) fn delay(retry: &Retry, attempt: u32, random: f64) -> Duration {
    let doublings = attempt.saturating_sub(1).min(31);
    let full = retry
        .delay
        .saturating_mul(1_u32 << doublings)
        .min(retry.max_delay);
    if retry.jitter {
        full.mul_f64(0.5 + random / 2.0)
    } else {
        full
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RETRY: Retry = Retry {
        attempts: 40,
        delay: Duration::from_secs(10),
        max_delay: Duration::from_secs(300),
        jitter: false,
    };

    #[test]
    fn it_doubles_up_to_its_bound() {
        let delays: Vec<_> = [1, 2, 3, 5, 6, 39]
            .map(|attempt| delay(&RETRY, attempt, 0.0).as_secs())
            .into();
        assert_eq!(delays, [10, 20, 40, 160, 300, 300]);
    }

    #[test]
    fn jitter_draws_between_half_and_the_whole() {
        let retry = Retry {
            jitter: true,
            ..RETRY
        };
        assert_eq!(delay(&retry, 1, 0.0), Duration::from_secs(5));
        assert_eq!(delay(&retry, 1, 1.0), Duration::from_secs(10));
    }
}
