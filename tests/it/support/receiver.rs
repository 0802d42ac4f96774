//! An HTTP server that receives notifications, with the faults of real ones.

use std::collections::{BTreeMap, VecDeque};
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};

use super::redis::Port;

/// What a request gets.
#[derive(Debug, Clone)]
pub(crate) enum Reply {
    /// This status, without a body.
    Status(u16),
    /// A redirect to this URL.
    Redirect(String),
    /// Nothing: the connection stays open until the server ends.
    Hang,
    /// A success, once [`Receiver::release`] was called.
    Held,
}

/// A request that has arrived whole.
#[derive(Debug, Clone)]
pub(crate) struct Request {
    pub(crate) method: String,
    /// Path and query.
    pub(crate) path: String,
    /// By name in small letters.
    pub(crate) headers: BTreeMap<String, String>,
    pub(crate) body: String,
}

impl Request {
    /// The body.
    #[track_caller]
    pub(crate) fn json(&self) -> serde_json::Value {
        match serde_json::from_str(&self.body) {
            Ok(value) => value,
            Err(error) => panic!("not JSON ({error}): {self:#?}"),
        }
    }
}

/// A running server.
#[derive(Debug)]
pub(crate) struct Receiver {
    port: u16,
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    received: Vec<Request>,
    /// The replies to the next requests; afterwards each gets `reply`.
    next_replies: VecDeque<Reply>,
    reply: Option<Reply>,
    released: bool,
    ended: bool,
}

/// A port that refuses connections until a server is started there.
#[derive(Debug)]
pub(crate) struct Refusing(Port);

impl Refusing {
    pub(crate) fn new() -> Self {
        Self(Port::claim())
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://127.0.0.1:{}{path}", self.0.number())
    }

    /// Starts a server there.
    pub(crate) fn start(self) -> Receiver {
        Receiver::on(
            TcpListener::bind((Ipv4Addr::LOCALHOST, self.0.number())).expect("a free port"),
        )
    }
}

impl Receiver {
    /// A server that replies to everything with status 200.
    pub(crate) fn start() -> Self {
        Self::on(TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port"))
    }

    fn on(listener: TcpListener) -> Self {
        let port = listener.local_addr().expect("an address").port();
        let shared = Arc::<Shared>::default();
        let server = Arc::clone(&shared);
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                if server.lock().ended {
                    return;
                }
                let server = Arc::clone(&server);
                std::thread::spawn(move || stream.map(|stream| server.serve(stream)));
            }
        });
        Self { port, shared }
    }

    /// What the next requests get; all others get what [`with_reply`](Self::with_reply) says.
    pub(crate) fn with_next_replies(self, replies: impl IntoIterator<Item = Reply>) -> Self {
        self.shared.lock().next_replies.extend(replies);
        self
    }

    /// What requests get from now on.
    pub(crate) fn with_reply(self, reply: Reply) -> Self {
        self.set_reply(reply);
        self
    }

    /// Changes what requests get.
    pub(crate) fn set_reply(&self, reply: Reply) {
        self.shared.lock().reply = Some(reply);
    }

    /// Lets all requests end that are held, and those that will be.
    pub(crate) fn release(&self) {
        self.shared.lock().released = true;
        self.shared.changed.notify_all();
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://127.0.0.1:{}{path}", self.port)
    }

    /// What has arrived so far, in order.
    pub(crate) fn received(&self) -> Vec<Request> {
        self.shared.lock().received.clone()
    }

    /// What has arrived at this path, whatever its query.
    pub(crate) fn at(&self, path: &str) -> Vec<Request> {
        let mut received = self.received();
        received.retain(|request| request.path.split('?').next() == Some(path));
        received
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        let mut state = self.shared.lock();
        state.ended = true;
        if std::thread::panicking() {
            eprintln!("--- received ---\n{:#?}\n---", state.received);
        }
        drop(state);
        self.shared.changed.notify_all();
        // Wakes the thread that accepts.
        let _ = TcpStream::connect((Ipv4Addr::LOCALHOST, self.port));
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no holder panics")
    }

    fn serve(&self, stream: TcpStream) -> std::io::Result<()> {
        let mut reader = BufReader::new(stream);
        let mut line = String::new();
        reader.read_line(&mut line)?;
        let mut words = line.split_whitespace().map(str::to_owned);
        let (Some(method), Some(path)) = (words.next(), words.next()) else {
            return Ok(());
        };
        let mut headers = BTreeMap::new();
        loop {
            let mut line = String::new();
            reader.read_line(&mut line)?;
            let Some((name, value)) = line.trim_end().split_once(": ") else {
                break;
            };
            headers.insert(name.to_ascii_lowercase(), value.to_owned());
        }
        let length = headers
            .get("content-length")
            .and_then(|length| length.parse().ok());
        let mut body = vec![0; length.unwrap_or(0)];
        reader.read_exact(&mut body)?;
        let request = Request {
            method,
            path,
            headers,
            body: String::from_utf8_lossy(&body).into_owned(),
        };
        let mut state = self.lock();
        state.received.push(request);
        let always = state.reply.clone().unwrap_or(Reply::Status(200));
        let reply = state.next_replies.pop_front().unwrap_or(always);
        let (status, more) = match reply {
            Reply::Status(status) => (status, String::new()),
            Reply::Redirect(url) => (307, format!("Location: {url}\r\n")),
            Reply::Hang => {
                drop(self.changed.wait_while(state, |state| !state.ended));
                return Ok(());
            }
            Reply::Held => {
                let is_held = |state: &mut State| !state.released && !state.ended;
                state = self
                    .changed
                    .wait_while(state, is_held)
                    .expect("no holder panics");
                (200, String::new())
            }
        };
        drop(state);
        let reply =
            format!("HTTP/1.1 {status} X\r\nContent-Length: 0\r\nConnection: close\r\n{more}\r\n");
        reader.get_mut().write_all(reply.as_bytes())
    }
}
