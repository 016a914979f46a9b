//! Which program stands for an image.
//!
//! Pure but for a look at which programs there are. Rows of the user come before the built-in ones, and the first that
//! fits counts. Not here: how a program is started (`start`).

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

/// The programs that stand for images: rows of a pattern and a command, as the table `[images]` of `kubewright.toml`
/// has them.
///
/// A pattern is an image's name, with `*` for any text: `postgres:*`, `registry.example/shop:dev`. The command is a
/// line for `sh`; the arguments of the container are added to it.
#[derive(Clone, Default)]
pub struct Images {
    rows: Vec<(String, String)>,
    /// Where the user's programs are started.
    folder: Option<PathBuf>,
}

impl fmt::Debug for Images {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(&self.rows).finish()
    }
}

impl Images {
    /// Rows whose commands are started in a folder, which is where their project is.
    #[must_use]
    pub fn new(folder: &Path, rows: impl IntoIterator<Item = (String, String)>) -> Images {
        Images {
            rows: rows.into_iter().collect(),
            folder: Some(folder.to_owned()),
        }
    }

    /// Whether a program that stands for the image is on this machine.
    ///
    /// # Errors
    /// In words, with the fix, when there is none.
    pub fn check(&self, image: &str) -> Result<(), String> {
        self.find(image).map(drop)
    }

    /// The program that stands for an image.
    ///
    /// # Errors
    /// In words, with the fix, when there is none or it is not on this machine.
    pub(crate) fn find(&self, image: &str) -> Result<Program, String> {
        let image = canonical(image);
        if let Some((_, line)) = self.rows.iter().find(|(pattern, _)| fits(&canonical(pattern), &image)) {
            return self.of_user(&image, line);
        }
        let name = image.split([':', '@']).next().unwrap_or_default();
        let row = BUILT_IN.iter().find(|row| row.names.contains(&name));
        let row = row.ok_or_else(|| {
            format!(
                "no program stands for the image: add the row \"{image}\" = \"program arguments\" to [images] in kubewright.toml"
            )
        })?;
        let tag = image.split_once(':').map_or("", |(_, tag)| tag);
        let mut path = folders(row.folders, tag);
        path.extend(search_path());
        let found = row.programs.iter().find_map(|program| which(&path, program));
        let found = found.ok_or_else(|| {
            let install = row.install;
            format!(
                "{} is not on this machine: {install}, or say another program in [images] of kubewright.toml",
                row.programs[0]
            )
        })?;
        let command = match row.script {
            Some(script) => ["/bin/sh", "-c", script, name].map(str::to_owned).to_vec(),
            None => vec![found.display().to_string()],
        };
        Ok(Program {
            command,
            is_replaced: row.script.is_none(),
            about: found.display().to_string(),
            path,
            folder: None,
            environment: row
                .environment
                .iter()
                .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
                .collect(),
            owned: row.owned,
            is_users: false,
            template: row.template,
        })
    }

    fn of_user(&self, image: &str, line: &str) -> Result<Program, String> {
        let path = search_path();
        let words = line
            .split_whitespace()
            .find(|word| !word.contains('='))
            .unwrap_or_default();
        let base = self.folder.clone().unwrap_or_else(|| PathBuf::from("/"));
        let is_there = match words.contains('/') {
            true => base.join(words).is_file(),
            false => which(&path, words).is_some(),
        };
        if !is_there {
            return Err(format!(
                "the program {words:?} of the row \"{image}\" in kubewright.toml is not on this machine"
            ));
        }
        let script = format!("exec env {line} \"$@\"");
        Ok(Program {
            command: vec!["/bin/sh".to_owned(), "-c".to_owned(), script, words.to_owned()],
            is_replaced: false,
            about: line.to_owned(),
            path,
            folder: Some(base),
            environment: BTreeMap::new(),
            owned: &[],
            is_users: true,
            template: None,
        })
    }
}

