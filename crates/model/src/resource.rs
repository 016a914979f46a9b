//! One row of the resource table: how a kind is served in one version.
//!
//! A kind contributes data (this row) and small functions (its [`Strategy`]); it never has a handler of its own. The
//! pipeline in `server` reads the row and nothing else, so that built-in kinds and kinds that a
//! CustomResourceDefinition defines go the same way.
//!
//! Invariants: a row never changes after it is in the registry (a CRD write replaces rows); all versions of a kind
//! share `store`, and so do both groups of Event.

use std::borrow::Cow;

use kubewright_schema::SchemaRef;
use kubewright_schema::protobuf::order::Order;
use kubewright_schema::schema::GroupVersionKind;
use serde_json::Value;

use super::{Custom, Strategy, Subresource};
use crate::scheme::join_version;

/// Text that is static for built-in kinds and owned for custom ones.
pub type Text = Cow<'static, str>;

/// How a kind is served in one version (the counterpart of a `rest.Storage` with its strategy and its discovery entry).
#[derive(Clone, Debug)]
pub struct Resource {
    /// API group, empty for the core group.
    pub group: Text,
    /// Version, such as `v1`.
    pub version: Text,
    /// Kind, such as `ConfigMap`.
    pub kind: Text,
    /// Kind of a list, such as `ConfigMapList`.
    pub list_kind: Text,
    /// Plural name in paths, such as `configmaps`.
    pub plural: Text,
    /// Singular name, such as `configmap`.
    pub singular: Text,
    /// Short names, such as `cm`.
    pub short_names: Vec<Text>,
    /// Categories, such as `all`.
    pub categories: Vec<Text>,
    /// Whether objects live in a namespace.
    pub namespaced: bool,
    /// Verbs of the main resource as discovery lists them.
    pub verbs: Verbs,
    /// Where the objects are stored: `configmaps`, `deployments.apps`, `foos.ex.io`; the same for all versions.
    pub store: Text,
    /// Version in which objects are stored; equal to `version` for all built-in kinds.
    pub storage_version: Text,
    /// Subresources in the order of discovery.
    pub subresources: Vec<Subresource>,
    /// The shape of an object.
    pub schema: SchemaRef,
    /// Name of the schema in OpenAPI documents, such as `io.k8s.api.core.v1.ConfigMap`.
    pub schema_name: Text,
    /// Field selectors beyond `metadata.name` and `metadata.namespace`: label and where its value is.
    pub selectable_fields: Vec<SelectableField>,
    /// Columns of `kubectl get`; the first one is the name.
    pub columns: Vec<Column>,
    /// How the kind differs when it is written.
    pub strategy: Strategy,
    /// Present for kinds that a CustomResourceDefinition defines.
    pub custom: Option<Custom>,
    /// How fields move between this version and the stored form; `None` when both have the same fields (`apiVersion`
    /// and `kind` are never stored: the pipeline adds them for the version that is asked for). Only the two groups of
    /// Event need it.
    pub conversion: Option<Conversion>,
    /// Under which name etcd would keep the objects, where that is not the plural (`minions` for nodes).
    pub etcd_name: Option<&'static str>,
    /// The warning of every answer about a deprecated built-in kind (`APILifecycleDeprecated`).
    pub deprecation: Option<&'static str>,
}

/// Moves fields between a served version and the stored form. Neither direction may lose anything.
///
/// The functions of the strategy see the served version; only the stored and the shown form are converted.
#[derive(Clone, Copy, Debug)]
pub struct Conversion {
    /// From the served version to the stored form, before storing.
    pub to_stored: fn(Value) -> Value,
    /// From the stored form to the served version, on every read and watch event.
    pub from_stored: fn(Value) -> Value,
    /// Both without filling anything in, for an object from which something was taken.
    pub unfilled: [fn(Value) -> Value; 2],
}

/// The verbs of a main resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verbs {
    /// `create, delete, deletecollection, get, list, patch, update, watch`.
    All,
    /// All but `deletecollection` (Namespace).
    AllButDeleteCollection,
    /// Only `create`: reviews, which are answered and not stored.
    CreateOnly,
    /// `get` and `list`: the objects are computed at each request (ComponentStatus).
    ReadOnly,
}

