//! PATCH with `application/apply-patch+yaml`: server-side apply. It creates a missing object, and runs inside the
//! compare-and-swap loop like every write, so that conflicts are judged by the object as it is stored.

use std::borrow::Cow;

use http::HeaderMap;
use kubewright_schema::apply::{self, ApplyError, Conflict, Live, ManagedFields, Manager, Operation, Views};
use kubewright_schema::decode::{self as schema_decode};
use kubewright_schema::error::Reason;
use kubewright_schema::go::TypeMismatch;
use kubewright_schema::path::FieldPath;
use kubewright_schema::schema::SchemaRef;
use kubewright_schema::structural;
use serde_json::{Map, Value, json};

use super::convert::{convert_by_function, has_functions, has_other_schemas, in_version};
use super::last_applied;
use super::managed::{self, Tracking};
use super::options::{FieldValidation, WriteOptions};
use super::respond::Reply;
use super::write::{Part, Present, Writer, reached};
use super::{Call, decode, negotiate};
use crate::model::object;
use crate::model::status::{Cause, Details, Status};
use crate::model::{Custom, Minor, Resource, StatusMetadata};

/// The error of a custom kind that is to be converted to a Scale.
pub(crate) const CANNOT_CONVERT: &str = "request to convert CR to an invalid group/version: ";

/// Whether a patch is an apply.
pub(crate) fn is_apply(headers: &HeaderMap) -> bool {
    negotiate::content_type(headers) == "application/apply-patch+yaml"
}

/// A configuration, read but not yet applied.
pub(crate) struct Configuration {
    pub(crate) value: Value,
    duplicates: Vec<String>,
    /// What errors call it.
    what: &'static str,
}

/// How an apply looks in the other versions of its kind.
enum OtherVersions {
    /// It is not known yet: the result of the apply shows it.
    Unknown,
    /// The same as in its own.
    Same,
    /// As these say, for the live object of this resourceVersion.
    Converted(String, Views),
}

impl OtherVersions {
    fn views(&self) -> &Views {
        static NONE: Views = Views::new();
        match self {
            OtherVersions::Unknown | OtherVersions::Same => &NONE,
            OtherVersions::Converted(_, views) => views,
        }
    }

    /// Whether it was made of another state of the live object.
    fn is_stale(&self, live: &Value) -> bool {
        matches!(self, OtherVersions::Converted(version, _) if version != object::text(live, "resourceVersion"))
    }
}

/// An apply of this configuration.
struct Apply<'a> {
    configuration: &'a Configuration,
    context: ApplyContext<'a>,
}

/// What an apply needs to know besides the configuration and the live object.
#[derive(Clone, Copy)]
struct ApplyContext<'a> {
    resource: &'a Resource,
    options: &'a WriteOptions,
    part: Part,
    now: &'a str,
    /// Shows an object in another version, for kinds whose versions are converted by functions.
    convert: Option<apply::Convert<'a>>,
}

impl<'a> ApplyContext<'a> {
    fn with<'c>(self, configuration: &'c Configuration) -> Apply<'c>
    where
        'a: 'c,
    {
        Apply {
            configuration,
            context: self,
        }
    }
}

/// Takes out the nulls of fields that have a default and do not allow null.
fn drop_defaulted(value: &mut Value, schema: &SchemaRef) {
    match value {
        Value::Object(map) => {
            map.retain(|field, value| {
                let known = schema.properties.get(field);
                !(value.is_null() && known.is_some_and(|known| known.default.is_some() && !known.nullable))
            });
            for (field, value) in map.iter_mut() {
                let below = schema.properties.get(field).or(schema.additional_properties.as_ref());
                if let Some(below) = below {
                    drop_defaulted(value, below);
                }
            }
        }
        Value::Array(list) => {
            if let Some(items) = &schema.items {
                list.iter_mut().for_each(|item| drop_defaulted(item, items));
            }
        }
        _ => {}
    }
}

