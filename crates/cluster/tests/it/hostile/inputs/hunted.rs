//! What a hunt from outside found, and what is far from it: requests for certificates, pods whose status is as wide as
//! their spec, quotas that are charged one by one, patterns and formats on long texts.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::kinds::review;
use crate::hostile::input::{Input, Request, apply, create, get, input, merge_patch};
use crate::hostile::values::{
    CLUSTER_BINDINGS, CLUSTER_ROLES, CONFIG_MAPS, DEFINITION, DEFINITIONS, PODS, QUOTAS, THINGS, config_map,
    definition_of_spec, fields, items, object, pod, scaled, thing,
};

const WIDE: &[u16] = &[201, 413, 422];
const CHANGED: &[u16] = &[200, 413, 422];

pub(crate) fn inputs() -> Vec<Input> {
    let mut inputs = signing_requests();
    inputs.extend(pods());
    inputs.extend(quotas());
    inputs.extend(custom());
    inputs.extend(others());
    inputs
}

/// A value of DER with this tag.
fn der(tag: u8, contents: &[u8]) -> Vec<u8> {
    let length = u32::try_from(contents.len()).unwrap().to_be_bytes();
    let leading = length.iter().take_while(|digit| **digit == 0).count().min(3);
    let used = &length[leading..];
    let long = (contents.len() >= 0x80).then(|| 0x80 | u8::try_from(used.len()).unwrap());
    [&[tag], long.as_slice(), used, contents].concat()
}

/// A request for a certificate of this subject, with these attributes: PEM in base64, as `spec.request` has it.
pub(super) fn pem(subject: &[u8], attributes: &[u8]) -> String {
    let key = der(0x30, &[0x30, 2, 6, 0, 3, 1, 0]);
    let info = [der(2, &[0]), der(0x30, subject), key, der(0xa0, attributes)].concat();
    let signed = [der(0x30, &info), der(0x30, &[6, 0]), der(3, &[0])].concat();
    let text = STANDARD.encode(der(0x30, &signed));
    STANDARD.encode(format!(
        "-----BEGIN CERTIFICATE REQUEST-----\n{text}\n-----END CERTIFICATE REQUEST-----\n"
    ))
}

fn signing_request(signer: &str, subject: &[u8], attributes: &[u8]) -> Request {
    let spec = format!(
        r#""spec":{{"signerName":"{signer}","usages":["client auth"],"request":"{}"}}"#,
        pem(subject, attributes)
    );
    let body = object(
        "certificates.k8s.io/v1",
        "CertificateSigningRequest",
        "hunted",
        "",
        &spec,
    );
    create(
        "/apis/certificates.k8s.io/v1/certificatesigningrequests",
        "hunted",
        body,
    )
}

fn signing_requests() -> Vec<Input> {
    const CLIENT: &str = "kubernetes.io/kube-apiserver-client";
    /// An organization with a number.
    fn organization(number: usize) -> Vec<u8> {
        let text = der(0x0c, number.to_string().as_bytes());
        der(0x30, &[der(6, &[0x55, 4, 10]), text].concat())
    }
    let backwards = |count: usize, part: fn(usize) -> Vec<u8>| -> Vec<u8> {
        (0..scaled(count))
            .rev()
            .flat_map(|index| part(100_000 + index))
            .collect()
    };
    vec![
        input(
            "a signing request of 50,000 names in the wrong order",
            &[201, 403, 422],
            move || signing_request(CLIENT, &der(0x31, &backwards(50_000, organization)), &[]),
        ),
        input(
            "a signing request of 20,000 attributes in the wrong order",
            &[201, 403, 422],
            move || signing_request(CLIENT, &[], &backwards(20_000, |index| der(0x30, &index.to_be_bytes()))),
        ),
        input("a signing request of 50,000 names for nobody", &[201, 422], move || {
            signing_request("a.b/c", &der(0x31, &backwards(50_000, organization)), &[])
        }),
    ]
}