/// The program that runs instead of an image.
#[derive(Clone, Debug)]
pub(crate) struct Program {
    /// The entry point, before the arguments of the container.
    pub(crate) command: Vec<String>,
    /// The image has no entry point: arguments of the container are a command of their own.
    pub(crate) is_replaced: bool,
    /// In words, for events and `imageID`.
    pub(crate) about: String,
    /// Where commands are looked for.
    pub(crate) path: Vec<PathBuf>,
    /// Where it starts, if not in a folder of the container's own.
    pub(crate) folder: Option<PathBuf>,
    /// The environment of the image.
    pub(crate) environment: BTreeMap<String, String>,
    /// Folders of the image that lead into the container's own.
    pub(crate) owned: &'static [&'static str],
    /// The user names the program, so it gets the user's own settings.
    pub(crate) is_users: bool,
    /// What its first data folder depends on, where templates of that are kept: the names of variables.
    pub(crate) template: Option<&'static [&'static str]>,
}

struct Row {
    names: &'static [&'static str],
    /// One of these must be there.
    programs: &'static [&'static str],
    /// Where they are besides the search path; `*` stands for a version.
    folders: &'static [&'static str],
    /// The script of its entry point. An image without one has only a command, which arguments replace.
    script: Option<&'static str>,
    environment: &'static [(&'static str, &'static str)],
    owned: &'static [&'static str],
    template: Option<&'static [&'static str]>,
    install: &'static str,
}

const BUILT_IN: &[Row] = &[
    Row {
        names: &["postgres"],
        programs: &["postgres"],
        folders: &["/usr/lib/postgresql/*/bin", "/opt/homebrew/opt/postgresql@*/bin"],
        script: Some(include_str!("programs/postgres.sh")),
        environment: &[("PGDATA", "/var/lib/postgresql/data"), ("PGHOST", "$(KUBEWRIGHT_RUN)")],
        owned: &["/var/lib/postgresql", "/docker-entrypoint-initdb.d"],
        template: Some(&["POSTGRES_USER"]),
        install: "apt-get install postgresql",
    },
    Row {
        names: &["mariadb", "mysql"],
        programs: &["mariadbd"],
        folders: &["/opt/homebrew/opt/mariadb/bin"],
        script: Some(include_str!("programs/mariadb.sh")),
        environment: &[("DATADIR", "/var/lib/mysql")],
        owned: &["/var/lib/mysql"],
        template: Some(&[]),
        install: "apt-get install mariadb-server-core mariadb-client-core",
    },
    Row {
        names: &["busybox", "alpine", "debian", "ubuntu"],
        programs: &["sh"],
        folders: &[],
        script: None,
        environment: &[],
        owned: &["/data"],
        template: None,
        install: "a shell is needed",
    },
];

/// An image's name with its tag and without the registry that every runtime looks in.
fn canonical(image: &str) -> String {
    let mut name = image;
    for prefix in ["docker.io/", "index.docker.io/", "library/"] {
        name = name.strip_prefix(prefix).unwrap_or(name);
    }
    let last = name.rsplit('/').next().unwrap_or(name);
    match last.contains([':', '@', '*']) {
        true => name.to_owned(),
        false => format!("{name}:latest"),
    }
}

/// Whether a pattern, with `*` for any text, fits a name.
fn fits(pattern: &str, name: &str) -> bool {
    let Some((first, rest)) = pattern.split_once('*') else {
        return pattern == name;
    };
    let Some(mut name) = name.strip_prefix(first) else {
        return false;
    };
    let mut parts: Vec<&str> = rest.split('*').collect();
    let last = parts.pop().unwrap_or_default();
    for part in parts {
        let Some(at) = name.find(part) else { return false };
        name = &name[at + part.len()..];
    }
    name.ends_with(last)
}

/// The folders of this machine's search path in which the user of a pod may look, and those that are always there.
fn search_path() -> Vec<PathBuf> {
    let own = std::env::var_os("PATH").unwrap_or_default();
    let is_there = |path: &PathBuf| path.is_absolute() && all_may_pass(path);
    let mut all: Vec<PathBuf> = std::env::split_paths(&own).filter(is_there).collect();
    for usual in ["/usr/local/bin", "/usr/bin", "/bin", "/usr/sbin", "/sbin"] {
        let usual = PathBuf::from(usual);
        if !all.contains(&usual) {
            all.push(usual);
        }
    }
    all
}

