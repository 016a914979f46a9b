//! Grafana dashboards for the metrics of an operator: the plugin `grafana/v1-alpha`, as kubebuilder names it.
//!
//! [`dashboards`] writes `grafana/controller-runtime-metrics.json` (reconciles, queues, caches) and
//! `controller-resources-metrics.json` (CPU, memory, files), and, out of `grafana/custom-metrics/config.yaml`, one with
//! metrics of the operator's own. Invariant: every metric that a dashboard asks for is one that the runtime serves
//! (`docs/src/metrics.md`; a test compares). Not here: where Prometheus is, which Grafana asks when a dashboard is
//! imported.

use serde::Deserialize;
use serde_json::{Value, json};

use crate::codes;
use crate::diagnostic::{Diagnostic, Place};
use crate::plan::{Files, Plan};
use crate::yaml;

/// The key under which PROJECT remembers the plugin; the same as kubebuilder's.
pub const KEY: &str = "grafana.kubebuilder.io/v1-alpha";

/// Where a project names metrics of its own.
const CONFIG: &str = "grafana/custom-metrics/config.yaml";

const CONFIG_TEXT: &str = "\
# Metrics of your own. Each becomes a panel of grafana/custom-metrics/custom-metrics-dashboard.json when you run
# kubewright edit --plugins grafana/v1-alpha again.
customMetrics: []
# - metric: guestbook_signatures_total   # required
#   type: counter                        # required: counter, gauge or histogram
#   expr: sum(rate(guestbook_signatures_total[5m]))   # what to draw; by the type when it is left out
#   unit: short                          # Grafana's unit
";