impl Configuration {
    /// Reads a body: YAML, of which JSON is a part.
    pub(crate) fn read(body: &[u8], minor: Minor) -> Result<Configuration, Status> {
        let what = if minor >= Minor::V37 { "patch" } else { "YAML" };
        // YAML has escapes of its own.
        let escaped = body.contains(&b'\\') && body.windows(2).any(|pair| pair == b"\\u");
        let decoded = match schema_decode::json(body) {
            Ok(decoded) if decoded.duplicates.is_empty() && !escaped => decoded,
            _ => schema_decode::yaml(body).map_err(|error| {
                // What may be JSON is not converted for the audit log, where anything else fails.
                let is_converted = minor >= Minor::V37 && !body.trim_ascii_start().starts_with(b"{");
                Status::bad_request(match is_converted {
                    true => format!("error encoding patch: {error}"),
                    false => format!("error decoding {what}: error converting YAML to JSON: {error}"),
                })
            })?,
        };
        if !matches!(decoded.value, Value::Object(_) | Value::Null) {
            let why = TypeMismatch::new(&decoded.value, "map[string]interface {}");
            return Err(Status::bad_request(format!(
                "error decoding {what}: error unmarshaling JSON: while decoding JSON: {why}"
            )));
        }
        let value = if decoded.value.is_null() {
            json!({})
        } else {
            decoded.value
        };
        Ok(Configuration {
            value,
            duplicates: decoded.duplicates,
            what,
        })
    }

    /// Takes the object out, except for a copy of the fields by which messages name it.
    fn take(&mut self) -> Value {
        let of = |value: &Value, keys: [&str; 2]| -> Map<String, Value> {
            let present = keys
                .into_iter()
                .filter_map(|key| Some((key.to_owned(), value.get(key)?.clone())));
            present.collect()
        };
        let mut head = of(&self.value, ["apiVersion", "kind"]);
        if let Some(metadata) = self.value.get("metadata") {
            head.insert(
                "metadata".to_owned(),
                Value::Object(of(metadata, ["name", "namespace"])),
            );
        }
        std::mem::replace(&mut self.value, Value::Object(head))
    }

    fn text(&self, key: &str) -> &str {
        self.value.get(key).and_then(Value::as_str).unwrap_or("")
    }

    /// `apps/v1, Kind=Deployment`, as Go prints it.
    fn group_version_kind(&self) -> String {
        let version = self.text("apiVersion");
        match version.matches('/').count() {
            0 => format!("/{version}, Kind={}", self.text("kind")),
            1 => format!("{version}, Kind={}", self.text("kind")),
            // An apiVersion with several slashes is no version, so the text has no kind either.
            _ => "/, Kind=".to_owned(),
        }
    }

    /// The configuration must be of this kind and must not have `managedFields`.
    pub(crate) fn check(&self, version: &str, kind: &str) -> Result<(), Status> {
        if self.text("apiVersion") != version || self.text("kind") != kind {
            let message = format!("invalid object type: {}", self.group_version_kind());
            return Err(Status::bad_request(message));
        }
        if managed::entries(&self.value).is_some_and(|entries| !entries.is_null()) {
            return Err(Status::bad_request("metadata.managedFields must be nil"));
        }
        Ok(())
    }

    /// The duplicate fields, as strict validation reports them.
    fn check_duplicates(&self, how: FieldValidation, warnings: &mut Vec<String>) -> Result<(), Status> {
        match how {
            FieldValidation::Strict if !self.duplicates.is_empty() => Err(Status::bad_request(format!(
                "error strict decoding {}: error converting YAML to JSON: yaml: unmarshal errors:\n  {}",
                self.what,
                self.duplicates.join("\n  ")
            ))),
            FieldValidation::Warn => {
                warnings.extend(self.duplicates.iter().cloned());
                Ok(())
            }
            FieldValidation::Ignore | FieldValidation::Strict => Ok(()),
        }
    }

    /// The answer to a configuration whose values do not fit the Go type.
    fn unfit(&self, why: &str) -> Status {
        let kind = self.group_version_kind();
        Status::untyped(format!(
            "failed to convert new object ({}/{}; {kind}) to proper version: unable to convert unstructured object to {kind}: {why}",
            object::namespace(&self.value),
            object::name(&self.value),
        ))
    }

    /// The answer to a configuration that was not applied.
    pub(crate) fn refused(&self, error: ApplyError, live: &Value) -> Status {
        match error {
            ApplyError::Unconverted(why) => Status::untyped(why),
            ApplyError::Live(why) => Status::untyped(format!(
                "failed to create typed live object ({}/{}; {}): {why}",
                object::namespace(live),
                object::name(live),
                self.group_version_kind()
            )),
            ApplyError::Invalid(why) => Status::untyped(format!(
                "failed to create typed patch object ({}/{}; {}): {why}",
                object::namespace(&self.value),
                object::name(&self.value),
                self.group_version_kind()
            )),
            ApplyError::Conflicts(conflicts) => conflicted(&conflicts),
        }
    }
}

