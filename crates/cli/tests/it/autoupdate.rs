//! The workflow of the plugin autoupdate: its steps are run as they stand in the file, in a repository of their own.
//!
//! Small programs stand for GitHub and crates.io: `cargo install` gives the program under test (as the old version one
//! that scaffolds a word otherwise), and `gh` writes down its arguments.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::support::KUBEWRIGHT;
use kubewright_codegen::yaml;

struct Place {
    root: tempfile::TempDir,
}

impl Place {
    fn path(&self, name: &str) -> PathBuf {
        self.root.path().join(name)
    }

    fn project(&self) -> PathBuf {
        self.path("shop")
    }

    /// A program in front of all others.
    fn program(&self, name: &str, text: &str) {
        let path = self.path("bin").join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, format!("#!/bin/bash\n{text}")).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    }

    fn bash(&self, script: &str) -> String {
        let path = std::env::var_os("PATH").unwrap_or_default();
        let folders = std::iter::once(self.path("bin")).chain(std::env::split_paths(&path));
        let done = Command::new("bash")
            .args(["--noprofile", "--norc", "-eo", "pipefail", "-c", script])
            .current_dir(self.project())
            .env("PATH", std::env::join_paths(folders).unwrap())
            .env("RUNNER_TEMP", self.path("runner"))
            .env("BRANCH", "kubewright-upgrade")
            .env("HOME", self.root.path())
            .env("GIT_CONFIG_NOSYSTEM", "1")
            .env("PROGRAM", KUBEWRIGHT)
            .env("LOG", self.path("log"))
            .env_remove("KUBEWRIGHT_PATH")
            .stdin(Stdio::null())
            .output()
            .unwrap();
        let told = String::from_utf8_lossy(&[done.stdout, done.stderr].concat()).into_owned();
        assert!(done.status.success(), "{script}\n{told}");
        told
    }

    /// The steps of the job.
    fn run_workflow(&self) -> String {
        let text = fs::read_to_string(self.project().join(".github/workflows/auto_update.yml")).unwrap();
        let workflow = yaml::parse(&text).unwrap();
        let job = &workflow["jobs"]["upgrade"];
        assert!(job["timeout-minutes"].is_u64() && workflow["permissions"] == serde_json::json!({}));
        let mut told = String::new();
        for step in job["steps"].as_array().unwrap() {
            match step["uses"].as_str() {
                Some(action) => assert_eq!(action.split_once('@').unwrap().1.len(), 40, "{action} is pinned"),
                None => told += &self.bash(step["run"].as_str().unwrap()),
            }
        }
        told
    }
}

fn replace(path: &Path, from: &str, to: &str) {
    let text = fs::read_to_string(path).unwrap();
    assert!(text.contains(from), "{}: {text}", path.display());
    fs::write(path, text.replace(from, to)).unwrap();
}

#[test]
fn the_workflow_opens_a_pull_request_with_what_changed_and_keeps_what_is_yours() {
    if Command::new("git").arg("--version").output().is_err() {
        eprintln!("left out: this machine has no git");
        return;
    }
    let place = Place {
        root: tempfile::tempdir().unwrap(),
    };
    fs::create_dir(place.project()).unwrap();
    place.program("rustup", "exit 0\n");
    // The old version says one word of src/lib.rs in another way. Manifests would be made out of a whole build.
    place.program(
        "cargo",
        r#"echo "cargo $*" >> "$LOG"
while [ $# -gt 0 ]; do [ "$1" = --root ] && root=$2; shift; done
mkdir -p "$root/bin"
cat > "$root/bin/kubewright" <<PROGRAM
#!/bin/bash
[ "\$1" = manifests ] && exit 0
"$PROGRAM" "\$@" || exit 1
if [[ $root == */old && \$1 = alpha ]]; then
    while [ \$# -gt 0 ]; do [ "\$1" = --output-dir ] && made=\$2; shift; done
    sed -i 's/declared once/declared one time/' "\$made/src/lib.rs"
fi
PROGRAM
chmod +x "$root/bin/kubewright"
"#,
    );
    place.program("gh", "echo \"gh $*\" >> \"$LOG\"\n[ \"$2\" = create ]\n");
    place.bash(
        "\"$PROGRAM\" init --kubewright 0.1.0 --domain my.domain && \"$PROGRAM\" edit --plugins autoupdate/v1-alpha",
    );
    let project = place.project();
    replace(&project.join("PROJECT"), "cliVersion: 0.1.0", "cliVersion: 0.0.9");
    replace(&project.join("src/lib.rs"), "declared once", "declared one time");
    replace(&project.join("src/main.rs"), "use ", "// Mine.\nuse ");
    place.bash(
        "git init --quiet --bare ../remote && git init --quiet --initial-branch main && git remote add origin ../remote && git add --all && \
         git -c user.name=me -c user.email=me@example.com commit --quiet --message first && git push --quiet origin main",
    );
    place.run_workflow();
    let log = fs::read_to_string(place.path("log")).unwrap();
    assert!(log.contains("--tag v0.0.9"), "{log}");
    assert!(
        log.contains("gh pr create --head kubewright-upgrade") && log.contains("Files with conflicts: none"),
        "{log}"
    );
    let of = |file: &str| place.bash(&format!("git --git-dir ../remote show kubewright-upgrade:{file}"));
    assert!(of("src/lib.rs").contains("declared once"));
    assert!(of("src/main.rs").contains("// Mine."));
    assert!(of("PROJECT").contains("cliVersion: 0.1.0"));
    // On the branch there is nothing left to do, and nothing is opened.
    fs::remove_file(place.path("log")).unwrap();
    replace(&place.path("bin/cargo"), "declared one time", "declared once");
    let told = place.run_workflow();
    assert!(told.contains("nothing to change"), "{told}");
    assert!(
        !fs::read_to_string(place.path("log")).unwrap().contains("gh pr"),
        "no pull request"
    );
}
