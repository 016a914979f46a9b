//! An entry of Ansible's `watches.yaml`: which role or playbook belongs to a kind, and how it is run.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

use kubewright::kube::core::{GroupVersionKind, Selector};
use serde_json::{Map, Value};

use crate::watches::{self, Entry, Error};

/// Whatever the number of `-v` may be.
const MOST_VERBOSE: i64 = 7;

/// A kind and what is run for it.
#[derive(Debug, Clone)]
pub struct Watch {
    /// The kind.
    pub kind: GroupVersionKind,
    /// The role or playbook.
    pub target: Target,
    /// Variables beside those of the object.
    pub vars: Map<String, Value>,
    /// Of how many runs of an object the artifacts are kept; 0 for all.
    pub max_runner_artifacts: u32,
    /// How long after a run the next one is due.
    pub reconcile_period: Duration,
    /// Whether conditions are written.
    pub manage_status: bool,
    /// Whether changes of what the role made lead to a run.
    pub watch_dependent_resources: bool,
    /// Also of objects without a namespace that cannot have their owner in their metadata.
    pub watch_cluster_scoped_resources: bool,
    /// Whether changes of annotations lead to a run.
    pub watch_annotations_changes: bool,
    /// Whether the names of the spec become snake case.
    pub snake_case_parameters: bool,
    /// Whether texts of the object are marked as not to be templated.
    pub mark_unsafe: bool,
    /// Kinds that are neither watched nor read from a cache.
    pub blacklist: Vec<GroupVersionKind>,
    /// Which objects.
    pub selector: Option<Selector>,
    /// What is run before an object goes.
    pub finalizer: Option<Finalizer>,
    /// How many objects at the same time.
    pub max_concurrent_reconciles: usize,
    /// The number of `-v` of ansible-playbook.
    pub verbosity: u8,
}

/// What is run before an object goes.
#[derive(Debug, Clone)]
pub struct Finalizer {
    /// In the metadata of the objects.
    pub name: String,
    /// Another role or playbook; `None` for that of the watch.
    pub target: Option<Target>,
    /// Variables that are added.
    pub vars: Map<String, Value>,
}

/// What is run, by its absolute path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Target {
    /// A role: its folder.
    Role(PathBuf),
    /// A playbook: its file.
    Playbook(PathBuf),
}

/// Where entries are read from, and what flags say.
pub struct Defaults<'a> {
    /// Relative paths begin here.
    pub folder: &'a Path,
    /// The environment.
    pub variable: &'a dyn Fn(&str) -> Option<String>,
    /// `--max-concurrent-reconciles`.
    pub max_concurrent_reconciles: usize,
    /// `--ansible-verbosity`.
    pub verbosity: u8,
    /// `--reconcile-period`.
    pub reconcile_period: Duration,
}

impl std::fmt::Debug for Defaults<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Defaults({})", self.folder.display())
    }
}

/// Reads a `watches.yaml`. What is doubtful but harmless is logged.
///
/// # Errors
/// With file and line, when an entry cannot be meant, or its role or playbook is not there.
pub fn read(path: &Path, defaults: &Defaults<'_>) -> Result<Vec<Watch>, Error> {
    watches::read(path, defaults.variable)?
        .into_iter()
        .map(|entry| Watch::new(entry, defaults))
        .collect()
}

