//! The program of a container: its command, its folder, and the targets of its paths.
//!
//! Pure but for a look at whether a program is there. Not here: the environment (`environment`), and the start
//! (`launch`).

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use kubewright_objects::api::core::v1::Container;

use super::beneath::Below;
use super::environment::expand;
use super::gauges::limit;
use super::images::{self, Program};
use super::launch::Order;
use super::paths::Paths;

/// Where the message of a container is when it ends.
pub(super) fn message_path(container: &Container) -> &str {
    container
        .termination_message_path
        .as_deref()
        .unwrap_or("/dev/termination-log")
}

/// Where the kubeconfig of a container is: beside its root folder, in which it may change everything.
pub(super) fn access_file(root: &Path) -> PathBuf {
    root.with_file_name("kubeconfig")
}

/// Where a program makes its temporary files: the pod's own folder, whose name is short enough for sockets. A program
/// with a mount at or below `/tmp` looks for it below `TMPDIR`, so that is the folder with the mount.
pub(super) fn temporary(container: &Container, root: &Path, run: PathBuf) -> PathBuf {
    match has_mount_in_tmp(container) {
        true => root.join("tmp"),
        false => run,
    }
}

fn has_mount_in_tmp(container: &Container) -> bool {
    let mut mounts = container.volume_mounts.iter().flatten();
    mounts.any(|mount| Path::new(&mount.mount_path).starts_with("/tmp"))
}

/// The folders that a container finds besides its mounts.
///
/// # Errors
/// In words, when its message cannot lie where its spec says.
pub(super) fn folders(container: &Container, program: &Program) -> Result<Vec<Below>, String> {
    let mut all: Vec<Below> = Vec::new();
    for path in program.owned {
        all.push(Below::of_container(path)?);
    }
    let message = Below::of_container(message_path(container));
    let message = message.map_err(|why| format!("terminationMessagePath: {why}"))?;
    all.extend(message.split().0);
    Ok(all)
}

/// The paths of a container that lead into its root folder.
pub(super) fn paths(home: &Path, container: &Container, program: &Program, root: &Path) -> Paths {
    let mounts = container
        .volume_mounts
        .iter()
        .flatten()
        .map(|mount| mount.mount_path.clone());
    let message = message_path(container).to_owned();
    let of_image = program.owned.iter().map(|path| (*path).to_owned());
    Paths::new(home, root, mounts.chain(of_image).chain([message]))
}

/// Whether a command names a file that only the image has: `/manager` of an operator, for which the user's program
/// stands.
fn is_of_image(container: &Container, command: &[String]) -> bool {
    let said = container.command.iter().flatten().next();
    let is_as_said = said == command.first();
    command
        .first()
        .is_some_and(|program| is_as_said && program.starts_with('/') && !Path::new(program).exists())
}

/// The order: the command of the container, or that of its image, with the arguments; in its folder.
pub(super) fn order(
    container: &Container,
    program: &Program,
    paths: &Paths,
    environment: BTreeMap<String, String>,
    root: &Path,
) -> Order {
    let known = |name: &str| environment.get(name).cloned();
    let mut own = container.command.clone().filter(|command| !command.is_empty());
    if program.is_replaced && container.args.as_ref().is_some_and(|args| !args.is_empty()) {
        own.get_or_insert_default();
    }
    let is_own = own.is_some();
    let mut command = own.unwrap_or_else(|| program.command.clone());
    let fixed = if is_own { 0 } else { command.len() };
    command.extend(container.args.iter().flatten().cloned());
    // The image's own command is no text of the pod.
    for text in command.iter_mut().skip(fixed) {
        *text = paths.rewrite(&expand(text, known));
    }
    if is_own && program.is_users && is_of_image(container, &command) {
        command.splice(..1, program.command.iter().cloned());
    }
    images::resolve(&mut command, &program.path);
    let folder = match &container.working_dir {
        Some(folder) => PathBuf::from(paths.rewrite(folder)),
        None => program.folder.clone().unwrap_or_else(|| root.to_owned()),
    };
    // A program that grows slowly is seen and killed at its limit; a little above it the allocation itself fails.
    let memory = limit(container).map(|limit| limit.saturating_add(limit / 4));
    Order {
        command,
        environment,
        folder,
        memory,
        terminal: None,
        hosts: None,
        resolv: None,
        users: None,
        user: None,
    }
}

#[cfg(test)]
mod tests {
    use super::super::images::Images;
    use super::*;

    #[test]
    fn what_is_started() {
        let rows = [("shop:dev".to_owned(), "sh serve.sh".to_owned())];
        let images = Images::new(Path::new("/tmp"), rows);
        let check = |image: &str, command: &[&str], args: &[&str], expected: &[&str]| {
            let texts = |texts: &[&str]| Some(texts.iter().map(|text| (*text).to_owned()).collect());
            let container = Container {
                command: texts(command),
                args: texts(args),
                ..Container::default()
            };
            let program = images.find(image).expect("there is a shell");
            let root = Path::new("/nowhere/root");
            let paths = paths(Path::new("/nowhere"), &container, &program, root);
            let mut order = order(&container, &program, &paths, BTreeMap::new(), root);
            // Where the shell is differs between machines.
            if order.command[0].ends_with("/sh") {
                order.command[0] = "sh".to_owned();
            }
            assert_eq!(order.command, expected, "{image} {command:?} {args:?}");
        };
        check("busybox", &[], &[], &["sh"]);
        check("busybox", &["sh", "-c"], &["date"], &["sh", "-c", "date"]);
        // These images have no entry point: arguments are the command.
        check("busybox", &[], &["/bin/sh", "-c", "date"], &["sh", "-c", "date"]);
        check("alpine:3", &[], &["sh", "-c", "date"], &["sh", "-c", "date"]);
        let serve = ["sh", "-c", "exec env sh serve.sh \"$@\"", "sh"];
        check("shop:dev", &[], &[], &serve);
        check(
            "shop:dev",
            &[],
            &["/bin/sh"],
            &[serve.as_slice(), &["/bin/sh"]].concat(),
        );
    }
}
