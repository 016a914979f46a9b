//! POST to `/token` of a ServiceAccount: a signed token for it, bound to a pod, a secret, a node or nothing.

use jiff::Timestamp;
use kubewright_schema::check::{At, Errors};
use kubewright_schema::error::FieldError;
use kubewright_schema::names;
use serde_json::{Value, json};

use crate::authentication::{Bound, TokenSubject};
use crate::env;
use crate::model::duration::check_token_seconds;
use crate::model::form::key;
use crate::model::object;
use crate::model::status::{Details, Status};
use crate::model::{Minor, Operation};
use crate::server::Call;
use crate::server::decode;
use crate::server::managed;
use crate::server::negotiate;
use crate::server::options::WriteOptions;
use crate::server::respond::{Content, Reply};

/// The annotation of the audit log that names a token.
const ISSUED_CREDENTIAL_ID: &str = "authentication.kubernetes.io/issued-credential-id";
const GROUP: &str = "authentication.k8s.io";
const KIND: &str = "TokenRequest";

/// How long a token is good when the request does not say, in seconds.
const DEFAULT_SECONDS: i64 = 60 * 60;
/// A kubelet asks for exactly this time, for the volume of the admission plugin. Its pod may be one that does not read
/// the token again, so the token is valid for longer and says from when on its use is late.
const WARN_ONLY_SECONDS: i64 = 60 * 60 + 7;
const EXTENDED_SECONDS: i64 = 365 * 24 * 60 * 60;

