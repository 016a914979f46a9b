//! Text in, text out: the files of `kubewright init`, `create`, `manifests` and `build-installer`.
//!
//! Everything here is a pure function of the files of a project (a [`Files`]) and of the user's request. The result is
//! a [`Plan`]: all changes, ready to be shown or written at once. The command reads and writes the files; this crate
//! decides what is in them.
//!
//! - [`scaffold`]: what `init`, `edit`, `create` and `delete` do; [`source`]: edits of Rust code; [`names`]: the rules
//!   for names.
//! - [`project`]: the PROJECT file; [`config`]: the `config/` folder; [`kustomize`]: rendering it.
//! - [`charts`]: projects whose kinds are Helm charts; [`helm`], [`grafana`]: what the optional plug-ins write; [`bundle`]: the bundle of the operator for OLM;
//!   [`external`]: plug-ins that are separate programs; [`upgrade`]: upgrading a project to a newer scaffold.
//! - [`manifests`]: CRDs, roles and webhook configurations; [`yaml`]: how objects are written.
//! - [`plan`]: changes before they are made; [`diagnostic`]: errors with a code, a place, a cause and a fix; [`codes`]:
//!   the explanations that `kubewright explain` prints.
//!
//! # Where to change what
//!
//! | to change | go to | its tests |
//! |---|---|---|
//! | what is scaffolded | `templates`, `scaffold` | `scaffold/tests.rs`; `crates/cli/tests/it/scaffold.rs`; `testdata/golden` is generated again and built |
//! | the kind that runs an image (`deploy-image`) | `scaffold/deploy.rs`, `templates/rust/image_controller.rs.jinja`; in PROJECT: `project/deployed.rs` | `scaffold/tests.rs` |
//! | a generated CRD, role or webhook configuration | `manifests`; a type's schema: `crates/kubewright/src/crd` | `testdata/fixtures`, compared with controller-gen's output |
//! | what is in `config/` | `templates/config`; what a project gets: `config/tree.rs` | `config.rs` in `tests/it` compares with kubebuilder's and with kustomize |
//! | the chart or the dashboards of a project | `helm`, `templates/helm`; `grafana.rs` | their tests: a chart with its defaults is what kustomize makes |
//! | a project whose kinds are Helm charts, and the schema of its kinds | `charts` | `charts/tests.rs`, `charts/schema.rs` |
//! | the bundle for OLM; the rules for bundles of others | `bundle`; `bundle/validate` | the tests there |
//! | `alpha generate`, `upgrade` | `scaffold/again.rs`, `upgrade` | `upgrade/tests.rs`, with past scaffolds in `testdata/upgrade` |
//! | the workflow that upgrades a project | `templates/project/github/auto_update.yml.jinja` | `crates/cli/tests/it/autoupdate.rs` runs its steps |
//! | what `migrate` generates | `migrate` | its tests; `testdata/fixtures/go` is migrated and compared with controller-gen |
//! | an error's code | its section in `codes` | the test in `codes/mod.rs` |

pub mod ansible;
pub mod bundle;
pub mod charts;
pub mod codes;
pub mod config;
mod conflict;
pub mod diagnostic;
pub mod external;
pub mod grafana;
pub mod helm;
pub mod kustomize;
pub mod manifests;
pub mod migrate;
pub mod names;
pub mod outline;
pub mod plan;
pub mod project;
pub mod scaffold;
pub mod source;
pub mod upgrade;
mod without_code;
pub mod yaml;

pub use codes::Code;
pub use diagnostic::{Diagnostic, Place};
pub use plan::{Change, Files, MemoryFiles, Plan};
