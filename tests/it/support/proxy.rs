//! A TCP proxy between a client and a server, which can misbehave in every way a network does.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use super::wait;

/// What the proxy does with what passes through. A change holds for open connections too.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    /// Hands everything on.
    Pass,
    /// Hands nothing on, in neither direction, and says nothing: a half-open connection.
    DropAll,
    /// The server gets everything, the client gets no answer.
    DropReplies,
    /// Closes what is open and every new connection at once.
    Refuse,
    /// Hands everything on, each piece so much later.
    Delay(Duration),
    /// Hands everything on, requests at so many bytes a second.
    Narrow(u32),
    /// Hands the next request on and closes the connection instead of its answer; then `Pass`.
    CutReply,
}

/// A running proxy; dropping it ends it and its connections.
#[derive(Debug)]
pub(crate) struct Proxy {
    port: u16,
    server: u16,
    shared: Arc<Mutex<Shared>>,
}

#[derive(Debug)]
struct Shared {
    mode: Mode,
    ended: bool,
    open: Vec<TcpStream>,
    accepted: usize,
    /// The argument of the request that is kept back.
    wanted: Option<String>,
    kept: Option<Vec<u8>>,
}

impl Proxy {
    /// A proxy on a port of its own in front of `127.0.0.1:server`.
    pub(crate) fn to(server: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let port = listener.local_addr().expect("a bound socket").port();
        let shared = Arc::new(Mutex::new(Shared {
            mode: Mode::Pass,
            ended: false,
            open: Vec::new(),
            accepted: 0,
            wanted: None,
            kept: None,
        }));
        let theirs = Arc::clone(&shared);
        thread::spawn(move || accept(&listener, server, &theirs));
        Self {
            port,
            server,
            shared,
        }
    }

    /// Where it listens.
    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// Changes what it does from now on.
    pub(crate) fn set(&self, mode: Mode) {
        let mut shared = lock(&self.shared);
        shared.mode = mode;
        if mode == Mode::Refuse {
            close(&mut shared);
        }
    }

    /// Keeps the next request back that has this argument, and closes its connection: to the
    /// client it is lost.
    pub(crate) fn keep_back(&self, argument: &str) {
        lock(&self.shared).wanted = Some(format!("\r\n{argument}\r\n"));
    }

    /// Whether a request was kept back.
    pub(crate) fn has_kept(&self) -> bool {
        lock(&self.shared).kept.is_some()
    }

    /// Hands the request on that was kept back, and waits until the server has dealt with it;
    /// what the server answers.
    pub(crate) fn deliver(&self) -> String {
        let kept = lock(&self.shared).kept.take();
        let mut server = TcpStream::connect(("127.0.0.1", self.server)).expect("the server runs");
        let limit = server.set_read_timeout(Some(wait::LIMIT));
        limit.expect("the system takes a limit");
        let written = server.write_all(&kept.expect("a request was kept back"));
        // In order: what is answered last was asked last.
        written
            .and_then(|()| server.write_all(b"ECHO delivered\r\n"))
            .expect("the server reads");
        let mut answers = Vec::new();
        let mut piece = [0; 4096];
        while !answers.ends_with(b"delivered\r\n") {
            match server.read(&mut piece).expect("the server answers") {
                0 => panic!("the server closed the connection"),
                read => answers.extend_from_slice(&piece[..read]),
            }
        }
        String::from_utf8_lossy(&answers).into_owned()
    }

    /// How many connections it has accepted so far.
    pub(crate) fn accepted(&self) -> usize {
        lock(&self.shared).accepted
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        let mut shared = lock(&self.shared);
        shared.ended = true;
        close(&mut shared);
        drop(shared);
        // Wakes the thread that accepts, so that it sees the end.
        drop(TcpStream::connect(("127.0.0.1", self.port)));
    }
}

impl Shared {
    fn keeps(&mut self, request: &[u8]) -> bool {
        let has = |wanted: &String| {
            let mut parts = request.windows(wanted.len());
            parts.any(|part| part == wanted.as_bytes())
        };
        if self.wanted.take_if(|wanted| has(wanted)).is_none() {
            return false;
        }
        self.kept = Some(request.to_vec());
        true
    }
}

fn lock(shared: &Mutex<Shared>) -> MutexGuard<'_, Shared> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

fn close(shared: &mut Shared) {
    for stream in shared.open.drain(..) {
        let _ = stream.shutdown(Shutdown::Both);
    }
}