impl Call<'_> {
    pub(crate) async fn request_token(&mut self) -> Result<Reply, Status> {
        self.refuse_table()?;
        let options = WriteOptions::parse(self.query, "CreateOptions")?;
        let format = negotiate::input(self.headers)?;
        let row = self.kinds.token_request();
        let validation = options.field_validation;
        let mut request = decode::object(self.body, format, &row, &self.kinds, validation, &mut self.warnings)?;
        self.enter_sent(&row, &request);
        self.fit_namespace(&mut request)?;
        let (namespace, name) = (self.namespace().to_owned(), self.name().to_owned());
        let now = self.server.env.now();
        default_spec(&mut request);
        let manager = managed::manager_name(&options.field_manager, self.headers);
        managed::track_virtual(&row, &manager, "token", &mut request, &crate::env::rfc3339(now));
        let writer = self.writer(options.dry_run);
        let mut attributes = writer.attributes(Operation::Create, "token", &namespace, &name);
        attributes.kind = row.group_version_kind();
        request["status"] = json!({"token": "", "expirationTimestamp": null});
        let session = writer.session();
        let mutated = writer.mutate(&session, &attributes, &mut request, None).await;
        self.warnings.extend(session.take_warnings());
        mutated?;
        self.fit_account(&mut request, &name).await?;
        object::metadata_mut(&mut request).insert("creationTimestamp".to_owned(), json!(crate::env::rfc3339(now)));
        let audiences = self.server.authenticator.audiences();
        if texts(&request["spec"]["audiences"]).is_empty() {
            request["spec"]["audiences"] = json!(audiences);
        }
        let mut errors = validate(&request);
        if self.kinds.minor() >= Minor::V37 {
            errors.extend(attestations(&request));
        }
        if !errors.is_empty() {
            return Err(Status::invalid(GROUP, KIND, "", &errors));
        }
        let validated = writer.validate(&session, &attributes, &request, None).await;
        self.warnings.extend(session.take_warnings());
        validated?;
        let mut subject = TokenSubject {
            account: Bound {
                name,
                uid: object::uid(&request).to_owned(),
            },
            audiences: texts(&request["spec"]["audiences"]),
            seconds: seconds(&request),
            namespace,
            ..TokenSubject::default()
        };
        self.bind_token(&request["spec"]["boundObjectRef"], &mut subject)?;
        let ours = subject.audiences.iter().all(|audience| audiences.contains(audience));
        if subject.pod.is_some() && ours && subject.seconds == WARN_ONLY_SECONDS {
            subject.warn_after = Some(WARN_ONLY_SECONDS);
            subject.seconds = EXTENDED_SECONDS;
        }
        let token = self.server.authenticator.service_accounts().issue(&subject, now);
        let (token, id) =
            token.map_err(|error| Status::not_implemented(format!("serviceaccounts/token is not served: {error}")))?;
        if let Some(entry) = self.audit {
            entry.annotate(ISSUED_CREDENTIAL_ID, format!("JTI={id}"));
        }
        request["status"] = json!({"token": token, "expirationTimestamp": end(now, seconds(&request))});
        Ok(Reply::new(201, Content::Object(row, request)))
    }

    /// The request is about the account of the path: name and uid that it gives must be those.
    async fn fit_account(&self, request: &mut Value, name: &str) -> Result<(), Status> {
        let own = object::name(request);
        if !own.is_empty() && own != name {
            let why = "must match the service account name if specified";
            let error = FieldError::invalid("metadata.name", json!(own), why);
            return Err(Status::invalid(GROUP, KIND, name, &[error]));
        }
        let account = self.get_stored().await?;
        let (asked, present) = (object::uid(request).to_owned(), object::uid(account.value()).to_owned());
        if !asked.is_empty() && asked != present {
            let message = format!(
                "Operation cannot be fulfilled on {KIND}.{GROUP} \"{name}\": the UID in the token request ({asked}) does not match the UID of \
                 the service account ({present})"
            );
            return Err(Status::failure(409, "Conflict", message).with_details(Details {
                name: name.to_owned(),
                group: GROUP.to_owned(),
                kind: KIND.to_owned(),
                ..Details::default()
            }));
        }
        let metadata = object::metadata_mut(request);
        metadata.insert("name".to_owned(), json!(name));
        metadata.insert("uid".to_owned(), json!(present));
        Ok(())
    }

    /// Looks up the object to which the token is to be bound.
    fn bind_token(&self, reference: &Value, subject: &mut TokenSubject) -> Result<(), Status> {
        if reference.is_null() {
            return Ok(());
        }
        let text = |field: &str| reference.get(field).and_then(Value::as_str).unwrap_or("");
        let (kind, name, uid) = (text("kind"), text("name"), text("uid"));
        let (group, version) = match text("apiVersion").split('/').collect::<Vec<_>>().as_slice() {
            [version] => ("", *version),
            [group, version] => (*group, *version),
            _ => ("", ""),
        };
        let (plural, namespace) = match (group, kind) {
            ("", "Pod") => ("pods", subject.namespace.as_str()),
            ("", "Secret") => ("secrets", subject.namespace.as_str()),
            ("", "Node") => ("nodes", ""),
            _ => {
                let is_gated = self.kinds.minor() >= Minor::V37 && is_for_webhooks(group, version, kind);
                let gate = match is_gated {
                    true => " (feature gate APIServerWebhookAuthenticationToken is disabled)",
                    false => "",
                };
                return Err(Status::bad_request(format!(
                    "cannot bind token to object of type {group}/{version}, Kind={kind}{gate}"
                )));
            }
        };
        if name.is_empty() {
            return Err(Status::bad_request("Name parameter required."));
        }
        let row = self.kinds.lookup("", "v1", plural).ok_or_else(Status::no_such_path)?;
        let found = self.server.storage.get(&row.store, &key(namespace, name));
        let found = found.ok_or_else(|| Status::not_found(&row, name))?;
        let bound = Bound {
            name: name.to_owned(),
            uid: object::uid(found.value()).to_owned(),
        };
        if kind == "Pod" {
            self.check_pod(found.value(), subject)?;
        }
        if !uid.is_empty() && uid != bound.uid {
            let message = format!(
                "Operation cannot be fulfilled on {kind} \"{name}\": the UID in the bound object reference ({uid}) does not match the UID in \
                 record. The object might have been deleted and then recreated"
            );
            return Err(Status::failure(409, "Conflict", message).with_details(Details {
                name: name.to_owned(),
                kind: kind.to_owned(),
                ..Details::default()
            }));
        }
        match kind {
            "Pod" => subject.pod = Some(bound),
            "Secret" => subject.secret = Some(bound),
            _ => subject.node = Some(bound),
        }
        Ok(())
    }

    /// A pod must run as the account; its node goes into the token.
    fn check_pod(&self, pod: &Value, subject: &mut TokenSubject) -> Result<(), Status> {
        let text = |pointer: &str| pod.pointer(pointer).and_then(Value::as_str).unwrap_or("");
        let account = &subject.account.name;
        if text("/spec/serviceAccountName") != account {
            return Err(Status::bad_request(format!(
                "cannot bind token for serviceaccount {account:?} to pod running with different serviceaccount name."
            )));
        }
        let node = text("/spec/nodeName");
        if !node.is_empty() {
            let found = self.server.storage.get("nodes", node);
            subject.node = Some(Bound {
                name: node.to_owned(),
                // A node that is not there yet is named all the same.
                uid: found.map_or_else(String::new, |node| object::uid(node.value()).to_owned()),
            });
        }
        Ok(())
    }
}

