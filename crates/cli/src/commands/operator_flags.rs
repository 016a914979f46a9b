//! What `ansible-operator run` and `helm-operator run` have in common: flags of the runtime, which are handed on to it.
//!
//! Not here: flags whose defaults or words differ between the two.

use std::path::Path;
use std::time::Duration;

use clap::Args;
use kubewright_operators::watches::duration;

use crate::output::Failure;

/// What both commands attempt.
pub(super) const ATTEMPTED: &str = "cannot run the operator";

/// How the operator logs.
#[derive(Debug, Args)]
pub(super) struct Logging {
    #[arg(long, hide = true, num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    enable_http2: Option<bool>,

    /// Log debug messages, too
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value = "false", value_name = "BOOL", hide_default_value = true)]
    zap_devel: bool,

    /// How log lines look: console or json
    #[arg(long, value_name = "FORMAT", default_value = "console")]
    zap_encoder: String,

    /// debug, info, error, or a number (1 is debug, 2 and more trace)
    #[arg(long, value_name = "LEVEL")]
    zap_log_level: Option<String>,

    #[arg(long, hide = true, value_name = "LEVEL")]
    zap_stacktrace_level: Option<String>,

    /// epoch, millis, nano, iso8601, rfc3339 or rfc3339nano
    #[arg(long, value_name = "FORMAT", default_value = "rfc3339")]
    zap_time_encoding: String,
}

/// Where the operator serves, and whom.
pub(super) struct Serving<'a> {
    pub(super) metrics: &'a str,
    pub(super) metrics_secure: bool,
    pub(super) metrics_require_rbac: bool,
    pub(super) health: &'a str,
}

impl Logging {
    /// The flags of the runtime.
    ///
    /// # Errors
    /// When metrics would be served to users whose tokens came in plain text.
    pub(super) fn of_the_runtime(
        &self,
        serving: &Serving<'_>,
        kubeconfig: Option<&Path>,
    ) -> Result<Vec<String>, Failure> {
        if serving.metrics_require_rbac && !serving.metrics_secure {
            return Err(Failure::new(ATTEMPTED)
                .because("--metrics-require-rbac needs --metrics-secure: a token is not sent in plain text")
                .fix("add --metrics-secure"));
        }
        let mut flags = vec![
            format!("--metrics-bind-address={}", serving.metrics),
            format!("--metrics-secure={}", serving.metrics_secure),
            format!("--health-probe-bind-address={}", serving.health),
            format!("--zap-devel={}", self.zap_devel),
            format!("--zap-encoder={}", self.zap_encoder),
            format!("--zap-time-encoding={}", self.zap_time_encoding),
        ];
        flags.extend(
            self.zap_log_level
                .iter()
                .map(|level| format!("--zap-log-level={level}")),
        );
        flags.extend(kubeconfig.map(|path| format!("--kubeconfig={}", path.display())));
        Ok(flags)
    }
}

/// The value of a flag that is a duration.
pub(super) fn read(flag: &str, text: &str) -> Result<Duration, Failure> {
    duration(text).ok_or_else(|| {
        Failure::new(ATTEMPTED)
            .because(format!("--{flag} {text:?} is no duration"))
            .fix("write it as 30s, 5m or 1h30m")
    })
}
