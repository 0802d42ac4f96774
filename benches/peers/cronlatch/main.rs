//! The lock of the library, for `make bench-peers`: `peers URL N` takes and releases a lock N times,
//! each time beside two PINGs, and prints how long both took, in microseconds.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use cronlatch::Latch;

type Failure = Box<dyn std::error::Error>;

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [url, count] = args.as_slice() else {
        say("`make bench-peers` runs me");
        return ExitCode::SUCCESS;
    };
    match measure(url, count) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            say(&format!("{error}"));
            ExitCode::FAILURE
        }
    }
}

fn measure(url: &str, count: &str) -> Result<(), Failure> {
    let count: usize = count.parse()?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()?;
    runtime.block_on(cycles(url, count))
}

async fn cycles(url: &str, count: usize) -> Result<(), Failure> {
    let latch = Latch::open(url)?;
    latch.init().await?;
    let client = redis::Client::open(url)?;
    let mut raw = client.get_multiplexed_async_connection().await?;
    let (mut locks, mut pings) = (Vec::new(), Vec::new());
    for n in 0..count + 500 {
        let began = Instant::now();
        for _ in 0..2 {
            let _: String = redis::cmd("PING").query_async(&mut raw).await?;
        }
        let pinged = began.elapsed();
        let began = Instant::now();
        let request = latch.lock("cycle")?.ttl(Duration::from_secs(10));
        request.acquire().await?.release().await?;
        if n >= 500 {
            locks.push(micros(began.elapsed()));
            pings.push(micros(pinged));
        }
    }
    say(&serde_json::json!({ "locks": locks, "pings": pings }).to_string());
    Ok(())
}

fn micros(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e6
}

/// A line for the driver.
#[expect(clippy::print_stdout, reason = "the figures go to the driver")]
fn say(line: &str) {
    println!("{line}");
}
