use super::*;
use k8s_openapi::api::core::v1::Pod;

fn owned(api_version: &str, kind: &str, name: &str, controller: bool) -> OwnerReference {
    OwnerReference {
        api_version: api_version.into(),
        kind: kind.into(),
        name: name.into(),
        controller: Some(controller),
        ..Default::default()
    }
}

fn pod(owners: Vec<OwnerReference>) -> Pod {
    let mut pod = Pod::default();
    pod.metadata.namespace = Some("ns".into());
    pod.metadata.owner_references = Some(owners);
    pod
}

#[test]
fn owners_are_found_by_group_and_kind_and_only_when_they_control() {
    let deployments = OwnerKind {
        group: "apps".into(),
        kind: "Deployment".into(),
        cluster_scoped: false,
    };
    let nodes = OwnerKind {
        group: String::new(),
        kind: "Node".into(),
        cluster_scoped: true,
    };
    let owners = |owner: &OwnerKind, references: Vec<OwnerReference>, any| {
        let keys = owner.owners_of(&pod(references), any);
        keys.iter().map(ToString::to_string).collect::<Vec<String>>()
    };
    let check = |owner: &OwnerKind, references: Vec<OwnerReference>, expected: Option<&str>| {
        assert_eq!(owners(owner, references, false), Vec::from_iter(expected));
    };
    let several = vec![
        owned("apps/v1", "Deployment", "a", false),
        owned("apps/v1", "ReplicaSet", "b", false),
        owned("apps/v1", "Deployment", "c", true),
    ];
    assert_eq!(owners(&deployments, several.clone(), true), ["ns/a", "ns/c"]);
    assert_eq!(owners(&deployments, several, false), ["ns/c"]);
    check(
        &deployments,
        vec![owned("apps/v1", "Deployment", "a", true)],
        Some("ns/a"),
    );
    check(
        &deployments,
        vec![owned("apps/v1beta2", "Deployment", "a", true)],
        Some("ns/a"),
    );
    check(&deployments, vec![owned("apps/v1", "Deployment", "a", false)], None);
    check(
        &deployments,
        vec![owned("example.com/v1", "Deployment", "a", true)],
        None,
    );
    check(
        &deployments,
        vec![
            owned("a/b/c", "Broken", "x", true),
            owned("apps/v1", "Deployment", "a", true),
        ],
        Some("ns/a"),
    );
    check(&nodes, vec![owned("v1", "Node", "n", true)], Some("n"));
}

#[test]
fn both_states_of_a_modification_are_mapped() {
    let (old, new): (Arc<Any>, Arc<Any>) = (Arc::new(pod(vec![])), Arc::new(pod(vec![])));
    let event = Event::Modified {
        old: old.clone(),
        new: new.clone(),
    };
    let seen: Vec<&Any> = each_state(&event).collect();
    assert!(seen.len() == 2 && std::ptr::eq(seen[0], &*old) && std::ptr::eq(seen[1], &*new));
    assert_eq!(
        each_state(&Event::Deleted {
            key: "x".into_key(),
            object: new,
            final_state_unknown: true
        })
        .count(),
        1
    );
}

/// A key that waits, behind a slow reconcile or on a replica that does not lead, keeps no object that has changed.
#[tokio::test]
async fn what_waits_keeps_no_object() {
    let check = async |is_standby: bool, expected: usize| {
        let queue = KeyQueue {
            inner: Queue::new(Box::new(kubewright_engine::backoff::Exponential::default())),
            shards: None,
            standby: Standby::default(),
        };
        queue.standby.set(is_standby);
        let take = keys_of(queue.clone(), |_| Some(vec![Request::new(Some("ns"), "key")]));
        let resource = crate::object::api_resource::<Pod>();
        let states: Vec<Arc<Any>> = (0..30)
            .map(|number| {
                let mut pod = pod(vec![]);
                pod.metadata.name = Some(format!("p{}", number / 2));
                pod.metadata.resource_version = Some(number.to_string());
                pod.metadata.labels = Some([("n".to_owned(), number.to_string())].into());
                Arc::new(pod) as Arc<Any>
            })
            .collect();
        for (old, new) in states.iter().zip(&states[1..]) {
            let (old, new) = (old.clone(), new.clone());
            let passed = Passed {
                priority: Priority::Normal,
                resource: &resource,
                broken: None,
            };
            take(&Event::Modified { old, new }, passed);
        }
        assert!(states.iter().all(|state| Arc::strong_count(state) == 1));
        let work = queue.inner.next().await.expect("a key waits");
        let causes = work.causes.taken();
        assert_eq!(causes.len(), expected, "{causes:?}");
    };
    check(false, 15).await;
    check(true, 1).await;
}

trait IntoKey {
    fn into_key(self) -> kubewright_engine::ObjectKey;
}
impl IntoKey for &str {
    fn into_key(self) -> kubewright_engine::ObjectKey {
        kubewright_engine::ObjectKey::cluster(self)
    }
}
