//! Claim and finish of one occurrence, as a multiple of two PINGs.

use std::time::{Duration, Instant};

use cronlatch::store::{self, ClaimReply, Finish};

use crate::requests::occurrence;
use crate::say;
use crate::surroundings::{Redis, percentile, runtime};

const ROUNDS: i64 = 5_000;
const GOAL: f64 = 1.4;

pub(crate) fn measure() -> Result<(), String> {
    let redis = Redis::start()?;
    let url = redis.url();
    runtime()?.block_on(async {
        let settings = store::check_url(&url)?;
        let store = store::open(&settings).map_err(|e| e.to_string())?;
        let client = redis::Client::open(url).map_err(|e| e.to_string())?;
        let mut raw = client
            .get_multiplexed_async_connection()
            .await
            .map_err(|e| e.to_string())?;
        let (mut ours, mut pings) = (Vec::new(), Vec::new());
        // A thousand rounds to warm up.
        for round in -1_000..ROUNDS {
            // In turn, so that whatever else the machine does falls on both alike.
            let began = Instant::now();
            for _ in 0..2 {
                let _: String = redis::cmd("PING")
                    .query_async(&mut raw)
                    .await
                    .map_err(|e| e.to_string())?;
            }
            let pinged = began.elapsed();
            let (claim, mut finish) = occurrence(round + 2_000)?;
            let began = Instant::now();
            let reply = store.claim(&claim).await.map_err(|e| e.to_string())?;
            if !granted_with(&reply, &mut finish) {
                return Err(format!("not granted: {reply:?}"));
            }
            store.finish(&finish).await.map_err(|e| e.to_string())?;
            if round >= 0 {
                ours.push(micros(began.elapsed()));
                pings.push(micros(pinged));
            }
        }
        let (ours, floor) = (percentile(&ours, 50), percentile(&pings, 50));
        say(&format!(
            "claim + finish          {ours:8.0} µs   two PINGs {floor:8.0} µs   {:.2} times (goal {GOAL})",
            ours / floor
        ));
        Ok(())
    })
}

fn micros(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e6
}

/// Whether a claim was granted; then the record of its run has the fence, as a host writes it.
pub(crate) fn granted_with(reply: &ClaimReply, finish: &mut Finish) -> bool {
    let ClaimReply::Granted { fence, .. } = reply else {
        return false;
    };
    if let Some(record) = &mut finish.record {
        record.fence = Some(*fence);
    }
    true
}
