//! Nested inputs.

use crate::hostile::input::{Input, create, create_as, input, merge_patch, post};
use crate::hostile::values::{
    CONFIG_MAPS, DEFINITION, DEFINITIONS, ROLES, THINGS, config_map, definition, definition_of_spec, free_definition,
    nested, nested_lists, object, thing,
};

pub(crate) fn inputs() -> Vec<Input> {
    vec![
        input("a body of 10,001 nested lists", &[400], || {
            create(CONFIG_MAPS, "deep", nested_lists(10_001))
        }),
        input("a body of 1,000,000 open brackets", &[400], || {
            post(CONFIG_MAPS, "application/json", "[".repeat(1_000_000))
        }),
        input("a body of 1,000,000 open objects", &[400], || {
            post(CONFIG_MAPS, "application/json", "{\"a\":".repeat(500_000))
        }),
        input("1,000,000 open brackets as YAML", &[400], || {
            post(CONFIG_MAPS, "application/yaml", "[".repeat(1_000_000))
        }),
        input("YAML of 1,000 nested blocks", &[400], || {
            let lines: Vec<String> = (0..1_000).map(|depth| format!("{}a:", " ".repeat(depth))).collect();
            post(CONFIG_MAPS, "application/yaml", lines.join("\n"))
        }),
        input(
            "a ConfigMap with an unknown field 10,000 levels deep",
            &[201, 400],
            || {
                let rest = format!("\"unknown\":{}", nested(9_990));
                create(CONFIG_MAPS, "deep", config_map("deep", "", &rest))
            },
        ),
        input("a custom resource 120 levels deep", &[201], || thing_of_depth(120)),
        input("a custom resource 200 levels deep", &[201, 400], || thing_of_depth(200)),
        input("a custom resource 490 levels deep", &[201, 400], || thing_of_depth(490)),
        input("a custom resource 9,000 levels deep", &[201, 400], || {
            thing_of_depth(9_000)
        }),
        input("a custom resource 400 lists deep in YAML", &[201, 400], || {
            let body = thing("deep", &nested_lists(400));
            create_as(THINGS, "deep", "application/yaml", body).after(create(
                DEFINITIONS,
                DEFINITION,
                free_definition(),
            ))
        }),
        input("a definition with 62 nested levels of schema", &[201, 400, 422], || {
            create(DEFINITIONS, DEFINITION, definition_of_depth(62))
        }),
        input(
            "a definition with 200 nested levels of schema",
            &[201, 400, 422],
            || create(DEFINITIONS, DEFINITION, definition_of_depth(200)),
        ),
        input(
            "a definition with 3,000 nested levels of schema",
            &[201, 400, 422],
            || create(DEFINITIONS, DEFINITION, definition_of_depth(3_000)),
        ),
        input("a definition with 400 nested allOf", &[201, 400, 422], || {
            let schema = format!(
                r#"{{"type":"object","x-kubernetes-preserve-unknown-fields":true,{}"required":["a"]{}}}"#,
                r#""allOf":[{"#.repeat(400),
                "}]".repeat(400)
            );
            create(DEFINITIONS, DEFINITION, definition_of_spec(&schema))
        }),
        input("a definition with a default 200 levels deep", &[201, 400, 422], || {
            let schema = format!(
                r#"{{"type":"object","x-kubernetes-preserve-unknown-fields":true,"default":{}}}"#,
                nested(200)
            );
            create(DEFINITIONS, DEFINITION, definition_of_spec(&schema))
        }),
        input("a Role with managed fields 200 levels deep", &[201, 400], || {
            create(ROLES, "deep", managed(200))
        }),
        input("a Role with managed fields 9,000 levels deep", &[201, 400], || {
            create(ROLES, "deep", managed(9_000))
        }),
        input(
            "a merge patch that makes a custom resource 200 levels deep",
            &[200, 400],
            || merge_patch(&format!("{THINGS}/deep"), format!("{{\"spec\":{}}}", nested(200))).after(thing_of_depth(3)),
        ),
        input(
            "a definition that is cut off 2,000 levels deep in its schema",
            &[400],
            || create(DEFINITIONS, DEFINITION, definition(&"{\"not\":".repeat(2_000))),
        ),
    ]
}

fn thing_of_depth(depth: usize) -> crate::hostile::input::Request {
    create(THINGS, "deep", thing("deep", &nested(depth))).after(create(DEFINITIONS, DEFINITION, free_definition()))
}

fn definition_of_depth(depth: usize) -> String {
    definition_of_spec(&format!(
        r#"{}{{"type":"string"}}{}"#,
        r#"{"type":"object","properties":{"a":"#.repeat(depth),
        "}}".repeat(depth)
    ))
}

fn managed(depth: usize) -> String {
    let fields = format!("{}{{}}{}", "{\"f:a\":".repeat(depth), "}".repeat(depth));
    let entry = format!(
        r#""managedFields":[{{"manager":"m","operation":"Update","apiVersion":"rbac.authorization.k8s.io/v1",
        "fieldsType":"FieldsV1","fieldsV1":{fields}}}]"#
    );
    object("rbac.authorization.k8s.io/v1", "Role", "deep", &entry, "\"rules\":[]")
}
