//! Counts what is asked of the API, by route and by status.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
};

use axum::{
    extract::{MatchedPath, Request as HttpRequest, State},
    middleware::Next,
    response::Response,
};

/// Requests that were answered. Bounded by the routes that there are times the statuses that they give.
#[derive(Debug, Default)]
pub(crate) struct Requests(Mutex<BTreeMap<(String, u16), u64>>);

/// Those of one route with one status.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Request {
    /// As it is written in the table of routes; `none` when there is none such.
    pub(crate) route: String,
    pub(crate) status: u16,
    pub(crate) count: u64,
}

impl Requests {
    pub(crate) fn all(&self) -> Vec<Request> {
        let counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let request = |(key, count): (&(String, u16), &u64)| Request {
            route: key.0.clone(),
            status: key.1,
            count: *count,
        };
        counts.iter().map(request).collect()
    }

    fn add(&self, route: String, status: u16) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner).entry((route, status)).or_default() += 1;
    }
}

/// Around every route: what a client wrote is no label, only the route that it met.
pub(crate) async fn count(
    State(requests): State<Arc<Requests>>,
    request: HttpRequest,
    next: Next,
) -> Response {
    let route = request.extensions().get::<MatchedPath>().map_or("none", MatchedPath::as_str).to_owned();
    let response = next.run(request).await;
    requests.add(route, response.status().as_u16());
    response
}
