//! Expressions whose macros and functions multiply: in policies that judge and that change, and in definitions.

use crate::hostile::input::{Input, Request, create, input};
use crate::hostile::values::{
    CONFIG_MAPS, DEFINITION, DEFINITIONS, MUTATING_BINDINGS, MUTATING_POLICIES, VALIDATING_BINDINGS,
    VALIDATING_POLICIES, config_map, definition, definition_of_spec, fields, items, object,
};

const ANSWERS: &[u16] = &[201, 413, 422];
/// A policy that should change an object and fails is a refusal with 403, as upstream.
const CHANGED: &[u16] = &[201, 403, 413, 422];

pub(crate) fn inputs() -> Vec<Input> {
    let mut inputs = judging();
    inputs.extend(changing());
    inputs.extend(defining());
    inputs
}

fn judging() -> Vec<Input> {
    vec![
        input("a policy that maps lists within lists within lists", ANSWERS, || {
            judged("object.data.map(a, object.data.map(b, object.data.map(c, a + b + c))).size() > 0")
        }),
        input(
            "a policy that looks for the only one within the only one",
            ANSWERS,
            || judged("object.data.exists_one(a, object.data.exists_one(b, object.data.exists_one(c, a == b + c)))"),
        ),
        input("a policy that joins a list of 1,000,000 texts", ANSWERS, || {
            judged("variables.list.join(variables.text).size() > 0")
        }),
        input("a policy that cuts 1 MB into letters, field by field", ANSWERS, || {
            judged("object.data.all(k, variables.text.split('').size() > 0)")
        }),
        input("a policy that keeps 1,000 ends of 1 MB", ANSWERS, || {
            judged("object.data.map(k, variables.text.substring(1)).size() > 0")
        }),
        input(
            "a policy that keeps 1,000 copies of 1 MB in small letters",
            ANSWERS,
            || judged("object.data.map(k, variables.text.lowerAscii()).size() > 0"),
        ),
        input("a policy that writes 1 MB into a format 100 times", ANSWERS, || {
            let places = "%s".repeat(100);
            let texts = vec!["variables.text"; 100].join(", ");
            judged(&format!("'{places}'.format([{texts}]).size() > 0"))
        }),
        input("a policy that finds every letter of 1 MB", ANSWERS, || {
            judged("variables.text.findAll('.').size() > 0")
        }),
        input(
            "a policy that holds sets of 1,000,000 against each other",
            ANSWERS,
            || {
                judged(
                    "sets.contains(variables.list, variables.list) && sets.equivalent(variables.list, variables.list)",
                )
            },
        ),
        input(
            "a policy that looks through 1,000,000 texts 1,000 times",
            ANSWERS,
            || judged("object.data.all(k, variables.list.indexOf('none') < 0)"),
        ),
        input("a policy that asks whether 1 MB is a URL", ANSWERS, || {
            judged("object.data.all(k, !isURL(variables.text))")
        }),
        input("a policy that asks whether 1 MB is an address", ANSWERS, || {
            judged("object.data.all(k, !isIP(variables.text) && !isCIDR(variables.text))")
        }),
        input("a policy that asks whether 1 MB is a quantity", ANSWERS, || {
            judged("object.data.all(k, !isQuantity(variables.text))")
        }),
        input("a policy that asks whether 1 MB is a version", ANSWERS, || {
            judged("object.data.all(k, !isSemver(variables.text))")
        }),
        input("a policy that holds 1 MB against a format 1,000 times", ANSWERS, || {
            judged("object.data.all(k, format.named('dns1123Label').value().validate(variables.text).hasValue())")
        }),
        input("a policy that adds durations without end", ANSWERS, || {
            judged("object.data.all(k, timestamp('9999-12-31T23:59:59Z') + duration('9223372036s') > timestamp(0))")
        }),
        input("a policy that adds beyond the largest number", ANSWERS, || {
            judged("object.data.all(k, 9223372036854775807 + object.data.size() > 0)")
        }),
        input("a policy that divides the least number by -1", ANSWERS, || {
            judged("(-9223372036854775807 - 1) / (object.data.size() - object.data.size() - 1) > 0")
        }),
        input("a policy that asks who may do what, field by field", ANSWERS, || {
            judged("object.data.all(k, authorizer.group('').resource(k).namespace(k).check('get').allowed())")
        }),
        input("a policy with 5,000 variables", ANSWERS, || {
            let variables = items(5_000, |index| {
                format!(r#"{{"name":"v{index}","expression":"variables"}}"#)
            });
            judged_with(&variables, "object.data.all(k, variables.v1.size() > 0)")
        }),
        input(
            "a policy that looks 1,000 times for one of 5,000 variables",
            ANSWERS,
            || {
                let variables = items(5_000, |index| format!(r#"{{"name":"v{index}","expression":"true"}}"#));
                judged_with(
                    &variables,
                    "object.data.all(a, object.data.all(b, variables.v0 || a == b))",
                )
            },
        ),
        input("a policy whose variables hold all variables", ANSWERS, || {
            let variables = items(20, |index| format!(r#"{{"name":"v{index}","expression":"variables"}}"#));
            judged_with(&variables, "variables.v0 == variables.v1 || string(variables.v2) == ''")
        }),
        input("a policy with 200 optional steps", ANSWERS, || {
            judged(&format!("object{}.hasValue()", ".?data".repeat(200)))
        }),
        input("a policy that turns 1 MB into bytes and back", ANSWERS, || {
            judged("object.data.map(k, string(bytes(variables.text))).size() > 0")
        }),
    ]
}

fn changing() -> Vec<Input> {
    vec![
        input("a policy that patches 1 MB into 1,000 fields", CHANGED, || {
            changed(
                "JSONPatch",
                "object.data.map(k, JSONPatch{op: 'add', path: '/data/x' + k, value: variables.text})",
            )
        }),
        input("a policy that patches 1,000,000 times", CHANGED, || {
            changed(
                "JSONPatch",
                "variables.list.map(k, JSONPatch{op: 'add', path: '/data/x', value: 'y'})",
            )
        }),
        input(
            "a policy that copies the data into itself 30 times",
            &[413, 422, 500],
            || {
                let copy = "JSONPatch{op: 'copy', from: '/metadata/annotations', path: '/metadata/annotations/a'}";
                changed("JSONPatch", &format!("[{}]", vec![copy; 30].join(", ")))
            },
        ),
        input("a policy that patches a path of 1 MB", CHANGED, || {
            changed(
                "JSONPatch",
                "[JSONPatch{op: 'add', path: variables.text.replace('x', '/'), value: 'y'}]",
            )
        }),
        input("a policy that applies 1 MB to a label", CHANGED, || {
            changed(
                "ApplyConfiguration",
                "Object{metadata: Object.metadata{labels: {'a': variables.text}}}",
            )
        }),
        input("a policy that applies 1,000,000 finalizers", CHANGED, || {
            changed(
                "ApplyConfiguration",
                "Object{metadata: Object.metadata{finalizers: variables.list}}",
            )
        }),
    ]
}

fn defining() -> Vec<Input> {
    vec![
        input("a rule of 300 macros within each other", ANSWERS, || {
            let rule = (0..300).fold("true".to_owned(), |rule, index| format!("self.all(x{index}, {rule})"));
            ruled(r#""type":"array","items":{"type":"integer"}"#, &rule)
        }),
        input("a rule below 20 levels of unbounded maps", ANSWERS, || {
            let rule = r#"{"type":"string","x-kubernetes-validations":[{"rule":"self != ''"}]}"#.to_owned();
            let schema = (0..20).fold(rule, |schema, _| {
                format!(r#"{{"type":"object","additionalProperties":{schema}}}"#)
            });
            create(DEFINITIONS, DEFINITION, definition_of_spec(&schema))
        }),
        input("5,000 fields with a rule each", ANSWERS, || {
            let properties = fields(5_000, |_| {
                r#"{"type":"string","maxLength":9,"x-kubernetes-validations":[{"rule":"self != ''"}]}"#.to_owned()
            });
            let schema = format!(r#"{{"type":"object","properties":{properties}}}"#);
            create(DEFINITIONS, DEFINITION, definition_of_spec(&schema))
        }),
        input("a rule whose message is an expression of 4 KB", ANSWERS, || {
            let message = format!("'{}'", "x".repeat(4_000));
            let rule = format!(r#"{{"rule":"false","messageExpression":"{message}"}}"#);
            let schema = format!(r#"{{"type":"object","x-kubernetes-validations":[{rule}]}}"#);
            create(DEFINITIONS, DEFINITION, definition(&schema))
        }),
        input("a list whose elements have 1,000 keys", ANSWERS, || {
            let properties = fields(1_000, |_| r#"{"type":"string","default":""}"#.to_owned());
            let keys = items(1_000, |index| format!("\"k{index}\""));
            let schema = format!(
                r#"{{"type":"array","x-kubernetes-list-type":"map","x-kubernetes-list-map-keys":{keys},
                "items":{{"type":"object","properties":{properties}}}}}"#
            );
            create(DEFINITIONS, DEFINITION, definition_of_spec(&schema))
        }),
        input("100 versions with 100 columns each", ANSWERS, || {
            let columns = items(100, |index| {
                format!(r#"{{"name":"c{index}","type":"string","jsonPath":".spec..a..b"}}"#)
            });
            let versions = items(100, |index| {
                format!(
                    r#"{{"name":"v{}","served":true,"storage":{},"schema":{{"openAPIV3Schema":{{"type":"object"}}}},
                    "additionalPrinterColumns":{columns}}}"#,
                    index + 1,
                    index == 0
                )
            });
            let spec = format!(
                r#""spec":{{"group":"hostile.example.com","scope":"Namespaced",
                "names":{{"plural":"things","kind":"Thing"}},"versions":{versions}}}"#
            );
            let body = object(
                "apiextensions.k8s.io/v1",
                "CustomResourceDefinition",
                DEFINITION,
                "",
                &spec,
            );
            create(DEFINITIONS, DEFINITION, body)
        }),
    ]
}

fn ruled(schema: &str, rule: &str) -> Request {
    let schema = format!(r#"{{{schema},"x-kubernetes-validations":[{{"rule":"{rule}"}}]}}"#);
    create(DEFINITIONS, DEFINITION, definition_of_spec(&schema))
}

const VERSION: &str = "admissionregistration.k8s.io/v1";

/// `text` is 1 MB, `list` holds 1,000,000 texts: both double twenty times, and `text10`, say, has 2^10 letters.
fn variables() -> String {
    let doubled = |name: &str, first: &str| {
        let variable = |index: usize| match index {
            0 => format!(r#"{{"name":"{name}0","expression":"{first}"}}"#),
            20 => {
                let half = format!("variables.{name}19");
                format!(r#"{{"name":"{name}","expression":"{half} + {half}"}}"#)
            }
            _ => {
                let half = format!("variables.{name}{}", index - 1);
                format!(r#"{{"name":"{name}{index}","expression":"{half} + {half}"}}"#)
            }
        };
        (0..=20).map(variable).collect::<Vec<_>>().join(",")
    };
    format!("[{},{}]", doubled("text", "'x'"), doubled("list", "['x']"))
}

/// The criteria that match the ConfigMap of these inputs and nothing else.
fn chosen() -> String {
    r#""failurePolicy":"Fail","matchConstraints":{"resourceRules":[{"apiGroups":[""],"apiVersions":["v1"],
    "operations":["CREATE"],"resources":["configmaps"]}]},
    "matchConditions":[{"name":"only","expression":"object.metadata.name == 'judged'"}]"#
        .to_owned()
}

fn concerned() -> Request {
    let data = fields(1_000, |_| "\"v\"".to_owned());
    create(
        CONFIG_MAPS,
        "judged",
        config_map("judged", r#""annotations":{"b":"c"}"#, &format!("\"data\":{data}")),
    )
}

/// A ConfigMap of 1,000 fields under a policy that says this of it.
pub(super) fn judged(expression: &str) -> Request {
    judged_with(&variables(), expression)
}

/// The same with other variables.
pub(super) fn judged_with(variables: &str, expression: &str) -> Request {
    let spec = format!(
        r#""spec":{{{},"variables":{variables},"validations":[{{"expression":"{expression}"}}]}}"#,
        chosen()
    );
    let policy = object(VERSION, "ValidatingAdmissionPolicy", "hostile", "", &spec);
    let spec = r#""spec":{"policyName":"hostile","validationActions":["Deny"]}"#;
    let binding = object(VERSION, "ValidatingAdmissionPolicyBinding", "hostile", "", spec);
    concerned()
        .after(create(VALIDATING_POLICIES, "hostile", policy))
        .after(create(VALIDATING_BINDINGS, "hostile", binding))
}

/// The same under a policy that changes it so.
fn changed(sort: &str, expression: &str) -> Request {
    let field = match sort {
        "JSONPatch" => "jsonPatch",
        _ => "applyConfiguration",
    };
    let spec = format!(
        r#""spec":{{{},"reinvocationPolicy":"Never","variables":{},
        "mutations":[{{"patchType":"{sort}","{field}":{{"expression":"{expression}"}}}}]}}"#,
        chosen(),
        variables()
    );
    let policy = object(VERSION, "MutatingAdmissionPolicy", "hostile", "", &spec);
    let spec = r#""spec":{"policyName":"hostile"}"#;
    let binding = object(VERSION, "MutatingAdmissionPolicyBinding", "hostile", "", spec);
    concerned()
        .after(create(MUTATING_POLICIES, "hostile", policy))
        .after(create(MUTATING_BINDINGS, "hostile", binding))
}
