//! Numbers and quantities at and beyond their bounds.

use crate::hostile::input::{Input, Request, create, get, input};
use crate::hostile::values::{
    CONFIG_MAPS, DEFINITION, DEFINITIONS, DEPLOYMENTS, QUOTAS, THINGS, config_map, definition_of_spec, deployment,
    free_definition, object, thing,
};

pub(crate) fn inputs() -> Vec<Input> {
    vec![
        input("a number beyond all floats (1e999)", &[201, 400], || {
            free_thing("1e999")
        }),
        input("a number with 100,000 digits", &[201, 400], || {
            free_thing(&"9".repeat(100_000))
        }),
        input("a number with 100,000 digits behind the point", &[201, 400], || {
            free_thing(&format!("0.{}", "3".repeat(100_000)))
        }),
        input("an exponent of 100,000 digits", &[201, 400], || {
            free_thing(&format!("1e{}", "9".repeat(100_000)))
        }),
        input("the largest and the smallest integers, and one beyond", &[201], || {
            free_thing("[9223372036854775807,-9223372036854775808,9223372036854775808,-0,-0.0,1e308,5e-324]")
        }),
        input("a Deployment with 2^31 replicas", &[400, 422], || {
            create(DEPLOYMENTS, "large", deployment("large", "\"replicas\":2147483648"))
        }),
        input("a quota of 1e999999999", &[201, 400], || quota("1e999999999")),
        input("a quota of 1e-999999999", &[201, 400], || quota("1e-999999999")),
        input("a quota with 100,000 digits", &[201, 400], || {
            quota(&"9".repeat(100_000))
        }),
        input("a quota of 0.(100,000 digits)", &[201, 400], || {
            quota(&format!("0.{}", "1".repeat(100_000)))
        }),
        input("a multipleOf of 1e-300 and a number of 1e300", &[201, 422], || {
            create(THINGS, "large", thing("large", "1e300")).after(create(
                DEFINITIONS,
                DEFINITION,
                definition_of_spec(r#"{"type":"number","multipleOf":1e-300}"#),
            ))
        }),
        input("a list from resourceVersion 2^64 - 1", &[200, 400, 504], || {
            get(CONFIG_MAPS).query("resourceVersion=18446744073709551615")
        }),
        input("a list from resourceVersion 2^64", &[400], || {
            get(CONFIG_MAPS).query("resourceVersion=18446744073709551616")
        }),
        input("a list with a limit of 2^63 - 1", &[200], || {
            get(CONFIG_MAPS).query("limit=9223372036854775807")
        }),
        input("a list with a limit of -2^63", &[200, 400], || {
            get(CONFIG_MAPS).query("limit=-9223372036854775808")
        }),
        input("an object with a generation of 2^63 - 1", &[201], || {
            create(
                CONFIG_MAPS,
                "large",
                config_map("large", "\"generation\":9223372036854775807", ""),
            )
        }),
    ]
}

fn free_thing(spec: &str) -> Request {
    create(THINGS, "large", thing("large", spec)).after(create(DEFINITIONS, DEFINITION, free_definition()))
}

fn quota(amount: &str) -> Request {
    let spec = format!(r#""spec":{{"hard":{{"cpu":"{amount}"}}}}"#);
    create(QUOTAS, "large", object("v1", "ResourceQuota", "large", "", &spec))
}
