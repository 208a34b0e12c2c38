//! The routes: JSON in, JSON out, a sentence with everything that is not 200.

use std::{sync::Arc, time::Duration};

use axum::{
    Json, Router,
    body::{Body, Bytes, HttpBody},
    extract::{Path, RawQuery, State},
    http::{HeaderMap, StatusCode, header},
    middleware,
    response::{IntoResponse, Response},
    routing::{get, post},
};
use compile::explain::QuestionError;
use http_body_util::{BodyExt, LengthLimitError, Limited};
use program::TraceRequest;
use serde::{Serialize, de::DeserializeOwned};

use crate::{
    DataPlane, TraceError,
    api::{
        ApplyRequest, BODY_BYTES_MAX, By, CheckRequest, ConfirmRequest, Flows, LIMIT_DEFAULT, LIMIT_MAX,
        QueuePairs, Refused, RollbackRequest, TraceEnded,
    },
    applier::Applier,
    apply::{self, Refusal},
    keeper::Keeper,
    metrics::{self, Form, Source},
    questions, views,
};

/// How long the body of a request may take.
const BODY_TIMEOUT: Duration = Duration::from_secs(30);

#[derive(Clone)]
struct Api {
    plane: Arc<dyn DataPlane>,
    keeper: Arc<Keeper>,
}

/// All routes: for who may open the control socket.
pub(crate) fn router(source: Source) -> Router {
    let keeper = source.keeper.clone();
    let count = middleware::from_fn_with_state(source.requests.clone(), metrics::count);
    Router::new()
        .route("/v1/report", get(report))
        .route("/v1/program", get(program))
        .route("/v1/tenants", get(tenants))
        .route("/v1/ports", get(ports))
        .route("/v1/drops", get(drops))
        .route("/v1/neighbours", get(neighbours))
        .route("/v1/flows", get(flows))
        .route("/v1/qps", get(qps))
        .route("/v1/rules", get(rules))
        .route("/v1/explain", get(explain_query).post(explain))
        .route("/v1/plan", post(plan))
        .route("/v1/check", post(check))
        .route("/v1/apply", post(apply))
        .route("/v1/confirm", post(confirm))
        .route("/v1/rollback", post(rollback))
        .route("/v1/history", get(history))
        .route("/v1/status", get(status))
        .route("/v1/trace", post(begin_trace))
        .route("/v1/trace/{trace}", get(traced).delete(end_trace))
        .merge(scrape_route(source))
        .fallback(no_route)
        .method_not_allowed_fallback(no_method)
        .with_state(Api { plane: keeper.plane(), keeper })
        .layer(count)
}

/// Metrics and nothing else: for who may reach the port that they are scraped from.
pub(crate) fn metrics_router(source: Source) -> Router {
    let count = middleware::from_fn_with_state(source.requests.clone(), metrics::count);
    scrape_route(source).fallback(no_route).method_not_allowed_fallback(no_method).layer(count)
}

fn scrape_route<S: Clone + Send + Sync + 'static>(source: Source) -> Router<S> {
    Router::new().route("/metrics", get(scrape)).with_state(source)
}

async fn scrape(State(source): State<Source>, headers: HeaderMap) -> Response {
    let accept = headers.get(header::ACCEPT).and_then(|accept| accept.to_str().ok()).unwrap_or_default();
    let form = Form::wanted(accept);
    match tokio::task::spawn_blocking(move || metrics::encode(source.snapshot(), form)).await {
        Ok(text) => ([(header::CONTENT_TYPE, form.content_type())], text).into_response(),
        Err(error) => failed(&error).into_response(),
    }
}

async fn report(api: State<Api>) -> Response {
    api.answer(|plane| Ok(plane.report())).await
}

async fn program(api: State<Api>) -> Response {
    api.answer(|plane| Ok(views::program(&plane.running()))).await
}

async fn tenants(api: State<Api>) -> Response {
    api.answer(|plane| Ok(plane.report().tenants)).await
}

async fn ports(api: State<Api>) -> Response {
    api.answer(|plane| Ok(plane.report().ports)).await
}

async fn drops(api: State<Api>) -> Response {
    api.answer(|plane| Ok(views::drops(&plane.report()))).await
}

async fn neighbours(api: State<Api>) -> Response {
    api.answer(|plane| Ok(plane.report().neighbours)).await
}

async fn flows(api: State<Api>, RawQuery(query): RawQuery) -> Response {
    let find = move |plane: &dyn DataPlane| {
        let limit = limit(query.as_deref())?;
        let mut flows = plane.flows(limit + 1);
        let truncated = flows.len() > limit;
        flows.truncate(limit);
        Ok(Flows { flows, truncated })
    };
    api.answer(find).await
}

async fn qps(api: State<Api>, RawQuery(query): RawQuery) -> Response {
    let find = move |plane: &dyn DataPlane| {
        let limit = limit(query.as_deref())?;
        let mut qps = plane.queue_pairs(limit + 1);
        let truncated = qps.len() > limit;
        qps.truncate(limit);
        Ok(QueuePairs { qps, truncated })
    };
    api.answer(find).await
}