/// A panel: its title, its queries with their legends, and the unit.
type Panel = (&'static str, &'static [(&'static str, &'static str)], &'static str);

/// Every query looks at one job and namespace, which are variables of the dashboard.
const RUNTIME: &[Panel] = &[
    (
        "Reconciles a second",
        &[(
            "sum by (controller, result) (rate(controller_runtime_reconcile_total{WHERE}[5m]))",
            "{{controller}} {{result}}",
        )],
        "ops",
    ),
    (
        "Reconciles that woke themselves, a second",
        &[(
            "sum by (controller) (rate(kubewright_reconcile_self_woken_total{WHERE}[5m]))",
            "{{controller}}",
        )],
        "ops",
    ),
    (
        "Failed reconciles a second",
        &[
            (
                "sum by (controller) (rate(controller_runtime_reconcile_errors_total{WHERE}[5m]))",
                "{{controller}} errors",
            ),
            (
                "sum by (controller) (rate(controller_runtime_terminal_reconcile_errors_total{WHERE}[5m]))",
                "{{controller}} terminal",
            ),
            (
                "sum by (controller) (rate(controller_runtime_reconcile_panics_total{WHERE}[5m]))",
                "{{controller}} panics",
            ),
            (
                "sum by (controller) (rate(kubewright_source_panics_total{WHERE}[5m]))",
                "{{controller}} panics of sources",
            ),
            (
                "sum by (controller) (rate(controller_runtime_reconcile_timeouts_total{WHERE}[5m]))",
                "{{controller}} timeouts",
            ),
        ],
        "ops",
    ),
    (
        "Length of a reconcile",
        &[
            (
                "histogram_quantile(0.5, sum by (controller, le) (rate(controller_runtime_reconcile_time_seconds_bucket{WHERE}[5m])))",
                "{{controller}} p50",
            ),
            (
                "histogram_quantile(0.99, sum by (controller, le) (rate(controller_runtime_reconcile_time_seconds_bucket{WHERE}[5m])))",
                "{{controller}} p99",
            ),
        ],
        "s",
    ),
    (
        "Workers in use",
        &[
            (
                "sum by (controller) (controller_runtime_active_workers{WHERE})",
                "{{controller}} in use",
            ),
            (
                "sum by (controller) (controller_runtime_max_concurrent_reconciles{WHERE})",
                "{{controller}} at most",
            ),
            ("sum by (pod) (kubewright_blocked_reconciles{WHERE})", "{{pod}} blocked"),
        ],
        "short",
    ),
    (
        "Depth of the work queues",
        &[("sum by (name) (workqueue_depth{WHERE})", "{{name}}")],
        "short",
    ),
    (
        "Adds and retries a second",
        &[
            ("sum by (name) (rate(workqueue_adds_total{WHERE}[5m]))", "{{name}} adds"),
            (
                "sum by (name) (rate(workqueue_retries_total{WHERE}[5m]))",
                "{{name}} retries",
            ),
        ],
        "ops",
    ),
    (
        "Wait in the work queues",
        &[
            (
                "histogram_quantile(0.5, sum by (name, le) (rate(workqueue_queue_duration_seconds_bucket{WHERE}[5m])))",
                "{{name}} p50",
            ),
            (
                "histogram_quantile(0.99, sum by (name, le) (rate(workqueue_queue_duration_seconds_bucket{WHERE}[5m])))",
                "{{name}} p99",
            ),
        ],
        "s",
    ),
    (
        "Work that has not ended",
        &[
            (
                "sum by (name) (workqueue_unfinished_work_seconds{WHERE})",
                "{{name}} in all",
            ),
            (
                "max by (name) (workqueue_longest_running_processor_seconds{WHERE})",
                "{{name}} longest",
            ),
        ],
        "s",
    ),
    (
        "Objects in the caches",
        &[("sum by (kind) (kubewright_cache_objects{WHERE})", "{{kind}}")],
        "short",
    ),
    (
        "Caches that do not work",
        &[
            ("min by (kind) (kubewright_cache_healthy{WHERE})", "{{kind}} healthy"),
            (
                "sum by (kind) (kubewright_cache_unreadable_objects{WHERE})",
                "{{kind}} unreadable",
            ),
        ],
        "short",
    ),
    (
        "The leader",
        &[("leader_election_master_status{WHERE}", "{{pod}}")],
        "short",
    ),
    (
        "Shards of each replica",
        &[
            ("kubewright_shards_held{WHERE}", "{{pod}}"),
            ("max(kubewright_shard_members{WHERE})", "replicas"),
        ],
        "short",
    ),
    (
        "Shards that changed hands, a second",
        &[(
            "sum by (pod) (rate(kubewright_shards_taken_total{WHERE}[5m]))",
            "{{pod}}",
        )],
        "ops",
    ),
    (
        "Requests to the API server a second",
        &[(
            "sum by (method, code) (rate(rest_client_requests_total{WHERE}[5m]))",
            "{{method}} {{code}}",
        )],
        "reqps",
    ),
];

const RESOURCES: &[Panel] = &[
    (
        "CPU",
        &[("rate(process_cpu_seconds_total{WHERE}[5m])", "{{pod}}")],
        "percentunit",
    ),
    (
        "Memory",
        &[("process_resident_memory_bytes{WHERE}", "{{pod}}")],
        "bytes",
    ),
    ("Open files", &[("process_open_fds{WHERE}", "{{pod}}")], "short"),
    (
        "Time since the start",
        &[("time() - process_start_time_seconds{WHERE}", "{{pod}}")],
        "s",
    ),
];

/// A project's own metric, in kubebuilder's form.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Custom {
    metric: String,
    #[serde(rename = "type")]
    kind: String,
    #[serde(default)]
    expr: Option<String>,
    #[serde(default)]
    unit: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Config {
    #[serde(default)]
    custom_metrics: Option<Vec<Custom>>,
}

/// Plans the dashboards of a project. They are always written anew; `config.yaml` stays.
///
/// # Errors
/// When `config.yaml` cannot be read, or names a metric that cannot be.
pub fn dashboards(project: &str, plan: &mut Plan<'_>) -> Result<(), Diagnostic> {
    let fixed = |panels: &[Panel]| {
        let panels = panels.iter().map(|(title, queries, unit)| {
            let queries: Vec<(String, String)> = queries
                .iter()
                .map(|(query, legend)| (query.replace("WHERE", WHERE), (*legend).to_owned()))
                .collect();
            (title.to_string(), queries, unit.to_string())
        });
        panels.collect::<Vec<_>>()
    };
    let made = [
        (
            "controller-runtime-metrics",
            "reconciles, queues, caches",
            fixed(RUNTIME),
        ),
        ("controller-resources-metrics", "CPU, memory, files", fixed(RESOURCES)),
    ];
    for (file, about, panels) in made {
        let text = dashboard(&format!("{project}: {about}"), &format!("{project}-{file}"), &panels);
        plan.write(&format!("grafana/{file}.json"), text)?;
    }
    let custom = match plan.read(CONFIG)? {
        Some(text) => custom(&text)?,
        None => {
            plan.write(CONFIG, CONFIG_TEXT)?;
            Vec::new()
        }
    };
    let file = "grafana/custom-metrics/custom-metrics-dashboard.json";
    if custom.is_empty() {
        return plan.remove(file);
    }
    let title = format!("{project}: its own metrics");
    plan.write(file, dashboard(&title, &format!("{project}-custom-metrics"), &custom))
}

const WHERE: &str = "job=\"$job\", namespace=\"$namespace\"";

type Drawn = (String, Vec<(String, String)>, String);

fn custom(text: &str) -> Result<Vec<Drawn>, Diagnostic> {
    let wrong = |why: String| {
        Diagnostic::new(codes::project::BROKEN, "cannot make dashboards")
            .at(Place::file(CONFIG))
            .because(why)
            .fix("write it as the comment in the file shows: metric and type, and expr and unit if need be")
    };
    let read = yaml::parse(text).map_err(&wrong)?;
    let config: Config = match read {
        Value::Null => return Ok(Vec::new()),
        read => serde_json::from_value(read).map_err(|why| wrong(why.to_string()))?,
    };
    let mut drawn = Vec::new();
    for (at, metric) in config.custom_metrics.into_iter().flatten().enumerate() {
        let mut letters = metric.metric.chars();
        let begins = letters
            .next()
            .is_some_and(|c| c.is_ascii_alphabetic() || c == '_' || c == ':');
        if !begins || !letters.all(|c| c.is_ascii_alphanumeric() || c == '_' || c == ':') {
            return Err(wrong(format!(
                "customMetrics[{at}]: {:?} is no name of a metric",
                metric.metric
            )));
        }
        let name = &metric.metric;
        let expr = match (
            metric.expr.filter(|expr| !expr.is_empty()),
            metric.kind.to_lowercase().as_str(),
        ) {
            (Some(expr), "counter" | "gauge" | "histogram") => expr,
            (None, "counter") => format!("sum(rate({name}{{{WHERE}}}[5m]))"),
            (None, "gauge") => format!("{name}{{{WHERE}}}"),
            (None, "histogram") => {
                format!("histogram_quantile(0.99, sum by (le) (rate({name}_bucket{{{WHERE}}}[5m])))")
            }
            (_, kind) => {
                return Err(wrong(format!(
                    "customMetrics[{at}]: there is no type {kind:?}, only counter, gauge and histogram"
                )));
            }
        };
        drawn.push((
            name.clone(),
            vec![(expr, "__auto".to_owned())],
            metric.unit.unwrap_or_else(|| "short".to_owned()),
        ));
    }
    Ok(drawn)
}

/// A dashboard in Grafana's JSON, two panels in a row.
fn dashboard(title: &str, uid: &str, panels: &[Drawn]) -> String {
    let source = json!({"type": "prometheus", "uid": "${datasource}"});
    let panels: Vec<Value> = panels
        .iter()
        .enumerate()
        .map(|(at, (title, queries, unit))| {
            let targets: Vec<Value> = queries
                .iter()
                .enumerate()
                .map(|(at, (expr, legend))| {
                    let letter = char::from(b'A' + u8::try_from(at % 26).unwrap_or_default());
                    json!({"datasource": source, "expr": expr, "legendFormat": legend, "refId": letter.to_string()})
                })
                .collect();
            json!({
                "id": at + 1, "type": "timeseries", "title": title, "datasource": source, "targets": targets,
                "gridPos": {"h": 8, "w": 12, "x": (at % 2) * 12, "y": (at / 2) * 8},
                "fieldConfig": {"defaults": {"unit": unit, "min": 0}, "overrides": []},
            })
        })
        .collect();
    let variable = |name: &str, query: &str| {
        json!({
            "name": name, "type": "query", "datasource": source, "query": query, "definition": query,
            "refresh": 2, "includeAll": false, "multi": false,
        })
    };
    let whole = json!({
        // Grafana allows 40 letters.
        "uid": uid.chars().take(40).collect::<String>(),
        "title": title, "tags": ["kubewright"], "timezone": "browser", "schemaVersion": 39, "editable": true,
        "refresh": "30s", "time": {"from": "now-1h", "to": "now"},
        "templating": {"list": [
            {"name": "datasource", "type": "datasource", "query": "prometheus"},
            variable("job", "label_values(process_start_time_seconds, job)"),
            variable("namespace", "label_values(process_start_time_seconds{job=\"$job\"}, namespace)"),
        ]},
        "panels": panels,
    });
    let text = serde_json::to_string_pretty(&whole).expect("texts, numbers and lists are JSON");
    text + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::MemoryFiles;

    fn made(files: &MemoryFiles) -> Result<MemoryFiles, Diagnostic> {
        let mut after = files.clone();
        let mut plan = Plan::new(files);
        dashboards("guestbook", &mut plan)?;
        after.apply(&plan);
        Ok(after)
    }

    #[test]
    fn only_metrics_that_are_served_are_drawn_and_all_of_those_that_matter() {
        // Read when it runs: the published package has no book, and compiles its tests all the same.
        let served = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/src/metrics.md");
        let served = std::fs::read_to_string(served).unwrap();
        let rows = served
            .lines()
            .filter_map(|line| line.strip_prefix("| `")?.split('`').next());
        let served: Vec<&str> = rows.collect();
        assert!(served.len() > 20);
        let names = regex::Regex::new(r"[a-z_]+[a-z](?:\{WHERE\})").unwrap();
        let mut drawn = Vec::new();
        for (_, queries, _) in RUNTIME.iter().chain(RESOURCES) {
            for (query, _) in *queries {
                let found = names.find(query).unwrap().as_str().trim_end_matches("{WHERE}");
                drawn.push(found.trim_end_matches("_bucket"));
            }
        }
        for name in &drawn {
            assert!(served.contains(name), "{name} is served");
        }
        let missing: Vec<&&str> = served.iter().filter(|name| !drawn.contains(*name)).collect();
        assert_eq!(
            missing,
            [
                &"kubewright_cache_bytes",
                &"kubewright_reconcile_not_leading_total",
                &"kubewright_workqueue_delayed",
                &"workqueue_work_duration_seconds"
            ]
        );
    }

    #[test]
    fn metrics_of_ones_own_get_panels() {
        let first = made(&MemoryFiles::default()).unwrap();
        let paths: Vec<&String> = first.0.keys().collect();
        assert_eq!(
            paths,
            [
                "grafana/controller-resources-metrics.json",
                "grafana/controller-runtime-metrics.json",
                CONFIG
            ]
        );
        assert_eq!(made(&first).unwrap(), first, "twice is once");
        let mut files = first;
        let said =
            "customMetrics:\n- {metric: a_total, type: counter}\n- {metric: b, type: gauge, expr: 'max(b)', unit: s}\n";
        files.0.insert(CONFIG.into(), said.into());
        let text = &made(&files).unwrap().0["grafana/custom-metrics/custom-metrics-dashboard.json"];
        let read: Value = serde_json::from_str(text).unwrap();
        let exprs: Vec<&str> = read["panels"]
            .as_array()
            .unwrap()
            .iter()
            .map(|panel| panel["targets"][0]["expr"].as_str().unwrap())
            .collect();
        assert_eq!(
            exprs,
            [
                "sum(rate(a_total{job=\"$job\", namespace=\"$namespace\"}[5m]))",
                "max(b)"
            ]
        );
        for wrong in [
            "customMetrics: [{metric: 'a b', type: gauge}]",
            "customMetrics: [{metric: a, type: x}]",
            "metrics: []",
            "[",
        ] {
            files.0.insert(CONFIG.into(), wrong.into());
            let refused = made(&files).unwrap_err();
            assert!(refused.to_string().contains(CONFIG), "{refused}");
        }
    }
}