impl Watch {
    /// # Errors
    /// As [`read`].
    fn new(mut entry: Entry, defaults: &Defaults<'_>) -> Result<Watch, Error> {
        let paths = Paths::new(defaults);
        let (playbook, role) = (entry.take_text("playbook")?, entry.take_text("role")?);
        let target = paths
            .target(&entry, &[], playbook, role)?
            .ok_or_else(|| entry.error(&[], "an entry needs a role or a playbook, such as role: memcached"))?;
        let kind = entry.kind.clone();
        let finalizer = match entry.take_map("finalizer")? {
            None => None,
            Some(fields) => Some(paths.finalizer(&entry, &fields)?),
        };
        let artifacts = entry.take_number("maxRunnerArtifacts")?.filter(|number| *number != 0);
        let watch = Watch {
            target,
            finalizer,
            vars: entry.take_map("vars")?.unwrap_or_default(),
            max_runner_artifacts: artifacts.map_or(20, |number| u32::try_from(number).unwrap_or(0)),
            reconcile_period: entry.reconcile_period.unwrap_or(defaults.reconcile_period),
            manage_status: entry.take_bool("manageStatus")?.unwrap_or(true),
            watch_dependent_resources: entry.take_bool("watchDependentResources")?.unwrap_or(true),
            watch_cluster_scoped_resources: entry.take_bool("watchClusterScopedResources")?.unwrap_or(false),
            watch_annotations_changes: entry.take_bool("watchAnnotationsChanges")?.unwrap_or(false),
            snake_case_parameters: entry.take_bool("snakeCaseParameters")?.unwrap_or(true),
            mark_unsafe: entry.take_bool("markUnsafe")?.unwrap_or(false),
            blacklist: blacklist(&mut entry)?,
            selector: entry.selector.clone(),
            max_concurrent_reconciles: defaults.concurrency(&kind),
            verbosity: defaults.verbosity(&kind),
            kind,
        };
        for unknown in entry.unknown() {
            tracing::warn!("{unknown}");
        }
        Ok(watch)
    }
}

fn blacklist(entry: &mut Entry) -> Result<Vec<GroupVersionKind>, Error> {
    let Some(value) = entry.take("blacklist").filter(|value| !value.is_null()) else {
        return Ok(Vec::new());
    };
    let wrong = |index: usize| {
        let why = "blacklist is a list of kinds, each with group, version and kind";
        entry.error(&["blacklist", &index.to_string()], why)
    };
    let items = value.as_array().ok_or_else(|| wrong(0))?;
    let mut kinds = Vec::new();
    for (index, item) in items.iter().enumerate() {
        let field = |name: &str| {
            let fields = item.as_object()?;
            let (_, value) = fields.iter().find(|(key, _)| key.eq_ignore_ascii_case(name))?;
            value.as_str()
        };
        match (field("version"), field("kind")) {
            (Some(version), Some(kind)) => {
                kinds.push(GroupVersionKind::gvk(field("group").unwrap_or_default(), version, kind));
            }
            _ => return Err(wrong(index)),
        }
    }
    Ok(kinds)
}

/// Where roles and playbooks are looked for.
struct Paths<'a> {
    folder: &'a Path,
    /// In the order in which they are tried.
    roles: Vec<PathBuf>,
    collections: Vec<PathBuf>,
}

