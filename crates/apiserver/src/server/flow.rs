//! Where a request waits for the seats of its priority level, and the answer to one that gets none
//! (`WithPriorityAndFairness`). Who waits for whom is decided in [`crate::flow_control`].

use http::{HeaderValue, Response, header};

use super::head::{Admitted, Target};
use super::route::{ResourcePath, Verb};
use super::{ApiServer, Inner, noted};
use crate::Body;
use crate::flow_control::Seats;
use crate::model::status::Status;
use crate::wire::query::Query;

/// What a request is told that its priority level rejects.
const TOO_MANY: &str = "Too many requests, please try again later.";

impl ApiServer {
    /// Waits until the priority level of a request has seats for it. They are free when the return value is dropped: keep
    /// it until the request is answered.
    ///
    /// # Errors
    /// The answer to a request that is rejected, or that has waited for too long (429).
    pub async fn enter(&self, admitted: &Admitted) -> Result<Seats, Box<Response<Body>>> {
        let inner = &self.inner;
        let Some(flow) = &admitted.flow else {
            return Ok(Seats::default());
        };
        let seats = match &admitted.target {
            _ if !flow.is_limited() => 1,
            // It takes as long as its client wants, and what it begins with is shared otherwise.
            Target::Resource(_, Some(Verb::Watch)) => return Ok(Seats::default()),
            Target::Resource(path, Some(Verb::List)) => inner.seats_of_list(path, &admitted.query),
            _ => 1,
        };
        let patience = inner.config.request_timeout / 4;
        let entered = inner
            .flow_control
            .enter(flow, seats, inner.env.as_ref(), patience)
            .await;
        entered.map_err(|_| {
            noted(
                admitted.audit.as_deref(),
                &Status::failure(429, "TooManyRequests", TOO_MANY),
            );
            let mut rejection = inner.text(429, format!("{TOO_MANY}\n"), &admitted.query);
            rejection
                .headers_mut()
                .insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
            Box::new(rejection)
        })
    }
}

impl Inner {
    /// How many seats a list takes: one for each hundred objects that it looks at, at most ten
    /// (`listWorkEstimator.estimate`). Unlike upstream, the objects of other namespaces do not count.
    fn seats_of_list(&self, path: &ResourcePath, query: &Query) -> u64 {
        let row = self.registry.lookup(&path.group, &path.version, &path.plural);
        let count = row.map_or(0, |row| self.storage.count(&row.store, &path.prefix()));
        let limit = query
            .get("limit")
            .parse()
            .ok()
            .filter(|limit| *limit > 0)
            .unwrap_or(usize::MAX);
        u64::try_from(count.min(limit).div_ceil(100).clamp(1, 10)).unwrap_or(1)
    }
}
