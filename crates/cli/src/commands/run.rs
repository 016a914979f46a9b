//! `kubewright run`: builds the operator and runs it on this machine, against the cluster of the kubeconfig
//! (kubebuilder's `make run`).
//!
//! Any cluster is legitimate here, also one far away that a person names; which one it is stands there before anything
//! happens. Webhooks
//! need certificates and a way for the API server to reach this machine, so they are off unless certificates are named.
//! `dev` does without both.
//!
//! In an embedded cluster the operator runs under its own role; any other cluster gets no roles from here, so there it
//! runs with the rights of the kubeconfig.

use std::path::PathBuf;
use std::process::Stdio;

use clap::Args;
use kubewright::k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kubewright::kube::{Api, Client};
use kubewright_codegen::manifests::Declaration;
use kubewright_codegen::{Diagnostic, Place, codes};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;
use tokio::process::Command;

use crate::commands::dev::account::{self, Account};
use crate::errors::chain;
use crate::output::{DIM, Failure, Format, STRONG, paint};
use crate::program::{self, BuildOptions, Verbosity, declaration};
use crate::project::Project;
use crate::rollout::{chosen, remember};
use crate::signals::stop_signal;
use crate::target::{Reach, Target};

/// The switch of a kubebuilder project.
const ENABLE_WEBHOOKS: &str = "ENABLE_WEBHOOKS";

/// Build the project's operator and run it here, against the cluster of the kubeconfig
///
/// Does what `make run` does in a kubebuilder project. The CRDs must be installed (`kubewright install`). In an
/// embedded cluster on this machine the operator runs with its own role, in any other cluster with the permissions of
/// the kubeconfig. Webhooks are off unless you pass certificates: kubewright run -- --webhook-cert-path DIR.
/// `kubewright dev` needs no preparations.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// Kubeconfig to read [default: $KUBECONFIG, else ~/.kube/config]
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,

    /// Context of the kubeconfig [default: the current one]
    #[arg(long, value_name = "NAME", add = clap_complete::ArgValueCandidates::new(crate::complete::contexts))]
    context: Option<String>,

    /// Run the operator with the permissions of the kubeconfig in every cluster
    #[arg(long)]
    as_admin: bool,

    /// Build with optimizations, as `cargo build --release`
    #[arg(long)]
    release: bool,

    /// Cargo features to build with, separated by commas
    #[arg(long, value_name = "FEATURES")]
    features: Option<String>,

    /// Arguments for the operator, after `--`
    #[arg(last = true, value_name = "ARGUMENTS")]
    operator: Vec<String>,
}

impl Arguments {
    pub(crate) async fn run(self, output: Format) -> Result<(), Failure> {
        let project = Project::here()?;
        let target = chosen(&project, self.kubeconfig.as_deref(), self.context.as_deref(), "run")?;
        output.say(
            &format!("runs against {}", paint(STRONG, target.describe())),
            &json!({"event": "target", "context": target.context, "server": target.server, "kubeconfig": target.source}),
        );
        let options = BuildOptions {
            root: project.root.clone(),
            release: self.release,
            features: self.features.clone(),
            verbosity: Verbosity::shown(),
        };
        let (program, _) = program::built(&options).await?;
        let kubeconfig = project.private_folder()?.join("run-kubeconfig");
        let mut own_role = false;
        if let Ok(declaration) = declaration::ask(&program, &project.root).await {
            let client = target.client().await?;
            reachable(&client, &target).await?;
            remember(&project, &target, output);
            installed(&client, &declaration, &target).await?;
            if target.reach == Reach::Embedded && !self.as_admin {
                let account = Account::of(&project.root);
                let mut objects = declaration::objects(&declaration, &project.root).map_err(first)?;
                objects
                    .roles
                    .extend(account::roles_of(&project.root, &account::FURTHER)?);
                account.grant(&client, &objects.roles).await?;
                account.write(&client, target.config(), &kubeconfig).await?;
                own_role = true;
                let user = account.user();
                output.say(
                    &paint(DIM, format!("runs under its role, as {user}")),
                    &json!({"event": "account", "user": user}),
                );
            }
        }
        if !own_role {
            target.write(&kubeconfig)?;
        }
        let outcome = self.operate(&project, &program, &kubeconfig, output).await;
        // It holds credentials, and the next run writes it again.
        let _ = std::fs::remove_file(kubeconfig);
        outcome
    }

