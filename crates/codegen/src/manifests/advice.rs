//! The usual fix for an error of the API server, by its field and its words.

use crate::codes::Code;
use crate::codes::crds as codes;

/// The code of an error, and the usual fix.
pub(super) fn cause(field: &str, said: &str) -> (Code, Option<&'static str>) {
    if field.contains("x-kubernetes-validations") {
        let costs = said.contains("cost") || said.contains("budget");
        return if costs {
            (
                codes::CEL_COST,
                Some(
                    "bound what the rule runs over: a largest number of items (`length(max = …)`) and of letters on every list, map and text it touches",
                ),
            )
        } else {
            (
                codes::CEL,
                Some("correct the rule; `self` is the value the rule stands on, `oldSelf` what it was"),
            )
        };
    }
    // Before defaults: a key of a list may want one.
    if let Some(fix) = of_list_or_map(field, said) {
        return (codes::INVALID, Some(fix));
    }
    if field.contains(".default") {
        return (
            codes::DEFAULT,
            Some(
                "let the default fit the schema: change the function behind #[serde(default = \"…\")] or the rules of the field; a field that may be absent is an Option",
            ),
        );
    }
    if field.contains("selectableFields") {
        return (
            codes::PATH,
            Some("`selectable` names a path to a field of type string, integer or boolean, such as \".spec.color\""),
        );
    }
    if field.contains("dditionalPrinterColumns") {
        return (codes::COLUMN, Some("correct the printcolumn in #[kube(…)]"));
    }
    if field.contains("subresources") {
        return (codes::SCALE, Some("correct `scale` in #[kube(…)]"));
    }
    if field.contains("uniqueItems") {
        return (
            codes::INVALID,
            Some("use a BTreeSet, or `extend(\"x-kubernetes-list-type\" = \"set\")`"),
        );
    }
    if field == "spec.group" || field.starts_with("spec.names") || field == "metadata.name" || field.ends_with(".name")
    {
        return (
            codes::NAME,
            Some("correct group, version, kind or plural in #[kube(…)]"),
        );
    }
    if field == "spec.scope" {
        return (
            codes::NAME,
            Some("say `namespaced` in #[kube(…)], or nothing for a cluster-scoped kind"),
        );
    }
    (codes::INVALID, None)
}

/// The rules of `x-kubernetes-list-type`, `-list-map-keys` and `-map-type`
/// (`ValidateCustomResourceDefinitionOpenAPISchema`), each with its remedy.
const OF_LISTS: &[(&str, &str)] = &[
    (
        "must be object if x-kubernetes-map-type is specified",
        "`x-kubernetes-map-type` is for structs and maps: take it away, or move it to the type that is one",
    ),
    (
        "must be array if x-kubernetes-list-type is specified",
        "`x-kubernetes-list-type` is for lists: take it away, or make the field a Vec",
    ),
    (
        "must be map if x-kubernetes-list-map-keys is non-empty",
        "only a list of type map has keys: say #[x_kube(merge_strategy = ListMerge::Map(vec![\"name\".into()]))], or take `x-kubernetes-list-map-keys` away",
    ),
    (
        "must not be empty if x-kubernetes-list-type is map",
        "a list of type map needs its keys: #[x_kube(merge_strategy = ListMerge::Map(vec![\"name\".into()]))], each of them a required field of the items",
    ),
    ("must not contain duplicate entries", "name each key of the list once"),
    (
        "entries must all be names of item properties",
        "a key is a field of the items, by its name in JSON (after #[serde(rename_all)])",
    ),
    (
        "this property is in x-kubernetes-list-map-keys",
        "make the key a field that is always there: no Option, and no `skip_serializing_if`; or give it a default with #[serde(default)]",
    ),
    (
        "must be a scalar type if parent array",
        "a key is a text, a number or a bool: take another field of the items as the key",
    ),
    (
        "must be object if parent array",
        "the items of a list of type map are structs; for texts and numbers say ListMerge::Set",
    ),
    (
        "must be atomic as item of a list with x-kubernetes-list-type=set",
        "the items of a set are texts or numbers; for structs say ListMerge::Map with a key, or say #[schemars(extend(\"x-kubernetes-map-type\" = \"atomic\"))] on the type of the items",
    ),
    (
        "cannot be nullable when",
        "what a list is merged by is never null: no `nullable` and no Option for its items and keys",
    ),
];

fn of_list_or_map(field: &str, said: &str) -> Option<&'static str> {
    if let Some((_, fix)) = OF_LISTS.iter().find(|(words, _)| said.contains(words)) {
        return Some(fix);
    }
    if field.ends_with("x-kubernetes-list-type") {
        return Some("the types of a list are atomic (written as a whole), set (no doubles) and map (merged by keys)");
    }
    field
        .ends_with("x-kubernetes-map-type")
        .then_some("the types of a map are granular (the default: merged key by key) and atomic (written as a whole)")
}