async fn rules(api: State<Api>, RawQuery(query): RawQuery) -> Response {
    api.answer(move |plane| Ok(views::rules(&plane.running(), limit(query.as_deref())?))).await
}

async fn check(api: State<Api>, body: Body) -> Response {
    let body = match receive(body).await {
        Ok(body) => body,
        Err(failure) => return failure.into_response(),
    };
    let recompiler = api.keeper.recompiler();
    api.answer(move |plane| Ok(apply::check(plane, &recompiler, parse::<CheckRequest>(&body)?)?)).await
}

async fn explain(api: State<Api>, body: Body) -> Response {
    let body = match receive(body).await {
        Ok(body) => body,
        Err(failure) => return failure.into_response(),
    };
    api.answer(move |plane| Ok(questions::explain(plane, &parse(&body)?)?)).await
}

async fn explain_query(api: State<Api>, RawQuery(query): RawQuery) -> Response {
    let answer = move |plane: &dyn DataPlane| {
        let question = questions::from_query(query.as_deref().unwrap_or_default())
            .map_err(|error| Failure::new(StatusCode::BAD_REQUEST, error))?;
        Ok(questions::explain(plane, &question)?)
    };
    api.answer(answer).await
}

async fn plan(api: State<Api>, body: Body) -> Response {
    let body = match receive(body).await {
        Ok(body) => body,
        Err(failure) => return failure.into_response(),
    };
    let recompiler = api.keeper.recompiler();
    api.answer(move |plane| Ok(questions::plan(plane, &recompiler, parse::<CheckRequest>(&body)?)?)).await
}

async fn apply(api: State<Api>, body: Body) -> Response {
    api.change(body, |applier, plane, request: ApplyRequest| applier.apply(plane, request, By::Apply)).await
}

async fn confirm(api: State<Api>, body: Body) -> Response {
    api.change(body, |applier, plane, request: ConfirmRequest| applier.confirm(plane, request.generation))
        .await
}

async fn rollback(api: State<Api>, body: Body) -> Response {
    api.change(body, |applier, plane, request: RollbackRequest| applier.rollback(plane, request.generation))
        .await
}

async fn history(api: State<Api>) -> Json<crate::api::HistoryList> {
    Json(api.keeper.history())
}

async fn status(api: State<Api>) -> Json<crate::api::Status> {
    Json(api.keeper.status())
}

async fn begin_trace(api: State<Api>, body: Body) -> Response {
    let body = match receive(body).await {
        Ok(body) => body,
        Err(failure) => return failure.into_response(),
    };
    api.answer(move |plane| Ok(plane.begin_trace(&parse::<TraceRequest>(&body)?)?)).await
}

async fn traced(api: State<Api>, Path(trace): Path<u64>) -> Response {
    api.answer(move |plane| plane.traced(trace).ok_or_else(|| no_trace(trace))).await
}

async fn end_trace(api: State<Api>, Path(trace): Path<u64>) -> Response {
    let end = move |plane: &dyn DataPlane| match plane.end_trace(trace) {
        true => Ok(TraceEnded { trace }),
        false => Err(no_trace(trace)),
    };
    api.answer(end).await
}

fn no_trace(trace: u64) -> Failure {
    Failure::new(StatusCode::NOT_FOUND, format!("trace {trace} is not the one that was begun last"))
}

async fn no_route() -> Failure {
    Failure::new(StatusCode::NOT_FOUND, "there is no such route; docs/api.md lists them")
}

async fn no_method() -> Failure {
    Failure::new(
        StatusCode::METHOD_NOT_ALLOWED,
        "the route does not take this method; docs/api.md lists them",
    )
}

impl Api {
    /// Receives a request that changes what runs, and does it when those before it are done.
    async fn change<R: DeserializeOwned, T: Serialize + Send + 'static>(
        &self,
        body: Body,
        work: impl FnOnce(&mut Applier, &dyn DataPlane, R) -> Result<T, Refusal> + Send + 'static,
    ) -> Response {
        let body = match receive(body).await {
            Ok(body) => body,
            Err(failure) => return failure.into_response(),
        };
        // Taken into the closure: it ends with the change even when the client is gone before.
        let mut applier = self.keeper.applier().await;
        self.answer(move |plane| Ok(work(&mut applier, plane, parse(&body)?)?)).await
    }

    /// Works on a thread that may block, since the one that serves must not.
    async fn answer<T: Serialize + Send + 'static>(
        &self,
        work: impl FnOnce(&dyn DataPlane) -> Result<T, Failure> + Send + 'static,
    ) -> Response {
        let plane = Arc::clone(&self.plane);
        match tokio::task::spawn_blocking(move || work(&*plane)).await {
            Ok(Ok(body)) => Json(body).into_response(),
            Ok(Err(failure)) => failure.into_response(),
            Err(error) => failed(&error).into_response(),
        }
    }
}

/// For a request on which the daemon panicked.
fn failed(error: &tokio::task::JoinError) -> Failure {
    tracing::error!("a request failed: {error}");
    let text = "the daemon failed on this request; its log says more";
    Failure::new(StatusCode::INTERNAL_SERVER_ERROR, text)
}

