//! Speaks to the daemon: one request a connection, blocking.

use std::{future::Future, io, path::PathBuf, time::Duration};

use compile::{
    diff::Plan,
    explain::{Explanation, Question},
};
use http_body_util::{BodyExt, Full, Limited};
use hyper::{Method, Request, StatusCode, body::Bytes, client::conn::http1, header};
use hyper_util::rt::TokioIo;
use policy::Diagnostics;
use program::{NeighbourReport, PortReport, Report, TenantReport, TraceReport, TraceRequest, TraceStarted};
use serde::{Serialize, de::DeserializeOwned};
use tokio::net::UnixStream;

use crate::{
    api::{
        Applied, ApplyRequest, BODY_BYTES_MAX, CheckRequest, Checked, ConfirmRequest, Confirmed, Drop, Flows,
        HistoryList, ProgramSummary, QueuePairs, Refused, RollbackRequest, Rules, Status, TraceEnded,
    },
    files::sentence,
};

/// How long the daemon may take for an answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(60);
/// Largest answer that is taken, in bytes.
const ANSWER_BYTES_MAX: usize = 256 << 20;

/// Why there is no answer, or no good one.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// Nobody listens on the socket.
    #[error("no floodwayd answers on {}; start it, or give its --socket", path.display())]
    NoDaemon {
        /// The socket.
        path: PathBuf,
    },
    /// The socket is somebody else's.
    #[error("no permission to connect to {}; run as the user of floodwayd, usually root", path.display())]
    Denied {
        /// The socket.
        path: PathBuf,
    },
    /// The connection failed, or was cut.
    #[error("cannot talk to floodwayd on {}: {reason}", path.display())]
    Broken {
        /// The socket.
        path: PathBuf,
        /// Why, as a clause.
        reason: String,
    },
    /// Nothing came for a minute.
    #[error("floodwayd on {} did not answer within {} s", path.display(), ANSWER_TIMEOUT.as_secs())]
    TimedOut {
        /// The socket.
        path: PathBuf,
    },
    /// The request is larger than the daemon takes.
    #[error("the policy files are too large for one request of at most {} MiB", BODY_BYTES_MAX >> 20)]
    TooLarge,
    /// The policy files are refused.
    #[error("{error}")]
    Policy {
        /// What the daemon says.
        error: String,
        /// What is wrong with the files.
        diagnostics: Diagnostics,
    },
    /// The program was published, and some worker does not run it.
    #[error("{error}")]
    Stuck {
        /// What the daemon says.
        error: String,
        /// The generation that was published.
        generation: u32,
        /// Numbers of the workers that do not run it.
        workers: Vec<u32>,
    },
    /// Another refusal.
    #[error("{error}")]
    Refused {
        /// The HTTP status.
        status: u16,
        /// What the daemon says.
        error: String,
    },
}

/// A client of the daemon on one socket. Each call connects anew and blocks until the answer is there.
#[derive(Clone, Debug)]
pub struct Client {
    path: PathBuf,
}

