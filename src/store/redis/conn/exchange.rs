//! The requests of one connection: how many may be in flight, and when the server counts as silent.
//!
//! A server executes the requests of a connection one after another. While replies arrive, a request
//! that waits behind others is not late. Silence is therefore counted from the last reply on the
//! connection, or from the send if that came later. Time in which this process did not run, because it
//! was stopped or got no processor time, does not count.

use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use redis::RedisError;
use tokio::runtime::Handle;
use tokio::sync::Semaphore;
use tokio::time::Instant;

use crate::ground::tasks::SpawnBoxed as _;

/// How many requests are in flight on a connection at once. Further requests wait here: they can still
/// be cancelled, and their time-outs have not started.
const MOST_IN_FLIGHT: usize = 128;

/// A limit is waited for in this many parts. A part that took much longer than planned, because the
/// process did not run, counts as at most twice its length.
const PARTS: u32 = 8;

/// The requests in flight on one connection.
#[derive(Debug, Clone)]
pub(super) struct Exchange {
    turns: Arc<Semaphore>,
    last_reply: Arc<Mutex<Instant>>,
}

/// Why a request has no reply.
#[derive(Debug)]
pub(super) enum NoReply {
    /// The connection was given up before the request was sent.
    NotSent,
    /// The server sent nothing for this long, counted while this process ran.
    Silence(Duration),
    /// The error of the server or of the connection.
    Error(RedisError),
}

impl Exchange {
    pub(in crate::store::redis) fn new() -> Self {
        Self {
            turns: Arc::new(Semaphore::new(MOST_IN_FLIGHT)),
            last_reply: Arc::new(Mutex::new(Instant::now())),
        }
    }

    /// Sends a request when its turn has come, and returns its reply.
    ///
    /// If the caller stops waiting after the request was sent, the reply is still received, because it
    /// shows to the requests behind it that the server is alive.
    pub(in crate::store::redis) async fn ask<T, F>(
        &self,
        limit: Duration,
        request: F,
    ) -> Result<T, NoReply>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, RedisError>> + Send + 'static,
    {
        let turn = Arc::clone(&self.turns).acquire_owned().await;
        let turn = turn.map_err(|_| NoReply::NotSent)?;
        let last_reply = Arc::clone(&self.last_reply);
        let replied = async move {
            let newest = || *last_reply.lock().unwrap_or_else(PoisonError::into_inner);
            let reply = unless_silent(limit, newest, request).await;
            if reply.is_some() {
                *last_reply.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
            }
            drop(turn);
            reply
        };
        match Finishing(Some(Box::pin(replied))).await {
            Some(Ok(value)) => Ok(value),
            Some(Err(error)) => Err(NoReply::Error(error)),
            None => Err(NoReply::Silence(limit)),
        }
    }

    /// Rejects the requests that were not sent yet.
    pub(super) fn close(&self) {
        self.turns.close();
    }
}

/// Waits for a future, at most `limit` of the time in which this process ran. Returns `None` if it took
/// longer.
pub(in crate::store::redis) async fn within<F: Future>(
    limit: Duration,
    what: F,
) -> Option<F::Output> {
    let began = Instant::now();
    unless_silent(limit, || began, what).await
}

/// As [`within`], but the limit starts again whenever `last_reply` returns a later instant.
async fn unless_silent<F: Future>(
    limit: Duration,
    last_reply: impl Fn() -> Instant,
    what: F,
) -> Option<F::Output> {
    let mut what = std::pin::pin!(what);
    let part = (limit / PARTS).max(Duration::from_millis(1));
    let (mut counted, mut last) = (Duration::ZERO, last_reply());
    loop {
        let began = Instant::now();
        let wait = part.min(limit.saturating_sub(counted));
        // Cancel-safe: the future is kept, and the timer is not used again.
        tokio::select! {
            biased;
            outcome = &mut what => return Some(outcome),
            () = tokio::time::sleep(wait) => {}
        }
        let ran = began.elapsed().min(2 * part);
        let newest = last_reply();
        if newest > last {
            last = newest;
            counted = newest.elapsed().min(ran);
        } else {
            counted += ran;
        }
        if counted >= limit {
            return None;
        }
    }
}

/// A future that is polled to its end even if it is dropped.
struct Finishing<F: Future + Send + 'static>(Option<Pin<Box<F>>>)
where
    F::Output: Send;

impl<F: Future + Send + 'static> Future for Finishing<F>
where
    F::Output: Send,
{
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        let Some(future) = &mut self.0 else {
            // A future is not polled again after it was ready.
            return Poll::Pending;
        };
        let outcome = std::task::ready!(future.as_mut().poll(context));
        self.0 = None;
        Poll::Ready(outcome)
    }
}

