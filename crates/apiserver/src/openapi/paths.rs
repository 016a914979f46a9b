//! `paths`: the operations on each kind of a version, in the words of kube-apiserver.

mod operations;

use serde_json::{Map, Value, json};

use super::schemas::Schemas;
use super::{META, connects};
use crate::model::{Document, Resource, Subresource, Verbs};
use crate::registry::Snapshot;
pub(super) use operations::{BUILTIN_TYPES, Names, camel, parameter, path_parameter, responses};
use operations::{
    DELETE, DELETE_COLLECTION, LIST, PATCH, WATCH_TYPES, WRITE, answer_types, body, body_types, capital, capitalised,
    list_words, watch_types, with_article,
};

/// The paths of one version.
pub(super) fn version(snapshot: &Snapshot, group: &str, version: &str, schemas: &mut Schemas) -> Map<String, Value> {
    let base = if group.is_empty() {
        format!("/api/{version}")
    } else {
        format!("/apis/{group}/{version}")
    };
    let mut paths = Map::new();
    // The extensions server documents its kinds only.
    let builtin = snapshot.version_rows(group, version).any(|row| row.custom.is_none());
    if builtin {
        let list = schemas.reference(&format!("{META}.APIResourceList"));
        paths.insert(
            format!("{base}/"),
            json!({"get": {
                "tags": [format!("{}_{version}", camel(group, false))],
                "description": "get available resources",
                "operationId": format!("get{}{}APIResources", camel(group, true), capital(version)),
                "responses": responses(&[("200", "OK")], &list, BUILTIN_TYPES),
            }}),
        );
    }
    for row in snapshot.version_rows(group, version) {
        kind(row, &base, &mut paths, schemas);
    }
    paths.values_mut().for_each(arrange);
    paths
}

/// Parameters that all operations of a path take stand at the path, by name; a path with one operation has all its
/// parameters there.
fn arrange(item: &mut Value) {
    let Some(item) = item.as_object_mut() else { return };
    let mut alone: Vec<&mut Value> = item
        .iter_mut()
        .filter(|(method, _)| *method != "parameters")
        .map(|(_, operation)| operation)
        .collect();
    let mut moved = Vec::new();
    if let [operation] = alone.as_mut_slice()
        && let Some(Value::Array(parameters)) = operation.as_object_mut().and_then(|map| map.remove("parameters"))
    {
        moved = parameters;
    }
    let common = item.get_mut("parameters").and_then(Value::as_array_mut);
    if let Some(common) = common {
        common.append(&mut moved);
        common.sort_by(|a, b| a["name"].as_str().cmp(&b["name"].as_str()));
    }
}

fn kind(row: &Resource, base: &str, paths: &mut Map<String, Value>, schemas: &mut Schemas) {
    let names = Names::of(row);
    if row.custom.is_none() {
        schemas.of_version(&row.group, &row.version);
    }
    let (object, list) = schemas.kind(row);
    let collection = if row.namespaced {
        format!("{base}/namespaces/{{namespace}}/{}", row.plural)
    } else {
        format!("{base}/{}", row.plural)
    };
    let mut common = vec![parameter("pretty")];
    if row.namespaced {
        common.insert(
            0,
            path_parameter(
                "namespace",
                "object name and auth scope, such as for teams and projects",
            ),
        );
    }
    if row.namespaced && row.verbs != Verbs::CreateOnly {
        let mut all = names.operation(
            "list",
            "",
            "list",
            &format!("{} objects of kind {}", list_words(row), row.kind),
            LIST,
            responses(&[("200", "OK")], &list, watch_types(row)),
        );
        all["operationId"] = format!("list{}{}ForAllNamespaces", names.prefix, row.kind).into();
        paths.insert(
            format!("{base}/{}", row.plural),
            json!({"get": all, "parameters": [parameter("pretty")]}),
        );
    }
    paths.insert(
        collection.clone(),
        self::collection(&names, &object, &list, &common, schemas),
    );
    if row.verbs == Verbs::CreateOnly {
        return;
    }
    common.insert(0, path_parameter("name", &format!("name of the {}", row.kind)));
    let item_path = format!("{collection}/{{name}}");
    let mut item = read_write(&names, "", "the specified", &object, schemas);
    let status = schemas.reference(&format!("{META}.Status"));
    // A namespace is shown while it goes, but not documented so.
    let is_namespace = row.group.is_empty() && row.plural == "namespaces";
    let deleted = if row.strategy.delete_returns_object && !is_namespace {
        &object
    } else {
        &status
    };
    let answers = responses(&[("200", "OK"), ("202", "Accepted")], deleted, answer_types(row));
    let mut delete = names.operation(
        "delete",
        "",
        "delete",
        &format!("delete {}", with_article(&row.kind)),
        DELETE,
        answers,
    );
    body(
        &mut delete,
        body_types(row),
        &schemas.reference(&format!("{META}.DeleteOptions")),
        false,
    );
    item.insert("delete".to_owned(), delete);
    if row.verbs == Verbs::ReadOnly {
        item.retain(|method, _| method == "get");
    }
    item.insert("parameters".to_owned(), common.clone().into());
    paths.insert(item_path.clone(), Value::Object(item));
    if row.custom.is_none() && row.verbs != Verbs::ReadOnly {
        watches(&names, base, paths, &common, schemas);
    }
    for subresource in &row.subresources {
        if let Subresource::Connect(connection) = subresource {
            connects::add(&names, connection, &item_path, &common, paths);
        }
        if let Some((name, mut operations)) = self::subresource(&names, subresource, &object, schemas) {
            let mut common = common.clone();
            let posted = match subresource {
                Subresource::Scale(_) => Some("Scale"),
                Subresource::Document(document) => Some(document.kind),
                _ => None,
            };
            if let (Some(kind), Some(first), None) = (posted, common.first_mut(), &row.custom) {
                first["description"] = format!("name of the {kind}").into();
            }
            operations.insert("parameters".to_owned(), common.into());
            paths.insert(format!("{item_path}/{name}"), Value::Object(operations));
        }
    }
}

