//! One row of the resource table: how a kind is served in one version.
//!
//! A kind contributes data (this row) and small functions (its [`Strategy`]); it never has a handler of its own. The pipeline in
//! `server` reads the row and nothing else, so that built-in kinds and kinds that a CustomResourceDefinition defines go the same way.
//!
//! Invariants: a row never changes after it is in the registry (a CRD write replaces rows); all versions of a kind share `store`,
//! and so do both groups of Event.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use kubewright_schema::SchemaRef;
use kubewright_schema::error::FieldError;
use kubewright_schema::protobuf::order::Order;
use kubewright_schema::rules::Validator;
use kubewright_schema::schema::GroupVersionKind;
use kubewright_schema::{budget, decode};
use serde_json::Value;

use crate::env::Env;
use crate::outbound::client::Client;
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
    /// How fields move between this version and the stored form; `None` when both have the same fields (`apiVersion` and `kind`
    /// are never stored: the pipeline adds them for the version that is asked for). Only the two groups of Event need it.
    pub conversion: Option<Conversion>,
}

/// Moves fields between a served version and the stored form. Neither direction may lose anything.
///
/// The functions of the strategy see the served version; only what is stored and shown is converted.
#[derive(Clone, Copy, Debug)]
pub struct Conversion {
    /// From the served version to the stored form, before storing.
    pub to_stored: fn(Value) -> Value,
    /// From the stored form to the served version, on every read and watch event.
    pub from_stored: fn(Value) -> Value,
    /// Both without filling anything in, for an object from which something was taken.
    pub unfilled: [fn(Value) -> Value; 2],
}

/// What only kinds from a CustomResourceDefinition have.
#[derive(Clone, Debug)]
pub struct Custom {
    /// Name of the definition, such as `foos.ex.io`.
    pub crd_name: String,
    /// Whether unknown fields are kept at the root (`spec.preserveUnknownFields`, never for v1 unless the schema says so).
    pub preserve_unknown: bool,
    /// A warning to send with every answer when the version is deprecated.
    pub deprecation_warning: Option<String>,
    /// Where the schema is written.
    pub(crate) source: Source,
    /// Changes whenever documents about the kind do.
    pub(crate) fingerprint: String,
    /// The version of the definition: an object that was written before may lack what the schema fills in by now.
    pub revision: u64,
    /// Whether the schema has defaults.
    pub has_defaults: bool,
    /// Present when the definition has several versions, served or not.
    pub several: Option<Several>,
    /// The rules of the schema, compiled on first use.
    pub(crate) compiled_rules: Arc<OnceLock<Option<Validator>>>,
}

impl Custom {
    /// The compiled `x-kubernetes-validations` of this version, whose schema is given; none when it has none.
    pub fn rules(&self, schema: &SchemaRef) -> Option<&Validator> {
        self.compiled_rules.get_or_init(|| Validator::new(schema)).as_ref()
    }
}

/// Where the schema of a version of a custom kind is written: the text of its definition, which storage keeps anyway.
#[derive(Clone)]
pub(crate) struct Source {
    pub(crate) text: Bytes,
    /// Which of `spec.versions` it is.
    pub(crate) version: usize,
}

impl Source {
    /// The `openAPIV3Schema` as a value; null when there is none.
    pub(crate) fn document(&self) -> Value {
        // What is stored is the server's to read, and reading it may not be given up halfway.
        let decoded = budget::unlimited(|| decode::json(&self.text));
        let mut definition = decoded.map(|decoded| decoded.value).unwrap_or_default();
        let path = format!("/spec/versions/{}/schema/openAPIV3Schema", self.version);
        definition.pointer_mut(&path).map(Value::take).unwrap_or_default()
    }
}

impl std::fmt::Debug for Source {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "version {} of a definition of {} bytes",
            self.version,
            self.text.len()
        )
    }
}