impl<'a> Paths<'a> {
    fn new(defaults: &Defaults<'a>) -> Paths<'a> {
        let listed = |name: &str| {
            let list = (defaults.variable)(name).filter(|list| !list.is_empty())?;
            Some(
                list.split(':')
                    .map(|path| defaults.folder.join(path))
                    .collect::<Vec<_>>(),
            )
        };
        let mut roles = Vec::new();
        for path in listed("ANSIBLE_ROLES_PATH").unwrap_or_default() {
            roles.extend([path.clone(), path.join("roles")]);
        }
        roles.push(defaults.folder.join("roles"));
        let collections = listed("ANSIBLE_COLLECTIONS_PATH").unwrap_or_else(|| {
            let home = (defaults.variable)("HOME").map(|home| Path::new(&home).join(".ansible/collections"));
            std::iter::once(PathBuf::from("/usr/share/ansible/collections"))
                .chain(home)
                .collect()
        });
        Paths {
            folder: defaults.folder,
            roles,
            collections,
        }
    }

    /// The paths at which a role may be: its own if it is absolute, one in a collection for `namespace.collection.role`.
    fn of_role(&self, role: &str) -> Vec<PathBuf> {
        if Path::new(role).is_absolute() {
            return vec![PathBuf::from(role)];
        }
        let mut paths = Vec::new();
        if let [namespace, collection, name] = role.split('.').collect::<Vec<_>>()[..] {
            let inside = |path: &PathBuf| {
                let folder = path.join("ansible_collections").join(namespace).join(collection);
                folder.join("roles").join(name)
            };
            paths.extend(self.collections.iter().map(inside));
        }
        paths.extend(self.roles.iter().map(|folder| folder.join(role)));
        paths
    }

    /// The role or playbook that an entry names, at a path below it; a playbook counts before a role.
    fn target(
        &self,
        entry: &Entry,
        below: &[&str],
        playbook: Option<String>,
        role: Option<String>,
    ) -> Result<Option<Target>, Error> {
        let at = |name| [below, &[name]].concat();
        if let Some(playbook) = playbook.filter(|path| !path.is_empty()) {
            let path = self.folder.join(&playbook);
            return match path.exists() {
                true => Ok(Some(Target::Playbook(path))),
                false => {
                    let why = format!("there is no playbook {}", path.display());
                    Err(entry.error(&at("playbook"), why))
                }
            };
        }
        let Some(role) = role.filter(|path| !path.is_empty()) else {
            return Ok(None);
        };
        let tried = self.of_role(&role);
        match tried.iter().find(|path| path.exists()) {
            Some(found) => Ok(Some(Target::Role(found.clone()))),
            None => {
                let tried: Vec<String> = tried.iter().map(|path| path.display().to_string()).collect();
                let why = format!(
                    "there is no role {role:?}: neither {}; say --ansible-roles-path or --ansible-collections-path",
                    tried.join(" nor ")
                );
                Err(entry.error(&at("role"), why))
            }
        }
    }

    fn finalizer(&self, entry: &Entry, fields: &Map<String, Value>) -> Result<Finalizer, Error> {
        let get = |name: &str| {
            fields
                .iter()
                .find(|(key, _)| key.eq_ignore_ascii_case(name))
                .map(|(_, value)| value)
        };
        let text = |name: &'static str| match get(name) {
            None | Some(Value::Null) => Ok(None),
            Some(Value::String(text)) => Ok(Some(text.clone())),
            Some(other) => Err(entry.error(&["finalizer", name], format!("{name} is a text, not {other}"))),
        };
        let Some(name) = text("name")?.filter(|name| !name.is_empty()) else {
            let why = "a finalizer needs a name, such as name: cache.example.com/finalizer";
            return Err(entry.error(&["finalizer"], why));
        };
        let vars = match get("vars") {
            None | Some(Value::Null) => Map::new(),
            Some(Value::Object(vars)) => vars.clone(),
            Some(other) => return Err(entry.error(&["finalizer", "vars"], format!("vars is a map, not {other}"))),
        };
        let target = self.target(entry, &["finalizer"], text("playbook")?, text("role")?)?;
        if target.is_none() && vars.is_empty() {
            let why = "a finalizer needs a role, a playbook or vars; without them the same would run as before";
            return Err(entry.error(&["finalizer"], why));
        }
        let known: BTreeSet<&str> = ["name", "vars", "playbook", "role"].into();
        for field in fields
            .keys()
            .filter(|field| !known.contains(field.to_lowercase().as_str()))
        {
            let why = format!("there is no field {field:?} in a finalizer; it is ignored");
            tracing::warn!("{}", entry.error(&["finalizer", field], why));
        }
        Ok(Finalizer { name, target, vars })
    }
}

