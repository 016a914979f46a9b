use super::*;
use crate::cause::ROOM;
use crate::controller::key_queue::Standby;
use crate::queue::Queue;
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

/// Keys that wait, behind slow reconciles or on a replica that does not lead, keep few of the states of objects that
/// change meanwhile, or none; and what has changed is known nevertheless.
#[tokio::test]
async fn what_waits_keeps_few_states() {
    let check = async |is_standby: bool, causes_of_each: usize| {
        let queue = KeyQueue {
            cluster: None,
            inner: Queue::new(Box::new(kubewright_engine::backoff::Exponential::default())),
            shards: None,
            standby: Standby::default(),
            cached: None,
            room: Room::default(),
        };
        queue.standby.set(is_standby);
        let name_of = |event: &Event<Any>| event.object().object_id().name.map(str::to_owned);
        let take = keys_of(queue.clone(), move |event| {
            let number: usize = name_of(event)?.parse().ok()?;
            Some(vec![Request::new(Some("ns"), &(number / 10).to_string())])
        });
        let resource = crate::object::api_resource::<Pod>();
        let state = |number: usize, version: usize| {
            let mut pod = pod(vec![]);
            pod.metadata.name = Some(number.to_string());
            pod.metadata.resource_version = Some(version.to_string());
            pod.metadata.labels = Some([("n".to_owned(), version.to_string())].into());
            Arc::new(pod) as Arc<Any>
        };
        let mut states = Vec::new();
        for number in 0..1000 {
            let all: Vec<Arc<Any>> = (0..3).map(|version| state(number, version)).collect();
            for (old, new) in all.iter().zip(&all[1..]) {
                let (old, new) = (old.clone(), new.clone());
                let passed = Passed {
                    priority: Priority::NORMAL,
                    resource: &resource,
                    broken: None,
                };
                take(&Event::Modified { old, new }, passed);
            }
            states.extend(all);
        }
        let kept = || states.iter().filter(|state| Arc::strong_count(state) > 1).count();
        let each = crate::form::text_len(&*states[0]);
        match is_standby {
            true => assert_eq!(kept(), 0),
            false => assert!((1..=ROOM / each).contains(&kept()), "{} states are kept", kept()),
        }
        for _ in 0..100 {
            let work = queue.inner.next().await.expect("a key waits");
            let causes = work.causes.taken();
            assert_eq!(causes.len(), causes_of_each, "{causes:?}");
            for cause in causes.iter().filter(|_| !is_standby) {
                assert!(
                    cause.to_string().ends_with("metadata.labels.n \"0\" → \"2\""),
                    "{cause}"
                );
            }
            queue.inner.done(work.token);
        }
        assert_eq!(kept(), 0, "once it is known what has changed");
    };
    check(false, 10).await;
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
