//! The ticker by the machine's own clock.

use std::collections::BTreeMap;
use std::time::Duration;

use cronlatch::names::JobName;
use cronlatch::schedule::Schedule;
use cronlatch::schedule::ticker::{Ticker, TickerJob};
use cronlatch::time::Timestamp;
use tokio::sync::mpsc;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn five_hundred_jobs_of_every_second_fire_at_each_and_never_early() {
    const JOBS: usize = 500;
    const ROUNDS: usize = 2;
    let from = Timestamp::now();
    let schedule = Schedule::every(Duration::from_secs(1)).unwrap();
    let jobs = (0..JOBS).map(|number| TickerJob {
        claims_ahead: None,
        name: JobName::parse(&format!("job-{number}")).unwrap(),
        schedule: schedule.clone(),
        // Spread over a tenth of a second, as jitter would.
        delay: Duration::from_millis(number as u64 % 100),
        from,
    });
    let (tx, mut fired) = mpsc::unbounded_channel();
    let mut ticker = Ticker::start(jobs.collect(), tx).await.unwrap();
    let mut last: BTreeMap<JobName, (Timestamp, usize)> = BTreeMap::new();
    while last.len() < JOBS || last.values().any(|(_, rounds)| *rounds < ROUNDS) {
        let firing = tokio::time::timeout(Duration::from_secs(60), fired.recv());
        let firing = firing.await.unwrap().unwrap();
        assert!(Timestamp::now() >= firing.due_at, "{firing:?} came early");
        assert_eq!(firing.skipped, None);
        let (last, rounds) = last.entry(firing.job.clone()).or_insert((from, 0));
        let expected = schedule.next_after(*last);
        assert_eq!(Some(firing.scheduled_at), expected, "{}", firing.job);
        (*last, *rounds) = (firing.scheduled_at, *rounds + 1);
    }
    ticker.stop().await.unwrap();
}
