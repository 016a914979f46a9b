//! External plug-ins, as programs that kubebuilder's users have: their input, the effect of their answers, and the
//! answers that are refused.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::support::KUBEWRIGHT;
use serde_json::Value;

/// A plug-in in Python: tells its flags, and answers with a file that holds its input.
const SAMPLE: &str = r#"#!/usr/bin/env python3
import json, sys
request = json.load(sys.stdin)
answer = {"apiVersion": "v1alpha1", "command": request["command"], "error": False, "errorMsgs": []}
if request["command"] == "flags":
    answer["flags"] = [{"Name": "namespace", "Type": "string", "Default": "monitoring", "Usage": "where"},
                       {"Name": "fast", "Type": "bool", "Default": "false", "Usage": "hurry"}]
elif request["command"] == "metadata":
    answer["metadata"] = {"description": "Adds a note.", "examples": "kubewright edit --plugins sample/v1 --namespace a"}
elif "refuse" in request["args"]:
    answer["error"], answer["errorMsgs"] = True, ["this namespace is refused"]
else:
    told = {key: request[key] for key in ("args", "command", "pluginChain")}
    told["files"] = sorted(request["universe"])
    told["name"] = request.get("config", {}).get("projectName")
    name = request["command"].replace(" ", "-")
    answer["universe"] = {"notes/" + name + ".json": json.dumps(told), "README.md": request["universe"]["README.md"]}
    print("noted", file=sys.stderr)
json.dump(answer, sys.stdout)
"#;

/// A folder with a project to be, and a home with plug-ins.
struct Place {
    root: tempfile::TempDir,
}

impl Place {
    fn new() -> Place {
        let place = Place {
            root: tempfile::tempdir().unwrap(),
        };
        fs::create_dir(place.project()).unwrap();
        place.plugin("sample/v1/sample.py", SAMPLE);
        place
    }

    fn project(&self) -> PathBuf {
        self.root.path().join("shop")
    }

    fn plugin(&self, file: &str, text: &str) {
        let path = self.root.path().join("config/kubebuilder/plugins").join(file);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    }

    fn command(&self, line: &str) -> Command {
        let mut command = Command::new(KUBEWRIGHT);
        command
            .args(line.split_whitespace())
            .current_dir(self.project())
            .env("XDG_CONFIG_HOME", self.root.path().join("config"))
            .env_remove("EXTERNAL_PLUGINS_PATH")
            .env_remove("KUBEWRIGHT_PATH")
            .stdin(Stdio::null());
        command
    }

    /// The output of a command, with its status at the end.
    fn type_in(&self, line: &str) -> String {
        let done = self.command(line).output().unwrap();
        let told = String::from_utf8([done.stdout, done.stderr].concat()).unwrap();
        let told = told.replace(&*self.root.path().to_string_lossy(), "HOME");
        // clap prints the whole usage; only its first lines matter.
        let told = told.split("\n\nUsage:").next().unwrap_or_default();
        format!(
            "$ kubewright {line}\n{}\n[{}]\n",
            told.trim_end(),
            done.status.code().unwrap_or(-1)
        )
    }

    fn note(&self, command: &str) -> Value {
        let path = self.project().join(format!("notes/{command}.json"));
        serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap()
    }
}

const INIT: &str = "init --kubewright 0.1.0";
const API: &str = "create api --group web --version v1 --kind Page";

#[test]
fn a_plug_in_takes_part_in_all_four_commands() {
    let place = Place::new();
    let mut told = place.type_in(&format!("{INIT} --plugins sample/v1 --namespace a --dry-run"));
    assert!(!place.project().join("PROJECT").exists(), "nothing is written:\n{told}");
    told = told
        .lines()
        .filter(|line| !line.contains(" create "))
        .collect::<Vec<_>>()
        .join("\n")
        + "\n";
    let made = place.type_in(&format!("{INIT} --plugins sample/v1 --namespace a"));
    assert!(made.ends_with("[0]\n"), "{made}");
    let note = place.note("init");
    assert_eq!(
        note["args"],
        serde_json::json!(["--kubewright", "0.1.0", "--namespace", "a"])
    );
    assert_eq!(
        note["pluginChain"],
        serde_json::json!(["rust.kubewright.dev/v1-alpha", "sample/v1"])
    );
    let files = note["files"].as_array().unwrap();
    assert!(
        files.contains(&"src/lib.rs".into()),
        "it sees what was scaffolded: {files:?}"
    );
    let project = fs::read_to_string(place.project().join("PROJECT")).unwrap();
    assert!(
        project.contains("- sample/v1\n"),
        "the project has it from then on:\n{project}"
    );
    // Without a word it takes part in the later commands, after the layout.
    for (line, command) in [
        (format!("{API} --resource --controller --fast"), "create-api"),
        (
            "create webhook --group web --version v1 --kind Page --defaulting".to_owned(),
            "create-webhook",
        ),
        ("edit --multigroup".to_owned(), "edit"),
    ] {
        let made = place.type_in(&line);
        assert!(
            made.ends_with("[0]\n") && made.contains(&format!("create notes/{command}.json")),
            "{made}"
        );
        assert_eq!(place.note(command)["name"], "shop");
    }
    assert!(place.project().join("api/src/web/v1/page_types.rs").exists());
    // Named alone it runs alone, as with kubebuilder.
    told += &place.type_in("create api --plugins sample/v1 --group web --version v1 --kind Alone");
    // Its own name in front of the layout's makes both run.
    told += &place.type_in("create api --plugins rust/v1-alpha,sample/v1 --group web --version v1 --kind Both --resource --controller=false");
    let help = place.command("edit --plugins sample/v1 --help").output().unwrap();
    let help = String::from_utf8(help.stdout).unwrap();
    for part in [
        "Flags of sample/v1:",
        "--namespace <STRING>",
        "where",
        "--fast[=<BOOL>]",
        "hurry",
        "Plug-in sample/v1:\n  Adds a note.\n  kubewright edit --plugins sample/v1 --namespace a",
    ] {
        assert!(help.contains(part), "{part:?} is not in\n{help}");
    }
    // A project without the folder gets an error.
    fs::remove_dir_all(place.root.path().join("config")).unwrap();
    told += &place.type_in("edit --multigroup");
    insta::assert_snapshot!(told);
}