/// Whether every user may pass through a folder, where programs run as others than this one: root's own folders are
/// no use to them.
fn all_may_pass(path: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt as _;
    if !rustix::process::geteuid().is_root() {
        return true;
    }
    let Ok(path) = path.canonicalize() else { return false };
    let may_pass = |folder: &Path| {
        folder
            .metadata()
            .is_ok_and(|found| found.permissions().mode() & 0o001 != 0)
    };
    path.ancestors().all(may_pass)
}

/// The folders that these patterns mean: of several versions the one that the tag begins with, then the latest.
fn folders(patterns: &[&str], tag: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for pattern in patterns {
        let Some((before, after)) = pattern.split_once('*') else {
            found.push(PathBuf::from(pattern));
            continue;
        };
        let (parent, begins) = before.rsplit_once('/').unwrap_or(("/", before));
        let entries = std::fs::read_dir(parent).into_iter().flatten().flatten();
        let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
        let mut versions: Vec<String> = names
            .filter_map(|name| name.strip_prefix(begins).map(str::to_owned))
            .collect();
        versions.sort_by_key(|version| {
            let is_meant =
                tag == version || tag.starts_with(&format!("{version}.")) || tag.starts_with(&format!("{version}-"));
            (is_meant, version.parse::<u32>().unwrap_or(0))
        });
        found.extend(
            versions
                .iter()
                .rev()
                .map(|version| PathBuf::from(format!("{before}{version}{after}"))),
        );
    }
    found
}

/// Where a program is: the first file of this name that may be executed.
pub(super) fn which(path: &[PathBuf], program: &str) -> Option<PathBuf> {
    use std::os::unix::fs::PermissionsExt as _;
    let is_program = |file: &PathBuf| {
        let found = std::fs::metadata(file);
        let is_program = found.is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0);
        is_program && all_may_pass(file)
    };
    if program.is_empty() {
        return None;
    }
    path.iter().map(|folder| folder.join(program)).find(is_program)
}

/// Says where the program of a command is, if it is anywhere.
pub(super) fn resolve(command: &mut [String], path: &[PathBuf]) {
    if let Some(program) = command.first_mut().filter(|program| !program.contains('/'))
        && let Some(found) = which(path, program)
    {
        *program = found.display().to_string();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_images() {
        let check = |image: &str, expected: &str| assert_eq!(canonical(image), expected);
        check("postgres", "postgres:latest");
        check("docker.io/library/postgres:17", "postgres:17");
        check("registry.example:5000/shop", "registry.example:5000/shop:latest");
        check("shop:*", "shop:*");
        check("shop@sha256:ab", "shop@sha256:ab");
    }

    #[test]
    fn patterns() {
        let check =
            |pattern: &str, name: &str, expected: bool| assert_eq!(fits(pattern, name), expected, "{pattern} {name}");
        check("postgres:*", "postgres:17", true);
        check("postgres:*", "postgresql:17", false);
        check("shop:dev", "shop:dev", true);
        check("shop:dev", "shop:dev2", false);
        check("*/shop:*", "example.com/a/shop:1", true);
        check("*/shop:*-slim", "example.com/shop:1-slim", true);
        check("*/shop:*-slim", "example.com/shop:1", false);
        check("*", "anything", true);
    }

    #[test]
    fn what_stands_for_an_image() {
        let rows = [
            ("shop:dev", "sh -x serve.sh"),
            ("lost:*", "no-such-program-anywhere run"),
            ("postgres:mine", "A=b sh"),
        ];
        let rows = rows.map(|(pattern, line)| (pattern.to_owned(), line.to_owned()));
        let images = Images::new(Path::new("/tmp"), rows);
        let check = |image: &str, expected: &str| {
            let found = images.find(image).map(|program| program.command.join(" "));
            let (Ok(said) | Err(said)) = found;
            assert_eq!(said, expected, "{image}");
        };
        check("shop:dev", "/bin/sh -c exec env sh -x serve.sh \"$@\" sh");
        check("postgres:mine", "/bin/sh -c exec env A=b sh \"$@\" sh");
        check(
            "lost:1",
            "the program \"no-such-program-anywhere\" of the row \"lost:1\" in kubewright.toml is not on this machine",
        );
        check(
            "shop",
            "no program stands for the image: add the row \"shop:latest\" = \"program arguments\" to [images] in kubewright.toml",
        );
        assert!(images.find("busybox:1.36").is_ok());
    }
}
