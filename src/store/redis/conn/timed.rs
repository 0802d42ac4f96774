//! The connection over which scripts run. It says when each reply arrived.
//!
//! The client library opens the connection, except for a plain TCP connection, whose socket it does not show. TLS takes
//! a reply apart after it has arrived, so with TLS a reply counts as arrived when its receiver has it.

use std::io;
use std::pin::Pin;
use std::sync::Arc;

use redis::aio::{AsyncStream, MultiplexedConnection};
use redis::io::tcp::{TcpSettings, socket2::SockRef};
use redis::{AsyncConnectionConfig, Client, Cmd, ConnectionAddr, Pipeline, RedisError, Value};
use tokio::net::{TcpStream, lookup_host};
use tokio::task::{AbortHandle, JoinSet};

use super::arrival::{LastArrival, TimedStream};
use crate::ground::tasks::{self, SpawnBoxed as _};
use crate::time::BootInstant;

/// A connection to one server. Cheap to clone, and closed with its last clone.
#[derive(Debug, Clone)]
pub(super) struct TimedConnection {
    connection: MultiplexedConnection,
    /// `None` where the time at which a reply is received counts.
    last_arrival: Option<Arc<LastArrival>>,
    _driver: Option<Arc<Driver>>,
}

/// A reply to a request.
#[derive(Debug)]
pub(super) struct TimedReply {
    pub(super) value: Value,
    /// When it had arrived: after the server sent its end, and before now.
    pub(super) arrived: BootInstant,
}

/// The task that sends requests and receives replies. By itself it would go on sending to a server that reads nothing
/// when nobody waits for a reply any more.
#[derive(Debug)]
struct Driver(AbortHandle);

impl Drop for Driver {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl TimedConnection {
    /// Connects and logs in, without a limit.
    pub(super) async fn open(
        client: &Client,
        config: &AsyncConnectionConfig,
    ) -> Result<Self, RedisError> {
        let info = client.get_connection_info();
        let ConnectionAddr::Tcp(host, port) = info.addr() else {
            let opening = client.get_multiplexed_async_connection_with_config(config);
            return Ok(Self {
                connection: opening.await?,
                last_arrival: None,
                _driver: None,
            });
        };
        let stream = TimedStream::new(connect(host, *port, info.tcp_settings()).await?);
        let last_arrival = stream.last_arrival();
        // As the library has it, so that its code for a connection exists once.
        let stream: Pin<Box<dyn AsyncStream + Send + Sync>> = Box::pin(stream);
        let login = info.redis_settings();
        let opening = MultiplexedConnection::new_with_config(login, stream, config.clone());
        let (connection, driver) = opening.await?;
        let driver = Driver(tasks::spawn(driver).abort_handle());
        Ok(Self {
            connection,
            last_arrival: Some(last_arrival),
            _driver: Some(Arc::new(driver)),
        })
    }

    /// The same connection, for requests whose replies need no time. This clone has to outlive it.
    pub(super) fn inner(&self) -> &MultiplexedConnection {
        &self.connection
    }

    pub(super) fn inner_mut(&mut self) -> &mut MultiplexedConnection {
        &mut self.connection
    }

    /// Sends a command.
    pub(super) async fn send(mut self, command: &Cmd) -> Result<TimedReply, RedisError> {
        let sent = BootInstant::now();
        let value = command.query_async(&mut self.connection).await?;
        Ok(self.replied(value, sent))
    }

    /// Sends several commands, all but one of whose replies are ignored.
    pub(super) async fn send_all(mut self, commands: &Pipeline) -> Result<TimedReply, RedisError> {
        let sent = BootInstant::now();
        let (value,) = commands.query_async(&mut self.connection).await?;
        Ok(self.replied(value, sent))
    }

