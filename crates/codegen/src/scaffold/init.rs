//! `init`: a project that builds, runs and tests, with nothing in it yet.

use minijinja::context;
use serde_json::Value as Json;

use crate::codes;
use crate::diagnostic::{Diagnostic, Place};
use crate::names;
use crate::plan::{Files, Plan};
use crate::project::{self, Project};

use super::render::render;
use super::tree::{API_LIB, LIB, TESTS};
use super::{BOILERPLATE, Change, bad_name, plugins};

/// Where the project's dependency on kubewright comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Dependency {
    /// A checkout on this machine: its root, as it is to be written into Cargo.toml (a relative one is seen from the
    /// project).
    Path(String),
    /// A git repository, and the revision in it; without one, its default branch.
    Git {
        /// The address, as cargo takes it.
        url: String,
        /// A commit or a tag.
        rev: Option<String>,
    },
    /// A published version.
    Version(String),
}

/// Under which terms the project stands, as its Cargo.toml says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum License {
    /// The Apache License 2.0.
    #[default]
    Apache2,
    /// Nothing is said.
    None,
}

impl License {
    /// The license of a name that `--license` takes: `apache2` or `none`.
    #[must_use]
    pub fn named(name: &str) -> Option<License> {
        match name {
            "apache2" => Some(License::Apache2),
            "none" => Some(License::None),
            _ => None,
        }
    }
}

/// The options of `init`.
#[derive(Clone, Debug)]
pub struct Init {
    /// The name of the project.
    pub name: String,
    /// The domain of its groups; may be empty.
    pub domain: String,
    /// Where the source lives (`--repo`); may be empty.
    pub repo: String,
    /// The copyright owner; may be empty.
    pub owner: String,
    /// The license.
    pub license: License,
    /// The text that begins every Rust file, as comments (`--license-file`).
    pub boilerplate: Option<String>,
    /// Whether there will be several groups.
    pub multigroup: bool,
    /// Whether the operator watches only its own namespaces.
    pub namespaced: bool,
    /// The layouts that were asked for (`--plugins`).
    pub plugins: Vec<String>,
    /// External plug-ins that the project has from now on, by their keys.
    pub external: Vec<String>,
    /// Where kubewright comes from.
    pub dependency: Dependency,
    /// The version of this program.
    pub cli_version: String,
}

/// Where kubewright itself is.
pub const REPOSITORY: &str = env!("CARGO_PKG_REPOSITORY");

/// Files that a folder may hold before; the user had reasons to make them.
const KEPT: [&str; 8] = [
    "README.md",
    ".gitignore",
    ".dockerignore",
    ".cargo/config.toml",
    ".devcontainer/devcontainer.json",
    ".github/dependabot.yml",
    "deny.toml",
    "rust-toolchain.toml",
];

/// Plans a new project.
///
/// # Errors
/// When a name cannot be used, or there is a project already.
pub fn init<'a>(files: &'a dyn Files, options: &Init) -> Result<Plan<'a>, Diagnostic> {
    const ATTEMPTED: &str = "cannot create the project";
    plugins::requested(&options.plugins, "init", ATTEMPTED)?;
    names::project(&options.name).map_err(|wrong| bad_name(ATTEMPTED, "--project-name", &options.name, &wrong))?;
    // Without a domain groups are written in full: `--group webapp.my.domain`.
    if !options.domain.is_empty() {
        names::domain(&options.domain).map_err(|wrong| bad_name(ATTEMPTED, "--domain", &options.domain, &wrong))?;
    }
    let boilerplate = options
        .boilerplate
        .as_deref()
        .map(|text| boilerplate(text, ATTEMPTED))
        .transpose()?;
    let mut project = Project::new(&options.name, &options.domain);
    project.cli_version = Some(options.cli_version.clone());
    project.repo.clone_from(&options.repo);
    project.multigroup = options.multigroup;
    project.namespaced = options.namespaced;
    project.layout.extend(options.external.iter().cloned());
    in_the_way(files, &project, ATTEMPTED)?;
    let mut change = Change {
        before: None,
        plan: Plan::new(files),
        force: false,
        header: boilerplate
            .as_deref()
            .map(|text| format!("{}\n\n", text.trim_end()))
            .unwrap_or_default(),
        project,
    };
    if let Some(text) = boilerplate {
        change.create(BOILERPLATE, text)?;
    }
    root(&mut change, options)?;
    rust(&mut change)?;
    let mut plan = change.finish()?;
    plan.next.push("kubewright create api".to_owned());
    Ok(plan)
}

/// A header must be comments, or no file would compile.
pub(super) fn boilerplate(text: &str, attempted: &str) -> Result<String, Diagnostic> {
    let is_comment = syn::parse_file(text).is_ok_and(|file| file.items.is_empty() && file.attrs.is_empty());
    if is_comment && !text.trim().is_empty() {
        return Ok(format!("{}\n", text.trim()));
    }
    Err(Diagnostic::new(codes::project::FLAGS, attempted)
        .because("the text of --license-file is put at the top of Rust files, and it is not a comment")
        .fix("write it as `/* … */` or with `//` before each line (`//!` and `///` would be documentation)"))
}

