//! A project that was carried over from Go: its operator compiles, its definition and role are those of Go's markers,
//! and it lists the tasks left to a person. Building it is asked for (see `support::operators`).

use std::fs;
use std::path::Path;

use crate::support::operators::{self, type_in};
use kubewright_codegen::yaml;
use serde_json::{Value, json};

const PROJECT: &str = r#"domain: example.com
layout: [go.kubebuilder.io/v4]
projectName: fleet
repo: example.com/fleet
resources:
- api: {crdVersion: v1, namespaced: true}
  controller: true
  domain: example.com
  group: crew
  kind: Captain
  version: v1
  webhooks: {defaulting: true, validation: true, webhookVersion: v1}
- controller: true
  core: true
  group: apps
  kind: Deployment
  version: v1
version: "3"
"#;

const TYPES: &str = r#"// +groupName=crew.example.com
package v1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// CaptainSpec is what is asked for.
type CaptainSpec struct {
	// +kubebuilder:validation:MinLength=1
	Ship string `json:"ship"`
	// +kubebuilder:default=3
	Mates *int32 `json:"mates,omitempty"`
	// +optional
	Template corev1.PodTemplateSpec `json:"template,omitempty"`
}

type CaptainStatus struct {
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:shortName=cap

// Captain sails.
type Captain struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   CaptainSpec   `json:"spec"`
	Status CaptainStatus `json:"status,omitempty"`
}
"#;

const CONTROLLER: &str = r#"package controller

// +kubebuilder:rbac:groups="",resources=secrets,verbs=get;list

func (r *CaptainReconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	return ctrl.Result{}, nil
}

func (r *CaptainReconciler) SetupWithManager(mgr ctrl.Manager) error {
	return ctrl.NewControllerManagedBy(mgr).For(&crewv1.Captain{}).Complete(r)
}
"#;

const TEST: &str = "package controller\n\nfunc TestCaptain(t *testing.T) {}\n";

fn go(folder: &Path) {
    let makefile = "manifests:\n\tcontroller-gen rbac:roleName=manager-role crd webhook paths=\"./...\"\n";
    for (path, text) in [
        ("PROJECT", PROJECT),
        ("Makefile", makefile),
        ("api/v1/captain_types.go", TYPES),
        ("internal/controller/captain_controller.go", CONTROLLER),
        ("internal/controller/captain_controller_test.go", TEST),
    ] {
        let path = folder.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
}

fn read(project: &Path, path: &str) -> Value {
    yaml::parse(&fs::read_to_string(project.join(path)).unwrap()).unwrap()
}

#[test]
fn a_migrated_project_compiles_and_declares_what_go_declares() {
    if !operators::are_built() {
        return;
    }
    let place = tempfile::tempdir().unwrap();
    go(&place.path().join("go"));
    let checkout = operators::checkout();
    let carry = format!("kubewright migrate go fleet --kubewright {}", checkout.display());
    type_in(&carry, place.path());
    let project = place.path().join("fleet");
    operators::lock(&project);
    type_in("kubewright manifests", &project);
    for line in ["kubewright manifests --check", "kubewright build-installer"] {
        type_in(line, &project);
    }
    let crd = read(&project, "config/crd/bases/crew.example.com_captains.yaml");
    let spec = &crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"];
    assert_eq!(spec["properties"]["mates"]["default"], 3);
    // Go's Makefile does not ask for the metadata of templates, and so controller-gen leaves it out.
    let metadata = &spec["properties"]["template"]["properties"]["metadata"];
    assert!(
        metadata.is_object() && metadata.get("properties").is_none(),
        "{metadata}"
    );
    let role = read(&project, "config/rbac/role.yaml");
    let secrets = json!({"apiGroups": [""], "resources": ["secrets"], "verbs": ["get", "list"]});
    assert!(role["rules"].as_array().unwrap().contains(&secrets), "{role}");
    let record = fs::read_to_string(project.join("MIGRATION.md")).unwrap();
    assert!(record.contains("captain_controller_test.go` (1 test)"), "{record}");
}