/// The versions of a custom kind that has several.
#[derive(Clone, Debug)]
pub struct Several {
    /// The version of stored objects that do not say theirs: they are from the time when there was one version only.
    pub first: String,
    /// Who converts; `None` when all versions have the same fields (strategy `None`).
    pub webhook: Option<std::sync::Arc<ConversionWebhook>>,
    /// The schemas of all versions by their names: an object that is read gets the defaults of the version that it was written in.
    pub schemas: std::sync::Arc<std::collections::BTreeMap<String, SchemaRef>>,
}

/// `spec.conversion.webhook` of a definition.
#[derive(Debug)]
pub struct ConversionWebhook {
    /// Where it is; the error is why that cannot be told.
    pub(crate) client: Result<Client, String>,
    /// `conversionReviewVersions`.
    pub(crate) review_versions: Vec<String>,
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
    /// `get` and `list`: what is computed when it is asked for (ComponentStatus).
    ReadOnly,
}

/// What a write to `/status` takes of the metadata that a client sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StatusMetadata {
    /// Nothing: all of it stays (custom resources).
    Kept,
    /// Everything but these fields, as any write (what may not change is refused, not put back).
    WrittenBut(&'static [&'static str]),
}

impl StatusMetadata {
    /// Everything.
    pub const WRITTEN: StatusMetadata = StatusMetadata::WrittenBut(&[]);
    /// All but the identity (`ResetObjectMetaForStatus`).
    pub const RESET: StatusMetadata = StatusMetadata::WrittenBut(&[
        "deletionTimestamp",
        "generation",
        "selfLink",
        "labels",
        "annotations",
        "finalizers",
        "ownerReferences",
    ]);
}

/// How often a kind looks at the metadata of an update: each look tells its errors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Looks {
    /// As at that of an update: what may not change, then labels and the like (`ValidateObjectMetaUpdate`).
    pub changed: bool,
    /// How many times as at that of a new object, names included (`ValidateObjectMeta`).
    pub whole: usize,
}

impl Looks {
    /// Not at all.
    pub const NONE: Looks = Looks::new(false, 0);
    /// As at that of an update (most kinds).
    pub const CHANGED: Looks = Looks::new(true, 0);
    /// As at that of a new object.
    pub const WHOLE: Looks = Looks::new(false, 1);
    /// As at that of a new object, and once more (PersistentVolume).
    pub const WHOLE_TWICE: Looks = Looks::new(false, 2);
    /// As at that of an update, and then as at that of a new object (kinds whose rules for an update begin with those for a create).
    pub const CHANGED_AND_WHOLE: Looks = Looks::new(true, 1);

    const fn new(changed: bool, whole: usize) -> Looks {
        Looks { changed, whole }
    }
}

/// A subresource of a kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Subresource {
    /// `/status`: only `status` is written (and what [`Strategy::status_metadata`] says).
    Status,
    /// `/scale`, an `autoscaling/v1` Scale made from these paths.
    Scale(ScalePaths),
    /// `/finalize` of a namespace (PUT).
    Finalize,
    /// `/binding` of a pod (POST).
    Binding,
    /// `/eviction` of a pod (POST).
    Eviction,
    /// `/ephemeralcontainers` of a pod: only containers for debugging are written.
    EphemeralContainers,
    /// `/resize` of a pod: only the resources of containers are written.
    Resize,
    /// `/approval` of a CertificateSigningRequest: only its conditions are written.
    Approval,
    /// `/token` of a ServiceAccount (POST): a TokenRequest, answered with a signed token.
    Token,
    /// A subresource that is listed by discovery but answered with 501 and words, such as `log` or `exec`.
    Refused {
        /// The last path segment.
        name: &'static str,
        /// Kind in the discovery entry.
        kind: &'static str,
        /// Verbs in the discovery entry.
        verbs: &'static [&'static str],
        /// What to do instead, in words.
        instead: &'static str,
    },
}

