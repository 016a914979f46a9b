use crate::MemoryFiles;
use crate::project::Project;

use super::{CreateApi, Init, create_api, init};

fn project() -> MemoryFiles {
    let mut files = MemoryFiles::default();
    let options = Init {
        name: "memcached-operator".to_owned(),
        domain: "example.com".to_owned(),
        namespaced: false,
        multigroup: false,
        cli_version: "0.1.0".to_owned(),
    };
    let plan = init(&MemoryFiles::default(), &options).map(|plan| {
        files.apply(&plan);
    });
    plan.expect("a project");
    files
}

fn add(files: &mut MemoryFiles, kind: &str, role: bool, playbook: bool) {
    let options = CreateApi {
        group: "cache".to_owned(),
        version: "v1alpha1".to_owned(),
        kind: kind.to_owned(),
        role,
        playbook,
        ..CreateApi::default()
    };
    let before = files.clone();
    let plan = create_api(&before, &options).expect("a kind");
    files.apply(&plan);
}

#[test]
fn a_project_has_the_layout_of_operator_sdk() {
    let mut files = project();
    add(&mut files, "Memcached", true, false);
    add(&mut files, "Cache", true, true);
    add(&mut files, "Bare", false, false);
    for path in [
        "PROJECT",
        "watches.yaml",
        "requirements.yml",
        "Dockerfile",
        "Makefile",
        "roles/memcached/tasks/main.yml",
        "roles/memcached/defaults/main.yml",
        "playbooks/cache.yml",
        "config/crd/bases/cache.example.com_memcacheds.yaml",
        "config/samples/cache_v1alpha1_memcached.yaml",
        "config/rbac/role.yaml",
        "config/default/kustomization.yaml",
    ] {
        assert!(files.0.contains_key(path), "{path} in {:?}", files.0.keys());
    }
    assert!(!files.0.contains_key("roles/bare/tasks/main.yml"));
    let watches = &files.0["watches.yaml"];
    let entry =
        |kind: &str, runs: &str| format!("- group: cache.example.com\n  version: v1alpha1\n  kind: {kind}\n  {runs}\n");
    let expected = [
        entry("Memcached", "role: memcached"),
        entry("Cache", "playbook: playbooks/cache.yml"),
    ]
    .concat();
    assert!(watches.contains(&expected), "{watches}");
    assert!(
        watches.trim_end().ends_with("# +kubebuilder:scaffold:watch"),
        "{watches}"
    );
    let manager = &files.0["config/manager/manager.yaml"];
    assert!(
        !manager.contains("/manager\n") && manager.contains("--leader-election-id=memcached-operator"),
        "{manager}"
    );
    assert!(
        manager.contains("6789") && !manager.contains("8081") && manager.contains("ANSIBLE_GATHERING"),
        "{manager}"
    );
    let project = Project::load(&files).expect("it is read again");
    assert!(super::is_of_ansible(&project) && project.check().is_empty());
    assert!(files.0["config/rbac/role.yaml"].contains("memcacheds/status"));
}

#[test]
fn a_kind_is_made_once() {
    let mut files = project();
    add(&mut files, "Memcached", true, false);
    let options = CreateApi {
        group: "cache".to_owned(),
        version: "v1alpha1".to_owned(),
        kind: "Memcached".to_owned(),
        ..CreateApi::default()
    };
    let refused = create_api(&files, &options).err().expect("it is there");
    assert!(refused.to_string().contains("already"), "{refused}");
}

#[test]
fn a_kind_by_force_changes_what_is_run_and_nothing_else() {
    let head = "- group: cache.example.com\n  version: v1alpha1\n  kind: Memcached\n";
    let after = "\n# another\n- group: cache.example.com\n  version: v1\n  kind: Memcached\n  role: other\n# +kubebuilder:scaffold:watch\n";
    let check = |entry: &str, role: bool, playbook: bool, expected: &str| {
        let mut files = project();
        add(&mut files, "Memcached", true, false);
        files
            .0
            .insert("watches.yaml".to_owned(), format!("---\n{head}{entry}{after}"));
        let options = CreateApi {
            group: "cache".to_owned(),
            version: "v1alpha1".to_owned(),
            kind: "Memcached".to_owned(),
            role,
            playbook,
            force: true,
            ..CreateApi::default()
        };
        let before = files.clone();
        files.apply(&create_api(&before, &options).expect("by force"));
        assert_eq!(files.0["watches.yaml"], format!("---\n{head}{expected}{after}"));
    };
    // What is run is replaced, and the user's other lines stay.
    check(
        "  role: memcached\n  vars:\n    a: 1\n",
        true,
        true,
        "  vars:\n    a: 1\n  playbook: playbooks/memcached.yml\n",
    );
    check(
        "  role: memcached\n  vars:\n    role: 1\n",
        true,
        false,
        "  role: memcached\n  vars:\n    role: 1\n",
    );
    check("  playbook: /opt/x.yml\n", true, false, "  role: memcached\n");
    // Nothing is said to be run.
    check("  role: mine\n", false, false, "  role: mine\n");
}