fn conflicted(conflicts: &[Conflict]) -> Status {
    let causes = conflicts.iter().map(|conflict| Cause {
        reason: "FieldManagerConflict".into(),
        message: format!("conflict with {}", conflict.manager),
        field: conflict.field.clone(),
    });
    let details = Details {
        causes: causes.collect(),
        ..Details::default()
    };
    Status::failure(409, "Conflict", apply::conflict_message(conflicts)).with_details(details)
}

fn has_null(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Array(list) => list.iter().any(has_null),
        Value::Object(map) => map.values().any(has_null),
        _ => false,
    }
}

impl Apply<'_> {
    /// Whether the configuration has fields that this part may not write.
    fn exceeds(&self) -> bool {
        let given = &self.configuration.value;
        self.context.part == Part::Status || (self.context.resource.has_status() && given.get("status").is_some())
    }

    /// The configuration without fields that this part does not write.
    fn restricted(&self) -> Cow<'_, Value> {
        let given = &self.configuration.value;
        if !self.exceeds() {
            return Cow::Borrowed(given);
        }
        let mut config = given.clone();
        let Some(map) = config.as_object_mut() else {
            return Cow::Owned(config);
        };
        match self.context.part {
            Part::Status => {
                map.retain(|key, _| ["apiVersion", "kind", "metadata", "status"].contains(&key.as_str()));
                let metadata = self.context.resource.strategy.status_metadata;
                object::metadata_mut(&mut config).retain(|key, _| match metadata {
                    _ if ["name", "namespace", "uid", "resourceVersion"].contains(&key.as_str()) => true,
                    StatusMetadata::Kept => false,
                    StatusMetadata::WrittenBut(kept) => !kept.contains(&key.as_str()),
                });
            }
            Part::Of(portion) if portion.writes_status => {}
            _ => {
                map.remove("status");
            }
        }
        Cow::Owned(config)
    }

    /// A custom resource in which giving fields up left a struct without any: defaulting, which drops such a null from
    /// other writes, is not asked here.
    fn refuse_nulls(&self, new: &Value) -> Result<(), Status> {
        if self.context.resource.custom.is_none() || !has_null(new) {
            return Ok(());
        }
        // A null where there is a default is the default.
        let mut filled = new.clone();
        drop_defaulted(&mut filled, &self.context.resource.schema);
        let mut errors = structural::validate(&filled, &self.context.resource.schema, &FieldPath::root());
        errors.retain(|error| error.reason == Reason::TypeInvalid && error.bad_value == Some(json!("null")));
        if errors.is_empty() {
            return Ok(());
        }
        let has_rules = |custom: &Custom| custom.rules(&self.context.resource.schema).is_some();
        if self.context.resource.custom.as_ref().is_some_and(has_rules) {
            errors.push(super::custom::unchecked());
        }
        let (group, kind) = (&self.context.resource.group, &self.context.resource.kind);
        Err(Status::invalid(group, kind, object::name(new), &errors))
    }

    /// The object that comes of the live one (null: there is none), with its entries. The live one stays as it was.
    fn run(&self, live: &mut Value, seen: &OtherVersions, warnings: &mut Vec<String>) -> Result<Value, Status> {
        let entries = managed::take(live);
        let applied = self.applied(live, self.restricted(), entries.as_ref(), seen, warnings);
        managed::put_if_any(live, entries);
        applied
    }

    /// The same with the entries of the live object beside it: they are often the larger part of it.
    fn applied(
        &self,
        bare: &Value,
        mut config: Cow<'_, Value>,
        entries: Option<&Value>,
        seen: &OtherVersions,
        warnings: &mut Vec<String>,
    ) -> Result<Value, Status> {
        let version = self.context.resource.api_version();
        self.configuration.check(&version, &self.context.resource.kind)?;
        let mut managed = managed::decode_entries(entries);
        let manager = Manager::new(
            &self.context.options.field_manager,
            Operation::Apply,
            &version,
            self.context.part.subresource(),
        );
        let kind = managed::type_written(self.context.resource, self.context.part.subresource());
        let is_untracked = managed.entries.is_empty();
        if is_untracked && let Some(why) = apply::untyped(&kind, bare) {
            return Err(Status::untyped(format!(
                "failed to create manager for existing fields: failed to convert new object ({}/{}; {}) to smd typed: {why}",
                object::namespace(bare),
                object::name(bare),
                self.configuration.group_version_kind()
            )));
        }
        let attempt = |managed: &mut ManagedFields, config: Cow<'_, Value>, force: bool| {
            if managed.entries.is_empty() && !bare.is_null() {
                let reached = reached(self.context.resource, bare, self.context.part);
                apply::enter_untracked(&kind, &reached, managed, &manager, &version, self.context.now);
            }
            apply::apply_seen(
                &kind,
                // One without entries was checked above.
                Live {
                    object: bare,
                    is_typed: is_untracked,
                },
                config,
                managed,
                &manager,
                &version,
                force,
                self.context.now,
                seen.views(),
                self.context.convert,
            )
        };
        if self.exceeds() {
            // Fields of the configuration that are not written must fit the kind's type, too.
            apply::fits(&kind, &self.configuration.value).map_err(|error| self.configuration.refused(error, bare))?;
        }
        let by_force = self.context.options.force || matches!(seen, OtherVersions::Unknown);
        // What is created has no other owners, so there is only one attempt.
        let given = match bare {
            Value::Null => std::mem::take(&mut config),
            _ => Cow::Borrowed(&*config),
        };
        let mut applied = attempt(&mut managed, given, by_force);
        if let Err(ApplyError::Conflicts(conflicts)) = &mut applied
            && let Some(own) = last_applied::fields(&manager, &kind, bare)
        {
            conflicts.retain(|conflict| !own.contains(&conflict.field));
            if conflicts.is_empty() {
                managed = managed::decode_entries(entries);
                applied = attempt(&mut managed, Cow::Borrowed(&*config), true);
            }
        }
        let mut new = match applied.map_err(|error| self.configuration.refused(error, bare))? {
            Some(mut new) => {
                if self.context.resource.custom.is_none() {
                    structural::convert_check(&new, &self.context.resource.schema)
                        .map_err(|why| self.configuration.unfit(&why))?;
                    structural::convert(&mut new, &self.context.resource.schema);
                }
                decode::fit_changed(&mut new, bare, self.context.resource, Vec::new()).map_err(Status::untyped)?;
                self.refuse_nulls(&new)?;
                new
            }
            None => {
                // Fields that are not written count as a change all the same: they are dropped after this step upstream.
                if self.exceeds()
                    && apply::would_change(&kind, bare, &self.configuration.value)
                    && let Some(owned) = managed.entries.get_mut(&manager)
                {
                    owned.time = Some(self.context.now.to_owned());
                }
                bare.clone()
            }
        };
        last_applied::renew(&manager, &self.configuration.value, &mut new);
        managed::set(&mut new, managed);
        let how = self.context.options.field_validation;
        self.configuration.check_duplicates(how, warnings)?;
        Ok(new)
    }
}

