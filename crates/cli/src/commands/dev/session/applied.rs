//! What a session applies to its cluster: definitions, samples, and the certificates of webhooks.

use std::path::Path;

use kubewright::kube::Client;
use kubewright_cluster::WebhookCertificates;
use kubewright_codegen::manifests::Declaration;
use kubewright_codegen::{Diagnostic, Place, codes};

use super::free_port;
use crate::commands::dev::objects::{self, Item};
use crate::commands::dev::webhooks::{self, Address};
use crate::program::declaration;

/// Where definitions are, for an operator that does not declare them.
pub(super) const DEFINITIONS: &str = "config/crd/bases";

pub(super) const SAMPLES: &str = "config/samples";

/// The folder of the webhooks' certificate, within the private one.
pub(super) const CERTIFICATES: &str = "certificates";

/// What is to be applied.
pub(super) struct Wanted {
    pub(super) definitions: Vec<Item>,
    /// `None` where the server cannot ask the operator.
    pub(super) configurations: Option<Vec<Item>>,
    pub(super) doubts: Vec<Diagnostic>,
}

/// What a build wants to be applied. `webhooks`: where they are answered, if the server can ask.
pub(super) fn wanted(
    declared: Option<&Declaration>,
    webhooks: Option<&Address>,
    root: &Path,
) -> Result<Wanted, Vec<Diagnostic>> {
    let Some(declaration) = declared else {
        let definitions = objects::read(root, DEFINITIONS, codes::dev::REFUSED).map_err(|why| vec![why])?;
        return Ok(Wanted {
            definitions,
            configurations: None,
            doubts: Vec::new(),
        });
    };
    let objects = declaration::objects(declaration, root)?;
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
        doubts: objects.warnings,
    })
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
    objects::remove_others(client, &configurations).await?;
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
        port: free_port()?,
        authority: certificates.ca(),
    })
}