/// The old paths of watches, which built-in kinds still have. `common` are the parameters of a path to one object.
fn watches(names: &Names<'_>, base: &str, paths: &mut Map<String, Value>, common: &[Value], schemas: &mut Schemas) {
    let row = names.row;
    let event = schemas.reference(&format!("{META}.WatchEvent"));
    let mut add = |path: String, id: String, action: &str, words: &str, given: &[Value]| {
        let description = format!(
            "{words}{}. deprecated: use the 'watch' parameter with a list operation instead{}.",
            row.kind,
            if action == "watch" {
                ", filtered to a single item with the 'fieldSelector' parameter"
            } else {
                ""
            }
        );
        let mut get = names.operation(
            "watch",
            "",
            action,
            &description,
            &[],
            responses(&[("200", "OK")], &event, WATCH_TYPES),
        );
        get["operationId"] = id.into();
        let parameters: Vec<Value> = LIST
            .iter()
            .map(|name| parameter(name))
            .chain(given.iter().cloned())
            .collect();
        paths.insert(path, json!({"get": get, "parameters": parameters}));
    };
    let (list, one) = (
        "watch individual changes to a list of ",
        "watch changes to an object of kind ",
    );
    let collection = if row.namespaced {
        let id = format!("watch{}{}ListForAllNamespaces", names.prefix, row.kind);
        add(
            format!("{base}/watch/{}", row.plural),
            id,
            "watchlist",
            list,
            &[parameter("pretty")],
        );
        format!("{base}/watch/namespaces/{{namespace}}/{}", row.plural)
    } else {
        format!("{base}/watch/{}", row.plural)
    };
    let (prefix, noun) = (&names.prefix, &names.noun);
    add(
        collection.clone(),
        format!("watch{prefix}{noun}List"),
        "watchlist",
        list,
        common.get(1..).unwrap_or_default(),
    );
    add(
        format!("{collection}/{{name}}"),
        format!("watch{prefix}{noun}"),
        "watch",
        one,
        common,
    );
}

fn collection(names: &Names<'_>, object: &Value, list: &Value, common: &[Value], schemas: &mut Schemas) -> Value {
    let row = names.row;
    let mut item = Map::new();
    let answers = responses(
        &[("200", "OK"), ("201", "Created"), ("202", "Accepted")],
        object,
        answer_types(row),
    );
    let reads_only = row.verbs == Verbs::ReadOnly;
    let mut create = names.operation(
        "create",
        "",
        "post",
        &format!("create {}", with_article(&row.kind)),
        WRITE,
        answers,
    );
    body(&mut create, body_types(row), object, true);
    if !reads_only {
        item.insert("post".to_owned(), create);
    }
    if row.verbs != Verbs::CreateOnly {
        let answers = responses(&[("200", "OK")], list, watch_types(row));
        let get = names.operation(
            "list",
            "",
            "list",
            &format!("{} objects of kind {}", list_words(row), row.kind),
            LIST,
            answers,
        );
        item.insert("get".to_owned(), get);
    }
    if row.verbs == Verbs::All {
        let status = schemas.reference(&format!("{META}.Status"));
        let answers = responses(&[("200", "OK")], &status, answer_types(row));
        let mut delete = names.operation(
            "delete",
            "",
            "deletecollection",
            &format!("delete collection of {}", row.kind),
            if row.custom.is_some() { LIST } else { DELETE_COLLECTION },
            answers,
        );
        delete["operationId"] = format!("delete{}Collection{}", names.prefix, names.noun).into();
        if row.custom.is_none() {
            body(
                &mut delete,
                body_types(row),
                &schemas.reference(&format!("{META}.DeleteOptions")),
                false,
            );
        }
        item.insert("delete".to_owned(), delete);
    }
    item.insert("parameters".to_owned(), common.to_vec().into());
    Value::Object(item)
}