    /// The reply to a request that was not sent before `sent`.
    fn replied(&self, value: Value, sent: BootInstant) -> TimedReply {
        let last_arrival = self.last_arrival.as_ref();
        let arrived = last_arrival.map_or_else(BootInstant::now, |last| last.get());
        TimedReply {
            value,
            arrived: arrived.max(sent),
        }
    }
}

/// Connects to the address of the host that accepts first.
async fn connect(host: &str, port: u16, settings: &TcpSettings) -> io::Result<TcpStream> {
    let mut attempts = JoinSet::new();
    for address in lookup_host((host, port)).await? {
        attempts.spawn_boxed(TcpStream::connect(address));
    }
    let mut failed = io::Error::new(io::ErrorKind::NotFound, "the host has no address");
    while let Some(attempt) = attempts.join_next().await {
        let connected = attempt.map_err(io::Error::from).and_then(|tcp| tcp);
        match connected.and_then(|tcp| set_up(&tcp, settings).map(|()| tcp)) {
            Ok(tcp) => return Ok(tcp),
            Err(error) => failed = error,
        }
    }
    Err(failed)
}

fn set_up(tcp: &TcpStream, settings: &TcpSettings) -> io::Result<()> {
    let socket = SockRef::from(tcp);
    socket.set_tcp_nodelay(settings.nodelay())?;
    if let Some(keepalive) = settings.keepalive() {
        socket.set_tcp_keepalive(keepalive)?;
    }
    socket.set_tcp_user_timeout(settings.user_timeout())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use redis::io::tcp::socket2::TcpKeepalive;
    use redis::{IntoConnectionInfo as _, ProtocolVersion};
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;

    use super::*;

    /// In bytes.
    const LONG: usize = 64 << 20;

    #[tokio::test]
    async fn it_is_closed_with_its_last_clone_although_the_server_reads_nothing() {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("it has one");
        let server = tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.expect("a client");
            let mut room = [0; 1_024];
            assert!(stream.read(&mut room).await.expect("HELLO") > 0);
            stream.write_all(b"%0\r\n").await.expect("sent");
            assert!(stream.read(&mut room).await.expect("ECHO") > 0);
            stream
        });
        let info = format!("redis://{address}").into_connection_info();
        let info = info.expect("a URL");
        let login = info.redis_settings().clone();
        let login = login
            .set_protocol(ProtocolVersion::RESP3)
            .set_skip_set_lib_name();
        let client = Client::open(info.set_redis_settings(login)).expect("a client");
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(None)
            .set_response_timeout(None);
        let opened = TimedConnection::open(&client, &config).await;
        let connection = opened.expect("it is connected");
        let asking = tokio::spawn({
            let connection = connection.clone();
            // More than the buffers of both sockets hold.
            let long = vec![b'a'; LONG];
            async move { connection.send(redis::cmd("ECHO").arg(long)).await }
        });
        let mut stream = server.await.expect("it has the request");
        asking.abort();
        assert!(asking.await.is_err_and(|error| error.is_cancelled()));
        drop(connection);
        let mut rest = Vec::new();
        // What was not read when a connection ended can be lost.
        let _ = stream.read_to_end(&mut rest).await;
        assert!(rest.len() < LONG / 2, "{} bytes", rest.len());
    }

    #[tokio::test]
    async fn a_socket_is_set_up_as_those_of_the_library() {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let port = listener.local_addr().expect("it has one").port();
        let limit = Duration::from_secs(5);
        let settings = TcpSettings::default()
            .set_nodelay(true)
            .set_keepalive(TcpKeepalive::new().with_time(limit))
            .set_user_timeout(limit);
        let tcp = connect("localhost", port, &settings).await.expect("one");
        let socket = SockRef::from(&tcp);
        assert!(socket.tcp_nodelay().expect("known") && socket.keepalive().expect("known"));
        assert_eq!(socket.tcp_keepalive_time().ok(), Some(limit));
        assert_eq!(socket.tcp_user_timeout().ok(), Some(Some(limit)));
        let refused = connect("", port, &settings).await;
        assert!(refused.is_err());
    }
}