/// Where the scale subresource finds its numbers (dotted paths with a leading dot, such as `.spec.replicas`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScalePaths {
    /// Wanted replicas.
    pub spec_replicas: Text,
    /// Replicas that exist.
    pub status_replicas: Text,
    /// The selector: a `LabelSelector` object or a string.
    pub selector: Option<Text>,
}

/// How long an object of a kind with grace periods may take to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GracePeriod {
    /// No time at all, whatever the client grants: nobody runs it.
    AtOnce,
    /// So many seconds, unless the client says otherwise.
    Seconds(i64),
}

/// A field that a field selector may name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SelectableField {
    /// Name in the selector, such as `spec.nodeName`.
    pub label: Text,
    /// JSON pointers to the value; the first that exists counts.
    pub pointers: Vec<Text>,
    /// What counts as the value of an object that has none: the text of Go's zero, such as `0` of a number.
    pub absent: Text,
}

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
    /// What stands in the cell.
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

/// When `metadata.generation` grows. It is 1 after create for every rule but `Never`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GenerationRule {
    /// The kind does not manage a generation: what the client sends is kept (ConfigMap, Secret, Service, …).
    Never,
    /// `spec` changed.
    Spec,
    /// `spec` or annotations changed (Deployment).
    SpecOrAnnotations,
    /// Anything outside `metadata` and `status` changed (custom resources with a status subresource, webhooks, …).
    AllButMetadataAndStatus,
    /// Anything outside `metadata` changed, or the labels (EndpointSlice).
    AllButMetadataOrLabels,
    /// Anything outside `metadata` changed (custom resources without a status subresource).
    AllButMetadata,
}

/// What a list or map counts that somebody sends empty (`[]`, `{}`) and that nobody writes when it is empty, so that no stored object
/// has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Empties {
    /// As absent (most kinds: they compare with Go's `equality.Semantic`).
    Absent,
    /// The rules see it (where Go asks for `!= nil`); it changes nothing.
    Seen,
    /// The rules see it, and it is a change of what is absent, each time that it is sent (`reflect.DeepEqual`).
    Changes,
}

/// Which names a kind takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NameRule {
    /// RFC 1123 subdomain (most kinds).
    Subdomain,
    /// The same, where what is too long is told in bytes (kinds whose rules are declared with their types).
    SubdomainInBytes,
    /// RFC 1123 label (Namespace).
    Label,
    /// RFC 1035 label (Service).
    Label1035,
    /// Anything that is a path segment (RBAC).
    PathSegment,
    /// No rule of its own, as long as it is given: anything that is a path segment.
    Given,
    /// No rule of its own (Event of the core group): anything that is a path segment.
    Any,
}

/// What a strategy function gets besides the object.
///
/// The pipeline drops or keeps `status` of every kind with `/status` (but a new Node's), sets the system fields of the metadata and the
/// generation, and runs `default` before and after `prepare_…`.
pub struct StrategyContext<'a> {
    /// Time and entropy.
    pub env: &'a dyn Env,
    /// The user who writes.
    pub user: &'a super::user::UserInfo,
    /// Whether nothing will be persisted.
    pub dry_run: bool,
    /// Whether an object that is created came without labels; it may have got some by default.
    pub unlabelled: bool,
    /// The addresses that Services get.
    pub service_range: super::ServiceRange,
    /// Which of them are written down as somebody's.
    pub held_ips: &'a dyn HeldIps,
    /// Where the next search for a free address or port begins.
    pub turns: &'a AtomicU64,
}

/// Cluster IPs that are written down as somebody's, whatever Services say: each is the name of an IPAddress.
pub trait HeldIps {
    /// Whether this one is.
    fn is_held(&self, ip: IpAddr) -> bool;
}

/// Nobody holds any.
impl HeldIps for () {
    fn is_held(&self, _: IpAddr) -> bool {
        false
    }
}

