//! Expressions: in definitions and in admission policies.

use crate::hostile::input::{Input, Request, create, input};
use crate::hostile::values::{
    CONFIG_MAPS, DEFINITION, DEFINITIONS, VALIDATING_BINDINGS, VALIDATING_POLICIES, config_map, definition_of_spec,
    fields, items, object,
};

pub(crate) fn inputs() -> Vec<Input> {
    vec![
        input("a rule of 10,000 nested brackets", &[413, 422], || {
            ruled(&format!("{}true{}", "(".repeat(10_000), ")".repeat(10_000)))
        }),
        input("a rule of 10,000 negations", &[201, 413, 422], || {
            ruled(&format!("{}true", "!".repeat(10_000)))
        }),
        input("a rule of 10,000 sums", &[201, 413, 422], || {
            ruled(&format!("{} > 0", vec!["1"; 10_000].join("+")))
        }),
        input("a rule of 5,000 nested conditions", &[201, 413, 422], || {
            ruled(&format!("{}true", "true ? true : ".repeat(5_000)))
        }),
        input("a rule of 1 MB of spaces", &[201, 413, 422], || {
            ruled(&format!("{}true", " ".repeat(1_000_000)))
        }),
        input("a rule with a string of 1 MB", &[201, 413, 422], || {
            ruled(&format!("'{}' != ''", "x".repeat(1_000_000)))
        }),
        input(
            "a rule that walks a list within itself five times",
            &[201, 413, 422],
            || {
                let walk = "self.all(a, self.all(b, self.all(c, self.all(d, self.all(e, a+b+c+d+e >= 0)))))";
                of_list(walk)
            },
        ),
        input("2,000 rules on one schema", &[201, 413, 422], || {
            let rules = items(2_000, |_| r#"{"rule":"self != ''"}"#.to_owned());
            let body = definition_of_spec(&format!(r#"{{"type":"string","x-kubernetes-validations":{rules}}}"#));
            create(DEFINITIONS, DEFINITION, body)
        }),
        input(
            "a policy that doubles a string in 40 variables",
            &[201, 413, 422],
            || {
                let variables = items(40, |index| match index {
                    0 => r#"{"name":"v0","expression":"'xxxxxxxxxxxxxxxx'"}"#.to_owned(),
                    _ => format!(
                        r#"{{"name":"v{index}","expression":"variables.v{} + variables.v{}"}}"#,
                        index - 1,
                        index - 1
                    ),
                });
                under_policy(&variables, "size(variables.v39) > 0")
            },
        ),
        input("a policy that doubles a string 28 times", &[201, 413, 422], || {
            let variables = items(28, |index| match index {
                0 => r#"{"name":"v0","expression":"'xxxxxxxxxxxxxxxx'"}"#.to_owned(),
                _ => format!(
                    r#"{{"name":"v{index}","expression":"variables.v{} + variables.v{}"}}"#,
                    index - 1,
                    index - 1
                ),
            });
            under_policy(&variables, "size(variables.v27) > 0")
        }),
        input("a policy that doubles a list 28 times", &[201, 413, 422], || {
            let variables = items(28, |index| match index {
                0 => r#"{"name":"v0","expression":"[1,2,3,4]"}"#.to_owned(),
                _ => format!(
                    r#"{{"name":"v{index}","expression":"[variables.v{}, variables.v{}]"}}"#,
                    index - 1,
                    index - 1
                ),
            });
            under_policy(&variables, "variables.v27 == variables.v27")
        }),
        input("a policy whose message is 30 MB", &[201, 413, 422], || {
            let variables = items(22, |index| match index {
                0 => r#"{"name":"v0","expression":"'xxxxxxxxxxxxxxxx'"}"#.to_owned(),
                _ => format!(
                    r#"{{"name":"v{index}","expression":"variables.v{} + variables.v{}"}}"#,
                    index - 1,
                    index - 1
                ),
            });
            under_policy(&variables, "variables.v21 == ''")
        }),
        input(
            "a policy that walks 1,000 fields within each other",
            &[201, 413, 422],
            || {
                under_policy(
                    "[]",
                    "object.data.all(a, object.data.all(b, object.data.all(c, a != b || b != c || true)))",
                )
            },
        ),
        input("a policy that splits and replaces", &[201, 413, 422], || {
            under_policy(
                "[]",
                "object.data.all(a, object.data[a].replace('', 'xxxxxxxxxx').replace('', 'yyyyyyyyyy').split('').size() > 0)",
            )
        }),
        input("a policy with a pattern over itself", &[201, 413, 422], || {
            under_policy(
                "[]",
                "object.data.all(a, object.data.all(b, a.matches('^(k+)+[0-9]{1,500}$')))",
            )
        }),
    ]
}

fn rules(rule: &str) -> String {
    let rule = rule.replace('"', "\\\"");
    format!(r#""x-kubernetes-validations":[{{"rule":"{rule}"}}]"#)
}

/// A definition with this rule.
fn ruled(rule: &str) -> Request {
    let body = definition_of_spec(&format!(r#"{{"type":"string",{}}}"#, rules(rule)));
    create(DEFINITIONS, DEFINITION, body)
}

/// A definition of lists of 40 numbers under this rule.
fn of_list(rule: &str) -> Request {
    let schema = format!(
        r#"{{"type":"array","maxItems":40,"items":{{"type":"integer"}},{}}}"#,
        rules(rule)
    );
    create(DEFINITIONS, DEFINITION, definition_of_spec(&schema))
}

/// A ConfigMap of 1,000 fields under a policy.
fn under_policy(variables: &str, expression: &str) -> Request {
    let version = "admissionregistration.k8s.io/v1";
    let spec = format!(
        r#""spec":{{"failurePolicy":"Fail","matchConstraints":{{"resourceRules":[{{"apiGroups":[""],
        "apiVersions":["v1"],"operations":["CREATE"],"resources":["configmaps"],"resourceNames":[]}}]}},
        "variables":{variables},"validations":[{{"expression":"{expression}"}}],
        "matchConditions":[{{"name":"only","expression":"object.metadata.name == 'judged'"}}]}}"#
    );
    let policy = object(version, "ValidatingAdmissionPolicy", "hostile", "", &spec);
    let spec = r#""spec":{"policyName":"hostile","validationActions":["Deny"]}"#;
    let binding = object(version, "ValidatingAdmissionPolicyBinding", "hostile", "", spec);
    let data = fields(1_000, |_| "\"v\"".to_owned());
    create(
        CONFIG_MAPS,
        "judged",
        config_map("judged", "", &format!("\"data\":{data}")),
    )
    .after(create(VALIDATING_POLICIES, "hostile", policy))
    .after(create(VALIDATING_BINDINGS, "hostile", binding))
}