impl Client {
    /// A client; nothing is connected yet.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into() }
    }

    /// `GET /v1/report`.
    ///
    /// # Errors
    /// See [`ClientError`]; so for all calls.
    pub fn report(&self) -> Result<Report, ClientError> {
        self.get("/v1/report")
    }

    /// `GET /v1/program`.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub fn program(&self) -> Result<ProgramSummary, ClientError> {
        self.get("/v1/program")
    }

    /// `GET /v1/tenants`.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub fn tenants(&self) -> Result<Vec<TenantReport>, ClientError> {
        self.get("/v1/tenants")
    }

    /// `GET /v1/ports`.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub fn ports(&self) -> Result<Vec<PortReport>, ClientError> {
        self.get("/v1/ports")
    }

    /// `GET /v1/drops`.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub fn drops(&self) -> Result<Vec<Drop>, ClientError> {
        self.get("/v1/drops")
    }

    /// `GET /v1/neighbours`.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub fn neighbours(&self) -> Result<Vec<NeighbourReport>, ClientError> {
        self.get("/v1/neighbours")
    }

    /// `GET /v1/flows`, at most `limit`.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub fn flows(&self, limit: usize) -> Result<Flows, ClientError> {
        self.get(&format!("/v1/flows?limit={limit}"))
    }

    /// `GET /v1/qps`, at most `limit`.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub fn queue_pairs(&self, limit: usize) -> Result<QueuePairs, ClientError> {
        self.get(&format!("/v1/qps?limit={limit}"))
    }

    /// `GET /v1/rules`, at most `limit`.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub fn rules(&self, limit: usize) -> Result<Rules, ClientError> {
        self.get(&format!("/v1/rules?limit={limit}"))
    }

    /// `POST /v1/check`.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub fn check(&self, request: &CheckRequest) -> Result<Checked, ClientError> {
        self.post("/v1/check", request)
    }

    /// `POST /v1/apply`.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub fn apply(&self, request: &ApplyRequest) -> Result<Applied, ClientError> {
        self.post("/v1/apply", request)
    }

    /// `POST /v1/confirm`.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub fn confirm(&self, request: &ConfirmRequest) -> Result<Confirmed, ClientError> {
        self.post("/v1/confirm", request)
    }

    /// `POST /v1/rollback`.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub fn rollback(&self, request: &RollbackRequest) -> Result<Applied, ClientError> {
        self.post("/v1/rollback", request)
    }

    /// `GET /v1/history`.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub fn history(&self) -> Result<HistoryList, ClientError> {
        self.get("/v1/history")
    }

    /// `GET /v1/status`.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub fn status(&self) -> Result<Status, ClientError> {
        self.get("/v1/status")
    }

    /// `GET /metrics`: OpenMetrics text.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub fn metrics(&self) -> Result<String, ClientError> {
        let text = self.answer(Method::GET, "/metrics", Bytes::new())?;
        String::from_utf8(text.into()).map_err(|error| self.broken(format!("a strange answer: {error}")))
    }

    /// `POST /v1/explain`.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub fn explain(&self, question: &Question) -> Result<Explanation, ClientError> {
        self.post("/v1/explain", question)
    }

    /// `POST /v1/plan`.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub fn plan(&self, request: &CheckRequest) -> Result<Plan, ClientError> {
        self.post("/v1/plan", request)
    }

    /// `POST /v1/trace`.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub fn begin_trace(&self, request: &TraceRequest) -> Result<TraceStarted, ClientError> {
        self.post("/v1/trace", request)
    }

    /// `GET /v1/trace/<number>`.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub fn traced(&self, trace: u64) -> Result<TraceReport, ClientError> {
        self.get(&format!("/v1/trace/{trace}"))
    }

    /// `DELETE /v1/trace/<number>`.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub fn end_trace(&self, trace: u64) -> Result<TraceEnded, ClientError> {
        self.call(Method::DELETE, &format!("/v1/trace/{trace}"), Bytes::new())
    }

    fn get<T: DeserializeOwned>(&self, route: &str) -> Result<T, ClientError> {
        self.call(Method::GET, route, Bytes::new())
    }

    fn post<T: DeserializeOwned>(&self, route: &str, request: &impl Serialize) -> Result<T, ClientError> {
        let body = serde_json::to_vec(request).map_err(|error| self.broken(error))?;
        if body.len() > BODY_BYTES_MAX {
            return Err(ClientError::TooLarge);
        }
        self.call(Method::POST, route, body.into())
    }

    fn call<T: DeserializeOwned>(&self, method: Method, route: &str, body: Bytes) -> Result<T, ClientError> {
        let answer = self.answer(method, route, body)?;
        serde_json::from_slice(&answer).map_err(|error| self.broken(format!("a strange answer: {error}")))
    }

    /// The body that came with 200.
    fn answer(&self, method: Method, route: &str, body: Bytes) -> Result<Bytes, ClientError> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(|error| self.broken(error))?;
        let exchange = within(ANSWER_TIMEOUT, self.exchange(method, route, body));
        let (status, body) = runtime
            .block_on(exchange)
            .unwrap_or_else(|| Err(ClientError::TimedOut { path: self.path.clone() }))?;
        if status == StatusCode::OK { Ok(body) } else { Err(self.refusal(status, &body)) }
    }

    async fn exchange(
        &self,
        method: Method,
        route: &str,
        body: Bytes,
    ) -> Result<(StatusCode, Bytes), ClientError> {
        let stream = UnixStream::connect(&self.path).await.map_err(|error| self.unreachable(&error))?;
        let (mut sender, connection) =
            http1::handshake(TokioIo::new(stream)).await.map_err(|error| self.broken(error))?;
        // It carries the exchange and says nothing that the exchange does not say.
        tokio::spawn(connection);
        let request = Request::builder()
            .method(method)
            .uri(route)
            .header(header::HOST, "floodwayd")
            .header(header::CONTENT_TYPE, "application/json")
            .body(Full::new(body))
            .map_err(|error| self.broken(error))?;
        let answer = sender.send_request(request).await.map_err(|error| self.broken(error))?;
        let status = answer.status();
        let body = Limited::new(answer.into_body(), ANSWER_BYTES_MAX).collect().await;
        Ok((status, body.map_err(|error| self.broken(error))?.to_bytes()))
    }

    fn refusal(&self, status: StatusCode, body: &[u8]) -> ClientError {
        let Ok(Refused { error, diagnostics, generation, workers }) = serde_json::from_slice(body) else {
            return self.broken(format!("a strange answer with status {status}"));
        };
        match status {
            StatusCode::UNPROCESSABLE_ENTITY => ClientError::Policy { error, diagnostics },
            StatusCode::GATEWAY_TIMEOUT => {
                ClientError::Stuck { error, generation: generation.unwrap_or_default(), workers }
            }
            _ => ClientError::Refused { status: status.as_u16(), error },
        }
    }

    fn unreachable(&self, error: &io::Error) -> ClientError {
        let path = self.path.clone();
        match error.kind() {
            io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => ClientError::NoDaemon { path },
            io::ErrorKind::PermissionDenied => ClientError::Denied { path },
            io::ErrorKind::WouldBlock => self.broken("it has too many clients; try again"),
            _ => self.broken(sentence(error)),
        }
    }

    fn broken(&self, reason: impl ToString) -> ClientError {
        ClientError::Broken { path: self.path.clone(), reason: reason.to_string() }
    }
}

/// `None` when the time is over. The timer needs a runtime, hence it starts inside the future.
async fn within<T>(timeout: Duration, future: impl Future<Output = T>) -> Option<T> {
    tokio::time::timeout(timeout, future).await.ok()
}
