//! The pictures of the README agree with the command: it is run on a terminal, and what it shows is what they show.
//! `KUBEWRIGHT_UPDATE_BOOK=1` renews them.

use std::fs;
use std::io::{Read as _, Write as _};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use anstream::adapter::strip_str;
use kubewright::k8s_openapi::api::core::v1::Service;
use kubewright::kube::api::DeleteParams;
use kubewright::kube::config::Kubeconfig;
use kubewright::kube::{self, Api};

use crate::book::check_made;
use crate::support::project::Project;
use crate::support::{KUBEWRIGHT, client_of};

/// The picture of the demo: where everything is, the operator's first steps, and the end.
fn first_and_last(lines: &[String]) -> Vec<String> {
    let texts: Vec<String> = lines.iter().map(|line| strip_str(line).to_string()).collect();
    let is_head = |text: &str| text.trim_start().starts_with(|c: char| c.is_ascii_digit());
    let mut shown = vec!["$ kubewright demo --once".to_owned()];
    let mut speaks = true;
    for (line, text) in lines.iter().zip(&texts) {
        if is_head(text) {
            if shown.iter().any(|shown| shown.contains("~ changed")) {
                break;
            }
            speaks = text.split_whitespace().nth(2) == Some("guestbook");
        }
        if speaks {
            shown.push(line.clone());
        }
    }
    shown.push("            ⋮".to_owned());
    let is_end = |(line, text): (&String, &String)| text.starts_with('✓').then(|| line.clone());
    shown.extend(lines.iter().zip(&texts).filter_map(is_end));
    shown
}

/// A line without the random part in the name of a temporary folder.
fn named(line: &str) -> String {
    match line.split_once("/tmp/kubewright-") {
        Some((before, after)) => {
            let (_, file) = after.split_once('/').expect("a file in the folder");
            format!("{before}/tmp/kubewright/{file}")
        }
        None => line.trim_end().to_owned(),
    }
}

/// The picture with one digit for every number, and without the style: the compared form.
fn without_numbers(svg: &str) -> String {
    let body = svg.split_once("<text ").map_or(svg, |(_, body)| body);
    let mut plain = String::new();
    for c in body.chars() {
        match c {
            '0'..='9' if plain.ends_with('0') => {}
            '0'..='9' => plain.push('0'),
            // A number that is padded, or has a fraction.
            ' ' if plain.ends_with(' ') => {}
            '.' if plain.ends_with('0') => plain.push('0'),
            c => plain.push(c),
        }
    }
    plain.replace("00", "0")
}

#[test]
fn the_picture_of_the_demo_is_current() {
    let Ok(output) = Command::new("script")
        .args(["-q", "-e", "-c"])
        .arg(format!("'{KUBEWRIGHT}' demo --once"))
        .arg("/dev/null")
        .env("TMPDIR", "/tmp")
        .env("TERM", "xterm-256color")
        .env_remove("NO_COLOR")
        .stdin(Stdio::null())
        .output()
    else {
        eprintln!("left out: this machine has no `script` to play a terminal");
        return;
    };
    assert!(output.status.success());
    let lines: Vec<String> = String::from_utf8(output.stdout).unwrap().lines().map(named).collect();
    let terminal = anstyle_svg::Term::new()
        .palette(anstyle_svg::WIN10_CONSOLE)
        .min_width_px(0);
    let made = terminal.render_svg(&first_and_last(&lines).join("\n"));
    check_made("pictures/demo.svg", &made, without_numbers);
}

/// The lines of a picture as they are compared: without numbers, and without the random end of a name.
fn compared_lines(svg: &str) -> Vec<String> {
    let lines = svg
        .lines()
        .map(str::trim_start)
        .filter(|line| line.starts_with("<tspan x="));
    let named = |line: String| match line.split_once("default/hello-") {
        Some((before, after)) => format!("{before}{}", &after[after.find('<').unwrap_or(after.len())..]),
        None => line,
    };
    // Where the kubeconfig is depends on the machine.
    let lines = lines.filter(|line| !line.contains("KUBECONFIG="));
    lines.map(|line| named(without_numbers(line))).collect()
}

/// What a user does whose operator is watched: the Service of the guestbook is deleted.
fn delete_service(kubeconfig: &Path) {
    let config = Kubeconfig::read_from(kubeconfig).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        let services: Api<Service> = Api::namespaced(client_of(config).await, "default");
        // It is not there if the operator is about to create it again.
        match services.delete("hello", &DeleteParams::default()).await {
            Ok(_) => {}
            Err(kube::Error::Api(status)) if status.code == 404 => {}
            Err(other) => panic!("{other}"),
        }
    });
}

