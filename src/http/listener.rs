//! The socket that a server listens on.

use std::io;
use std::net::TcpListener as StdTcpListener;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, PermissionsExt as _};
use std::os::unix::net::{UnixListener as StdUnixListener, UnixStream as StdUnixStream};
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};

use super::HttpError;
use crate::config::ListenAddress;

/// Owner and group of the daemon may connect.
const SOCKET_MODE: u32 = 0o660;

/// A socket that is bound and not yet used by a runtime.
#[derive(Debug)]
pub(super) enum ServerSocket {
    Tcp(StdTcpListener),
    Unix(StdUnixListener, SocketFile),
}

/// The file of a Unix socket. Dropping it removes the file, unless it is another one by then.
#[derive(Debug)]
pub(super) struct SocketFile {
    path: PathBuf,
    inode: (u64, u64),
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        if inode(&self.path).is_ok_and(|inode| inode == self.inode) {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

impl ServerSocket {
    /// Binds the socket.
    pub(super) fn bind(listen: &ListenAddress) -> Result<Self, HttpError> {
        let bound = match listen {
            ListenAddress::Tcp(address) => StdTcpListener::bind(address).map(Self::Tcp),
            ListenAddress::Unix(path) => bind_unix(path),
        };
        let set = bound.and_then(|listener| {
            match &listener {
                Self::Tcp(socket) => socket.set_nonblocking(true)?,
                Self::Unix(socket, _) => socket.set_nonblocking(true)?,
            }
            Ok(listener)
        });
        set.map_err(|error| match error.kind() {
            io::ErrorKind::AddrInUse => HttpError::InUse {
                listen: listen.clone(),
            },
            _ => HttpError::Bind {
                listen: listen.clone(),
                error,
            },
        })
    }

    /// Where it listens, as a client names it.
    pub(super) fn address(&self) -> String {
        match self {
            Self::Tcp(socket) => (socket.local_addr())
                .map_or_else(|_| String::new(), |address| format!("http://{address}")),
            Self::Unix(_, file) => file.path.display().to_string(),
        }
    }

    /// Has the current runtime use it.
    pub(super) fn listen(self) -> io::Result<Listening> {
        Ok(match self {
            Self::Tcp(socket) => Listening::Tcp(TcpListener::from_std(socket)?),
            Self::Unix(socket, file) => Listening::Unix(UnixListener::from_std(socket)?, file),
        })
    }
}

/// Binds a Unix socket under a temporary name and renames it, so that nobody connects before its
/// permissions are set. Replaces the socket of a daemon that is gone.
fn bind_unix(path: &Path) -> io::Result<ServerSocket> {
    if let Ok(metadata) = std::fs::symlink_metadata(path) {
        if !metadata.file_type().is_socket() {
            return Err(io::Error::other("there is a file that is not a socket"));
        }
        match StdUnixStream::connect(path) {
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            _ => return Err(io::ErrorKind::AddrInUse.into()),
        }
    }
    let mut name = path.as_os_str().to_owned();
    name.push(".new");
    let new = PathBuf::from(name);
    let _ = std::fs::remove_file(&new);
    let socket = StdUnixListener::bind(&new)?;
    std::fs::set_permissions(&new, std::fs::Permissions::from_mode(SOCKET_MODE))?;
    let inode = inode(&new)?;
    std::fs::rename(&new, path)?;
    let file = SocketFile {
        path: path.to_owned(),
        inode,
    };
    Ok(ServerSocket::Unix(socket, file))
}

fn inode(path: &Path) -> io::Result<(u64, u64)> {
    let metadata = std::fs::symlink_metadata(path)?;
    Ok((metadata.dev(), metadata.ino()))
}

/// A socket that a runtime uses.
#[derive(Debug)]
pub(super) enum Listening {
    Tcp(TcpListener),
    Unix(
        UnixListener,
        #[expect(dead_code, reason = "dropped with it")] SocketFile,
    ),
}

impl Listening {
    /// Waits for the next client. Cancel-safe.
    pub(super) async fn accept(&self) -> io::Result<ClientStream> {
        match self {
            Self::Tcp(socket) => socket
                .accept()
                .await
                .map(|(stream, _)| ClientStream::Tcp(stream)),
            Self::Unix(socket, _) => socket
                .accept()
                .await
                .map(|(stream, _)| ClientStream::Unix(stream)),
        }
    }
}

/// A connection to a client.
#[derive(Debug)]
pub(super) enum ClientStream {
    Tcp(TcpStream),
    Unix(UnixStream),
}

/// How a client is connected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Transport {
    /// Anything that can open a connection, a browser's page included.
    Tcp,
    /// Through a file with permissions.
    Unix,
}

impl ClientStream {
    /// How the client is connected.
    pub(super) fn transport(&self) -> Transport {
        match self {
            Self::Tcp(_) => Transport::Tcp,
            Self::Unix(_) => Transport::Unix,
        }
    }
}

impl AsyncRead for ClientStream {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Tcp(stream) => Pin::new(stream).poll_read(cx, buf),
            Self::Unix(stream) => Pin::new(stream).poll_read(cx, buf),
        }
    }
}

impl AsyncWrite for ClientStream {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Tcp(stream) => Pin::new(stream).poll_write(cx, buf),
            Self::Unix(stream) => Pin::new(stream).poll_write(cx, buf),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Tcp(stream) => Pin::new(stream).poll_flush(cx),
            Self::Unix(stream) => Pin::new(stream).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Tcp(stream) => Pin::new(stream).poll_shutdown(cx),
            Self::Unix(stream) => Pin::new(stream).poll_shutdown(cx),
        }
    }
}
