//! Answers on the socket: one thread, a bounded number of connections, an orderly end.

use std::{io, path::Path, sync::Arc, time::Duration};

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::{
    rt::{TokioIo, TokioTimer},
    server::graceful::GracefulShutdown,
    service::TowerToHyperService,
};
use tokio::{
    net::{UnixListener, UnixStream},
    runtime::{self, Runtime},
    sync::Semaphore,
};

use crate::{
    DataPlane, Lifecycle, Shutdown,
    keeper::Keeper,
    routes,
    socket::{BindError, Socket},
    watch,
};

/// Connections at the same time; others wait in the socket's backlog.
const CONNECTIONS_MAX: usize = 16;
/// Threads for calls that block: as many as connections, since each has one request at a time, and one each for the
/// timer and the watch.
const BLOCKING_THREADS_MAX: usize = CONNECTIONS_MAX + 2;
/// How long a connection may take to send the head of a request, the first as well as each next.
const HEADER_TIMEOUT: Duration = Duration::from_secs(30);
/// How long requests may go on after the shutdown was triggered, and then once more calls into the data plane.
const GRACE: Duration = Duration::from_secs(3);
/// Rest after the system refused to accept a connection, for example because it has no descriptors left.
const ACCEPT_RETRY: Duration = Duration::from_millis(100);

/// Why the server did not start.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The socket cannot be taken.
    #[error(transparent)]
    Bind(#[from] BindError),
    /// The system has no poller or no memory for one.
    #[error("cannot start the API server: {0}")]
    Runtime(#[source] io::Error),
}

/// A socket that is taken, and on which nobody answers yet: connections wait. Dropping it removes the socket.
#[derive(Debug)]
pub struct Listening {
    // Before the runtime, which it needs when it is dropped.
    socket: Socket,
    runtime: Runtime,
}

/// Takes the socket at `path` with mode 0600. A daemon does so first of all, so that a second one ends before it
/// touches a device.
///
/// # Errors
/// Another daemon answers there, there is a file that is no socket, or the system refuses.
pub fn bind(path: &Path) -> Result<Listening, ServeError> {
    let runtime = runtime::Builder::new_current_thread()
        .enable_all()
        .max_blocking_threads(BLOCKING_THREADS_MAX)
        .build()
        .map_err(ServeError::Runtime)?;
    let socket = runtime.block_on(Socket::bind(path))?;
    Ok(Listening { socket, runtime })
}

/// [`bind`] and [`Listening::serve`] in one.
///
/// # Errors
/// As [`bind`].
pub fn serve(path: &Path, plane: Arc<dyn DataPlane>, shutdown: &Shutdown) -> Result<(), ServeError> {
    bind(path)?.serve(plane, shutdown);
    Ok(())
}

impl Listening {
    /// Answers on the calling thread until `shutdown` is triggered. Then it removes the socket, gives running requests
    /// three seconds to end, and calls into `plane` that still block three more.
    pub fn serve(self, plane: Arc<dyn DataPlane>, shutdown: &Shutdown) {
        self.serve_with(plane, Lifecycle::default(), shutdown);
    }

    /// [`Listening::serve`] with what [`Lifecycle::start`] found. `plane` runs the program that came with it.
    pub fn serve_with(self, plane: Arc<dyn DataPlane>, lifecycle: Lifecycle, shutdown: &Shutdown) {
        let Self { socket, runtime } = self;
        runtime.block_on(async {
            let watched = lifecycle.watch.clone();
            let keeper = Keeper::new(plane, lifecycle.into_applier());
            tokio::spawn(keeper.clone().keep_deadlines());
            if let Some((directory, found)) = watched {
                tokio::spawn(watch::watch(keeper.clone(), directory, found));
            }
            let connections = accept(&socket.listener, routes::router(keeper), shutdown).await;
            // First the name goes, so that a next daemon need not wait for the last requests of this one.
            drop(socket);
            if tokio::time::timeout(GRACE, connections.shutdown()).await.is_err() {
                tracing::warn!("requests were cut off: they took longer than {GRACE:?} after the shutdown");
            }
        });
        runtime.shutdown_timeout(GRACE);
    }
}

/// Accepts until the shutdown; what is given back are the connections that are still open.
async fn accept(listener: &UnixListener, router: Router, shutdown: &Shutdown) -> GracefulShutdown {
    let connections = GracefulShutdown::new();
    let slots = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    let next = || async {
        let slot = Arc::clone(&slots).acquire_owned().await;
        (listener.accept().await, slot)
    };
    loop {
        let (accepted, slot) = tokio::select! {
            () = shutdown.triggered() => return connections,
            next = next() => next,
        };
        match accepted {
            Ok((stream, _)) => {
                let connection = connections.watch(connection(stream, router.clone()));
                tokio::spawn(async move {
                    let _slot = slot;
                    if let Err(error) = connection.await {
                        tracing::debug!("a connection ended: {error}");
                    }
                });
            }
            Err(error) => {
                tracing::warn!("cannot accept a connection: {error}");
                tokio::time::sleep(ACCEPT_RETRY).await;
            }
        }
    }
}

fn connection(
    stream: UnixStream,
    router: Router,
) -> http1::Connection<TokioIo<UnixStream>, TowerToHyperService<Router>> {
    http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADER_TIMEOUT)
        .serve_connection(TokioIo::new(stream), TowerToHyperService::new(router))
}