#[test]
fn what_is_wrong_with_a_plug_in_is_said_and_nothing_is_written() {
    let place = Place::new();
    place.type_in(INIT);
    let silent = "#!/bin/sh\ncat > /dev/null\n";
    place.plugin("silent/v1/silent", silent);
    place.plugin("talks/v1/talks", "#!/bin/sh\ncat > /dev/null\necho hello\n");
    place.plugin("fails/v1/fails.sh", "#!/bin/sh\ncat > /dev/null\nexit 3\n");
    place.plugin(
        "leaves/v1/leaves",
        "#!/bin/sh\ncat > /dev/null\necho '{\"apiVersion\": \"v1alpha1\", \"universe\": {\"../../outside\": \"x\", \"inside\": \"x\"}}'\n",
    );
    place.plugin("endless/v1/endless", "#!/bin/sh\ncat > /dev/null\nwhile :; do echo xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx; done\n");
    place.plugin("text/v1/text", "no program\n");
    let path = place.root.path().join("config/kubebuilder/plugins/text/v1/text");
    fs::set_permissions(path, fs::Permissions::from_mode(0o644)).unwrap();
    let before = fs::read_to_string(place.project().join("PROJECT")).unwrap();
    let mut told = String::new();
    for line in [
        "edit --plugins silent/v1",
        "edit --plugins talks/v1",
        "edit --plugins fails/v1",
        "edit --plugins leaves/v1",
        "edit --plugins text/v1",
        "edit --plugins absent/v1",
        "edit --plugins ../v1",
        "edit --plugins sample/v1 --namespace refuse",
        "edit --plugins sample/v1 --unknown x",
        "create webhook --plugins helm --group web --version v1 --kind Page --defaulting",
    ] {
        told += &place.type_in(line);
    }
    let endless = place.type_in("edit --plugins endless/v1");
    assert!(
        endless.contains("longer than 32 MiB") && endless.ends_with("[1]\n"),
        "{endless}"
    );
    assert_eq!(fs::read_to_string(place.project().join("PROJECT")).unwrap(), before);
    assert!(!place.project().join("inside").exists() && !place.root.path().join("outside").exists());
    insta::assert_snapshot!(told);
}

#[test]
fn a_plug_in_that_never_answers_is_ended_with_what_it_started() {
    let place = Place::new();
    place.type_in(INIT);
    let mark = place.root.path().join("child");
    // The child keeps the pipe open; it writes its number, so that its end can be seen.
    let script = format!("#!/bin/sh\nsleep 1000 &\necho $! > {}\nwait\n", mark.display());
    place.plugin("asleep/v1/asleep", &script);
    let started = Instant::now();
    let told = place
        .command("edit --plugins asleep/v1")
        .env("KUBEWRIGHT_PLUGIN_SECONDS", "2")
        .output()
        .unwrap();
    let words = String::from_utf8(told.stderr).unwrap();
    assert!(words.contains("has not answered in 2 seconds"), "{words}");
    assert!(started.elapsed() < Duration::from_secs(30));
    let child = fs::read_to_string(mark).unwrap();
    let end = Instant::now() + Duration::from_secs(10);
    let lives = || {
        let stat = fs::read_to_string(format!("/proc/{}/stat", child.trim())).unwrap_or_default();
        // A process that ended and was not waited for yet is a zombie.
        !(stat.is_empty() || stat.contains(") Z "))
    };
    while lives() {
        assert!(Instant::now() < end, "the child {child} is still there");
        std::thread::yield_now();
    }
}
