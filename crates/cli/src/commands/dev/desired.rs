//! The objects that a build needs in the cluster: definitions, webhook configurations, the operator's service account
//! with its roles.
//!
//! [`desired`] computes them from the declaration, [`apply_all`] and [`create_account`] apply them. Not here: when that
//! happens (`session.rs`), how one object is applied (`objects.rs`).

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use kubewright::kube::Client;
use kubewright::kube::config::Kubeconfig;
use kubewright_cluster::WebhookCertificates;
use kubewright_codegen::manifests::Declaration;
use kubewright_codegen::{Diagnostic, Place, codes};
use serde_json::Value;

use super::account::{self, Account};
use super::objects::{self, Item};
use super::webhooks::{self, Address};
use crate::program::declaration;

/// Where definitions are, for an operator that does not declare them.
pub(crate) const DEFINITIONS: &str = "config/crd/bases";

pub(super) const SAMPLES: &str = "config/samples";

/// The folder of the webhooks' certificate, within the private one.
pub(super) const CERTIFICATES: &str = "certificates";

/// The objects to apply.
pub(super) struct Desired {
    pub(super) definitions: Vec<Item>,
    /// `None` when the API server cannot reach the operator.
    pub(super) configurations: Option<Vec<Item>>,
    /// The roles of the operator; `None` when nothing says which they are.
    pub(super) roles: Option<Vec<Value>>,
    pub(super) warnings: Vec<Diagnostic>,
}

/// The objects that a build needs. `webhooks`: the address of the operator's webhooks, if the API server can reach it.
pub(super) fn desired(
    declared: Option<&Declaration>,
    webhooks: Option<&Address>,
    root: &Path,
) -> Result<Desired, Vec<Diagnostic>> {
    let Some(declaration) = declared else {
        let definitions = objects::read(root, DEFINITIONS, codes::dev::REFUSED).map_err(|why| vec![why])?;
        let roles = account::roles_of(root, &[account::GENERATED]).map_err(|why| vec![why])?;
        return Ok(Desired {
            definitions,
            configurations: None,
            roles: (!roles.is_empty()).then_some(roles),
            warnings: Vec::new(),
        });
    };
    let objects = declaration::objects(declaration, root)?;
    let mut roles = objects.roles;
    roles.extend(account::roles_of(root, &account::FURTHER).map_err(|why| vec![why])?);
    let item = |place: &str, object| Item {
        object,
        place: Place::file(place),
    };
    let definitions = objects.crds.into_iter().map(|(_, mut definition)| {
        webhooks::route_conversion(&mut definition, webhooks);
        item("api", definition)
    });
    let configurations = webhooks.map(|address| {
        let routed = objects.webhooks.into_iter().map(|mut configuration| {
            webhooks::route_to_operator(&mut configuration, address);
            item("src/webhook", configuration)
        });
        routed.collect()
    });
    Ok(Desired {
        definitions: definitions.collect(),
        configurations,
        roles: Some(roles),
        warnings: objects.warnings,
    })
}

/// Creates the operator's service account, and writes its kubeconfig: the administrator's, with the account's token.
pub(super) async fn create_account(
    account: &Account,
    client: &Client,
    roles: &[Value],
    administrator: &OsStr,
    scratch: &Path,
) -> Result<PathBuf, Diagnostic> {
    account.grant(client, roles).await?;
    let of = Kubeconfig::read_from(administrator).map_err(|why| {
        Diagnostic::new(codes::machine::KUBECONFIG, "cannot read the cluster's kubeconfig").because(why)
    })?;
    let path = scratch.join("account-kubeconfig");
    account.write(client, of, &path).await?;
    Ok(path)
}

/// Applies definitions, then webhook configurations, and prunes those of webhooks that are gone.
pub(super) async fn apply_all(
    client: &Client,
    definitions: Vec<Item>,
    configurations: Option<Vec<Item>>,
) -> Result<Vec<(String, &'static str)>, Diagnostic> {
    let mut applied = Vec::new();
    for item in definitions {
        let what = objects::apply_definition(client, &item).await?;
        applied.push((item.plain_name().to_owned(), what.as_str()));
    }
    let Some(configurations) = configurations else {
        return Ok(applied);
    };
    objects::prune(client, objects::WEBHOOKS, &configurations).await?;
    for item in configurations {
        let what = objects::apply_configuration(client, &item).await?;
        applied.push((item.plain_name().to_owned(), what.as_str()));
    }
    Ok(applied)
}

/// Chooses the address of the operator's webhooks, and writes a certificate for it to the folder.
pub(super) fn webhook_address(folder: &Path) -> Result<Address, Box<dyn std::error::Error + Send + Sync>> {
    let certificates = WebhookCertificates::new()?;
    certificates.write(folder, &["localhost", "127.0.0.1"])?;
    Ok(Address {
        port: super::session::free_port()?,
        authority: certificates.ca(),
    })
}