fn accept(listener: &TcpListener, server: u16, shared: &Arc<Mutex<Shared>>) {
    for client in listener.incoming() {
        let mut state = lock(shared);
        if state.ended {
            return;
        }
        let Ok(client) = client else { continue };
        state.accepted += 1;
        if state.mode == Mode::Refuse {
            continue;
        }
        let Ok(upstream) = TcpStream::connect(("127.0.0.1", server)) else {
            continue;
        };
        let both = [&client, &upstream].map(|stream| stream.set_nodelay(true));
        if both.iter().any(Result::is_err) {
            continue;
        }
        for (from, to, replies) in [(&client, &upstream, false), (&upstream, &client, true)] {
            let (Ok(from), Ok(to)) = (from.try_clone(), to.try_clone()) else {
                continue;
            };
            let shared = Arc::clone(shared);
            thread::spawn(move || carry(from, to, replies, &shared));
        }
        state.open.extend([client, upstream]);
    }
}

/// Carries one direction of one connection until it ends.
fn carry(mut from: TcpStream, mut to: TcpStream, replies: bool, shared: &Mutex<Shared>) {
    let mut buffer = vec![0; 64 * 1024];
    // TCP leaves no gap in a stream: after a loss nothing passes any more.
    let mut has_gap = false;
    loop {
        let read = from.read(&mut buffer).unwrap_or(0);
        if read == 0 {
            break;
        }
        let mode = {
            let mut state = lock(shared);
            let mode = state.mode;
            if mode == Mode::CutReply && replies {
                state.mode = Mode::Pass;
            }
            if !replies && state.keeps(&buffer[..read]) {
                break;
            }
            mode
        };
        match mode {
            Mode::DropAll => {
                has_gap = true;
                continue;
            }
            Mode::DropReplies if replies => {
                has_gap = true;
                continue;
            }
            _ if has_gap => break,
            Mode::CutReply if replies => break,
            Mode::Pass | Mode::DropReplies | Mode::CutReply => {}
            Mode::Refuse => break,
            Mode::Delay(by) => thread::sleep(by),
            Mode::Narrow(_) if replies => {}
            Mode::Narrow(rate) => {
                if trickle(&buffer[..read], &mut to, rate).is_err() {
                    break;
                }
                continue;
            }
        }
        if to.write_all(&buffer[..read]).is_err() {
            break;
        }
    }
    let _ = from.shutdown(Shutdown::Both);
    let _ = to.shutdown(Shutdown::Both);
}

/// Writes in small pieces, so that none waits for long.
fn trickle(bytes: &[u8], to: &mut TcpStream, rate: u32) -> std::io::Result<()> {
    for piece in bytes.chunks(1024) {
        let millis = piece.len() * 1000 / usize::try_from(rate).unwrap_or(usize::MAX);
        thread::sleep(Duration::from_millis(millis.try_into().unwrap_or(u64::MAX)));
        to.write_all(piece)?;
    }
    Ok(())
}

#[test]
fn a_proxy_passes_drops_cuts_and_refuses() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    thread::spawn(move || {
        for mut client in listener.incoming().flatten() {
            thread::spawn(move || {
                let mut byte = [0];
                while client.read_exact(&mut byte).is_ok() && client.write_all(&byte).is_ok() {}
            });
        }
    });
    let proxy = Proxy::to(port);
    let connect = || {
        let client = TcpStream::connect(("127.0.0.1", proxy.port())).unwrap();
        client.set_read_timeout(Some(wait::LIMIT)).unwrap();
        client
    };
    let echo = |client: &mut TcpStream, byte: u8| {
        client.write_all(&[byte]).unwrap();
        let mut answer = [0];
        client.read_exact(&mut answer).map(|()| answer[0])
    };
    let mut client = connect();
    assert_eq!(echo(&mut client, 1).unwrap(), 1);
    proxy.set(Mode::Delay(Duration::from_millis(30)));
    let began = Instant::now();
    assert_eq!(echo(&mut client, 2).unwrap(), 2);
    assert!(began.elapsed() >= Duration::from_millis(30));
    proxy.set(Mode::DropReplies);
    client
        .set_read_timeout(Some(Duration::from_millis(50)))
        .unwrap();
    assert!(echo(&mut client, 3).is_err());
    proxy.set(Mode::Pass);
    assert!(
        echo(&mut client, 3).is_err(),
        "the answer before it was lost"
    );
    proxy.set(Mode::CutReply);
    let mut client = connect();
    assert!(echo(&mut client, 4).is_err());
    assert_eq!(echo(&mut connect(), 5).unwrap(), 5);
    proxy.set(Mode::Refuse);
    let mut client = connect();
    let _ = client.write_all(&[6]);
    assert_eq!(client.read(&mut [0]).unwrap_or(0), 0);
    assert_eq!(proxy.accepted(), 4);
}
