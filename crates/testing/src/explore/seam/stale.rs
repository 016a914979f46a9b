//! A process that sees an older state than there is: of all kinds, or of one.
//!
//! Its lists show a revision of before, and its watches go on from there when the fault ends. Invariant: only lists that
//! fill a cache are old; who asks for the newest state gets it.

use http::Request;
use kubewright::kube::{self, client::Body};
use tokio::time::Instant;

use super::Seam;
use crate::explore::fault::Fault;
use crate::explore::log::resource;
use crate::intercept::Call;

/// A process sees an older state.
#[derive(Clone)]
pub(super) struct Stale {
    /// The revision that lists show, and from which watches go on late.
    revision: u64,
    pub(super) until: Instant,
    /// Of which kind, if not of all: the plural with its group.
    kind: Option<String>,
}

impl Seam {
    /// From now on, for a minute, lists show this revision and watches begin late.
    pub(in crate::explore) fn show(&self, revision: u64, fault: &Fault) {
        self.strike(0, fault);
        let until = Instant::now() + self.pace.long;
        self.due(until);
        let kind = match fault {
            Fault::Past {
                alone: true, resource, ..
            } => Some(resource.clone()),
            _ => None,
        };
        self.state().stale = Some(Stale { revision, until, kind });
    }

    /// The older state that this list or watch shows, while a fault says so.
    pub(super) fn stale(&self, call: &Call) -> Option<Stale> {
        let stale = self.state().stale.clone()?;
        let is_of_kind = stale.kind.as_ref().is_none_or(|kind| *kind == resource(call));
        (is_of_kind && Instant::now() < stale.until).then_some(stale)
    }

    /// A list that shows an older world, while a fault says so. Only those that fill a cache do: one that asks for the
    /// newest state gets it.
    pub(super) fn aged(&self, request: Request<Body>, call: &Call) -> Result<Request<Body>, kube::Error> {
        let Some(Stale { revision, .. }) = self.stale(call) else {
            return Ok(request);
        };
        let query = request.uri().query().unwrap_or_default();
        let fills_cache = query
            .split('&')
            .any(|pair| pair.starts_with("limit=") || pair.starts_with("resourceVersion="))
            // Its caches ask for all at once, and it makes no other lists.
            || self.state().traffic.agents.iter().any(|agent| agent.starts_with("kopf/"));
        if !fills_cache {
            return Ok(request);
        }
        let (mut parts, body) = request.into_parts();
        let kept = parts.uri.query().unwrap_or_default().split('&').filter(|pair| {
            !pair.is_empty()
                && !["resourceVersion=", "resourceVersionMatch=", "limit=", "continue="]
                    .iter()
                    .any(|part| pair.starts_with(part))
        });
        let kept: String = kept.map(|pair| format!("{pair}&")).collect();
        let aged = format!(
            "{}?{kept}resourceVersion={revision}&resourceVersionMatch=Exact",
            parts.uri.path()
        );
        parts.uri = aged
            .parse()
            .map_err(|error: http::uri::InvalidUri| kube::Error::HttpError(error.into()))?;
        Ok(Request::from_parts(parts, body))
    }
}
