//! Answers on the socket, and on the port for metrics: one thread, a bounded number of connections, an orderly end.

use std::{io, net::SocketAddr, path::Path, sync::Arc, time::Duration};

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::{
    rt::{TokioIo, TokioTimer},
    server::graceful::GracefulShutdown,
    service::TowerToHyperService,
};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpListener,
    runtime::{self, Runtime},
    sync::Semaphore,
};

use crate::{
    DataPlane, Lifecycle, Shutdown,
    files::sentence,
    keeper::Keeper,
    metrics::Source,
    routes,
    socket::{BindError, Socket},
    watch,
};

/// How connections to the control socket are treated.
const CONTROL: Manner = Manner { connections_max: 16, keeps_alive: true, time_max: None };
/// How those to the port for metrics are, where a stranger may knock: one request each, and no time to stall.
const METRICS: Manner =
    Manner { connections_max: 4, keeps_alive: false, time_max: Some(Duration::from_secs(30)) };
/// Threads for calls that block: as many as connections, since each has one request at a time, and one each for the
/// timer and the watch.
const BLOCKING_THREADS_MAX: usize = CONTROL.connections_max + METRICS.connections_max + 2;
/// How long a connection may take to send the head of a request, the first as well as each next.
const HEADER_TIMEOUT: Duration = Duration::from_secs(30);
/// How long requests may go on after the shutdown was triggered, and then once more calls into the data plane.
const GRACE: Duration = Duration::from_secs(3);
/// Rest after the system refused to accept a connection, for example because it has no descriptors left.
const ACCEPT_RETRY: Duration = Duration::from_millis(100);

/// How connections are treated.
#[derive(Clone, Copy)]
struct Manner {
    /// At the same time; others wait in the backlog.
    connections_max: usize,
    /// Whether one may carry more than one request.
    keeps_alive: bool,
    /// So long one may last.
    time_max: Option<Duration>,
}

/// Why the server did not start.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The socket cannot be taken.
    #[error(transparent)]
    Bind(#[from] BindError),
    /// The system has no poller or no memory for one.
    #[error("cannot start the API server: {0}")]
    Runtime(#[source] io::Error),
    /// The port for metrics cannot be taken.
    #[error("cannot answer for metrics on {address}: {}", sentence(error))]
    Metrics {
        /// What was asked for.
        address: SocketAddr,
        /// What the system says.
        error: io::Error,
    },
}

/// A socket that is taken, and on which nobody answers yet: connections wait. Dropping it removes the socket.
#[derive(Debug)]
pub struct Listening {
    // Before the runtime, which they need when they are dropped.
    socket: Socket,
    metrics: Option<TcpListener>,
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
    Ok(Listening { socket, metrics: None, runtime })
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
    /// Also answers `GET /metrics`, and nothing else, over TCP. Who reaches that address reads them: there is no other
    /// check. Gives the address, of which the system chooses the port when it is 0.
    ///
    /// # Errors
    /// Somebody else has the port, the address is not of this machine, or the system refuses.
    pub fn answer_metrics(&mut self, address: SocketAddr) -> Result<SocketAddr, ServeError> {
        let failed = |error| ServeError::Metrics { address, error };
        let listener = self.runtime.block_on(TcpListener::bind(address)).map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        self.metrics = Some(listener);
        Ok(address)
    }

    /// Answers on the calling thread until `shutdown` is triggered. Then it removes the socket, gives running requests
    /// three seconds to end, and calls into `plane` that still block three more.
    pub fn serve(self, plane: Arc<dyn DataPlane>, shutdown: &Shutdown) {
        self.serve_with(plane, Lifecycle::default(), shutdown);
    }

    /// [`Listening::serve`] with what [`Lifecycle::start`] found. `plane` runs the program that came with it.
    pub fn serve_with(self, plane: Arc<dyn DataPlane>, lifecycle: Lifecycle, shutdown: &Shutdown) {
        let Self { socket, metrics, runtime } = self;
        runtime.block_on(async {
            let watched = lifecycle.watch.clone();
            let keeper = Keeper::new(plane, lifecycle.into_applier());
            tokio::spawn(keeper.clone().keep_deadlines());
            if let Some((directory, found)) = watched {
                tokio::spawn(watch::watch(keeper.clone(), directory, found));
            }
            let source = Source::new(keeper);
            let control = async || Ok(socket.listener.accept().await?.0);
            let control = accept(control, CONTROL, routes::router(source.clone()), shutdown);
            let metrics = answer_metrics(metrics, source, shutdown);
            let (control, metrics) = tokio::join!(control, metrics);
            // First the name goes, so that a next daemon need not wait for the last requests of this one.
            drop(socket);
            let ended = async { tokio::join!(control.shutdown(), metrics.shutdown()) };
            if tokio::time::timeout(GRACE, ended).await.is_err() {
                tracing::warn!("requests were cut off: they took longer than {GRACE:?} after the shutdown");
            }
        });
        runtime.shutdown_timeout(GRACE);
    }
}

/// As [`accept`], on the port for metrics, if there is one. Gives the port back when it ends.
async fn answer_metrics(
    listener: Option<TcpListener>,
    source: Source,
    shutdown: &Shutdown,
) -> GracefulShutdown {
    let Some(listener) = listener else { return GracefulShutdown::new() };
    let next = async || Ok(listener.accept().await?.0);
    accept(next, METRICS, routes::metrics_router(source), shutdown).await
}

/// Accepts until the shutdown; what is given back are the connections that are still open.
async fn accept<S: AsyncRead + AsyncWrite + Unpin + Send + 'static>(
    next: impl AsyncFn() -> io::Result<S>,
    manner: Manner,
    router: Router,
    shutdown: &Shutdown,
) -> GracefulShutdown {
    let connections = GracefulShutdown::new();
    let slots = Arc::new(Semaphore::new(manner.connections_max));
    let next = async || {
        let slot = Arc::clone(&slots).acquire_owned().await;
        (next().await, slot)
    };
    loop {
        let (accepted, slot) = tokio::select! {
            () = shutdown.triggered() => return connections,
            next = next() => next,
        };
        match accepted {
            Ok(stream) => {
                let connection = connections.watch(connection(stream, manner, router.clone()));
                tokio::spawn(async move {
                    let _slot = slot;
                    let time = manner.time_max.unwrap_or(Duration::MAX);
                    match tokio::time::timeout(time, connection).await {
                        Ok(Ok(())) => {}
                        Ok(Err(error)) => tracing::debug!("a connection ended: {error}"),
                        Err(_) => tracing::debug!("a connection was cut: it lasted {time:?}"),
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

fn connection<S: AsyncRead + AsyncWrite + Unpin + Send + 'static>(
    stream: S,
    manner: Manner,
    router: Router,
) -> http1::Connection<TokioIo<S>, TowerToHyperService<Router>> {
    http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADER_TIMEOUT)
        .keep_alive(manner.keeps_alive)
        .serve_connection(TokioIo::new(stream), TowerToHyperService::new(router))
}
