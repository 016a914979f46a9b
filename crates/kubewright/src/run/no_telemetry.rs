//! The replacement for the export of spans without the feature `opentelemetry`: it only logs once that the environment
//! asks for it.

use tracing_subscriber::layer::Identity;

/// Nothing is exported.
pub(super) struct Exporting;

/// None: a layer without a filter, which [`Identity`] is, would want every span.
pub(super) fn layer(_operator: &str) -> (Option<Identity>, Exporting) {
    (None, Exporting)
}

impl Exporting {
    pub(super) fn log(&self) {
        for name in ["OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT"] {
            if std::env::var_os(name).is_some() {
                tracing::warn!(
                    "{name}: spans are not exported, because this operator was built without kubewright's feature opentelemetry"
                );
                return;
            }
        }
    }

    pub(super) async fn end(self) {}
}
