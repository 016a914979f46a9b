//! What goes wrong with an operator of roles as a process: it is killed in the middle of a playbook, and Ansible is not
//! there; and what its log must not have.

use super::*;

/// Plays a run that waits for a file, and one of whose results is a Secret.
const SLOW_PLAYER: &str = r#"#!/bin/sh
dir="$2"
while [ $# -gt 0 ]; do [ "$1" = -i ] && ident="$2"; shift; done
events="$dir/artifacts/$ident/job_events"
mkdir -p "$events"
echo "$$" >> "$TMPDIR/pids"
while [ ! -e "$TMPDIR/go" ]; do sleep 0.05; done
secret='{"kind":"Secret","metadata":{"name":"s"},"data":{"password":"aHVudGVyMg=="}}'
echo "ok: [localhost] => $secret"
printf '{"uuid":"k","counter":1,"event":"runner_on_ok","event_data":{"task":"look","task_args":"password=hunter2","res":{"resources":[%s]}}}' "$secret" > "$events/1-k.json"
printf '{"uuid":"f","counter":2,"event":"runner_on_failed","event_data":{"task":"log in","ignore_errors":true,"res":{"censored":"hidden"}}}' > "$events/2-f.json"
printf '{"uuid":"s","counter":3,"event":"playbook_on_stats","created":"2026-01-01T00:00:00.000001+00:00","event_data":{"ok":{"localhost":1},"failures":{}}}' > "$events/3-s.json"
"#;

/// Waits until a file has as many lines.
fn lines(path: &Path, number: usize, what: &str) -> Vec<String> {
    let end = Instant::now() + PATIENCE;
    loop {
        let text = fs::read_to_string(path).unwrap_or_default();
        let lines: Vec<String> = text.lines().map(str::to_owned).collect();
        if lines.len() >= number {
            return lines;
        }
        assert!(Instant::now() < end, "not in time: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[tokio::test]
async fn an_operator_that_is_killed_in_a_playbook_is_followed_by_one_that_runs_it_again() {
    let played = tempfile::tempdir().unwrap();
    executable(&played.path().join("bin/ansible-runner"), SLOW_PLAYER);
    let place = played.path().to_owned();
    let typist = Typist::new(vec![("VIRTUAL_ENV", place.clone()), ("TMPDIR", place.clone())]);
    typist.types("init --plugins ansible --domain example.com --project-name memcached-operator");
    typist.types("create api --group cache --version v1alpha1 --kind Memcached --generate-role");
    typist.types("install");
    let run = "ansible-operator run --proxy-port 0 --metrics-bind-address 0 --health-probe-bind-address 0 \
               --ansible-log-events everything --zap-log-level 5";
    let mut first = Running::start(typist.command(run));
    let (api, mut sample) = typist.sample("cache_v1alpha1_memcached.yaml", "memcacheds").await;
    sample.data["spec"]["password"] = json!("hunter2");
    api.create(&PostParams::default(), &sample).await.unwrap();
    let pids = place.join("pids");
    lines(&pids, 1, "a playbook runs");
    let folder = place.join("ansible-operator/runner/cache.example.com/v1alpha1/Memcached/default/memcached-sample");
    assert!(folder.join("env").exists(), "a run has its variables in a file");
    first.process.kill().unwrap();
    first.process.wait().unwrap();

    let second = Running::start(typist.command(run));
    lines(&pids, 2, "the playbook runs again");
    fs::write(place.join("go"), "").unwrap();
    until(&api, "memcached-sample", "successful", |object| {
        is(object, "Successful")
    })
    .await;
    until(&api, "memcached-sample", "idle", |_| !folder.join("env").exists()).await;
    let said = second.ends();
    assert!(
        said.contains("look") && said.contains("log in"),
        "every event is logged:\n{said}"
    );
    for secret in ["hunter2", "aHVudGVyMg=="] {
        assert!(!said.contains(secret), "the log has {secret}:\n{said}");
    }
}

/// Plays Python, for `-m venv FOLDER`, and the Python of that folder, for `-m pip install`. What goes wrong is in the file
/// `plays` beside it.
const PYTHON: &str = r#"#!/bin/sh
plays=$(cat "$PLAYS")
case "$1 $2 $plays" in
  "-m venv no-venv") echo "ensurepip is not available" >&2; exit 1 ;;
  "-m venv"*) mkdir -p "$3/bin"; cp "$0" "$3/bin/python" ;;
  "-m pip offline") echo "Could not find a version that satisfies the requirement ansible" >&2; exit 1 ;;
  "-m pip"*) cp "$(dirname "$PLAYS")/ansible-runner" "$(dirname "$0")"; printf '#!/bin/sh\nexit 1\n' > "$(dirname "$0")/ansible-galaxy"; chmod +x "$(dirname "$0")/ansible-galaxy" ;;
esac
"#;

#[tokio::test]
async fn ansible_is_installed_where_only_python_is() {
    let played = tempfile::tempdir().unwrap();
    let bin = played.path().join("bin");
    executable(&bin.join("python3"), PYTHON);
    executable(&bin.join("ansible-runner.kept"), PLAYER);
    fs::rename(bin.join("ansible-runner.kept"), played.path().join("ansible-runner")).unwrap();
    let plays = played.path().join("plays");
    let path = format!("{}:/usr/bin:/bin", bin.display());
    let typist = Typist::new(vec![
        ("PATH", PathBuf::from(path)),
        ("PLAYS", plays.clone()),
        ("VIRTUAL_ENV", PathBuf::new()),
        ("TMPDIR", played.path().to_owned()),
    ]);
    typist.types("init --plugins ansible --domain example.com --project-name memcached-operator");
    typist.types("create api --group cache --version v1alpha1 --kind Memcached --generate-role");
    let fails = |with: &str, line: &str, words: &[&str]| {
        fs::write(&plays, with).unwrap();
        let output = typist.command(line).output().unwrap();
        let said = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
        assert!(!output.status.success(), "kubewright {line}:\n{said}");
        for word in words {
            assert!(said.contains(word), "kubewright {line} should say {word:?}:\n{said}");
        }
    };
    let install = "ansible-operator install";
    fails("no-venv", install, &["ensurepip", "python3-venv"]);
    fails("offline", install, &["Could not find a version", "PIP_INDEX_URL"]);
    fails(
        "",
        "ansible-operator install --python /nowhere/python",
        &["/nowhere/python", "--python"],
    );
    fails("", "ansible-operator run", &["ansible-operator install"]);

    fs::write(&plays, "").unwrap();
    let said = typist.types(install);
    assert!(
        said.contains("Ansible is installed") && said.contains("requirements.yml"),
        "{said}"
    );
    assert!(typist.types(install).contains("Ansible is there"));
    let (running, _) = runs_its_sample(&typist).await;
    running.ends();
}