    async fn operate(
        &self,
        project: &Project,
        program: &std::path::Path,
        kubeconfig: &std::path::Path,
        output: Format,
    ) -> Result<(), Failure> {
        let mut command = Command::new(program);
        command
            .args(&self.operator)
            .current_dir(&project.root)
            .env(
                "KUBECONFIG",
                std::path::absolute(kubeconfig).unwrap_or_else(|_| kubeconfig.to_path_buf()),
            )
            .stdin(Stdio::null())
            .kill_on_drop(true);
        let certificates = self
            .operator
            .iter()
            .any(|argument| argument.starts_with("--webhook-cert-path"));
        if std::env::var_os(ENABLE_WEBHOOKS).is_none() && !certificates {
            command.env(ENABLE_WEBHOOKS, "false");
            output.say(
                &paint(DIM, "webhooks are off: they need certificates (-- --webhook-cert-path DIR); `kubewright dev` needs none"),
                &json!({"event": "note", "note": "webhooks are off"}),
            );
        }
        let stop = stop_signal()?;
        let mut child = command
            .spawn()
            .map_err(|why| Failure::new(format!("cannot start the operator {}", program.display())).because(why))?;
        let ended = tokio::select! {
            ended = child.wait() => ended,
            () = stop => {
                // Ctrl-C in a terminal reached it already; a second request to end does no harm.
                if let Some(pid) = child.id().and_then(|id| Pid::from_raw(id.cast_signed())) {
                    let _ = kill_process(pid, Signal::TERM);
                }
                let _ = child.wait().await;
                return Ok(());
            }
        };
        match ended {
            Ok(status) if status.success() => Ok(()),
            Ok(status) => Err(Failure::from(
                Diagnostic::new(codes::dev::ENDED, "the operator ended")
                    .because(status)
                    .fix("its last lines say why"),
            )),
            Err(why) => Err(Failure::new("cannot wait for the operator").because(why)),
        }
    }
}

/// The error to show of a declaration's errors when only one can be.
fn first(wrong: Vec<Diagnostic>) -> Failure {
    let found = wrong.into_iter().next();
    found.map_or_else(|| Failure::new("the declaration is wrong"), Failure::from)
}

/// # Errors
/// KWR0801 when the server does not answer.
async fn reachable(client: &Client, target: &Target) -> Result<(), Diagnostic> {
    client.apiserver_version().await.map(drop).map_err(|why| {
        Diagnostic::new(
            codes::machine::KUBECONFIG,
            format!("the cluster of context {} does not answer", target.context),
        )
        .at(Place::file(target.source.clone()))
        .because(format!("{}: {}", target.server, chain(&why)))
        .fix("start it, or name another context with --context; kubewright dev brings a cluster of its own")
    })
}

/// # Errors
/// KWR0724 when the cluster lacks a definition that the operator declares.
async fn installed(client: &Client, declaration: &Declaration, target: &Target) -> Result<(), Diagnostic> {
    let api: Api<CustomResourceDefinition> = Api::all(client.clone());
    for declared in &declaration.crds {
        let name = declared.crd["metadata"]["name"].as_str().unwrap_or_default();
        // A person who may not read definitions learns from the operator itself.
        if let Ok(None) = api.get_opt(name).await {
            return Err(Diagnostic::new(codes::dev::UNKNOWN_KIND, "cannot run the operator")
                .because(format!(
                    "the definition {name} is not installed in context {}",
                    target.context
                ))
                .fix(format!(
                    "kubewright install --context {}; in `kubewright dev` this happens by itself",
                    target.context
                )));
        }
    }
    Ok(())
}