impl StrategyContext<'_> {
    /// Where a search for a free address or port begins: each further on than the one before, so that what was just given back is not
    /// somebody else's at once.
    pub fn turn(&self) -> u64 {
        self.turns.fetch_add(1, Ordering::Relaxed)
    }
}

/// How a kind differs from others when it is written: flags and small functions.
#[derive(Clone, Copy)]
pub struct Strategy {
    /// PUT creates when there is nothing (leases, services, endpoints, roles, events, limit ranges).
    pub create_on_update: bool,
    /// PUT without a resourceVersion is allowed (all built-in kinds; not custom resources).
    pub unconditional_update: bool,
    /// When the generation grows.
    pub generation: GenerationRule,
    /// What lists and maps count that are sent empty, outside metadata and status.
    pub empties: Empties,
    /// Which names are valid.
    pub names: NameRule,
    /// What a write to `/status` does to the metadata.
    pub status_metadata: StatusMetadata,
    /// Finalizers may be named without a domain, which others than Kubernetes' own must have in most built-in kinds.
    pub any_finalizer: bool,
    /// How often the rules of the kind look at the metadata of an update, besides the look that is taken before every update.
    pub looks: Looks,
    /// The same for a write to `/status`.
    pub status_looks: Looks,
    /// Fields that a write to a subresource (empty: to the object) does not change, so that it is not entered for them in `managedFields`
    /// (upstream's reset fields). That the status has a subresource of its own need not be said.
    pub reset: &'static [(&'static str, &'static [&'static str])],
    /// What the rows of a table stand in the order of; none is that of the list.
    pub table_order: Option<fn(&Value) -> Option<i64>>,
    /// A successful delete answers with the object instead of a Status (pods, services, …).
    pub delete_returns_object: bool,
    /// Deleting without a policy orphans the dependents (Job, ReplicationController).
    pub orphan_by_default: bool,
    /// How long an object may take to end; `None`: the kind is deleted at once.
    pub grace_period: fn(&Value) -> Option<GracePeriod>,
    /// Fills in defaults after decoding, on create and on update (the `SetDefaults_…` functions of the kind).
    pub default: fn(&mut Value),
    /// `PrepareForCreate`: drops what a client may not set, fills in what the server sets.
    pub prepare_create: fn(&mut Value, &StrategyContext<'_>),
    /// `PrepareForUpdate` (new, old).
    pub prepare_update: fn(&mut Value, &Value, &StrategyContext<'_>),
    /// `PrepareForUpdate` of a write to `/status` (new, old); the pipeline has put back what such a write may not change.
    pub prepare_status: fn(&mut Value, &Value, &StrategyContext<'_>),
    /// Errors in a new object. Metadata is validated by the pipeline.
    pub validate_create: fn(&Value) -> Vec<FieldError>,
    /// Errors in a changed object (new, old): immutability, and whatever `validate_create` finds.
    pub validate_update: fn(&Value, &Value) -> Vec<FieldError>,
    /// Errors in a change of `/status` (new, old).
    pub validate_status: fn(&Value, &Value) -> Vec<FieldError>,
    /// Texts for `Warning` headers (new, old).
    pub warnings: fn(&Value, Option<&Value>) -> Vec<String>,
    /// Values that are unique among all objects of the store and that the server hands out: a Service's cluster IP and
    /// node ports.
    pub allocate: Option<Allocation>,
}

/// How what is unique in a store is handed out.
#[derive(Clone, Copy)]
pub struct Allocation {
    /// What a stored object holds.
    pub held: fn(&Value) -> Vec<Holding>,
    /// Gives an object what it needs: called after `prepare_…` and before validation, with the object, the one it
    /// replaces, and what is taken. An error refuses the write.
    pub give: Allocate,
}

/// See [`Allocation::give`].
pub type Allocate = fn(
    object: &mut Value,
    old: Option<&Value>,
    taken: &Taken,
    context: &StrategyContext<'_>,
) -> Result<(), Unallocated>;

/// Something that only one object of a store may hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Holding {
    /// A cluster IP.
    Ip(IpAddr),
    /// A port of all nodes.
    Port(i64),
}

/// What is held, and by how many: by an object as it is stored, and perhaps once more by a write of it that is under
/// way.
#[derive(Debug, Default)]
pub struct Taken {
    counts: BTreeMap<Holding, usize>,
}

impl Taken {
    /// Whether somebody holds it.
    pub fn has(&self, holding: Holding) -> bool {
        self.counts.contains_key(&holding)
    }

    /// Somebody holds these from now on.
    pub fn add(&mut self, holdings: &[Holding]) {
        for holding in holdings {
            *self.counts.entry(*holding).or_default() += 1;
        }
    }

    /// One who held these does not any more.
    pub fn remove(&mut self, holdings: &[Holding]) {
        for holding in holdings {
            if let Some(count) = self.counts.get_mut(holding) {
                *count -= 1;
                if *count == 0 {
                    self.counts.remove(holding);
                }
            }
        }
    }
}

/// Why an object does not get what is unique in its store.
#[derive(Clone, Debug, PartialEq)]
pub enum Unallocated {
    /// The object asks for what it cannot have: 422.
    Invalid(Vec<FieldError>),
    /// There is nothing left, or what is asked for is another's: 500 with the reason `InternalError`.
    Failed(String),
    /// What upstream tells without a reason: 500.
    Untyped(String),
}

impl std::fmt::Debug for Strategy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Strategy")
            .field("generation", &self.generation)
            .field("names", &self.names)
            .finish_non_exhaustive()
    }
}

