//! The markers of kubewright: thin macros that only record what the attributes say.
//!
//! A macro here turns an attribute into a constant or a method that the declaration of an operator reads. It decides
//! nothing. Not here: the effect of a marker (`kubewright`, `kubewright-codegen`). Use the macros through `kubewright`,
//! which re-exports them.

mod rbac;

use proc_macro::TokenStream;

/// The rights of a reconciler besides those that follow from its controller: kubebuilder's `+kubebuilder:rbac` marker.
///
/// Stands on an `impl Reconciler for …`, as often as needed. A controller may read the kinds that it reconciles, owns
/// and watches, write those that it owns, the status of its kind, and events, without this attribute; it is for the
/// rest.
///
/// | word | meaning |
/// |---|---|
/// | `groups` | API groups; `""` or `core` is the core group. Several are divided by `;`. |
/// | `resources` | plural names, also `deployments/scale`; `;` |
/// | `resourceNames` | only the objects of these names; `;` |
/// | `verbs` | `get;list;watch;create;update;patch;delete` …, or `*`. Required. |
/// | `urls` | paths that are no resources, such as `/metrics`, instead of groups and resources; `;` |
/// | `namespace` | the rule goes into a `Role` in this namespace instead of the `ClusterRole` |
/// | `roleName` | the rule goes into a role of this name instead of `manager-role` |
///
/// Lists may also be written `["get", "list"]`. With a type in front, group and resource are the type's; `subresource`
/// names a part of it:
///
/// ```text
/// #[rbac(groups = "apps", resources = "deployments", verbs = "get;list;watch")]
/// #[rbac(Secret, verbs = "get", resourceNames = "db-password")]
/// #[rbac(Deployment, subresource = "scale", verbs = "patch")]
/// impl Reconciler for GuestbookReconciler { … }
/// ```
#[proc_macro_attribute]
pub fn rbac(arguments: TokenStream, item: TokenStream) -> TokenStream {
    rbac::expand(arguments.into(), item.into()).into()
}