impl ApplyContext<'_> {
    /// The object that the configuration alone makes. Its values move into the object unless they are needed
    /// afterwards.
    fn created(self, configuration: &mut Configuration, warnings: &mut Vec<String>) -> Result<Value, Status> {
        let is_needed = self.with(configuration).exceeds() || last_applied::is_kept_by(&self.options.field_manager);
        if is_needed {
            return self
                .with(configuration)
                .run(&mut Value::Null, &OtherVersions::Same, warnings);
        }
        configuration.check(&self.resource.api_version(), &self.resource.kind)?;
        let config = Cow::Owned(configuration.take());
        self.with(configuration)
            .applied(&Value::Null, config, None, &OtherVersions::Same, warnings)
    }
}

impl Call<'_> {
    /// Applies a configuration to an object or to its status.
    pub(crate) async fn apply_part(&mut self, part: Part) -> Result<Reply, Status> {
        let options = WriteOptions::parse_apply(self.query)?;
        let configuration = Configuration::read(self.body, self.server.config.minor)?;
        self.enter_patch(&configuration.value);
        let resource = self.resource.clone();
        let rows = self.server.registry.snapshot();
        let by_function =
            |object: &Value, from: &str, to: &str| convert_by_function(&rows, &resource, object, from, to);
        let by_schema = |object: &Value, _: &str, to: &str| in_version(&resource, object, to);
        let convert: Option<apply::Convert<'_>> = if has_functions(&rows, &resource) {
            Some(&by_function)
        } else if has_other_schemas(&resource) {
            Some(&by_schema)
        } else {
            None
        };
        let now = crate::env::rfc3339(self.server.env.now());
        let context = ApplyContext {
            resource: &resource,
            options: &options,
            part,
            now: &now,
            convert,
        };
        let mut writer = Writer {
            tracking: Tracking::Given,
            may_only_update: true,
            options: options.to_value(),
            ..self.writer(options.dry_run)
        };
        // It may be large, and is done with once it is applied: it is read again only if another write came first.
        let mut sent = Some(configuration);
        let is_new = part == Part::Main && self.server.storage.get(&resource.store, &self.key()).is_none();
        if let Some(configuration) = sent.take_if(|_| is_new) {
            match self.apply_new(context, configuration, &mut writer).await {
                // Another client created the object first: now it exists.
                Err(status) if status.reason == "AlreadyExists" => writer.warnings.clear(),
                result => {
                    self.warnings.append(&mut writer.warnings);
                    return result;
                }
            }
        }
        let (namespace, name) = (self.namespace().to_owned(), self.name().to_owned());
        loop {
            let configuration = sent
                .take()
                .map_or_else(|| Configuration::read(self.body, self.server.config.minor), Ok)?;
            let (seen, present) = self.seen(&context.with(&configuration)).await?;
            writer.present = present;
            sent = Some(configuration);
            let mut stale = false;
            let written = writer
                .update(&namespace, &name, part, |old, warnings| {
                    stale = seen.is_stale(old);
                    let configuration = sent
                        .take()
                        .map_or_else(|| Configuration::read(self.body, self.server.config.minor), Ok)?;
                    let mut new = context.with(&configuration).run(old, &seen, warnings)?;
                    self.fit_namespace(&mut new)?;
                    self.fit_name(&new)?;
                    if object::text(&new, "resourceVersion").is_empty() {
                        object::keep_version(&mut new, old);
                    }
                    if stale {
                        return Err(Status::modified(&resource, &name));
                    }
                    Ok(new)
                })
                .await;
            // Another write changed the object during this apply's conversions: they are made again.
            if stale {
                continue;
            }
            self.warnings.append(&mut writer.warnings);
            return Ok(self.show(200, written?));
        }
    }

    /// How the apply looks in the versions in which other managers wrote, and the object that was looked at for that.
    async fn seen(&self, apply: &Apply<'_>) -> Result<(OtherVersions, Option<Present>), Status> {
        let resource = apply.context.resource;
        if resource.custom.is_none() && apply.context.convert.is_none() {
            return Ok((OtherVersions::Same, None));
        }
        let mut present = Present::of(self.server, resource, self.get_unshown().await?).await?;
        let live = &mut present.old;
        let version = object::text(live, "resourceVersion").to_owned();
        let own = resource.api_version();
        let written = managed::versions(managed::entries(live));
        let views = if written.into_iter().all(|version| version == own) {
            Views::new()
        } else {
            let new = apply.run(live, &OtherVersions::Unknown, &mut Vec::new())?;
            self.server.views(resource, live, &new, None).await?
        };
        Ok((OtherVersions::Converted(version, views), Some(present)))
    }

    /// Creates the object out of nothing but the configuration.
    async fn apply_new(
        &self,
        context: ApplyContext<'_>,
        mut configuration: Configuration,
        writer: &mut Writer<'_>,
    ) -> Result<Reply, Status> {
        let mut object = context.created(&mut configuration, &mut writer.warnings)?;
        drop(configuration);
        let uid = object::uid(&object);
        if !uid.is_empty() {
            let why =
                format!("uid mismatch: the provided object specified uid {uid}, and no existing object was found");
            return Err(Status::conflict(context.resource, self.name(), &why));
        }
        self.fit_namespace(&mut object)?;
        self.fit_name(&object)?;
        self.refuse_while_definition_ends(object::name(&object))?;
        let written = writer.create(object).await?;
        Ok(self.show(201, written))
    }
}