/// A field that a field selector may name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SelectableField {
    /// Name in the selector, such as `spec.nodeName`.
    pub label: Text,
    /// JSON pointers to the value; the first that exists counts.
    pub pointers: Vec<Text>,
    /// The value that stands for an absent one: the text of Go's zero, such as `0` of a number.
    pub absent: Text,
}

/// The description of the first column.
pub const NAME_DESCRIPTION: &str = "Name must be unique within a namespace. Is required when creating resources, although some \
    resources may allow a client to request the generation of an appropriate name automatically. Name is primarily intended for creation \
    idempotence and configuration definition. Cannot be updated. More info: \
    https://kubernetes.io/docs/concepts/overview/working-with-objects/names#names";

/// A column of a Table.
#[derive(Clone, Debug)]
pub struct Column {
    /// Header, such as `Ready`.
    pub name: Text,
    /// OpenAPI type of the cells: `string`, `integer`, `number`, `boolean`, `date`.
    pub type_: Text,
    /// OpenAPI format, `name` for the first column.
    pub format: Text,
    /// Help text.
    pub description: Text,
    /// 0 is always shown, more only with `-o wide`.
    pub priority: i32,
    /// The content of the cell.
    pub cell: Cell,
}

/// How a cell is made.
#[derive(Clone, Debug)]
pub enum Cell {
    /// `metadata.name`.
    Name,
    /// Age of `metadata.creationTimestamp`.
    Age,
    /// The value at a JSON path (custom resources' `additionalPrinterColumns`).
    Path(String),
    /// A function of the object (and the present time, for ages).
    With(fn(&Value, jiff::Timestamp) -> Value),
}

impl Resource {
    /// The order in which objects of this kind are written: sorted for custom resources.
    pub fn order(&self) -> Order {
        match self.custom {
            Some(_) => Order::SORTED,
            None => Order::of_kind(&self.api_version(), &self.kind),
        }
    }

    /// `v1` or `apps/v1`.
    pub fn api_version(&self) -> String {
        join_version(&self.group, &self.version)
    }

    /// Group, version and kind.
    pub fn group_version_kind(&self) -> GroupVersionKind {
        GroupVersionKind {
            group: self.group.to_string(),
            version: self.version.to_string(),
            kind: self.kind.to_string(),
        }
    }

    /// `configmaps` or `deployments.apps`, as messages name a resource.
    pub fn group_resource(&self) -> String {
        if self.group.is_empty() {
            self.plural.to_string()
        } else {
            format!("{}.{}", self.plural, self.group)
        }
    }

    /// Where etcd would keep the objects, below the prefix of the cluster: messages about preconditions show it.
    pub fn storage_prefix(&self) -> String {
        let plural = self.etcd_name.unwrap_or(&self.plural);
        let has_own_server = matches!(self.group.as_ref(), "apiextensions.k8s.io" | "apiregistration.k8s.io");
        if has_own_server || self.custom.is_some() {
            format!("{}/{plural}", self.group)
        } else {
            plural.to_owned()
        }
    }

    /// The group of the stored form: that of the kind, but for Event, which both of its groups store as the core
    /// group's.
    pub fn stored_group(&self) -> &str {
        self.store.split_once('.').map_or("", |(_, group)| group)
    }

    /// Whether it is the kind that the objects of others live in: a path to one of its objects is a path into it
    /// (apiserver's `RequestInfo`).
    pub fn is_namespace(&self) -> bool {
        self.group.is_empty() && self.plural == super::NAMESPACES
    }

    /// The subresource of this name.
    pub fn subresource(&self, name: &str) -> Option<&Subresource> {
        self.subresources.iter().find(|subresource| subresource.name() == name)
    }

    /// Whether the kind has a `/status` subresource.
    pub fn has_status(&self) -> bool {
        self.subresources.contains(&Subresource::Status)
    }
}
