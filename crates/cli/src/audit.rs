//! The audit log that flags ask for: its policy, and the file that it is written to.

use std::path::Path;
use std::sync::Arc;

use kubewright_cluster::{AuditFile, AuditFormat, AuditLog, AuditPolicy, AuditSink, AuditStdout, Rotation};

/// How events are written.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Form {
    pub(crate) format: AuditFormat,
    /// In bytes; see [`AuditLog::max_event_size`].
    pub(crate) max_event_size: Option<usize>,
}

/// The log, and the warnings about its policy.
///
/// # Errors
/// Why the policy cannot be used or the file not be written, in kube-apiserver's words where it has some.
pub(crate) fn open(
    policy: &Path,
    path: &Path,
    rotation: Rotation,
    strict: bool,
    form: &Form,
) -> Result<(AuditLog, Vec<String>), String> {
    let read = |why: std::io::Error| {
        let what = match why.kind() {
            std::io::ErrorKind::NotFound => "no such file or directory".to_owned(),
            _ => why.to_string(),
        };
        let name = policy.display();
        format!("loading audit policy file: failed to read file path \"{name}\": open {name}: {what}")
    };
    let text = crate::regular::bytes(policy).map_err(read)?;
    let parsed = AuditPolicy::parse(&text)
        .map_err(|why| format!("loading audit policy file: {why}: from file {}", policy.display()))?;
    let warnings = parsed.warnings().iter();
    let warnings = warnings.map(|why| format!("audit policy {}: {why} means nothing", policy.display()));
    let warnings = warnings.collect();
    let sink: Arc<dyn AuditSink> = match path.to_str() {
        Some("-") => Arc::new(AuditStdout),
        _ => {
            let file = AuditFile::open(path, rotation);
            Arc::new(file.map_err(|why| format!("ensureLogFile: {}: {why}", path.display()))?)
        }
    };
    let log = AuditLog {
        policy: Arc::new(parsed),
        sink,
        strict,
        format: form.format,
        max_event_size: form.max_event_size,
    };
    Ok((log, warnings))
}
