//! The renewal of ten thousand held leases.

use std::time::Instant;

use cronlatch::store::{self, RenewReply};

use crate::requests::lease;
use crate::say;
use crate::surroundings::{Redis, percentile, runtime};

const LEASES: usize = 10_000;
const ROUNDS: usize = 20;
const GOAL_MS: f64 = 100.0;

pub(crate) fn measure() -> Result<(), String> {
    let redis = Redis::start()?;
    let url = redis.url();
    runtime()?.block_on(async {
        let settings = store::check_url(&url)?;
        let store = store::open(&settings).map_err(|e| e.to_string())?;
        let mut leases = Vec::new();
        for n in 0..LEASES {
            let (claim, renewal) = lease(n)?;
            store.claim(&claim).await.map_err(|e| e.to_string())?;
            leases.push(renewal);
        }
        let client = redis::Client::open(url).map_err(|e| e.to_string())?;
        let mut raw = client
            .get_multiplexed_async_connection()
            .await
            .map_err(|e| e.to_string())?;
        let mut expires = redis::pipe();
        for n in 0..LEASES {
            expires.cmd("PEXPIRE").arg(format!("cronlatch:{{lock-{n}}}:lock")).arg(300_000);
        }
        let (mut ours, mut floors) = (Vec::new(), Vec::new());
        for _ in 0..ROUNDS {
            let began = Instant::now();
            let _: Vec<i64> = expires.query_async(&mut raw).await.map_err(|e| e.to_string())?;
            floors.push(began.elapsed().as_secs_f64() * 1e3);
            let began = Instant::now();
            let replies = store.renew(&leases).await.map_err(|e| e.to_string())?;
            ours.push(began.elapsed().as_secs_f64() * 1e3);
            if replies.len() != LEASES || replies.iter().any(|r| *r != RenewReply::Renewed) {
                return Err("a lease was not renewed".to_owned());
            }
        }
        let (ours, floor) = (percentile(&ours, 50), percentile(&floors, 50));
        say(&format!(
            "renew 10,000 leases     {ours:8.1} ms   10,000 bare PEXPIRE {floor:8.1} ms   (goal {GOAL_MS} ms)"
        ));
        Ok(())
    })
}
