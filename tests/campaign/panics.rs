//! Panics of the campaign's own threads: wherever one happens, the campaign fails.
//!
//! A panic ends its thread and nothing else, so that a campaign whose network has died could still
//! report that it saw no violation. A hook notes each panic under the name of its thread.

use std::sync::{Mutex, Once, PoisonError};

/// Thread name and message of every panic of this process.
static NOTED: Mutex<Vec<(String, String)>> = Mutex::new(Vec::new());

/// Notes panics from now on.
pub(crate) fn note() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            let thread = std::thread::current();
            let name = thread
                .name()
                .unwrap_or("a thread without a name")
                .to_owned();
            let mut noted = NOTED.lock().unwrap_or_else(PoisonError::into_inner);
            noted.push((name, panic.to_string()));
            drop(noted);
            before(panic);
        }));
    });
}

/// The panics of threads of this name.
pub(crate) fn of(thread: &str) -> Vec<String> {
    let noted = NOTED.lock().unwrap_or_else(PoisonError::into_inner);
    let of_thread = noted.iter().filter(|(name, _)| name == thread);
    of_thread.map(|(_, text)| text.clone()).collect()
}
