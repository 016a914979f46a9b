//! The program in a project's Cargo.toml.

/// The program that `cargo run` takes when there are several: `default-run` of the package.
///
/// ```
/// use kubewright_codegen::project::default_run;
/// assert_eq!(default_run("[package]\ndefault-run = 'manager' # of three").as_deref(), Some("manager"));
/// assert_eq!(default_run("[package]\nname = 'guestbook'"), None);
/// ```
#[must_use]
pub fn default_run(manifest: &str) -> Option<String> {
    let document: toml_edit::DocumentMut = manifest.parse().ok()?;
    document.get("package")?.get("default-run")?.as_str().map(str::to_owned)
}
