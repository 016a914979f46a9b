//! The commands that made kubebuilder's recorded projects, typed to ours: `config/` renders to the same objects except
//! for intended differences.
//!
//! Where operators are built (see `support::operators`), `make manifests` is typed for some, too; elsewhere definitions
//! and webhook configurations are those of the recording, and the role is derived from the project.

#[path = "../../../codegen/tests/it/support/mod.rs"]
mod kubebuilder;
use std::process::Command;

use crate::support::operators;
use kubebuilder::{Meant, recordings};

/// Projects whose manifests are made for real where operators are built: together they have all declarations of the
/// others.
const BUILT: [&str; 6] = [
    "conversion",
    "core-types",
    "deploy-image",
    "edit-namespaced",
    "multigroup",
    "namespaced-manager",
];

/// Differences that are meant only where manifests are made out of the code: elsewhere webhook configurations are those
/// of the recording.
const MADE: &str = r#"[
{"project": "core-types", "rendering": "*", "object": "*WebhookConfiguration/*", "path": "/webhooks/*/namespaceSelector", "reason": "a webhook for built-in kinds leaves out kube-system and operators: while it is down, they are what brings it back"},
{"project": "core-types", "rendering": "*", "object": "*WebhookConfiguration/*", "path": "/webhooks/*/timeoutSeconds", "actual": 5, "reason": "every write of a built-in kind waits for it; the server's own default is ten seconds"}
]"#;

#[test]
fn the_same_commands_make_a_project_that_renders_to_the_same_objects() {
    let building = operators::are_built();
    let mut meant = Meant::read();
    if building {
        meant.and(MADE);
    }
    let mut wrong = String::new();
    for recording in recordings() {
        let built = building && BUILT.contains(&recording.name.as_str());
        let folder = tempfile::tempdir().unwrap();
        for command in &recording.commands {
            if command == "make manifests" && built {
                operators::lock(folder.path());
                operators::type_in("kubewright manifests", folder.path());
            }
            let Some(arguments) = command.strip_prefix("kubebuilder ") else {
                continue;
            };
            // A chart is rendered out of a whole `config/`, whose role is written from the code.
            let without_role = !folder.path().join("config/rbac/role.yaml").exists();
            let refused = arguments.contains("helm.kubebuilder.io") && without_role;
            let output = Command::new(env!("CARGO_BIN_EXE_kubewright"))
                // Quotes around a word are the shell's.
                .args(arguments.replace('"', "").split(' '))
                .current_dir(folder.path())
                .output()
                .unwrap();
            let said = String::from_utf8_lossy(&output.stderr);
            assert_eq!(
                output.status.success(),
                !refused,
                "{}: {command}: {said}",
                recording.name
            );
        }
        wrong.push_str(&recording.differences(&recording.on_disk(folder.path(), built), &mut meant));
    }
    assert!(wrong.is_empty(), "{wrong}");
}
