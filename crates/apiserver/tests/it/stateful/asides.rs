//! Requests beside the objects: reviews, tokens, computed kinds, and the subresources of pods that connect.

use serde_json::{Value, json};

use super::edges;
use super::generator::{Ask, spoilt};
use super::random::Random;

/// A review or a request for a token, right or spoilt; or a question about the served kinds.
pub(crate) fn aside(random: &mut Random, pod: &str) -> Ask {
    match random.below(6) {
        0 | 1 => review(random),
        2 => token(random),
        3 => computed(random),
        4 => part(random, pod),
        _ => connection(random, pod),
    }
}

fn ask(method: &'static str, path: String, body: Vec<u8>) -> Ask {
    Ask {
        method,
        path,
        content_type: "application/json",
        accept: "application/json",
        body,
    }
}

fn review(random: &mut Random) -> Ask {
    let attributes = json!({"namespace": "default", "verb": "get", "group": "apps", "version": "v1",
        "resource": "deployments", "subresource": "status", "name": "a",
        "labelSelector": {"requirements": [{"key": "a", "operator": "In", "values": ["b"]}]},
        "fieldSelector": {"rawSelector": "metadata.name=a"}});
    let who = json!({"user": "u", "groups": ["g", "system:authenticated"], "extra": {"k": ["v"]}, "uid": "1"});
    let with = |fields: &[(&str, Value)]| {
        let mut spec = who.clone();
        for (key, value) in fields {
            spec[*key] = value.clone();
        }
        spec
    };
    let of_path = json!({"path": "/healthz", "verb": "get"});
    let authorization = "/apis/authorization.k8s.io/v1";
    let (path, kind, spec) = match random.below(6) {
        0 => (
            "subjectaccessreviews",
            "SubjectAccessReview",
            with(&[("resourceAttributes", attributes)]),
        ),
        1 => (
            "subjectaccessreviews",
            "SubjectAccessReview",
            with(&[("nonResourceAttributes", of_path)]),
        ),
        2 => (
            "selfsubjectaccessreviews",
            "SelfSubjectAccessReview",
            json!({"resourceAttributes": attributes}),
        ),
        3 => (
            "namespaces/default/localsubjectaccessreviews",
            "LocalSubjectAccessReview",
            with(&[("resourceAttributes", attributes)]),
        ),
        4 => (
            "selfsubjectrulesreviews",
            "SelfSubjectRulesReview",
            json!({"namespace": "default"}),
        ),
        _ => {
            let spec = json!({"token": "e30.e30.e30", "audiences": ["a", "b"]});
            let review = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": spec});
            let path = "/apis/authentication.k8s.io/v1/tokenreviews".to_owned();
            return ask("POST", path, spoilt(random, review));
        }
    };
    let review = json!({"apiVersion": "authorization.k8s.io/v1", "kind": kind, "spec": spec});
    ask("POST", format!("{authorization}/{path}"), spoilt(random, review))
}

fn token(random: &mut Random) -> Ask {
    let bound = json!({"kind": "Pod", "apiVersion": "v1", "name": "a"});
    let spec = json!({"audiences": ["a"], "expirationSeconds": 3600, "boundObjectRef": bound});
    let request = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec});
    let account = random.pick(&["default", "a"]);
    let path = format!("/api/v1/namespaces/default/serviceaccounts/{account}/token");
    ask("POST", path, spoilt(random, request))
}

fn computed(random: &mut Random) -> Ask {
    let path = random.pick(&[
        "/api",
        "/apis",
        "/api/v1",
        "/apis/example.com",
        "/apis/example.com/v1",
        "/apis/apps/v1",
        "/openapi/v2",
        "/openapi/v3",
        "/openapi/v3/apis/example.com/v1",
        "/openapi/v3/apis/apps/v1?hash=0",
        "/api/v1/componentstatuses",
        "/metrics",
        "/readyz?verbose",
    ]);
    let aggregated = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json";
    Ask {
        accept: random.pick(&["application/json", aggregated, "*/*"]),
        ..ask("GET", path.to_owned(), Vec::new())
    }
}

/// A write to a subresource that changes a part of a pod.
fn part(random: &mut Random, pod: &str) -> Ask {
    let mut fields = json!({"metadata": {}, "spec": {
        "containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}, "limits": {"cpu": "2"}}}],
        "ephemeralContainers": [{"name": "e", "image": "i", "targetContainerName": "c"}],
    }});
    let part = random.pick(&["ephemeralcontainers", "resize"]);
    if random.once_in(2) {
        edges::change(random, &mut fields, 0);
    }
    Ask {
        content_type: "application/strategic-merge-patch+json",
        ..ask("PATCH", format!("{pod}/{part}"), spoilt(random, fields))
    }
}

/// A connection to a pod, which no kubelet serves here: the refusal and its form count.
fn connection(random: &mut Random, pod: &str) -> Ask {
    let what = random.pick(&[
        "exec?command=a&command=b&stdin=true&tty=true&container=c",
        "exec?command=&stdout=maybe",
        "exec",
        "attach?stdin=true&stdout=true",
        "attach?stdin=false",
        "portforward?ports=1,2,65536",
        "portforward?ports=99999999999999999999",
        "log",
        "log?tailLines=9223372036854775807&limitBytes=1&timestamps=true",
        "log?tailLines=-1",
        "log?sinceSeconds=9223372036854775807",
        "log?sinceTime=9999-12-31T23:59:59Z",
        "log?sinceTime=0000-01-01T00:00:00Z&follow=true&previous=true&container=%00",
        "proxy/a/b?c=d",
        "proxy",
    ]);
    let method = random.pick(&["GET", "GET", "POST", "DELETE"]);
    ask(method, format!("{pod}/{what}"), Vec::new())
}
