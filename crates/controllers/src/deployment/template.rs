//! Which ReplicaSet belongs to the template of a Deployment, and the hash at the end of its name.
//!
//! Pure. Invariants: two templates are the same when they are equal without the label `pod-template-hash`; the hash
//! only makes names, it is never compared to find a ReplicaSet (an adopted one keeps the name that another Deployment
//! gave it).

use kubewright_objects::api::apps::v1::ReplicaSet;
use kubewright_objects::api::core::v1::PodTemplateSpec;

/// The label that keeps the pods of one template apart from those of another.
pub(crate) const HASH: &str = "pod-template-hash";

/// Lower-case letters and digits without those that make words or look alike, as in every generated Kubernetes name.
const ALPHABET: &[u8; 27] = b"bcdfghjklmnpqrstvwxz2456789";

/// The longest name of an object.
const MAX_NAME: usize = 253;

fn without_hash(template: &PodTemplateSpec) -> PodTemplateSpec {
    let mut template = template.clone();
    if let Some(labels) = template.metadata.as_mut().and_then(|meta| meta.labels.as_mut()) {
        labels.remove(HASH);
    }
    template
}

/// Whether the ReplicaSet makes pods of this template.
pub(crate) fn is_of(template: &PodTemplateSpec, set: &ReplicaSet) -> bool {
    set.spec
        .as_ref()
        .and_then(|spec| spec.template.as_ref())
        .is_some_and(|its| without_hash(its) == without_hash(template))
}

/// A short text for a template. `collisions` (status.collisionCount) gives another text to a template whose first one
/// was taken.
///
/// # Errors
/// Never for a template that came from an API server; a template that cannot be written as JSON has no hash.
pub(crate) fn hash(template: &PodTemplateSpec, collisions: Option<i32>) -> Result<String, serde_json::Error> {
    // FNV-1a: short, well spread, and the same in every version of this program. It guards nothing, so it need not be
    // cryptographic.
    let mut state: u64 = 0xcbf2_9ce4_8422_2325;
    let mut feed = |bytes: &[u8]| {
        for byte in bytes {
            state = (state ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
    };
    feed(&serde_json::to_vec(template)?);
    if let Some(collisions) = collisions {
        feed(&collisions.to_le_bytes());
    }
    let mut text = String::with_capacity(10);
    for _ in 0..10 {
        text.push(char::from(ALPHABET[(state % 27) as usize]));
        state /= 27;
    }
    Ok(text)
}

/// `<owner>-<hash>`, with the owner's part cut when the whole would be too long for a name.
pub(crate) fn name(owner: &str, hash: &str) -> String {
    let room = MAX_NAME.saturating_sub(hash.len() + 1);
    let cut = owner
        .char_indices()
        .map(|(at, _)| at)
        .chain([owner.len()])
        .take_while(|at| *at <= room)
        .last()
        .unwrap_or(0);
    format!("{}-{hash}", &owner[..cut])
}

#[cfg(test)]
mod tests {
    use super::*;
    use kubewright_objects::api::apps::v1::ReplicaSetSpec;
    use serde_json::json;

    fn template(labels: serde_json::Value, image: &str) -> PodTemplateSpec {
        serde_json::from_value(json!({
            "metadata": { "labels": labels },
            "spec": { "containers": [{ "name": "c", "image": image }] },
        }))
        .expect("a template")
    }

    fn set(template: PodTemplateSpec) -> ReplicaSet {
        ReplicaSet {
            spec: Some(ReplicaSetSpec {
                template: Some(template),
                ..ReplicaSetSpec::default()
            }),
            ..ReplicaSet::default()
        }
    }

    #[test]
    fn the_hash_label_makes_no_difference() {
        let wanted = template(json!({ "app": "web" }), "app:1");
        let check =
            |labels, image, expected| assert_eq!(is_of(&wanted, &set(template(labels, image))), expected, "{image}");
        check(json!({ "app": "web" }), "app:1", true);
        check(json!({ "app": "web", HASH: "abc" }), "app:1", true);
        check(json!({ "app": "web", HASH: "abc" }), "app:2", false);
        check(json!({ "app": "web", "x": "y", HASH: "abc" }), "app:1", false);
        assert!(!is_of(&wanted, &ReplicaSet::default()));
    }

    #[test]
    fn hashes_are_stable_and_differ() {
        let one = template(json!({ "app": "web" }), "app:1");
        let text = hash(&one, None).expect("a template has a hash");
        assert_eq!(hash(&one, None).expect("a hash"), text);
        assert_ne!(hash(&one, Some(1)).expect("a hash"), text);
        assert_ne!(
            hash(&template(json!({ "app": "web" }), "app:2"), None).expect("a hash"),
            text
        );
        assert!(
            text.len() == 10 && text.bytes().all(|byte| ALPHABET.contains(&byte)),
            "{text}"
        );
    }

    #[test]
    fn names_fit() {
        let check = |length: usize, expected: usize| {
            assert_eq!(name(&"x".repeat(length), "bcdfghjklm").len(), expected, "{length}");
        };
        check(3, 14);
        check(242, 253);
        check(253, 253);
    }
}
