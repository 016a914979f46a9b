//! The admission plugins of a server: which there are, in which order, and which can be left out.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::policy::{MutatingPolicies, ParameterAccess, ValidatingPolicies};
use super::{
    Admission, Classes, LimitRanger, MutatingWebhooks, NamespaceLifecycle, NodeRestriction, OwnerReferences,
    PodSecurity, Resizes, ResourceQuotas, ServiceAccounts, Signers, StorageProtection, TaintNodes, Tolerations,
    TopologyLabels, ValidatingWebhooks,
};
use crate::Env;
use crate::storage::Storage;

/// The admission plugins that can be left out one by one, by their names upstream.
pub const SEPARABLE_PLUGINS: [&str; 14] = [
    "NamespaceLifecycle",
    "LimitRanger",
    "ServiceAccount",
    "TaintNodesByCondition",
    "PodSecurity",
    "DefaultTolerationSeconds",
    "StorageObjectInUseProtection",
    "PersistentVolumeClaimResize",
    "PodTopologyLabels",
    "MutatingAdmissionPolicy",
    "MutatingAdmissionWebhook",
    "ValidatingAdmissionPolicy",
    "ValidatingAdmissionWebhook",
    "ResourceQuota",
];

/// The admission plugins that run only when they are named, by their names upstream.
pub const OPTIONAL_PLUGINS: [&str; 2] = ["NodeRestriction", "OwnerReferencesPermissionEnforcement"];

/// The parts from which the plugins of a server are made.
pub(crate) struct Standard<'a> {
    pub(crate) storage: &'a Arc<dyn Storage>,
    pub(crate) env: &'a Arc<dyn Env>,
    /// Whether the plugin `ServiceAccount` runs.
    pub(crate) service_accounts: bool,
    /// The names of those that do not run, of [`SEPARABLE_PLUGINS`].
    pub(crate) disabled: &'a BTreeSet<String>,
    /// The names of those that run besides, of [`OPTIONAL_PLUGINS`].
    pub(crate) enabled: &'a BTreeSet<String>,
}

impl Standard<'_> {
    /// The plugins in the order in which they see a write (`AllOrderedPlugins`).
    pub(crate) fn plugins(&self) -> Vec<Box<dyn Admission>> {
        let service_accounts = self
            .service_accounts
            .then(|| Box::new(ServiceAccounts::new(self.storage.clone(), self.env.clone())) as Box<dyn Admission>);
        fn if_named<A: Admission>(enabled: &BTreeSet<String>, name: &str, plugin: A) -> Option<Box<dyn Admission>> {
            enabled.contains(name).then(|| Box::new(plugin) as Box<dyn Admission>)
        }
        let [node_restriction, owner_references] = OPTIONAL_PLUGINS;
        // A plugin without a name of its own here cannot be disabled.
        let all: Vec<(&str, Option<Box<dyn Admission>>)> = vec![
            (
                "NamespaceLifecycle",
                Some(Box::new(NamespaceLifecycle::new(self.storage.clone()))),
            ),
            ("LimitRanger", Some(Box::new(LimitRanger::new(self.storage.clone())))),
            ("ServiceAccount", service_accounts),
            (
                node_restriction,
                if_named(self.enabled, node_restriction, NodeRestriction),
            ),
            ("TaintNodesByCondition", Some(Box::new(TaintNodes))),
            ("PodSecurity", Some(Box::new(PodSecurity))),
            ("", Some(Box::new(Classes::new(self.storage.clone())))),
            ("DefaultTolerationSeconds", Some(Box::new(Tolerations))),
            ("StorageObjectInUseProtection", Some(Box::new(StorageProtection))),
            (
                owner_references,
                if_named(self.enabled, owner_references, OwnerReferences),
            ),
            ("PersistentVolumeClaimResize", Some(Box::new(Resizes))),
            ("", Some(Box::new(Signers))),
            ("PodTopologyLabels", Some(Box::new(TopologyLabels))),
            ("", Some(Box::new(ParameterAccess))),
            ("MutatingAdmissionPolicy", Some(Box::new(MutatingPolicies::default()))),
            ("MutatingAdmissionWebhook", Some(Box::new(MutatingWebhooks::default()))),
            (
                "ValidatingAdmissionPolicy",
                Some(Box::new(ValidatingPolicies::default())),
            ),
            (
                "ValidatingAdmissionWebhook",
                Some(Box::new(ValidatingWebhooks::default())),
            ),
            // The last plugin: no other plugin refuses a write that was charged.
            ("ResourceQuota", Some(Box::new(ResourceQuotas::default()))),
        ];
        all.into_iter()
            .filter(|(name, _)| !self.disabled.contains(*name))
            .filter_map(|(_, plugin)| plugin)
            .collect()
    }
}