/// The strategy of a kind that only stores: no defaults, no rules of its own.
pub const PLAIN: Strategy = Strategy {
    create_on_update: false,
    unconditional_update: true,
    generation: GenerationRule::Never,
    empties: Empties::Absent,
    names: NameRule::Subdomain,
    status_metadata: StatusMetadata::Kept,
    any_finalizer: false,
    looks: Looks::CHANGED,
    status_looks: Looks::CHANGED,
    reset: &[],
    table_order: None,
    delete_returns_object: false,
    orphan_by_default: false,
    grace_period: |_| None,
    default: |_| {},
    prepare_create: |_, _| {},
    prepare_update: |_, _, _| {},
    prepare_status: |_, _, _| {},
    validate_create: |_| Vec::new(),
    validate_update: |_, _| Vec::new(),
    validate_status: |_, _| Vec::new(),
    warnings: |_, _| Vec::new(),
    allocate: None,
};

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
        let plural = match (self.stored_group(), self.plural.as_ref()) {
            ("", "services") => "services/specs",
            ("", "endpoints") => "services/endpoints",
            ("", "nodes") => "minions",
            ("", "replicationcontrollers") => "controllers",
            ("networking.k8s.io", "ingresses") => "ingress",
            (_, plural) => plural,
        };
        let has_own_server = matches!(self.group.as_ref(), "apiextensions.k8s.io" | "apiregistration.k8s.io");
        if has_own_server || self.custom.is_some() {
            format!("{}/{plural}", self.group)
        } else {
            plural.to_owned()
        }
    }

    /// The group of the stored form: that of the kind, but for Event, which both of its groups store as the core group's.
    pub fn stored_group(&self) -> &str {
        self.store.split_once('.').map_or("", |(_, group)| group)
    }

    /// What every answer about a deprecated built-in kind warns of.
    pub fn deprecation(&self) -> Option<&'static str> {
        match (self.group.as_ref(), self.kind.as_ref()) {
            ("", "Endpoints") => Some("v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice"),
            ("", "ComponentStatus") => Some("v1 ComponentStatus is deprecated in v1.19+"),
            _ => None,
        }
    }

    /// Whether the kind has a `/status` subresource.
    pub fn has_status(&self) -> bool {
        self.subresources.contains(&Subresource::Status)
    }
}