/// GET, PUT and PATCH of an object or a subresource.
fn read_write(
    names: &Names<'_>,
    suffix: &str,
    what: &str,
    schema: &Value,
    schemas: &mut Schemas,
) -> Map<String, Value> {
    let kind = &names.row.kind;
    let changed = || responses(&[("200", "OK"), ("201", "Created")], schema, answer_types(names.row));
    let get = names.operation(
        "read",
        suffix,
        "get",
        &format!("read {what} {kind}"),
        // The extensions server reads old versions.
        if names.row.custom.is_some() {
            &["resourceVersion"]
        } else {
            &[]
        },
        responses(&[("200", "OK")], schema, answer_types(names.row)),
    );
    let mut put = names.operation(
        "replace",
        suffix,
        "put",
        &format!("replace {what} {kind}"),
        WRITE,
        changed(),
    );
    body(&mut put, body_types(names.row), schema, true);
    let mut patch = names.operation(
        "patch",
        suffix,
        "patch",
        &format!("partially update {what} {kind}"),
        PATCH,
        // The extensions server does not tell that an apply may create.
        match names.row.custom {
            Some(_) => responses(&[("200", "OK")], schema, answer_types(names.row)),
            None => changed(),
        },
    );
    let mut types = vec![
        "application/apply-patch+yaml",
        "application/json-patch+json",
        "application/merge-patch+json",
    ];
    if names.row.custom.is_none() {
        types.push("application/strategic-merge-patch+json");
    }
    body(&mut patch, &types, &schemas.reference(&format!("{META}.Patch")), true);
    Map::from_iter([
        ("get".to_owned(), get),
        ("put".to_owned(), put),
        ("patch".to_owned(), patch),
    ])
}

fn subresource(
    names: &Names<'_>,
    subresource: &Subresource,
    object: &Value,
    schemas: &mut Schemas,
) -> Option<(&'static str, Map<String, Value>)> {
    let foreign = |operations: &mut Map<String, Value>, group: &str, kind: &str| {
        // The extensions server says of everything that it is of the kind that is defined.
        for operation in operations.values_mut().filter(|_| names.row.custom.is_none()) {
            operation["x-kubernetes-group-version-kind"] = json!({"group": group, "version": "v1", "kind": kind});
        }
    };
    Some(match subresource {
        Subresource::Status => (
            "status",
            read_write(names, "Status", "status of the specified", object, schemas),
        ),
        Subresource::Scale(_) => {
            let scale = schemas.reference("io.k8s.api.autoscaling.v1.Scale");
            let mut operations = read_write(names, "Scale", "scale of the specified", &scale, schemas);
            foreign(&mut operations, "autoscaling", "Scale");
            ("scale", operations)
        }
        Subresource::Part(portion) => {
            let what = format!("{} of the specified", portion.name);
            let mut operations = read_write(names, &capitalised(portion.name), &what, object, schemas);
            let taken = |method: &str| portion.verbs.contains(&if method == "put" { "update" } else { method });
            operations.retain(|method, _| taken(method));
            (portion.name, operations)
        }
        Subresource::Document(document) => {
            let schema = schemas.reference(document.schema_name);
            (document.name, post(names, document, &schema))
        }
        // They have paths of their own, see `connects`.
        Subresource::Connect(_) => return None,
    })
}

fn post(names: &Names<'_>, document: &Document, schema: &Value) -> Map<String, Value> {
    let answers = responses(
        &[("200", "OK"), ("201", "Created"), ("202", "Accepted")],
        schema,
        answer_types(names.row),
    );
    let mut create = names.operation(
        "create",
        &capitalised(document.name),
        "post",
        &format!("create {} of {}", document.name, with_article(&names.row.kind)),
        WRITE,
        answers,
    );
    create["x-kubernetes-group-version-kind"] =
        json!({"group": document.group, "version": "v1", "kind": document.kind});
    body(&mut create, body_types(names.row), schema, true);
    Map::from_iter([("post".to_owned(), create)])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_for_groups() {
        for (group, word) in [
            ("", "Core"),
            ("apps", "Apps"),
            ("rbac.authorization.k8s.io", "RbacAuthorization"),
            ("ex.io", "ExIo"),
            ("my-group.example.com", "MyGroupExampleCom"),
        ] {
            assert_eq!(camel(group, true), word);
        }
    }

    #[test]
    fn every_parameter_is_described() {
        for name in [LIST, WRITE, PATCH, DELETE, DELETE_COLLECTION, &["pretty"]].concat() {
            assert!(
                parameter(name)["description"]
                    .as_str()
                    .is_some_and(|text| !text.is_empty()),
                "{name}"
            );
        }
    }
}
