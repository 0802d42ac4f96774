//! Programs that this process starts itself, apart from the jobs, which the guard starts.
//!
//! As process 1 of a container the daemon reaps what becomes its child. These children are left to
//! the threads that wait for them.

use std::collections::BTreeSet;
use std::io;
use std::process::{Child, Command};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The process ids of the programs that have not been reaped.
static STARTED: Mutex<BTreeSet<i32>> = Mutex::new(BTreeSet::new());

/// A started program. Its owner waits for it before dropping it.
#[derive(Debug)]
pub(crate) struct Program {
    /// The process.
    pub(crate) child: Child,
}

impl Program {
    /// Starts a program.
    pub(crate) fn start(command: &mut Command) -> io::Result<Self> {
        // It may end before it is entered: the lock is held meanwhile.
        let mut started = known_programs();
        let child = command.spawn()?;
        started.insert(child.id().cast_signed());
        Ok(Self { child })
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        known_programs().remove(&self.child.id().cast_signed());
    }
}

/// The programs; none is started while this is held.
pub(super) fn known_programs() -> MutexGuard<'static, BTreeSet<i32>> {
    STARTED.lock().unwrap_or_else(PoisonError::into_inner)
}
