//! tokio-cron-scheduler as <https://docs.rs/tokio-cron-scheduler> shows it, bare or with the lock
//! that <https://docs.rs/rslock> shows.
//!
//! `peer-rust bare|rslock URL LIST` schedules; `peer-rust locks URL N` prints how long N cycles of
//! locking and unlocking took, in microseconds.

use std::process::Stdio;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rslock::LockManager;
use tokio_cron_scheduler::{Job, JobScheduler};

type Failure = Box<dyn std::error::Error + Send + Sync>;

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [way, url, rest] = args.as_slice() else {
        return Err("peer-rust bare|rslock|locks URL LIST|N".into());
    };
    let mut manager = LockManager::new(vec![url.as_str()]);
    // Who finds the lock taken skips the job instead of waiting for it.
    manager.set_retry(0, Duration::from_millis(1));
    if way == "locks" {
        return cycles(&manager, rest.parse()?).await;
    }
    let manager = (way == "rslock").then(|| Arc::new(manager));
    schedule(manager, &std::fs::read_to_string(rest)?).await
}

async fn schedule(manager: Option<Arc<LockManager>>, list: &str) -> Result<(), Failure> {
    let list: serde_json::Value = serde_json::from_str(list)?;
    let words = |value: &serde_json::Value| value.as_str().unwrap_or_default().to_owned();
    let argv = list["command"].as_array().cloned().unwrap_or_default();
    let argv: Arc<Vec<String>> = Arc::new(argv.iter().map(words).collect());
    let jobs = list["jobs"].as_array().cloned().unwrap_or_default();
    // The channel holds what is due at once; its default is 200.
    let mut scheduler = JobScheduler::new_with_channel_size(jobs.len().max(200)).await?;
    for job in jobs {
        let (name, argv, manager) = (words(&job["name"]), argv.clone(), manager.clone());
        let job = Job::new_async(words(&job["cron"]).as_str(), move |_, _| {
            let (name, argv, manager) = (name.clone(), argv.clone(), manager.clone());
            Box::pin(async move {
                let Some(manager) = manager else {
                    return run(&argv).await;
                };
                let key = format!("lock:{name}");
                if let Ok(lock) = manager.lock(key.as_str(), Duration::from_secs(30)).await {
                    run(&argv).await;
                    manager.unlock(&lock).await;
                }
            })
        })?;
        scheduler.add(job).await?;
    }
    scheduler.start().await?;
    println!("ready");
    std::future::pending().await
}

async fn run(argv: &[String]) {
    let mut command = tokio::process::Command::new(&argv[0]);
    command.args(&argv[1..]).stdin(Stdio::null());
    if let Err(error) = command.status().await {
        eprintln!("{error}");
    }
}

async fn cycles(manager: &LockManager, count: usize) -> Result<(), Failure> {
    let mut took = Vec::with_capacity(count);
    for n in 0..count + 500 {
        let began = Instant::now();
        let lock = manager.lock("lock:cycle", Duration::from_secs(10)).await?;
        manager.unlock(&lock).await;
        if n >= 500 {
            took.push(began.elapsed().as_secs_f64() * 1e6);
        }
    }
    println!("{}", serde_json::to_string(&took)?);
    Ok(())
}
