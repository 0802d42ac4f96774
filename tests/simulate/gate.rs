//! Whether a server takes requests, and what becomes of those that it does not take.

/// Whether a server takes requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum State {
    Up,
    /// Requests wait.
    Frozen,
    /// Requests are lost; told so at once, if it refuses.
    Down {
        refuses: bool,
    },
}

/// What becomes of a request.
#[derive(Debug)]
pub(crate) enum Passage<T> {
    Served(T),
    Refused(T),
    /// It waits until the server goes on, or is lost.
    Unanswered,
}

/// The entrance of a server.
#[derive(Debug)]
pub(crate) struct Gate<T> {
    state: State,
    until: i64,
    waiting: Vec<T>,
}

impl<T> Gate<T> {
    pub(crate) fn new() -> Self {
        Self {
            state: State::Up,
            until: 0,
            waiting: Vec::new(),
        }
    }

    pub(crate) fn state(&self) -> State {
        self.state
    }

    /// A request arrives.
    pub(crate) fn pass(&mut self, request: T) -> Passage<T> {
        match self.state {
            State::Up => Passage::Served(request),
            State::Down { refuses: true } => Passage::Refused(request),
            State::Down { refuses: false } => Passage::Unanswered,
            State::Frozen => {
                self.waiting.push(request);
                Passage::Unanswered
            }
        }
    }

    /// The server is paused or unreachable. Returns until when.
    pub(crate) fn close(&mut self, how: State, until: i64) -> i64 {
        if how != State::Frozen {
            self.forget();
        }
        self.state = how;
        self.until = self.until.max(until);
        self.until
    }

    /// What lay in the server's sockets is lost.
    pub(crate) fn forget(&mut self) {
        self.waiting.clear();
    }

    /// The server goes on, if it is time. Returns what has waited.
    pub(crate) fn open(&mut self, now: i64) -> Option<Vec<T>> {
        if self.state == State::Up || now < self.until {
            return None;
        }
        self.state = State::Up;
        Some(std::mem::take(&mut self.waiting))
    }
}