impl Defaults<'_> {
    /// A whole number of the environment for one kind, such as `MAX_CONCURRENT_RECONCILES_MEMCACHED_CACHE_EXAMPLE_COM`.
    fn of_kind(&self, prefix: &str, kind: &GroupVersionKind) -> Option<i64> {
        let name = format!("{prefix}_{}_{}", kind.kind, kind.group)
            .replace('.', "_")
            .to_uppercase();
        let value = (self.variable)(&name)?;
        let number = value.trim().parse().ok();
        if number.is_none() {
            tracing::warn!("{name}={value}: it is no whole number and is ignored");
        }
        number
    }

    fn concurrency(&self, kind: &GroupVersionKind) -> usize {
        let said = self
            .of_kind("MAX_CONCURRENT_RECONCILES", kind)
            .or_else(|| self.of_kind("WORKER", kind));
        let number = said
            .and_then(|number| usize::try_from(number).ok())
            .filter(|number| *number > 0);
        number.unwrap_or(self.max_concurrent_reconciles).max(1)
    }

    fn verbosity(&self, kind: &GroupVersionKind) -> u8 {
        let said = self.of_kind("ANSIBLE_VERBOSITY", kind);
        let fits = said.filter(|number| (0..=MOST_VERBOSE).contains(number));
        fits.and_then(|number| u8::try_from(number).ok())
            .unwrap_or(self.verbosity)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Roles and playbooks in a folder.
    fn folder() -> tempfile::TempDir {
        let folder = tempfile::tempdir().expect("a folder");
        for path in [
            "roles/memcached/tasks",
            "more/roles/second",
            "direct/third",
            "collections/ansible_collections/ns/coll/roles/fourth",
            "playbooks",
        ] {
            std::fs::create_dir_all(folder.path().join(path)).expect("a folder");
        }
        std::fs::write(folder.path().join("playbooks/play.yml"), "- hosts: all\n").expect("a file");
        folder
    }

    fn load(folder: &Path, text: &str, variables: &[(&str, &str)]) -> Result<Vec<Watch>, String> {
        std::fs::write(folder.join("watches.yaml"), text).expect("a file");
        let variable = |name: &str| {
            let found = variables.iter().find(|(known, _)| *known == name);
            found.map(|(_, value)| (*value).to_owned())
        };
        let defaults = Defaults {
            folder,
            variable: &variable,
            max_concurrent_reconciles: 4,
            verbosity: 2,
            reconcile_period: Duration::from_secs(36_000),
        };
        let shown = |error: Error| error.to_string().replace(&folder.display().to_string(), "DIR");
        read(&folder.join("watches.yaml"), &defaults).map_err(shown)
    }

    #[test]
    fn roles_and_playbooks_are_found_where_ansible_looks() {
        let folder = folder();
        let check = |fields: &str, expected: Result<Target, &str>| {
            let text = format!("- version: v1\n  kind: A\n  {fields}\n");
            let variables = [
                ("ANSIBLE_ROLES_PATH", "more:direct"),
                ("ANSIBLE_COLLECTIONS_PATH", "nowhere:collections"),
                ("ROLE", "second"),
            ];
            match (load(folder.path(), &text, &variables), expected) {
                (Ok(watches), Ok(target)) => assert_eq!(watches[0].target, target, "{fields}"),
                (Err(why), Err(expected)) => assert!(why.starts_with(expected), "{fields}: {why}"),
                (got, _) => panic!("{fields}: {got:?}"),
            }
        };
        let at = |path: &str| folder.path().join(path);
        check("role: memcached", Ok(Target::Role(at("roles/memcached"))));
        check("role: second", Ok(Target::Role(at("more/roles/second"))));
        check("role: ${ROLE}", Ok(Target::Role(at("more/roles/second"))));
        check("role: third", Ok(Target::Role(at("direct/third"))));
        check(
            "role: ns.coll.fourth",
            Ok(Target::Role(at("collections/ansible_collections/ns/coll/roles/fourth"))),
        );
        let absolute = at("roles/memcached");
        check(
            &format!("role: {}", absolute.display()),
            Ok(Target::Role(absolute.clone())),
        );
        check(
            "playbook: playbooks/play.yml",
            Ok(Target::Playbook(at("playbooks/play.yml"))),
        );
        check(
            "role: none",
            Err("DIR/watches.yaml:3: there is no role \"none\": neither DIR/more/none nor DIR/more/roles/none nor"),
        );
        check(
            "playbook: none.yml",
            Err("DIR/watches.yaml:3: there is no playbook DIR/none.yml"),
        );
        check(
            "vars: {a: b}",
            Err("DIR/watches.yaml:1: an entry needs a role or a playbook"),
        );
        check("role: ${NONE}", Err("DIR/watches.yaml:3: there is no role \"${NONE}\""));
    }

    #[test]
    fn fields_have_the_defaults_of_ansible_operator() {
        let folder = folder();
        let text = "- {version: v1, kind: A, role: memcached}\n\
                    - version: v1\n  group: g.io\n  kind: B\n  playbook: playbooks/play.yml\n  vars: {x: 1}\n  maxRunnerArtifacts: 3\n  \
                    reconcilePeriod: 5s\n  manageStatus: false\n  watchDependentResources: false\n  watchClusterScopedResources: true\n  \
                    watchAnnotationsChanges: true\n  snakeCaseParameters: false\n  markUnsafe: true\n  blacklist: [{version: v1, kind: Secret}]\n  \
                    finalizer: {name: g.io/fin, vars: {state: absent}}\n";
        let variables = [
            ("MAX_CONCURRENT_RECONCILES_B_G_IO", "7"),
            ("ANSIBLE_VERBOSITY_B_G_IO", "4"),
        ];
        let watches = load(folder.path(), text, &variables).expect("it is right");
        let (a, b) = (&watches[0], &watches[1]);
        assert_eq!((a.max_runner_artifacts, a.reconcile_period.as_secs()), (20, 36_000));
        assert!(a.manage_status && a.watch_dependent_resources && a.snake_case_parameters);
        assert!(!a.watch_cluster_scoped_resources && !a.watch_annotations_changes && !a.mark_unsafe);
        assert_eq!((a.max_concurrent_reconciles, a.verbosity), (4, 2));
        assert_eq!((b.max_runner_artifacts, b.reconcile_period.as_secs()), (3, 5));
        assert!(!b.manage_status && !b.watch_dependent_resources && !b.snake_case_parameters);
        assert!(b.watch_cluster_scoped_resources && b.watch_annotations_changes && b.mark_unsafe);
        assert_eq!((b.max_concurrent_reconciles, b.verbosity), (7, 4));
        assert_eq!(b.blacklist, [GroupVersionKind::gvk("", "v1", "Secret")]);
        let finalizer = b.finalizer.as_ref().expect("it has one");
        assert_eq!((finalizer.name.as_str(), &finalizer.target), ("g.io/fin", &None));
        assert_eq!(finalizer.vars["state"], "absent");
    }

    #[test]
    fn numbers_of_the_environment_that_make_no_sense_are_ignored() {
        let folder = folder();
        let check = |variables: &[(&str, &str)], concurrency: usize, verbosity: u8| {
            let watches = load(
                folder.path(),
                "- {group: g, version: v1, kind: A, role: memcached}\n",
                variables,
            );
            let watch = &watches.expect("it is right")[0];
            assert_eq!(
                (watch.max_concurrent_reconciles, watch.verbosity),
                (concurrency, verbosity),
                "{variables:?}"
            );
        };
        check(&[("WORKER_A_G", "2")], 2, 2);
        check(&[("WORKER_A_G", "2"), ("MAX_CONCURRENT_RECONCILES_A_G", "3")], 3, 2);
        check(
            &[("MAX_CONCURRENT_RECONCILES_A_G", "0"), ("ANSIBLE_VERBOSITY_A_G", "8")],
            4,
            2,
        );
        check(
            &[("MAX_CONCURRENT_RECONCILES_A_G", "x"), ("ANSIBLE_VERBOSITY_A_G", "-1")],
            4,
            2,
        );
        check(&[("ANSIBLE_VERBOSITY_A_G", "0")], 4, 0);
    }

    #[test]
    fn an_error_of_a_field_has_its_line() {
        let folder = folder();
        let check = |fields: &str, expected: &str| {
            let text = format!("- version: v1\n  kind: A\n  role: memcached\n  {fields}\n");
            match load(folder.path(), &text, &[]) {
                Err(why) => assert!(
                    why.starts_with(&format!("DIR/watches.yaml:{expected}")),
                    "{fields}: {why}"
                ),
                Ok(_) => panic!("{fields}: it was taken"),
            }
        };
        check("manageStatus: maybe", "4: manageStatus is true or false, not \"maybe\"");
        check("maxRunnerArtifacts: many", "4: maxRunnerArtifacts is a whole number");
        check("vars: [a]", "4: vars is a map");
        check("blacklist: [{kind: Secret}]", "4: blacklist is a list of kinds");
        check("finalizer: {vars: {a: b}}", "4: a finalizer needs a name");
        check(
            "finalizer: {name: a/b}",
            "4: a finalizer needs a role, a playbook or vars",
        );
        check(
            "finalizer:\n    name: a/b\n    role: none",
            "6: there is no role \"none\"",
        );
        check(
            "finalizer:\n    name: a/b\n    playbook: none.yml",
            "6: there is no playbook",
        );
    }
}