/// Files that only a project has, or that would be written over.
fn in_the_way(files: &dyn Files, project: &Project, attempted: &str) -> Result<(), Diagnostic> {
    let exists = |path: &str, why: &str, fix: &str| {
        Err(Diagnostic::new(codes::files::EXISTS, attempted)
            .at(Place::file(path))
            .because(why)
            .fix(fix))
    };
    if files.read(project::FILE)?.is_some() {
        return exists(
            project::FILE,
            "this folder has a project already",
            "add to it with kubewright create api, or begin in another folder",
        );
    }
    for path in ["Cargo.toml", "Makefile", "src/main.rs", LIB, API_LIB] {
        if files.read(path)?.is_some() {
            return exists(
                path,
                &format!("this folder holds something else that {} would replace", project.name),
                "begin in an empty folder, or move the file away",
            );
        }
    }
    Ok(())
}

fn quoted(text: &str) -> Option<String> {
    (!text.is_empty()).then(|| Json::from(text).to_string())
}

fn root(change: &mut Change<'_>, options: &Init) -> Result<(), Diagnostic> {
    let quoted_json = |text: &str| Json::from(text).to_string();
    let install = "cargo install kubewright-cli --locked";
    let (mut git, mut address, mut checkout, mut version) = (None, None, None, None);
    let install = match &options.dependency {
        Dependency::Path(root) => {
            checkout = Some(root.trim_end_matches('/'));
            format!("{install} --path {root}/crates/cli")
        }
        Dependency::Git { url, rev } => {
            let field = rev.as_ref().map(|rev| format!(", rev = {}", quoted_json(rev)));
            address = Some(quoted_json(url));
            git = Some(format!("{{ git = {}{} }}", quoted_json(url), field.unwrap_or_default()));
            let flag = rev.as_ref().map(|rev| format!(" --rev {rev}"));
            format!("{install} --git {url}{}", flag.unwrap_or_default())
        }
        Dependency::Version(published) => {
            version = Some(published);
            // The program comes from the repository as well: a name in a registry is whoever's has it.
            format!("{install} --git {REPOSITORY} --tag v{published}")
        }
    };
    let at = |krate: &str| checkout.map(|root| quoted_json(&format!("{root}/crates/{krate}")));
    let kubewright = context! {
        git,
        address,
        version,
        install_json => quoted_json(&install),
        install,
        path => at("kubewright"),
        testing => at("testing"),
        root => checkout,
    };
    // A repository is a URL for cargo; kubebuilder's --repo is a module path, which is one without its scheme.
    let repository = match options.repo.as_str() {
        "" => None,
        url if url.contains("://") => quoted(url),
        path => quoted(&format!("https://{path}")),
    };
    let context = context! {
        project => change.project.name,
        package => change.project.package(),
        api_package => change.project.api_package(),
        license => (options.license == License::Apache2).then_some("\"Apache-2.0\""),
        authors => quoted(&options.owner),
        repository,
        kubewright,
    };
    let tree = [
        ("project/Cargo.toml", "Cargo.toml"),
        ("project/api.Cargo.toml", "api/Cargo.toml"),
        ("project/cargo.config.toml", ".cargo/config.toml"),
        ("project/deny.toml", "deny.toml"),
        ("project/rust-toolchain.toml", "rust-toolchain.toml"),
        ("project/Makefile", "Makefile"),
        ("project/Dockerfile", "Dockerfile"),
        ("project/dockerignore", ".dockerignore"),
        ("project/gitignore", ".gitignore"),
        ("project/README.md", "README.md"),
        ("project/AGENTS.md", "AGENTS.md"),
        ("project/devcontainer.json", ".devcontainer/devcontainer.json"),
        ("project/github/dependabot.yml", ".github/dependabot.yml"),
        ("project/github/lint.yml", ".github/workflows/lint.yml"),
        ("project/github/test.yml", ".github/workflows/test.yml"),
        ("project/github/test-e2e.yml", ".github/workflows/test-e2e.yml"),
    ];
    for (template, path) in tree {
        if KEPT.contains(&path) && change.plan.read(path)?.is_some() {
            change.plan.notes.push(format!("kept {path}, which was there"));
            continue;
        }
        change.create(path, render(template, context.clone()))?;
    }
    Ok(())
}

fn rust(change: &mut Change<'_>) -> Result<(), Diagnostic> {
    let context = context! {
        header => change.header,
        project => change.project.name,
        crate => change.project.crate_name(),
    };
    let tree = [
        ("rust/main.rs", "src/main.rs"),
        ("rust/lib.rs", LIB),
        ("rust/api_lib.rs", API_LIB),
        ("rust/tests.rs", TESTS),
        // A program of its own: it needs a cluster, and nothing of the embedded one.
        ("rust/e2e_test.rs", "tests/e2e.rs"),
    ];
    for (template, path) in tree {
        change.create(path, render(template, context.clone()))?;
    }
    change.create_test("tests/it/operator.rs", render("rust/operator_test.rs", context))
}