/// A pod of so many containers, each of which asks for a processor.
fn wide_pod(count: usize) -> Request {
    let containers = items(count, |index| {
        format!(r#"{{"name":"c{index}","image":"i","resources":{{"requests":{{"cpu":"1m"}}}}}}"#)
    });
    create(
        PODS,
        "hunted",
        object(
            "v1",
            "Pod",
            "hunted",
            "",
            &format!(r#""spec":{{"containers":{containers}}}"#),
        ),
    )
}

/// The status of its containers.
fn wide_status(count: usize) -> Request {
    let statuses = items(count, |index| {
        format!(
            r#"{{"name":"c{index}","image":"i","imageID":"","ready":true,"restartCount":0,
            "resources":{{"requests":{{"cpu":"2m"}}}}}}"#
        )
    });
    let status = format!(r#"{{"status":{{"phase":"Running","containerStatuses":{statuses}}}}}"#);
    merge_patch(&format!("{PODS}/hunted/status"), status)
}

fn pods() -> Vec<Input> {
    vec![
        input("a pod of 5,000 containers that all run", CHANGED, || {
            wide_status(5_000).after(wide_pod(5_000))
        }),
        input(
            "a pod that asks for 20,000 resources as a whole and in a container",
            WIDE,
            || {
                let resources = fields(20_000, |_| "\"5\"".to_owned()).replace("\"k", "\"a.b/k");
                let container = format!(r#""image":"i","resources":{{"requests":{resources},"limits":{resources}}}"#);
                let body = pod("hunted", &format!(r#""resources":{{"requests":{resources}}}"#));
                create(PODS, "hunted", body.replace(r#""image":"i""#, &container))
            },
        ),
    ]
}

/// A quota of these resources, of each of which there may be many; a controller has looked at it.
fn quota(name: &str, resources: &[String]) -> [Request; 2] {
    let amounts = |amount: &str| {
        let each: Vec<String> = resources
            .iter()
            .map(|name| format!("\"{name}\":\"{amount}\""))
            .collect();
        format!("{{{}}}", each.join(","))
    };
    let (hard, used) = (amounts("100000"), amounts("0"));
    let body = object("v1", "ResourceQuota", name, "", &format!(r#""spec":{{"hard":{hard}}}"#));
    let status = merge_patch(
        &format!("{QUOTAS}/{name}/status"),
        format!(r#"{{"status":{{"hard":{hard},"used":{used}}}}}"#),
    );
    [create(QUOTAS, name, body), status]
}

fn quotas() -> Vec<Input> {
    vec![
        input("a pod under 60 quotas of 200 resources", &[201], || {
            let mut resources: Vec<String> = (0..200).map(|index| format!("count/k{index}")).collect();
            resources.push("pods".to_owned());
            let quotas = (0..60).flat_map(|index| quota(&format!("q{index}"), &resources));
            quotas.fold(create(PODS, "hunted", pod("hunted", "")), Request::after)
        }),
        input("a label for a pod of 5,000 containers under a quota", CHANGED, || {
            let labelled = merge_patch(&format!("{PODS}/hunted"), r#"{"metadata":{"labels":{"a":"b"}}}"#);
            let counted = quota("counted", &["requests.cpu".to_owned()]);
            let made = counted.into_iter().fold(labelled, Request::after);
            made.after(wide_pod(5_000)).after(wide_status(5_000))
        }),
    ]
}

/// A Thing with this spec, after its definition.
fn thing_of(schema: &str, spec: &str) -> Request {
    create(THINGS, "hunted", thing("hunted", spec)).after(create(DEFINITIONS, DEFINITION, definition_of_spec(schema)))
}

fn custom() -> Vec<Input> {
    let text = |rest: &str| format!(r#"{{"type":"string",{rest}}}"#);
    let (one, two) = (text(r#""format":"email""#), text(r#""pattern":"(|a|b|)*(|a|b|)*$""#));
    vec![
        input("2,000 objects of 20 fields that fit none of 100 sorts", WIDE, || {
            let below = |least: usize| fields(20, |_| format!(r#"{{"minimum":{least}}}"#));
            let sorts = items(100, |index| format!(r#"{{"properties":{}}}"#, below(index)));
            let all = fields(20, |_| r#"{"type":"integer"}"#.to_owned());
            let schema =
                format!(r#"{{"type":"array","items":{{"type":"object","properties":{all},"oneOf":{sorts}}}}}"#);
            let none = fields(20, |_| "0".to_owned());
            thing_of(&schema, &items(2_000, |_| none.clone()))
        }),
        input("an address of mail with 400,000 signs for at", WIDE, move || {
            thing_of(&one, &format!("\"{}\"", "a@".repeat(400_000)))
        }),
        input("a pattern of nothing, many times, on 1 MB", WIDE, move || {
            thing_of(&two, &format!("\"{}\"", "ab".repeat(450_000)))
        }),
    ]
}

fn others() -> Vec<Input> {
    vec![
        input("a budget of disruption of 100,000 digits of percent", &[422], || {
            let spec = format!(
                r#""spec":{{"minAvailable":"{}%","selector":{{}}}}"#,
                "9".repeat(100_000)
            );
            let body = object("policy/v1", "PodDisruptionBudget", "hunted", "", &spec);
            create(
                "/apis/policy/v1/namespaces/default/poddisruptionbudgets",
                "hunted",
                body,
            )
        }),
        input("an apply by the 31st owner of 3,000 fields", CHANGED, || {
            let data = fields(3_000, |_| "\"v\"".to_owned());
            let body = config_map("hunted", "", &format!("\"data\":{data}"));
            let path = format!("{CONFIG_MAPS}/hunted");
            let by = |owner: usize| apply(&path, &format!("m{owner}"), body.clone());
            (0..30).map(by).fold(by(30), Request::after)
        }),
        input(
            "a review of somebody in 50,000 groups among 12,000 others",
            &[201],
            || {
                const GROUP: &str = "rbac.authorization.k8s.io";
                let version = format!("{GROUP}/v1");
                let subjects = items(12_000, |index| {
                    format!(r#"{{"kind":"Group","apiGroup":"{GROUP}","name":"x{index}"}}"#)
                });
                let rest = format!(
                    r#""roleRef":{{"apiGroup":"{GROUP}","kind":"ClusterRole","name":"hunted"}},"subjects":{subjects}"#
                );
                let groups = items(50_000, |index| format!("\"g{index}\""));
                let spec =
                    format!(r#""user":"u","groups":{groups},"resourceAttributes":{{"verb":"get","resource":"pods"}}"#);
                let (binding, role) = (
                    object(&version, "ClusterRoleBinding", "hunted", "", &rest),
                    object(&version, "ClusterRole", "hunted", "", "\"rules\":[]"),
                );
                review(
                    "authorization.k8s.io/v1",
                    "SubjectAccessReview",
                    "subjectaccessreviews",
                    &spec,
                )
                .after(create(CLUSTER_ROLES, "hunted", role))
                .after(create(CLUSTER_BINDINGS, "hunted", binding))
            },
        ),
        input("an Accept whose quality is no number", &[200, 406], || {
            get(CONFIG_MAPS).header("Accept", "application/json;q=NaN, */*;q=-1;as=Table;as=Table")
        }),
    ]
}