/// The whole body. One that is announced as too large is refused before it is sent.
async fn receive(body: Body) -> Result<Bytes, Failure> {
    let too_large = || {
        let text = format!("the request is larger than {} MiB", BODY_BYTES_MAX >> 20);
        Failure::new(StatusCode::PAYLOAD_TOO_LARGE, text)
    };
    if body.size_hint().lower() > BODY_BYTES_MAX as u64 {
        return Err(too_large());
    }
    match tokio::time::timeout(BODY_TIMEOUT, Limited::new(body, BODY_BYTES_MAX).collect()).await {
        Ok(Ok(body)) => Ok(body.to_bytes()),
        Ok(Err(error)) if error.is::<LengthLimitError>() => Err(too_large()),
        Ok(Err(error)) => {
            Err(Failure::new(StatusCode::BAD_REQUEST, format!("the request did not arrive whole: {error}")))
        }
        Err(_) => {
            let text = format!("the request did not arrive within {} s", BODY_TIMEOUT.as_secs());
            Err(Failure::new(StatusCode::REQUEST_TIMEOUT, text))
        }
    }
}

fn parse<T: DeserializeOwned>(body: &[u8]) -> Result<T, Failure> {
    serde_json::from_slice(body).map_err(|error| {
        Failure::new(
            StatusCode::BAD_REQUEST,
            format!("the request is not the JSON that this route takes: {error}"),
        )
    })
}

/// The only parameter there is: `limit=<number>`.
fn limit(query: Option<&str>) -> Result<usize, Failure> {
    let Some(query) = query.filter(|query| !query.is_empty()) else { return Ok(LIMIT_DEFAULT) };
    let limit = query.strip_prefix("limit=").and_then(|number| number.parse().ok());
    limit.filter(|limit| (1..=LIMIT_MAX).contains(limit)).ok_or_else(|| {
        let text = format!("the only parameter is limit=<number>, from 1 to {LIMIT_MAX}, not `{query}`");
        Failure::new(StatusCode::BAD_REQUEST, text)
    })
}

/// An answer that is not 200.
struct Failure {
    status: StatusCode,
    body: Refused,
}

impl Failure {
    fn new(status: StatusCode, error: impl Into<String>) -> Self {
        Self { status, body: Refused { error: error.into(), ..Refused::default() } }
    }
}

impl IntoResponse for Failure {
    fn into_response(self) -> Response {
        (self.status, Json(self.body)).into_response()
    }
}

impl From<TraceError> for Failure {
    fn from(error: TraceError) -> Self {
        let status = match error {
            TraceError::Busy { .. } => StatusCode::CONFLICT,
            TraceError::Impossible { .. } => StatusCode::BAD_REQUEST,
        };
        Self::new(status, error.to_string())
    }
}

impl From<QuestionError> for Failure {
    fn from(error: QuestionError) -> Self {
        Self::new(StatusCode::BAD_REQUEST, error.to_string())
    }
}

impl From<Refusal> for Failure {
    fn from(refusal: Refusal) -> Self {
        let error = refusal.to_string();
        match refusal {
            Refusal::Policy(diagnostics) | Refusal::Unproven(diagnostics) => {
                let status = StatusCode::UNPROCESSABLE_ENTITY;
                Self { status, body: Refused { error, diagnostics, ..Refused::default() } }
            }
            Refusal::Conflict { running, .. } => {
                let body = Refused { error, generation: Some(running.0), ..Refused::default() };
                Self { status: StatusCode::CONFLICT, body }
            }
            Refusal::Stuck { generation, workers, .. } => {
                let body = Refused { error, generation: Some(generation.0), workers, ..Refused::default() };
                Self { status: StatusCode::GATEWAY_TIMEOUT, body }
            }
            Refusal::Name(_) | Refusal::OutOfBounds(_) => Self::new(StatusCode::BAD_REQUEST, error),
            Refusal::Waiting { generation, .. } => {
                let body = Refused { error, generation: Some(generation), ..Refused::default() };
                Self { status: StatusCode::CONFLICT, body }
            }
            Refusal::Impossible(_) => Self::new(StatusCode::CONFLICT, error),
            Refusal::Rejected(_) => Self::new(StatusCode::INTERNAL_SERVER_ERROR, error),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{
        convert::Infallible,
        pin::Pin,
        task::{Context, Poll},
    };

    use hyper::body::Frame;

    use super::*;

    /// A client that announced a body and sends none.
    struct Silent;

    impl HttpBody for Silent {
        type Data = Bytes;
        type Error = Infallible;

        fn poll_frame(
            self: Pin<&mut Self>,
            _: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
            Poll::Pending
        }
    }

    /// The clock stands still and jumps to the next timer when nothing else is left to do.
    #[tokio::test(start_paused = true)]
    async fn a_body_that_stalls_is_given_up() {
        let failure = receive(Body::new(Silent)).await.err().unwrap();
        assert_eq!(failure.status, StatusCode::REQUEST_TIMEOUT);
        assert_eq!(failure.body.error, "the request did not arrive within 30 s");
    }
}
