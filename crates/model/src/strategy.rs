//! How a kind differs from others when it is written: flags and small functions (the counterpart of a
//! `RESTCreateStrategy` and its sisters).

use std::sync::atomic::{AtomicU64, Ordering};

use kubewright_schema::Minor;
use kubewright_schema::error::FieldError;
use serde_json::Value;

use super::fields::{self, FieldRule};
use super::{Allocation, Ending, ReservedIps};
use crate::env::Env;

/// The metadata that a write to `/status` takes from the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StatusMetadata {
    /// Nothing: all of it stays (custom resources).
    Kept,
    /// Everything but these fields, as any write (a change of an immutable field is refused, not put back).
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

/// How often the rules of a kind validate the metadata of an update. Each time reports its errors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MetadataChecks {
    /// Once as that of an update: immutable fields, then labels and the like (`ValidateObjectMetaUpdate`).
    pub update: bool,
    /// So many times as that of a new object, names included (`ValidateObjectMeta`).
    pub create: usize,
}

impl MetadataChecks {
    /// Not at all.
    pub const NONE: MetadataChecks = MetadataChecks::new(false, 0);
    /// As that of an update (most kinds).
    pub const UPDATE: MetadataChecks = MetadataChecks::new(true, 0);
    /// As that of a new object.
    pub const CREATE: MetadataChecks = MetadataChecks::new(false, 1);
    /// As that of a new object, twice (PersistentVolume).
    pub const CREATE_TWICE: MetadataChecks = MetadataChecks::new(false, 2);
    /// As that of an update, and then as that of a new object (kinds whose rules for an update begin with those for a
    /// create).
    pub const UPDATE_AND_CREATE: MetadataChecks = MetadataChecks::new(true, 1);

    const fn new(update: bool, create: usize) -> MetadataChecks {
        MetadataChecks { update, create }
    }
}

/// How a kind with field selectors of its own refuses others (`AddFieldLabelConversionFunc`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnknownField {
    /// By the label alone (most kinds).
    Label,
    /// By the label and the kind (Job).
    LabelOfKind,
    /// By the label, the version and the kind (ResourceSlice).
    LabelOfVersion,
}

/// How long an object of a kind with grace periods may take to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GracePeriod {
    /// No time at all, even when the client grants some: the object does not run.
    AtOnce,
    /// So many seconds, unless the client says otherwise.
    Seconds(i64),
}

/// When `metadata.generation` grows. It is 1 after create for every rule but `Never`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GenerationRule {
    /// The kind does not manage a generation: the client's value is kept (ConfigMap, Secret, Service, …).
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

/// The meaning of an empty list or map (`[]`, `{}`) from a client. Go does not write it when it is empty, so that no
/// stored object has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Empties {
    /// As absent (most kinds: they compare with Go's `equality.Semantic`).
    Absent,
    /// The rules see it (where Go asks for `!= nil`); it changes nothing.
    Seen,
    /// The rules see it, and it is a change of an absent one, each time that it is sent (`reflect.DeepEqual`).
    Changes,
}

/// Which names a kind takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NameRule {
    /// RFC 1123 subdomain (most kinds).
    Subdomain,
    /// The same, where the error about a long text counts bytes (kinds whose rules are declared with their types).
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

/// The arguments of a strategy function besides the object.
///
/// The pipeline drops or keeps `status` of every kind with `/status` (but a new Node's), sets the system fields of the
/// metadata and the generation, and runs `default` before and after `prepare_…`.
pub struct StrategyContext<'a> {
    /// The version of Kubernetes that is served.
    pub minor: Minor,
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
    /// Which of them an IPAddress object reserves.
    pub reserved_ips: &'a dyn ReservedIps,
    /// Where the next search for a free address or port begins.
    pub search_start: &'a AtomicU64,
}

