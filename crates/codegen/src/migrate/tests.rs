//! A project in Go as kubebuilder lays it out, carried over.

use super::*;

mod fixtures;
mod found;
mod hard;
mod refused;

const PROJECT: &str = r#"domain: example.com
layout:
- go.kubebuilder.io/v4
projectName: fleet
repo: example.com/fleet
resources:
- api: {crdVersion: v1, namespaced: true}
  controller: true
  domain: example.com
  group: crew
  kind: Captain
  path: example.com/fleet/api/v1
  version: v1
  webhooks: {defaulting: true, validation: true, webhookVersion: v1}
version: "3"
"#;

const TYPES: &str = r#"package v1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	other "example.org/other"
)

// Rank is what a captain may be.
// +kubebuilder:validation:Enum=first;"second class"
type Rank string

// CaptainSpec is what is asked for.
type CaptainSpec struct {
	// Ship is her name.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:Pattern=`^[a-z"]+$`
	Ship string `json:"ship"`
	// +kubebuilder:default=3
	// +kubebuilder:validation:Minimum=1
	Mates *int32 `json:"mates,omitempty"`
	Rank Rank `json:"rank,omitempty"`
	PodIPs []string `json:"podIPs,omitempty"`
	// +listType=map
	// +listMapKey=name
	Env []corev1.EnvVar `json:"env,omitempty"`
	Pull corev1.PullPolicy `json:"pull,omitempty"`
	Port intstr.IntOrString `json:"port"`
	Since *metav1.Time `json:"since,omitempty"`
	Foreign other.Thing `json:"foreign,omitempty"`
	Type string `json:"type"`
	Nested struct {
		Deep []byte `json:"deep,omitempty"`
	} `json:"nested,omitempty"`
	Shared `json:",inline"`
	hidden int
}

// +kubebuilder:validation:XValidation:rule="self.a <= self.b",message="a, then b"
type Shared struct {
	A int `json:"a"`
	B int `json:"b"`
}

type CaptainStatus struct {
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:shortName=cap;cpt,scope=Namespaced
// +kubebuilder:printcolumn:name="Ship",type=string,JSONPath=`.spec.ship`

// Captain sails.
type Captain struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   CaptainSpec   `json:"spec,omitempty"`
	Status CaptainStatus `json:"status,omitempty"`
}

type CaptainList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items []Captain `json:"items"`
}
"#;

const CONTROLLER: &str = r#"package controller

// +kubebuilder:rbac:groups=crew.example.com,resources=captains,verbs=get;list;watch
// +kubebuilder:rbac:groups="",resources=secrets,verbs=get

// Reconcile sails.
func (r *CaptainReconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	return ctrl.Result{}, nil
}

func (r *CaptainReconciler) SetupWithManager(mgr ctrl.Manager) error {
	return ctrl.NewControllerManagedBy(mgr).For(&crewv1.Captain{}).Complete(r)
}
"#;

pub(super) fn project() -> MemoryFiles {
    MemoryFiles::from([
        ("PROJECT", PROJECT),
        ("api/v1/captain_types.go", TYPES),
        ("internal/controller/captain_controller.go", CONTROLLER),
        ("config/samples/crew_v1_captain.yaml", "kind: Captain # mine\n"),
    ])
}

pub(super) fn carried(files: &MemoryFiles) -> Result<Migrated, Diagnostic> {
    migrate(files, None, None, &Dependency::Version("0.1.0".to_owned()), "0.1.0")
}

#[test]
fn types_controllers_and_samples_are_carried_over() {
    let done = carried(&project()).unwrap();
    let types = &done.files.0["api/src/v1/captain_types.rs"];
    for (path, text) in done.files.0.iter().filter(|(path, _)| path.ends_with(".rs")) {
        syn::parse_file(text).unwrap_or_else(|why| panic!("{path}: {why}\n{text}"));
    }
    let controller = &done.files.0["src/controller/captain_controller.rs"];
    let notes = done.notes.join("\n");
    insta::assert_snapshot!("carried", format!("{types}\n=====\n{controller}\n=====\n{notes}\n"));
    assert_eq!(done.kinds, 1);
    assert_eq!(
        done.files.0["config/samples/crew_v1_captain.yaml"],
        "kind: Captain # mine\n"
    );
    assert!(!done.files.0.contains_key("tests/it/captain_controller.rs"));
    assert!(!done.files.0["tests/it/main.rs"].contains("captain_controller"));
}