/// The screen of `dev`, with the guestbook of the examples: its lines are those of the picture. What else a loaded machine
/// shows (one more reconcile, another order) is no fault.
#[test]
fn the_picture_of_dev_is_current() {
    let operator = Path::new(KUBEWRIGHT).with_file_name("guestbook");
    if !operator.exists() || Command::new("script").arg("--version").output().is_err() {
        eprintln!("left out: it needs `script`, which plays a terminal, and the guestbook, which --workspace builds");
        return;
    }
    let repository = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let project = Project::new();
    let sample = "config/samples/webapp_v1_guestbook.yaml";
    project.write(
        sample,
        &fs::read_to_string(repository.join("examples/guestbook").join(sample)).unwrap(),
    );
    project.write(
        "src/main.rs",
        &format!(
            "use std::os::unix::process::CommandExt as _;\nfn main() {{\n    let arguments = std::env::args_os().skip(1);\n    \
             panic!(\"{{}}\", std::process::Command::new({operator:?}).args(arguments).exec());\n}}\n"
        ),
    );
    let mut played = Command::new("script")
        .args(["-q", "-e", "-c"])
        .arg(format!("stty -echo rows 17 cols 100; '{KUBEWRIGHT}' dev --samples"))
        .arg("/dev/null")
        .current_dir(project.path())
        .env("CARGO_TARGET_DIR", project.path().join("target"))
        .env("TERM", "xterm-256color")
        .env_remove("NO_COLOR")
        .env_remove("KUBECONFIG")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut out = played.stdout.take().unwrap();
    let (send, output) = channel();
    std::thread::spawn(move || {
        let mut buffer = [0; 4096];
        while let Ok(count @ 1..) = out.read(&mut buffer) {
            // A test that failed reads no more.
            let _ = send.send(buffer[..count].to_vec());
        }
    });
    let terminal = anstyle_svg::Term::new()
        .palette(anstyle_svg::WIN10_CONSOLE)
        .min_width_px(0);
    let picture = repository.join("docs/src/pictures/dev.svg");
    let is_new = std::env::var_os("KUBEWRIGHT_UPDATE_BOOK").is_some();
    let mut missing = compared_lines(&fs::read_to_string(&picture).unwrap_or_default());
    assert!(
        is_new || !missing.is_empty(),
        "there is no picture: KUBEWRIGHT_UPDATE_BOOK=1"
    );
    let (start, mut since, mut asked, mut screen) = (Instant::now(), None::<Instant>, false, Vec::new());
    while is_new || !missing.is_empty() {
        match output.recv_timeout(Duration::from_millis(200)) {
            Ok(bytes) => screen.extend(bytes),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => panic!("dev ended: {}", String::from_utf8_lossy(&screen)),
        }
        let text = String::from_utf8_lossy(&screen).into_owned();
        let mut frames = text.rsplit("\u{1b}[?2026h\u{1b}[H");
        let Some(frame) = frames.find(|frame| frame.contains("\u{1b}[J\u{1b}[?2026l")) else {
            continue;
        };
        let frame = frame
            .split("\u{1b}[J")
            .next()
            .unwrap_or_default()
            .replace("\u{1b}[K", "");
        let root = project.path().display().to_string();
        let shown = format!(
            "$ kubewright dev --samples\n{}",
            frame.replace("\r", "").replace(&root, "~/guestbook")
        );
        let made = terminal.render_svg(&shown);
        let lines = compared_lines(&made);
        missing.retain(|line| !lines.contains(line));
        let words = strip_str(&shown).to_string();
        if is_new && asked && words.contains("because Service default/hello created") {
            fs::write(&picture, made).unwrap();
            break;
        }
        // Again and again, for a machine under load may show one change with the next.
        let rests = text.contains("2 of 2 pods are ready") && words.contains("0 running · 0 ready · 0 delayed");
        if rests && since.get_or_insert_with(Instant::now).elapsed() > Duration::from_secs(2) {
            delete_service(&project.path().join(".kubewright/kubeconfig"));
            (since, asked) = (None, true);
        }
        assert!(
            start.elapsed() < Duration::from_secs(90),
            "not seen on the screen: {missing:#?}\nit shows:\n{words}\nKUBEWRIGHT_UPDATE_BOOK=1 renews the picture"
        );
    }
    let mut keys = played.stdin.take().unwrap();
    keys.write_all(b"q").unwrap();
    keys.flush().unwrap();
    assert!(played.wait().unwrap().success());
}