fn default_spec(request: &mut Value) {
    let spec = &mut request["spec"];
    if !spec.is_object() {
        *spec = json!({});
    }
    if spec["expirationSeconds"].is_null() {
        spec["expirationSeconds"] = json!(DEFAULT_SECONDS);
    }
    // Indexing made it null when it was absent, which is how it is shown.
    let _ = &mut spec["boundObjectRef"];
}

fn seconds(request: &Value) -> i64 {
    request["spec"]["expirationSeconds"].as_i64().unwrap_or(DEFAULT_SECONDS)
}

fn texts(list: &Value) -> Vec<String> {
    let items = list.as_array().into_iter().flatten();
    items.filter_map(Value::as_str).map(str::to_owned).collect()
}

fn validate(request: &Value) -> Vec<FieldError> {
    let seconds = seconds(request);
    let wrong = check_token_seconds(seconds).err();
    wrong
        .map(|why| FieldError::invalid("spec.expirationSeconds", json!(seconds), why))
        .into_iter()
        .collect()
}

/// Whether a token is to be bound to a configuration of webhooks.
fn is_for_webhooks(group: &str, version: &str, kind: &str) -> bool {
    let kinds = ["ValidatingWebhookConfiguration", "MutatingWebhookConfiguration"];
    (group, version) == ("admissionregistration.k8s.io", "v1") && kinds.contains(&kind)
}

/// What is said about the API groups of a webhook (`ValidateTokenRequest`).
fn attestations(request: &Value) -> Vec<FieldError> {
    const GROUPS: &str = "admissionReviewAPIGroups";
    let mut errors = Errors::default();
    let spec = At::root(request).key("spec");
    let (reference, given) = (spec.key("boundObjectRef"), spec.key("attestations"));
    let (group, version) = reference.text_of("apiVersion").split_once('/').unwrap_or_default();
    if !is_for_webhooks(group, version, reference.text_of("kind")) {
        if !given.is_empty() {
            let why = "attestations may only be specified with a webhook bound object reference";
            return vec![FieldError::invalid(given.path.to_string(), given.value.clone(), why)];
        }
        return Vec::new();
    }
    if spec.key("audiences").len() != 1 {
        errors.invalid(
            &spec.key("audiences"),
            "must be length 1 when bound to a webhook config",
        );
    }
    if given.value.as_object().is_none_or(|given| given.len() != 1) {
        let why = "webhook bound requests require exactly one admissionReviewAPIGroups attestation";
        errors.invalid(&given, why);
    }
    for (key, values) in given.entries().take_while(|_| given.len() == 1) {
        let groups: Vec<At<'_>> = values.items().collect();
        match groups.as_slice() {
            _ if key != GROUPS => {
                errors.push(FieldError::not_supported(values.path.to_string(), key, &[GROUPS]));
            }
            [one] if one.text() == "*" => {}
            [one] if one.text().is_empty() => errors.invalid(one, "may not be an empty string"),
            [one] => {
                for why in names::dns1123_subdomain(one.text()) {
                    errors.invalid(one, format!("must specify a valid API Group: {why}"));
                }
            }
            _ => errors.invalid(&values, "must specify a single value"),
        }
    }
    errors.into_vec()
}

fn end(now: Timestamp, seconds: i64) -> String {
    env::rfc3339(env::later(now, seconds))
}
