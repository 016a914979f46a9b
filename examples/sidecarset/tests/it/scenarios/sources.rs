//! The scenarios of what a sidecar takes over from the pod.

use super::*;

/// Creates a set for `app: web` with one container and these volumes, and a pod of this spec; the pod as it was stored.
async fn injected(sidecar: Value, volumes: Value, labels: Value, pod: Value) -> Outcome<Value> {
    let world = World::start().await?;
    let spec = json!({"selector": {"matchLabels": {"app": "web"}}, "containers": [sidecar], "volumes": volumes});
    world.set("agents", spec).await?;
    let pod: Pod = serde_json::from_value(json!({"metadata": {"name": "p", "labels": labels}, "spec": pod}))?;
    let stored = world.pods(DEFAULT).create(&PostParams::default(), &pod).await?;
    Ok(serde_json::to_value(stored)?)
}

fn named<'a>(list: &'a Value, name: &str) -> &'a Value {
    let mut found = list
        .as_array()
        .into_iter()
        .flatten()
        .filter(|item| item["name"] == name);
    found.next().unwrap_or(&Value::Null)
}

/// The paths of a container's mounts, without the token that the API server mounts everywhere.
fn mounts(container: &Value) -> Vec<(&str, &str)> {
    let mounts = container["volumeMounts"].as_array().into_iter().flatten();
    let texts = mounts.filter_map(|mount| Some((mount["name"].as_str()?, mount["mountPath"].as_str()?)));
    texts.filter(|(name, _)| !name.starts_with("kube-api-access")).collect()
}

#[tokio::test]
async fn s05_volumes_are_added_and_shared() -> Outcome {
    let sidecar = json!({
        "name": "agent", "image": "agent:1", "shareVolumePolicy": {"type": "enabled"},
        "volumeMounts": [{"name": "log", "mountPath": "/log"}, {"name": "both", "mountPath": "/both"}],
    });
    let volumes = json!([
        {"name": "log", "emptyDir": {}}, {"name": "both", "emptyDir": {}}, {"name": "unused", "emptyDir": {}},
    ]);
    let app = json!({
        "containers": [{"name": "main", "image": "main:1", "volumeMounts": [{"name": "data", "mountPath": "/data"}]}],
        "volumes": [{"name": "data", "emptyDir": {}}, {"name": "both", "emptyDir": {"medium": "Memory"}}],
    });
    let pod = injected(sidecar, volumes, json!({"app": "web"}), app).await?;
    let agent = named(&pod["spec"]["containers"], "agent");
    assert_eq!(mounts(agent), [("log", "/log"), ("both", "/both"), ("data", "/data")]);
    assert_eq!(mounts(named(&pod["spec"]["containers"], "main")), [("data", "/data")]);
    let volumes = &pod["spec"]["volumes"];
    assert_eq!(named(volumes, "log")["emptyDir"], json!({}));
    assert_eq!(named(volumes, "unused"), &Value::Null);
    assert_eq!(
        named(volumes, "both")["emptyDir"],
        json!({"medium": "Memory"}),
        "the pod's own volume wins"
    );
    Ok(())
}

#[tokio::test]
async fn s06_environment_is_taken_over() -> Outcome {
    let by_label = json!({"fieldRef": {"fieldPath": "metadata.labels['cName']"}});
    let sidecar = json!({
        "name": "agent", "image": "agent:1",
        "transferEnv": [
            {"sourceContainerName": "main", "envName": "PROXY_IP"},
            {"sourceContainerNameFrom": by_label, "envNames": ["TOKEN"]},
            {"sourceContainerName": "absent", "envName": "NOTHING"},
        ],
    });
    let secret = json!({"secretKeyRef": {"name": "tokens", "key": "token"}});
    let app = json!({"containers": [
        {"name": "main", "image": "main:1", "env": [{"name": "PROXY_IP", "value": "127.0.0.1"}, {"name": "OTHER", "value": "1"}]},
        {"name": "second", "image": "second:1", "env": [{"name": "TOKEN", "valueFrom": secret}]},
    ]});
    let pod = injected(sidecar, json!([]), json!({"app": "web", "cName": "second"}), app).await?;
    let env = &named(&pod["spec"]["containers"], "agent")["env"];
    assert_eq!(named(env, "PROXY_IP")["value"], "127.0.0.1");
    assert_eq!(named(env, "TOKEN")["valueFrom"], secret);
    assert_eq!(
        (named(env, "NOTHING"), named(env, "OTHER")),
        (&Value::Null, &Value::Null)
    );
    Ok(())
}
