//! `sync` on folders that people have edited.

use super::*;
use crate::plan::MemoryFiles;
use crate::project::Webhooks;

fn plain() -> Project {
    let mut project = Project::new("guestbook", "my.domain");
    project
        .resources
        .push(Resource::own("webapp", "my.domain", "v1", "Guestbook", true));
    project
}

fn with_webhooks() -> Project {
    let mut project = plain();
    project.resources[0].webhooks = Some(Webhooks {
        defaulting: true,
        ..Webhooks::default()
    });
    project
}

/// The files after `sync`, and the notes.
fn synced(
    before: Option<&Project>,
    after: &Project,
    files: &MemoryFiles,
) -> Result<(MemoryFiles, Vec<String>), Diagnostic> {
    let mut plan = Plan::new(files);
    sync(before, after, &mut plan)?;
    let mut result = files.clone();
    result.apply(&plan);
    Ok((result, plan.notes))
}

fn tree(project: &Project) -> MemoryFiles {
    synced(None, project, &MemoryFiles::default()).unwrap().0
}

#[test]
fn a_list_that_was_lost_is_written_with_everything_in_it() {
    let mut after = plain();
    after
        .resources
        .push(Resource::own("webapp", "my.domain", "v1", "Visit", true));
    for path in ["config/crd/kustomization.yaml", "config/samples/kustomization.yaml"] {
        let mut files = tree(&plain());
        files.0.remove(path);
        let (files, _) = synced(Some(&plain()), &after, &files).unwrap();
        assert_eq!(files.0[path], tree(&after).0[path], "{path}");
    }
}

fn edit(files: &mut MemoryFiles, path: &str, from: &str, to: &str) {
    let text = files.0.get_mut(path).unwrap();
    assert!(text.contains(from), "{from:?} in {text}");
    *text = text.replace(from, to);
}

const DEFAULT: &str = "config/default/kustomization.yaml";

#[test]
fn a_new_part_leaves_the_users_lines_alone() {
    let mut files = tree(&plain());
    edit(
        &mut files,
        DEFAULT,
        "- names.yaml\n",
        "- names.yaml\n- extra.yaml # mine\n",
    );
    edit(&mut files, DEFAULT, "#- ../prometheus\n", "- ../prometheus # on\n");
    let before = files.0[DEFAULT].clone();
    let (files, _) = synced(Some(&plain()), &with_webhooks(), &files).unwrap();
    let diff = similar::TextDiff::from_lines(&before, &files.0[DEFAULT])
        .unified_diff()
        .context_radius(1)
        .to_string();
    insta::assert_snapshot!(diff, @"
    @@ -24 +24,9 @@
     #- ../network-policy
    +# Receive webhooks: a Service, what the API server sends to it, and where the operator finds its certificate.
    +- ../webhook
    +# Let the operator make its certificate itself, with nothing installed. Either this or ../certmanager below.
    +- ../certificates
    +# Let cert-manager, which must be in the cluster, make the certificates and tell the API server whom to trust.
    +#- ../certmanager
    +# Serve metrics with a certificate of cert-manager's too; stands after ../prometheus, which then checks it.
    +#- ../metrics-certs
    ");
    let (files, _) = synced(Some(&with_webhooks()), &plain(), &files).unwrap();
    assert_eq!(files.0[DEFAULT], before);
}

#[test]
fn an_edited_file_that_would_have_to_change_is_an_error() {
    let mut files = tree(&plain());
    edit(
        &mut files,
        "config/rbac/role_binding.yaml",
        "subjects:",
        "# mine\nsubjects:",
    );
    let mut namespaced = plain();
    namespaced.namespaced = true;
    let refused = synced(Some(&plain()), &namespaced, &files).unwrap_err();
    assert_eq!(refused.code, codes::files::EDITED);
    insta::assert_snapshot!(refused.to_string().lines().take(3).collect::<Vec<_>>().join("\n"), @"
    cannot change config/rbac/role_binding.yaml [KWR0002]
      at: config/rbac/role_binding.yaml
      because: it was edited, and the project as it is to be needs other contents
    ");
}

#[test]
fn a_component_that_is_in_use_keeps_its_folder() {
    let mut files = tree(&with_webhooks());
    edit(&mut files, DEFAULT, "#- ../metrics-certs", "- ../metrics-certs");
    let refused = synced(Some(&with_webhooks()), &plain(), &files).unwrap_err();
    insta::assert_snapshot!(refused, @"
    cannot remove the last webhook [KWR0002]
      at: config/default/kustomization.yaml (components)
      because: ../metrics-certs is switched on, and the certificates go with the last webhook
      fix: put a # before the line `- ../metrics-certs`, and run the command again
    ");
}

#[test]
fn what_goes_although_it_was_edited_is_noted() {
    let mut files = tree(&plain());
    edit(
        &mut files,
        "config/samples/webapp_v1_guestbook.yaml",
        "spec: {}",
        "spec: {foo: bar}",
    );
    edit(
        &mut files,
        "config/crd/kustomizeconfig.yaml",
        "nameReference:",
        "# mine\nnameReference:",
    );
    let (files, notes) = synced(Some(&plain()), &Project::new("guestbook", "my.domain"), &files).unwrap();
    insta::assert_snapshot!(notes.join("\n"), @"
    config/crd/kustomizeconfig.yaml was edited and stays, although nothing uses it any more
    config/samples/webapp_v1_guestbook.yaml was edited, and goes with its kind
    ");
    let left: Vec<&str> = files
        .0
        .keys()
        .map(String::as_str)
        .filter(|path| path.contains("crd") || path.contains("samples"))
        .collect();
    assert_eq!(left, ["config/crd/kustomizeconfig.yaml"]);
}

#[test]
fn a_foreign_file_is_not_overwritten() {
    let files = MemoryFiles::from([("config/manager/manager.yaml", "mine\n")]);
    let refused = synced(None, &plain(), &files).unwrap_err();
    assert_eq!(refused.code, codes::files::EXISTS);
}

#[test]
fn an_image_is_said_for_one_rendering() {
    let files = tree(&plain());
    let mut plan = Plan::new(&files);
    set_image("registry:5000/team/guestbook:v1", &mut plan).unwrap();
    let objects = crate::kustomize::build("config/manager", &plan).unwrap();
    let image = objects[1].pointer("/spec/template/spec/containers/0/image").unwrap();
    assert_eq!(image, "registry:5000/team/guestbook:v1");
    assert!(set_image("not an image", &mut plan).is_err());
}