impl StrategyContext<'_> {
    /// Where a search for a free address or port begins: each further on than the one before, so that a value that was
    /// just given back is not handed out again at once.
    pub fn next_search_start(&self) -> u64 {
        self.search_start.fetch_add(1, Ordering::Relaxed)
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
    /// The meaning of empty lists and maps outside metadata and status.
    pub empties: Empties,
    /// Which names are valid.
    pub names: NameRule,
    /// The effect of a write to `/status` on the metadata.
    pub status_metadata: StatusMetadata,
    /// Finalizers may be named without a domain, which others than Kubernetes' own must have in most built-in kinds.
    pub any_finalizer: bool,
    /// How often the rules of the kind validate the metadata of an update, besides the check before every update.
    pub metadata_checks: MetadataChecks,
    /// The same for a write to `/status`.
    pub status_metadata_checks: MetadataChecks,
    /// Fields that a write to a subresource (empty: to the object) does not change, so that it is not entered for them
    /// in `managedFields` (upstream's reset fields). That the status has a subresource of its own need not be said.
    pub reset: &'static [(&'static str, &'static [&'static str])],
    /// Reads go to storage and never to a watch cache, which shows in their answers (Event, whose
    /// `DefaultWatchCacheSizes` are 0).
    pub is_never_cached: bool,
    /// Whether the fields differ between the groups that serve the kind, so that each manager's are looked at in its
    /// own version (Event).
    pub differs_by_group: bool,
    /// The error for a field selector that the kind does not know.
    pub unknown_field: UnknownField,
    /// The sort key of a table's rows; without one they stand in the order of the list.
    pub table_order: Option<fn(&Value) -> Option<i64>>,
    /// Of several that call themselves the default one a list marks that which was made last: when this one was made, if
    /// it calls itself so (StorageClass).
    pub default_since: Option<fn(&Value) -> Option<&str>>,
    /// A successful delete answers with the object instead of a Status (pods, services, …).
    pub delete_returns_object: bool,
    /// Deleting without a policy orphans the dependents (Job, ReplicationController).
    pub orphan_by_default: bool,
    /// A delete that leaves this to the default is warned that it leaves pods behind (Job, whose default is older than
    /// the API's).
    pub warns_of_orphans: bool,
    /// Whether other objects may depend on one of this kind: a delete says how they are handled.
    pub has_dependents: bool,
    /// Whether its objects change how others are served or judged, so that they are read and checked whole with each
    /// write.
    pub rules_others: bool,
    /// A create keeps the status that is sent (Node).
    pub keeps_first_status: bool,
    /// The detail of a validation error that does not count where pods are processes of this machine (endpoints at
    /// addresses of the loopback range).
    pub fits_this_machine: Option<&'static str>,
    /// How an object ends, if it does so in steps.
    pub ending: Option<&'static Ending>,
    /// How long an object may take to end; `None`: the kind is deleted at once.
    pub grace_period: fn(&Value) -> Option<GracePeriod>,
    /// Fills in defaults after decoding, on create and on update (the `SetDefaults_…` functions of the kind).
    pub default: fn(&mut Value),
    /// Fills in the present time where that is the default. The client that wrote the object owns the field, as it owns
    /// other defaults.
    pub default_time: Option<fn(&mut Value, &str)>,
    /// `PrepareForCreate`: drops the fields that a client may not set, fills in those that the server sets.
    pub prepare_create: fn(&mut Value, &StrategyContext<'_>),
    /// `PrepareForUpdate` (new, old).
    pub prepare_update: fn(&mut Value, &Value, &StrategyContext<'_>),
    /// `PrepareForUpdate` of a write to `/status` (new, old); the pipeline has put back the fields that such a write
    /// may not change.
    pub prepare_status: fn(&mut Value, &Value, &StrategyContext<'_>),
    /// Errors in a new object. Metadata is validated by the pipeline.
    pub validate_create: fn(&Value) -> Vec<FieldError>,
    /// Errors in a changed object (new, old): immutability, and all errors that `validate_create` finds.
    pub validate_update: fn(&Value, &Value) -> Vec<FieldError>,
    /// Rules of single fields, reported after the errors of these two.
    pub fields: &'static [FieldRule],
    /// Errors in a change of `/status` (new, old).
    pub validate_status: fn(&Value, &Value) -> Vec<FieldError>,
    /// Texts for `Warning` headers (new, old).
    pub warnings: fn(&Value, Option<&Value>) -> Vec<String>,
    /// Values that are unique among all objects of the store and that the server hands out: a Service's cluster IP and
    /// node ports.
    pub allocate: Option<Allocation>,
}

impl Strategy {
    /// The errors in a new object.
    pub fn errors_of_new(&self, new: &Value) -> Vec<FieldError> {
        let mut errors = (self.validate_create)(new);
        errors.extend(fields::errors(self.fields, new, None));
        errors
    }

    /// The errors in a changed object.
    pub fn errors_of_change(&self, new: &Value, old: &Value) -> Vec<FieldError> {
        let mut errors = (self.validate_update)(new, old);
        errors.extend(fields::errors(self.fields, new, Some(old)));
        errors
    }
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
    metadata_checks: MetadataChecks::UPDATE,
    status_metadata_checks: MetadataChecks::UPDATE,
    reset: &[],
    is_never_cached: false,
    differs_by_group: false,
    unknown_field: UnknownField::Label,
    table_order: None,
    default_since: None,
    delete_returns_object: false,
    orphan_by_default: false,
    warns_of_orphans: false,
    fits_this_machine: None,
    has_dependents: true,
    rules_others: false,
    keeps_first_status: false,
    ending: None,
    grace_period: |_| None,
    default: |_| {},
    default_time: None,
    prepare_create: |_, _| {},
    prepare_update: |_, _, _| {},
    prepare_status: |_, _, _| {},
    validate_create: |_| Vec::new(),
    validate_update: |_, _| Vec::new(),
    fields: &[],
    validate_status: |_, _| Vec::new(),
    warnings: |_, _| Vec::new(),
    allocate: None,
};
