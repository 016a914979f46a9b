//! Tokens that a node asks for: of a pod that runs there, and for an audience that the pod names.

use kubewright_schema::error::quote;
use serde_json::Value;

use super::super::Operation;
use super::{Request, missing};
use crate::authorization::{self, aggregate};
use crate::model::Minor;
use crate::model::facts::references;
use crate::model::form::key;
use crate::model::object;
use crate::model::status::Status;
use crate::values::{get, items};

/// Volumes of earlier versions, and the drivers that serve them now (`csi-translation-lib`).
const MIGRATED: [(&str, &str); 7] = [
    ("gcePersistentDisk", "pd.csi.storage.gke.io"),
    ("awsElasticBlockStore", "ebs.csi.aws.com"),
    ("cinder", "cinder.csi.openstack.org"),
    ("azureDisk", "disk.csi.azure.com"),
    ("azureFile", "file.csi.azure.com"),
    ("vsphereVolume", "csi.vsphere.vmware.com"),
    ("portworxVolume", "pxd.portworx.com"),
];

/// The driver of a source of volumes, if it has one.
fn driver(source: &Value) -> Option<&str> {
    let own = get(source, &["csi", "driver"]).as_str();
    let migrated = || MIGRATED.iter().find(|(old, _)| get(source, &[old]).is_object());
    own.or_else(|| migrated().map(|(_, driver)| *driver))
}

impl Request<'_> {
    pub(super) fn check_token(&self) -> Result<(), Status> {
        if self.attributes.operation != Operation::Create || self.attributes.subresource != "token" {
            return Ok(());
        }
        let reference = get(self.object, &["spec", "boundObjectRef"]);
        let text = |field: &str| get(reference, &[field]).as_str().unwrap_or("");
        if text("apiVersion") != "v1" || text("kind") != "Pod" || text("name").is_empty() {
            return self.refuse("node requested token not bound to a pod");
        }
        let uid = text("uid");
        if uid.is_empty() {
            return self.refuse("node requested token with a pod binding without a uid");
        }
        let stored = self.pod(text("name"))?;
        let pod = stored.value();
        if object::uid(pod) != uid {
            return self.refuse(format!(
                "the UID in the bound object reference ({uid}) does not match the UID in record. The object might have been deleted and then \
                 recreated"
            ));
        }
        if get(pod, &["spec", "nodeName"]) != self.node {
            return self.refuse("node requested token bound to a pod scheduled on a different node");
        }
        self.check_audience(pod)
    }

    /// `validateNodeServiceAccountAudience`
    fn check_audience(&self, pod: &Value) -> Result<(), Status> {
        let audience = match items(self.object, &["spec", "audiences"]) {
            [] => "",
            [one] => one.as_str().unwrap_or(""),
            _ => return self.refuse("node may only request 0 or 1 audiences"),
        };
        match self.names_audience(pod, audience) {
            Ok(true) => return Ok(()),
            Ok(false) => {}
            Err(why) => return self.refuse(format!("error validating audience {}: {why}", quote(audience))),
        }
        let user = &self.attributes.user;
        let question = authorization::Attributes {
            verb: "request-serviceaccounts-token-audience".to_owned(),
            version: "v1".to_owned(),
            resource: audience.to_owned(),
            namespace: self.attributes.namespace.clone(),
            name: self.attributes.name.clone(),
            ..authorization::Attributes::default()
        };
        if self.session.decide(user, &question).is_allowed() {
            return Ok(());
        }
        let (audience, user) = (quote(audience), &user.name);
        self.refuse(match self.session.kinds().minor() >= Minor::V37 {
            true => format!("{user} is not authorized to request tokens for audience {audience}"),
            false => format!(
                "audience {audience} not found in pod spec volume, {user} is not authorized to request tokens for this audience"
            ),
        })
    }

    /// Whether a volume of the pod wants tokens for the audience, itself or by its driver.
    fn names_audience(&self, pod: &Value, audience: &str) -> Result<bool, String> {
        let mut errors = Vec::new();
        for volume in items(pod, &["spec", "volumes"]) {
            let sources = items(volume, &["projected", "sources"]).iter();
            let mut tokens = sources.map(|source| get(source, &["serviceAccountToken"]));
            let wants =
                |token: &Value| token.is_object() && get(token, &["audience"]).as_str().unwrap_or("") == audience;
            if tokens.any(wants) {
                return Ok(true);
            }
            match self.driver_wants(pod, volume, audience) {
                Ok(true) => return Ok(true),
                Ok(false) => {}
                Err(why) => errors.push(why),
            }
        }
        match errors.is_empty() {
            true => Ok(false),
            false => Err(aggregate(errors)),
        }
    }

    /// Whether the driver of a volume, of its claim's volume too, asks for tokens for the audience.
    fn driver_wants(&self, pod: &Value, volume: &Value, audience: &str) -> Result<bool, String> {
        let storage = self.session.storage();
        let find = |store: &str, group: &str, kind: &str, key: &str, name: &str| {
            let found = storage.get(store, key);
            found.ok_or_else(|| missing(group, kind, name).message)
        };
        let behind;
        let source = match references::volume_claim(pod, volume) {
            None => volume,
            Some(name) => {
                let place = key(&self.attributes.namespace, &name);
                let claim = find("persistentvolumeclaims", "", "persistentvolumeclaim", &place, &name)?;
                let name = get(claim.value(), &["spec", "volumeName"]).as_str().unwrap_or("");
                behind = find("persistentvolumes", "", "persistentvolume", name, name)?;
                get(behind.value(), &["spec"])
            }
        };
        let Some(name) = driver(source).filter(|name| !name.is_empty()) else {
            return Ok(false);
        };
        let driver = find("csidrivers.storage.k8s.io", "storage.k8s.io", "csidriver", name, name)?;
        let wanted = items(driver.value(), &["spec", "tokenRequests"]).iter();
        Ok(wanted
            .map(|request| get(request, &["audience"]))
            .any(|one| one.as_str().unwrap_or("") == audience))
    }
}
