//! Takes the unix socket of the daemon and gives it back.

use std::{
    fs::{self, DirBuilder, File, Permissions},
    io,
    os::{
        fd::AsFd,
        unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt, PermissionsExt},
    },
    path::{Path, PathBuf},
};

use tokio::net::{UnixListener, UnixSocket, UnixStream};

use crate::files::sentence;

/// Connections that the kernel holds until they are accepted.
const BACKLOG: u32 = 64;

/// Why the socket cannot be taken.
#[derive(Debug, thiserror::Error)]
pub enum BindError {
    /// Somebody accepts connections there.
    #[error("another floodwayd answers on {}; stop it or choose another --socket", path.display())]
    InUse {
        /// The socket.
        path: PathBuf,
    },
    /// There is a file that is no socket; it is left alone.
    #[error("{} exists and is not a socket; remove it or choose another --socket", path.display())]
    NotASocket {
        /// What is there.
        path: PathBuf,
    },
    /// The system refuses.
    #[error("cannot listen on {}: {}", path.display(), sentence(error))]
    System {
        /// The socket, or its directory.
        path: PathBuf,
        /// What the system says.
        error: io::Error,
    },
}

/// A socket that is listened on. It is removed when dropped, unless another file took its place.
#[derive(Debug)]
pub(crate) struct Socket {
    pub(crate) listener: UnixListener,
    path: PathBuf,
    identity: (u64, u64),
}

impl Socket {
    /// Takes `path` with mode 0600. A socket that nobody listens on any more is replaced.
    pub(crate) async fn bind(path: &Path) -> Result<Self, BindError> {
        let failed = |error| BindError::System { path: path.into(), error };
        let directory = parent(path);
        DirBuilder::new().recursive(true).mode(0o755).create(directory).map_err(failed)?;
        let _lock = lock(directory).map_err(failed)?;
        remove_stale(path).await?;
        let listener = listen(path).map_err(failed)?;
        let identity = identity(path).map_err(failed)?;
        Ok(Self { listener, path: path.into(), identity })
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        let _lock = lock(parent(&self.path));
        if identity(&self.path).is_ok_and(|identity| identity == self.identity) {
            // Nobody is left to be told; the next daemon replaces it.
            let _ = fs::remove_file(&self.path);
        }
    }
}

fn parent(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    }
}

/// Keeps other daemons from replacing what is in the directory, and leaves no lock file behind.
fn lock(directory: &Path) -> io::Result<File> {
    let directory = File::open(directory)?;
    directory.lock()?;
    Ok(directory)
}

async fn remove_stale(path: &Path) -> Result<(), BindError> {
    let failed = |error| BindError::System { path: path.into(), error };
    match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(failed(error)),
        Ok(metadata) if !metadata.file_type().is_socket() => {
            return Err(BindError::NotASocket { path: path.into() });
        }
        Ok(_) => {}
    }
    match UnixStream::connect(path).await {
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
            fs::remove_file(path).map_err(failed)
        }
        // It accepts, or its backlog is full.
        Ok(_) => Err(BindError::InUse { path: path.into() }),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
            Err(BindError::InUse { path: path.into() })
        }
        Err(error) => Err(failed(error)),
    }
}

fn listen(path: &Path) -> io::Result<UnixListener> {
    let socket = UnixSocket::new_stream()?;
    // Before it has a name: Linux gives the file that `bind` makes the mode of the socket, less the umask. So at no
    // moment can somebody else connect.
    File::from(socket.as_fd().try_clone_to_owned()?).set_permissions(Permissions::from_mode(0o600))?;
    socket.bind(path)?;
    socket.listen(BACKLOG)
}

fn identity(path: &Path) -> io::Result<(u64, u64)> {
    let metadata = fs::symlink_metadata(path)?;
    Ok((metadata.dev(), metadata.ino()))
}
