//! An entry of a `watches.yaml` of charts.

use std::time::Duration;

use kubewright::kube::core::{GroupVersionKind, Selector};

use super::absolute;
use super::chart::Chart;
use super::overrides::Overrides;
use super::program::Helm;
use crate::watches::{Entry, Error};

/// A kind and its chart.
#[derive(Debug)]
pub(super) struct Watch {
    pub(super) kind: GroupVersionKind,
    pub(super) selector: Option<Selector>,
    pub(super) period: Option<Duration>,
    pub(super) chart: Chart,
    pub(super) overrides: Overrides,
    pub(super) watches_dependents: bool,
    pub(super) concurrency: Option<usize>,
    pub(super) dry_run: String,
    /// What was not understood.
    pub(super) unknown: Vec<String>,
}

impl Watch {
    /// Reads an entry, and what its chart says of itself.
    ///
    /// # Errors
    /// What is wrong, and where.
    pub(super) async fn of(
        mut entry: Entry,
        helm: &Helm,
        variable: &(dyn Fn(&str) -> Option<String> + Sync),
    ) -> Result<Watch, Error> {
        let Some(path) = entry.take_text("chart")?.filter(|path| !path.is_empty()) else {
            return Err(entry.error(&[], "an entry needs a chart, such as chart: helm-charts/nginx"));
        };
        let chart = Chart::load(&absolute(&path), helm).await;
        let chart = chart.map_err(|why| entry.error(&["chart"], why))?;
        let watches_dependents = entry.take_bool("watchDependentResources")?.unwrap_or(true);
        let concurrency = match entry.take_number("maxConcurrentReconciles")? {
            None => None,
            Some(number) => match usize::try_from(number).ok().filter(|number| *number > 0) {
                Some(number) => Some(number),
                None => {
                    let why = format!("maxConcurrentReconciles is a number from 1, not {number}");
                    return Err(entry.error(&["maxConcurrentReconciles"], why));
                }
            },
        };
        let dry_run = match entry.take_text("dryRunOption")?.as_deref() {
            None | Some("" | "none" | "client" | "true") => "client".to_owned(),
            Some("server") => "server".to_owned(),
            Some(other) => {
                let why = format!("dryRunOption is client or server, not {other:?}");
                return Err(entry.error(&["dryRunOption"], why));
            }
        };
        let overrides = match entry.take_map("overrideValues")? {
            None => Overrides::default(),
            Some(map) => {
                let read = Overrides::of(&map, variable, helm).await;
                read.map_err(|why| entry.error(&["overrideValues"], why.to_string()))?
            }
        };
        let unknown = entry.unknown().map(|error| error.to_string()).collect();
        Ok(Watch {
            kind: entry.kind.clone(),
            selector: entry.selector.clone(),
            period: entry.reconcile_period,
            chart,
            overrides,
            watches_dependents,
            concurrency,
            dry_run,
            unknown,
        })
    }
}
