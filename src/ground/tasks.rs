//! Tasks and blocking waits with their futures behind a pointer.
//!
//! The runtime's code for a task exists once for each type of future, several kilobytes of it. Behind a
//! pointer it exists once for each type of result.

use std::pin::{Pin, pin};

use tokio::runtime::{Handle, Runtime};
use tokio::task::{AbortHandle, JoinHandle, JoinSet};

/// Like `tokio::spawn`.
pub(crate) fn spawn<T: Send + 'static>(
    future: impl Future<Output = T> + Send + 'static,
) -> JoinHandle<T> {
    tokio::spawn(boxed(future))
}

/// Starts tasks on a runtime, or within a set.
pub(crate) trait SpawnBoxed<T> {
    /// What stands for the task.
    type Task;

    /// Like the `spawn` of the runtime or the set.
    fn spawn_boxed(self, future: impl Future<Output = T> + Send + 'static) -> Self::Task;
}

impl<T: Send + 'static> SpawnBoxed<T> for &mut JoinSet<T> {
    type Task = AbortHandle;

    fn spawn_boxed(self, future: impl Future<Output = T> + Send + 'static) -> AbortHandle {
        self.spawn(boxed(future))
    }
}

impl<T: Send + 'static> SpawnBoxed<T> for &Handle {
    type Task = JoinHandle<T>;

    fn spawn_boxed(self, future: impl Future<Output = T> + Send + 'static) -> JoinHandle<T> {
        self.spawn(boxed(future))
    }
}

/// Like `Runtime::block_on`.
pub(crate) fn block_on<T>(runtime: &Runtime, future: impl Future<Output = T>) -> T {
    let future: Pin<&mut dyn Future<Output = T>> = pin!(future);
    runtime.block_on(future)
}

fn boxed<T>(
    future: impl Future<Output = T> + Send + 'static,
) -> Pin<Box<dyn Future<Output = T> + Send>> {
    Box::pin(future)
}
