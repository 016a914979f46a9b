//! The objects that are put into the cluster before a build starts: definitions, webhook configurations, the operator's
//! account with its roles.
//!
//! [`wanted`] decides it out of the declaration, [`apply_all`] and [`introduce`] do it. Not here: when that happens
//! (`session.rs`), how single objects are applied (`objects.rs`).

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
pub(super) struct Wanted {
    pub(super) definitions: Vec<Item>,
    /// `None` where the server cannot ask the operator.
    pub(super) configurations: Option<Vec<Item>>,
    /// The roles of the operator; `None` when nothing says which they are.
    pub(super) roles: Option<Vec<Value>>,
    pub(super) doubts: Vec<Diagnostic>,
}

/// The objects that a build needs. `webhooks`: where they are answered, if the server can ask.
pub(super) fn wanted(
    declared: Option<&Declaration>,
    webhooks: Option<&Address>,
    root: &Path,
) -> Result<Wanted, Vec<Diagnostic>> {
    let Some(declaration) = declared else {
        let definitions = objects::read(root, DEFINITIONS, codes::dev::REFUSED).map_err(|why| vec![why])?;
        let roles = account::roles_of(root, &[account::GENERATED]).map_err(|why| vec![why])?;
        return Ok(Wanted {
            definitions,
            configurations: None,
            roles: (!roles.is_empty()).then_some(roles),
            doubts: Vec::new(),
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
        webhooks::convert_here(&mut definition, webhooks);
        item("api", definition)
    });
    let configurations = webhooks.map(|address| {
        let led = objects.webhooks.into_iter().map(|mut configuration| {
            webhooks::lead_here(&mut configuration, address);
            item("src/webhook", configuration)
        });
        led.collect()
    });
    Ok(Wanted {
        definitions: definitions.collect(),
        configurations,
        roles: Some(roles),
        doubts: objects.warnings,
    })
}

/// Makes the operator's account and writes its kubeconfig: the administrator's, with the account's token.
pub(super) async fn introduce(
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

/// Applies definitions, then webhook configurations; those of webhooks that are gone go, too.
pub(super) async fn apply_all(
    client: &Client,
    definitions: Vec<Item>,
    configurations: Option<Vec<Item>>,
) -> Result<Vec<(String, &'static str)>, Diagnostic> {
    let mut applied = Vec::new();
    for item in definitions {
        let what = objects::apply_definition(client, &item).await?;
        applied.push((item.plain_name().to_owned(), what.word()));
    }
    let Some(configurations) = configurations else {
        return Ok(applied);
    };
    objects::remove_others(client, objects::WEBHOOKS, &configurations).await?;
    for item in configurations {
        let what = objects::apply_configuration(client, &item).await?;
        applied.push((item.plain_name().to_owned(), what.word()));
    }
    Ok(applied)
}

/// Where the operator will serve its webhooks, with a certificate for that in the folder.
pub(super) fn certified(folder: &Path) -> Result<Address, Box<dyn std::error::Error + Send + Sync>> {
    let certificates = WebhookCertificates::new()?;
    certificates.write(folder, &["localhost", "127.0.0.1"])?;
    Ok(Address {
        port: super::session::free_port()?,
        authority: certificates.ca(),
    })
}