#[test]
fn types_of_packages_beside_the_api_are_shared() {
    let mut files = project();
    let mut add = |path: &str, text: &str| files.0.insert(path.to_owned(), text.to_owned());
    add("go.mod", "module example.com/fleet/v2\n\ngo 1.26\n");
    add(
        "api/common/v1/types.go",
        "package v1\n\nimport \"example.com/fleet/v2/pkg/sea\"\n\n// Port is where ships lie.\ntype Port struct {\n\tName string `json:\"name\"`\n\tDepth sea.Depth `json:\"depth,omitempty\"`\n}\n\ntype Unused struct{}\n",
    );
    add(
        "pkg/sea/sea.go",
        "package sea\n\ntype Depth int32\n\nvar C <-chan int\n",
    );
    add(
        "api/v1/more_types.go",
        "package v1\n\nimport commonv1 \"example.com/fleet/v2/api/common/v1\"\n\ntype Harbour struct {\n\tPorts []commonv1.Port `json:\"ports,omitempty\"`\n}\n",
    );
    let done = carried(&files).unwrap();
    let mut text = String::new();
    for path in [
        "api/src/lib.rs",
        "api/src/shared/mod.rs",
        "api/src/shared/common_v1.rs",
        "api/src/shared/sea.rs",
        "api/src/v1/types.rs",
    ] {
        text.push_str(&format!("===== {path}\n{}\n", done.files.0[path]));
    }
    insta::assert_snapshot!("shared", text);
}

#[test]
fn what_no_definition_of_go_says_is_not_said() {
    let mut files = project();
    let types = TYPES.replace(
        "type CaptainStatus struct {",
        "type CaptainStatus struct {\n\t// +kubebuilder:validation:default:=abc\n\tWord string `json:\"word,omitempty\"`\n",
    );
    files.0.insert("api/v1/captain_types.go".to_owned(), types);
    let done = carried(&files).unwrap();
    let types = &done.files.0["api/src/v1/captain_types.rs"];
    assert!(
        types.contains("pub word: Option<String>") && !types.contains("abc"),
        "{types}"
    );
    let notes = done.notes.join("\n");
    let note =
        "controller-gen does not know the marker +kubebuilder:validation:default:=abc, so nothing was made of it";
    assert!(notes.contains(note), "{notes}");
}

#[test]
fn every_rule_of_a_role_has_a_place() {
    let mut files = project();
    let mut add = |path: &str, text: &str| files.0.insert(path.to_owned(), text.to_owned());
    // It comes first, makes captains, and is not their controller.
    add(
        "internal/controller/aide_controller.go",
        "package controller\n\n// +kubebuilder:rbac:groups=core,resources=pods,verbs=get\n// +kubebuilder:rbac:groups=apps,resources=ships,verbs=\n\nfunc (r *AideReconciler) Reconcile() { _ = crewv1.Captain{} }\n",
    );
    add(
        "api/rbac.go",
        "// +kubebuilder:rbac:urls=/metrics,verbs=get\n// +kubebuilder:rbac:groups=apps,namespace=sea,resources=deployments,resourceNames=a;b,verbs=get;list\n\npackage api\n",
    );
    let done = carried(&files).unwrap();
    let library = &done.files.0["src/lib.rs"];
    syn::parse_file(library).unwrap_or_else(|why| panic!("{why}: {library}"));
    for line in [
        "use kubewright::{Operator, Rule};",
        ".rbac(Rule::new().urls([\"/metrics\"]).verbs([\"get\"]))",
        ".rbac(Rule::new().groups([\"apps\"]).resources([\"deployments\"]).resource_names([\"a\", \"b\"]).verbs([\"get\", \"list\"]).namespace(\"sea\"))",
        ".rbac(Rule::new().groups([\"\"]).resources([\"pods\"]).verbs([\"get\"]))",
    ] {
        assert!(library.contains(line), "{line} in {library}");
    }
    let controller = &done.files.0["src/controller/captain_controller.rs"];
    assert!(
        controller.contains("resources = \"secrets\"") && !controller.contains("resources = \"pods\""),
        "{controller}"
    );
}

#[test]
fn types_of_other_modules_are_read_where_go_has_them() {
    let mut files = project();
    files.0.insert(
        "go.mod".to_owned(),
        "module example.com/fleet\n\nrequire example.org/other v1.0.0\n".to_owned(),
    );
    let cached = MemoryFiles::from([(
        "example.org/other@v1.0.0/other.go",
        "package other\n\nimport \"example.org/other/deep\"\n\n// Thing is theirs.\ntype Thing struct {\n\t// +kubebuilder:validation:MinLength=2\n\tName string `json:\"name\"`\n\tDeep deep.Deep `json:\"deep,omitempty\"`\n}\n",
    )]);
    let there = |cache| migrate(&files, cache, None, &Dependency::Version("0.1.0".to_owned()), "0.1.0").unwrap();
    let cache = ModuleCache {
        files: &cached,
        place: "/cache",
    };
    let done = there(Some(cache));
    let shared = done
        .files
        .0
        .iter()
        .find(|(path, _)| path.starts_with("api/src/shared/") && !path.ends_with("mod.rs"));
    let (path, text) = shared.unwrap();
    let types = &done.files.0["api/src/v1/captain_types.rs"];
    let told = format!("{path}\n{text}\n{}\n", done.notes.join("\n"));
    assert!(types.contains("pub foreign: Option<crate::shared::"), "{types}");
    insta::assert_snapshot!("foreign", told);
    let notes = there(None).notes.join("\n");
    assert!(notes.contains("--module-path"), "{notes}");
}