impl<F: Future + Send + 'static> Drop for Finishing<F>
where
    F::Output: Send,
{
    fn drop(&mut self) {
        if let (Some(future), Ok(runtime)) = (self.0.take(), Handle::try_current()) {
            runtime.spawn_boxed(future);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::sync::oneshot;

    const LIMIT: Duration = Duration::from_secs(1);

    type Reply = oneshot::Sender<Result<u32, RedisError>>;

    /// A request whose reply the test gives.
    fn request() -> (
        Reply,
        impl Future<Output = Result<u32, RedisError>> + Send + 'static,
    ) {
        let (reply, wanted) = oneshot::channel();
        (reply, async { wanted.await.expect("the test replies") })
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_behind_others_is_not_late_while_replies_arrive() {
        let exchange = Exchange::new();
        let (last, request_of_last) = request();
        let last_asked = tokio::spawn({
            let exchange = exchange.clone();
            async move { exchange.ask(LIMIT, request_of_last).await }
        });
        for _ in 0..10 {
            let (reply, request) = request();
            let exchange = exchange.clone();
            let asked = tokio::spawn(async move { exchange.ask(LIMIT, request).await });
            tokio::time::sleep(LIMIT * 9 / 10).await;
            reply.send(Ok(1)).expect("it is waited for");
            assert!(matches!(asked.await, Ok(Ok(1))));
        }
        last.send(Ok(2))
            .expect("it is waited for, after nine limits");
        assert!(matches!(last_asked.await, Ok(Ok(2))));
    }

    #[tokio::test(start_paused = true)]
    async fn silence_is_counted_from_the_last_reply_or_from_the_send() {
        let exchange = Exchange::new();
        tokio::time::sleep(LIMIT * 5).await;
        let began = Instant::now();
        let (_kept, request) = request();
        let silent = exchange.ask(LIMIT, request).await;
        assert!(matches!(silent, Err(NoReply::Silence(LIMIT))));
        let took = began.elapsed();
        assert!(took >= LIMIT && took < LIMIT * 5 / 4, "{took:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn no_more_requests_are_sent_than_fit_and_those_not_sent_end_with_the_connection() {
        let exchange = Exchange::new();
        let sent = Arc::new(std::sync::atomic::AtomicUsize::new(0));
        let mut asked = tokio::task::JoinSet::new();
        for _ in 0..MOST_IN_FLIGHT + 5 {
            let (exchange, sent) = (exchange.clone(), Arc::clone(&sent));
            asked.spawn(async move {
                let request = async move {
                    sent.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                    std::future::pending::<Result<u32, RedisError>>().await
                };
                exchange.ask(LIMIT, request).await
            });
        }
        tokio::time::sleep(LIMIT / 2).await;
        assert_eq!(
            sent.load(std::sync::atomic::Ordering::Relaxed),
            MOST_IN_FLIGHT
        );
        exchange.close();
        let (mut silent, mut not_sent) = (0, 0);
        while let Some(outcome) = asked.join_next().await {
            match outcome.expect("it does not panic") {
                Err(NoReply::NotSent) => not_sent += 1,
                Err(NoReply::Silence(_)) => silent += 1,
                other => panic!("{other:?}"),
            }
        }
        assert_eq!((silent, not_sent), (MOST_IN_FLIGHT, 5));
    }

    #[tokio::test(start_paused = true)]
    async fn the_reply_to_a_request_that_was_given_up_still_counts() {
        let exchange = Exchange::new();
        let (reply, given_up) = request();
        let asking = exchange.ask(LIMIT, given_up);
        assert!(tokio::time::timeout(LIMIT / 10, asking).await.is_err());
        let (_kept, behind) = request();
        let behind = tokio::spawn({
            let exchange = exchange.clone();
            async move { exchange.ask(LIMIT, behind).await }
        });
        tokio::time::sleep(LIMIT / 2).await;
        reply.send(Ok(1)).expect("its reply is still received");
        tokio::time::sleep(LIMIT * 3 / 4).await;
        assert!(!behind.is_finished());
    }

    /// The whole process is stopped, as by SIGSTOP or on a host without free processor time.
    #[test]
    fn time_in_which_this_process_did_not_run_is_not_counted() {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .build()
            .expect("a runtime");
        runtime.block_on(async {
            let limit = Duration::from_millis(400);
            let (reply, request) = request();
            let exchange = Exchange::new();
            let asked = tokio::spawn(async move { exchange.ask(limit, request).await });
            tokio::time::sleep(limit / 10).await;
            std::thread::sleep(limit * 2);
            // Like a reply that lay in the socket: found only after the timers had fired.
            for _ in 0..3 {
                tokio::task::yield_now().await;
            }
            reply.send(Ok(1)).expect("it is still waited for");
            assert!(matches!(asked.await, Ok(Ok(1))));
        });
    }
}
