//! What the built operator says it consists of: the hidden subcommand `__declaration`, which prints one JSON document and needs no cluster.
//!
//! An operator whose `main` is not `kubewright::run` knows no subcommand and simply begins to operate: it is given no cluster to operate
//! on, and little time.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use kubewright_codegen::manifests::{self, Objects};
use kubewright_codegen::{Diagnostic, Place, codes};
use serde_json::Value;
use tokio::process::Command;

use crate::files::Disk;

/// The subcommand.
pub(crate) const SUBCOMMAND: &str = "__declaration";
/// The form of declarations that this command understands.
const VERSION: u64 = 1;
/// Printing a declaration takes milliseconds.
const PATIENCE: Duration = Duration::from_secs(10);

/// What an operator declares, as JSON.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Declaration(pub(crate) Value);

/// Asks a program for its declaration.
///
/// # Errors
/// KWR0704 when it gives none, with what it did instead.
pub(crate) async fn ask(program: &Path, root: &Path) -> Result<Declaration, Diagnostic> {
    let mut command = Command::new(program);
    command
        .arg(SUBCOMMAND)
        .current_dir(root)
        .env("KUBECONFIG", "/nonexistent/no-cluster-is-needed-to-declare")
        .env_remove("KUBERNETES_SERVICE_HOST")
        .env_remove(kubewright::OBSERVE_SOCKET)
        .stdin(Stdio::null())
        .kill_on_drop(true);
    let output = match tokio::time::timeout(PATIENCE, command.output()).await {
        Err(_) => return Err(undeclared("it did not end within ten seconds")),
        Ok(Err(why)) => return Err(undeclared(format!("it cannot be started: {why}"))),
        Ok(Ok(output)) => output,
    };
    let said = String::from_utf8_lossy(&output.stdout);
    if !output.status.success() {
        let complaints = String::from_utf8_lossy(&output.stderr);
        let last = complaints
            .lines()
            .rfind(|line| !line.trim().is_empty())
            .unwrap_or("nothing");
        return Err(undeclared(format!("it failed ({}) and said: {last}", output.status)));
    }
    read(&said)
}

fn undeclared(why: impl Into<String>) -> Diagnostic {
    Diagnostic::new(codes::dev::UNDECLARED, "cannot learn what the operator consists of")
        .at(Place::file("src/main.rs"))
        .because(format!("its program was asked with `{SUBCOMMAND}`: {}", why.into()))
        .fix("let main call kubewright::run(operator()), as a project of `kubewright init` does")
}

fn read(said: &str) -> Result<Declaration, Diagnostic> {
    let declaration: Value =
        serde_json::from_str(said).map_err(|why| undeclared(format!("what it printed is not a declaration: {why}")))?;
    match declaration["declaration"].as_u64() {
        Some(VERSION) => Ok(Declaration(declaration)),
        Some(other) => Err(undeclared(format!(
            "its declaration has form {other} and this command understands form {VERSION}: their versions of kubewright differ"
        ))
        .fix("bring both to one version: cargo update -p kubewright, or cargo install kubewright-cli")),
        None => Err(undeclared("what it printed is not a declaration: it has no field `declaration`")),
    }
}

impl Declaration {
    /// The kubewright that the operator was built with.
    pub(crate) fn kubewright(&self) -> Option<&str> {
        self.0["kubewright"].as_str()
    }

    /// Its items of a kind: `crds`, `controllers`, `webhooks`, `conversions`.
    pub(crate) fn items(&self, of: &str) -> &[Value] {
        self.0[of].as_array().map_or(&[], Vec::as_slice)
    }

    /// Its controllers with the kinds that they reconcile.
    pub(crate) fn controllers(&self) -> BTreeMap<String, String> {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        self.items("controllers")
            .iter()
            .map(|controller| (text(&controller["name"]), text(&controller["for"]["kind"])))
            .collect()
    }

    /// The definitions and webhook configurations that `kubewright manifests` would write. `root`: the project, for the places of what is wrong.
    ///
    /// # Errors
    /// All that is wrong.
    pub(crate) fn objects(&self, root: &Path) -> Result<Objects, Vec<Diagnostic>> {
        let parsed = manifests::Declaration::parse(&self.0.to_string()).map_err(|why| vec![why])?;
        manifests::objects(&parsed, &Disk::new(root), &manifests::Options::default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_declaration_of_this_form_is_taken() {
        let check = |said: &str, expected: &str| {
            let refused = read(said).unwrap_err().to_string();
            assert!(refused.contains(expected), "{refused}");
        };
        check("", "what it printed is not a declaration: EOF");
        check("hello", "what it printed is not a declaration");
        check("{}", "it has no field `declaration`");
        check(r#"{"declaration": 2}"#, "form 2 and this command understands form 1");
        assert!(read(r#"{"declaration": 1, "name": "a", "kubewright": "0.1.0"}"#).is_ok());
    }

    #[tokio::test]
    async fn a_program_without_a_declaration_is_told_apart() {
        let refused = ask(Path::new("/bin/false"), Path::new("/")).await.unwrap_err();
        assert_eq!(refused.code, codes::dev::UNDECLARED);
        assert!(refused.to_string().contains("exit status: 1"), "{refused}");
    }
}