#[test]
fn structs_that_kubernetes_only_embeds_are_read_from_its_source() {
    let mut files = project();
    files.0.insert(
        "go.mod".to_owned(),
        "module example.com/fleet\n\nrequire k8s.io/api v0.36.0\n".to_owned(),
    );
    let hold = "package v1\n\nimport corev1 \"k8s.io/api/core/v1\"\n\ntype Hold struct {\n\t// +kubebuilder:validation:XValidation:rule=\"has(self.hostPath)\"\n\tcorev1.VolumeSource `json:\",inline\"`\n\tcorev1.ServicePort `json:\",inline\"`\n\tOther corev1.ServicePort `json:\"other\"`\n\tPull corev1.PullPolicy `json:\"pull\"`\n}\n";
    files.0.insert("api/v1/hold_types.go".to_owned(), hold.to_owned());
    let cached = MemoryFiles::from([(
        "k8s.io/api@v0.36.0/core/v1/types.go",
        "package v1\n\ntype PullPolicy string\n\ntype ServicePort struct {\n\t// +default=\"TCP\"\n\tProtocol Protocol `json:\"protocol,omitempty\"`\n}\n\ntype Protocol string\n\ntype VolumeSource struct {\n\tHostPath *HostPathVolumeSource `json:\"hostPath,omitempty\"`\n}\n",
    )]);
    let cache = ModuleCache {
        files: &cached,
        place: "/cache",
    };
    let dependency = Dependency::Version("0.1.0".to_owned());
    let done = migrate(&files, Some(cache), None, &dependency, "0.1.0").unwrap();
    let types = &done.files.0["api/src/v1/types.rs"];
    for said in [
        "pub volume_source: crate::shared::core_v1::VolumeSource,",
        "pub service_port: crate::shared::core_v1::ServicePort,",
        "pub other: k8s_openapi::api::core::v1::ServicePort,",
        "pub pull: String,",
        "\"x-kubernetes-validations\" = [{\"rule\": \"has(self.hostPath)\"}]",
    ] {
        assert!(types.contains(said), "{said} in {types}");
    }
    let shared = &done.files.0["api/src/shared/core_v1.rs"];
    assert!(
        shared.contains("Option<k8s_openapi::api::core::v1::HostPathVolumeSource>"),
        "{shared}"
    );
    assert!(
        shared.contains("\"default\" = \"TCP\"") && !shared.contains("PullPolicy"),
        "{shared}"
    );
    let done = migrate(&files, None, None, &dependency, "0.1.0").unwrap();
    let notes = done.notes.join("\n");
    assert!(notes.contains("the fields of VolumeSource are not known"), "{notes}");
}

#[test]
fn a_controller_that_go_has_not_asks_nothing_of_the_status() {
    let mut files = project();
    files.0.remove("internal/controller/captain_controller.go");
    let done = carried(&files).unwrap();
    let controller = &done.files.0["src/controller/captain_controller.rs"];
    assert!(!controller.contains("conditions"), "{controller}");
    syn::parse_file(controller).unwrap_or_else(|why| panic!("{why}: {controller}"));
    assert!(!done.files.0.contains_key("tests/it/captain_controller.rs"));
    assert!(!done.files.0["tests/it/main.rs"].contains("captain_controller"));
}

#[test]
fn a_long_list_of_types_becomes_a_star() {
    let mut files = project();
    let long = "AVeryLongNameOfSomethingThatSails";
    let resource = format!(
        "resources:\n- {{api: {{crdVersion: v1, namespaced: true}}, domain: example.com, group: crew, kind: {long}, version: v1}}\n"
    );
    files
        .0
        .insert("PROJECT".to_owned(), PROJECT.replace("resources:\n", &resource));
    let types = format!(
        "package v1\n\ntype {long} struct {{\n\tSpec {long}Spec `json:\"spec,omitempty\"`\n\tStatus {long}Status `json:\"status,omitempty\"`\n}}\n\ntype {long}Spec struct{{}}\n\ntype {long}Status struct{{}}\n"
    );
    files.0.insert("api/v1/long_types.go".to_owned(), types);
    let module = &carried(&files).unwrap().files.0["api/src/v1/mod.rs"];
    syn::parse_file(module).unwrap_or_else(|why| panic!("{why}: {module}"));
}
