//! The shim: a small process between the cluster and one program, as containerd's shims are.
//!
//! The program `kubewright` starts itself as a shim ([`called`]) for each container and each `exec`. The shim connects
//! to the cluster's control socket, gets its order, starts the program in a session of its own, and reports its end. It
//! is the parent of everything that the program leaves behind (a subreaper), so it can end all of it.
//!
//! Invariants:
//! - when the connection to the cluster ends, however the cluster ended, everything that the program started is killed;
//! - when the program ends, its child processes are killed as well, as with the pid namespace of a container;
//! - when the shim itself is killed, the kernel kills the program (`PR_SET_PDEATHSIG`);
//! - a program has no privileges and never gains any (no capabilities, no groups but its own, `no_new_privs`);
//! - a program inherits nothing but its three streams: no descriptors, no environment, no mask of files;
//! - when the cluster is killed, its folders go with it: the janitor, another such process, sees its end.
//!
//! Not here: the program and its environment (the rest of `processes`).

use std::ffi::OsString;
use std::fs;
use std::io::{self, BufRead as _, BufReader, Read, Write as _};
use std::os::unix::net::UnixStream;
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::path::PathBuf;
use std::process::Command;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal};
use serde_json::Value;

use super::table::Table;
use super::{home, resolv};

/// The first argument of a shim, and of the process that becomes the program.
pub(super) const SHIM: &str = "process-shim";
const EXEC: &str = "process-exec";
/// The first argument of the process that clears up behind a killed cluster.
pub(super) const JANITOR: &str = "process-janitor";
/// How long it waits for shims, which kill their programs.
const PATIENCE: Duration = Duration::from_secs(20);
/// The exit code when a program cannot be started (`StartError` of a container runtime).
pub(super) const CANNOT_START: u8 = 128;

/// The orders of the cluster on the control connection.
pub(super) const TERMINATE: u8 = b't';
pub(super) const KILL: u8 = b'k';

/// Runs as a shim when the arguments of this process say so; `None` when they do not. Call it first in `main` of a
/// program whose clusters run processes, before any thread is started.
///
/// ```
/// if let Some(done) = kubewright_nodes::called() {
///     std::process::exit(i32::from(done));
/// }
/// ```
pub fn called() -> Option<u8> {
    let mut arguments = std::env::args_os().skip(1);
    let first = arguments.next()?;
    let done = if first == SHIM {
        shim(arguments.collect())
    } else if first == EXEC {
        // Only returns when it fails.
        become_program(arguments.collect())
    } else if first == JANITOR {
        janitor(arguments.collect())
    } else {
        return None;
    };
    Some(done.unwrap_or_else(|error| {
        // A user looks for this in the log of the container.
        let _ = writeln!(io::stderr(), "cannot start: {error}");
        CANNOT_START
    }))
}

/// The command of the cluster's order.
fn command(spec: &Value) -> io::Result<Command> {
    let broken = |what: &str| io::Error::other(format!("the order of the cluster lacks {what}"));
    let texts = |field: &str| -> Vec<&str> {
        let list = spec[field].as_array();
        list.into_iter().flatten().filter_map(Value::as_str).collect()
    };
    let mut command = Command::new(super::launch::this_program()?);
    command.arg(EXEC).arg(std::process::id().to_string());
    command.arg(spec["limits"].to_string());
    command.arg(spec["terminal"].as_str().unwrap_or(""));
    command.args(texts("command"));
    command.env_clear();
    for (name, value) in spec["environment"].as_object().into_iter().flatten() {
        command.env(name, value.as_str().unwrap_or(""));
    }
    command.current_dir(spec["folder"].as_str().ok_or_else(|| broken("a folder"))?);
    for (field, set) in [
        ("group", Command::gid as fn(&mut Command, u32) -> &mut Command),
        ("user", Command::uid),
    ] {
        if let Some(id) = spec[field].as_u64() {
            set(&mut command, u32::try_from(id).map_err(|_| broken("a user"))?);
        }
    }
    Ok(command)
}

fn shim(arguments: Vec<OsString>) -> io::Result<u8> {
    let [socket, id] = arguments.as_slice() else {
        return Err(io::Error::other("a shim is told its socket and its number"));
    };
    close_inherited()?;
    let mut control = UnixStream::connect(PathBuf::from(socket))?;
    writeln!(control, "{}", id.to_string_lossy())?;
    let mut orders = BufReader::new(control.try_clone()?);
    let mut line = String::new();
    orders.read_line(&mut line)?;
    let spec: Value = serde_json::from_str(&line).map_err(io::Error::other)?;
    #[cfg(target_os = "linux")]
    rustix::process::set_child_subreaper(Some(rustix::process::getpid()))?;
    // The keyboard's signals are for the cluster, which tells its shims.
    rustix::process::setsid()?;
    // Without it the program runs all the same; the cluster is told why.
    let files = [
        ("hosts", "/etc/hosts"),
        ("resolv", resolv::FILE),
        ("passwd", "/etc/passwd"),
        ("groups", "/etc/group"),
    ];
    let files = files.map(|(key, place)| (spec[key].as_str(), place));
    let names = own_files(&files);
    let hidden = if names.is_ok() { hide_others() } else { Ok(()) };
    let mut child = command(&spec)?.spawn()?;
    let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    let main = Arc::new(Mutex::new(pid));
    match (names, hidden) {
        (Err(why), _) => writeln!(control, "started {} nameless {why}", child.id())?,
        (Ok(()), Err(why)) => writeln!(control, "started {} visible {why}", child.id())?,
        (Ok(()), Ok(())) => writeln!(control, "started {}", child.id())?,
    }
    let listening = main.clone();
    std::thread::spawn(move || listen(orders, &listening));
    if let Some(pid) = pid {
        until_ended(pid);
    }
    *main.lock().unwrap_or_else(PoisonError::into_inner) = None;
    let status = child.wait()?;
    let code = status
        .code()
        .or_else(|| status.signal().map(|signal| 128 + signal))
        .unwrap_or(1);
    end_all();
    // The cluster may be gone.
    let _ = writeln!(control, "ended {code}");
    Ok(u8::try_from(code).unwrap_or(u8::MAX))
}

/// Puts files in the place of the machine's, for this process and all below it. Root may do so in a mount namespace;
/// other users also need a user namespace, in which they keep their user ID.
#[cfg(target_os = "linux")]
fn own_files(files: &[(Option<&str>, &str)]) -> io::Result<()> {
    use rustix::mount::{MountPropagationFlags, mount_bind, mount_change};
    use rustix::thread::UnshareFlags;
    let (user, group) = (rustix::process::geteuid(), rustix::process::getegid());
    let flags = match user.is_root() {
        true => UnshareFlags::NEWNS,
        false => UnshareFlags::NEWNS | UnshareFlags::NEWUSER,
    };
    #[expect(deprecated, reason = "its successor is unsafe for threads; this process has one")]
    rustix::thread::unshare(flags)?;
    if !user.is_root() {
        let (user, group) = (user.as_raw(), group.as_raw());
        fs::write("/proc/self/setgroups", "deny")?;
        fs::write("/proc/self/uid_map", format!("{user} {user} 1"))?;
        fs::write("/proc/self/gid_map", format!("{group} {group} 1"))?;
    }
    // Mounts made here do not leave this namespace.
    mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC)?;
    for (file, place) in files {
        if let Some(file) = file {
            mount_bind(*file, *place)?;
        }
    }
    Ok(())
}

/// Whether this process may put files in the place of the machine's. A thread of its own tries it, and takes its mount
/// namespace with it.
pub(super) fn may_mount() -> bool {
    let tried = std::thread::spawn(|| own_files(&[(Some("/etc/passwd"), "/etc/passwd")]).is_ok());
    tried.join().unwrap_or(false)
}

/// Hides the processes of other users, whose command lines anybody may read otherwise, in the mount namespace of this
/// process. Kernels before 5.8 do not know the word, and would hide them everywhere.
#[cfg(target_os = "linux")]
fn hide_others() -> io::Result<()> {
    use rustix::mount::{MountFlags, mount};
    if !rustix::process::geteuid().is_root() {
        return Ok(());
    }
    let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    Ok(mount("proc", "/proc", "proc", flags, c"hidepid=invisible")?)
}

#[cfg(not(target_os = "linux"))]
fn hide_others() -> io::Result<()> {
    Ok(())
}

/// Closes what this process has inherited from whoever started the cluster, but for the three streams. It is called
/// before anything is opened.
#[cfg(target_os = "linux")]
fn close_inherited() -> io::Result<()> {
    let entries = fs::read_dir("/proc/self/fd")?.flatten();
    let numbers = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let numbers: Vec<i32> = numbers.filter(|number| *number > 2).collect();
    for number in numbers {
        // The descriptor of the list itself is among them, and closed by now.
        let _ = nix::unistd::close(number);
    }
    Ok(())
}

#[cfg(not(target_os = "linux"))]
fn close_inherited() -> io::Result<()> {
    Ok(())
}

/// Waits for the end of the cluster, and removes its folders if it did not. Its standard input is a pipe that only the
/// cluster holds, so that the end comes however the cluster ends.
fn janitor(arguments: Vec<OsString>) -> io::Result<u8> {
    let [home] = arguments.as_slice() else {
        return Err(io::Error::other("a janitor is told its folder"));
    };
    let home = PathBuf::from(home);
    close_inherited()?;
    rustix::process::setsid()?;
    io::copy(&mut io::stdin(), &mut io::sink())?;
    // The shims see the same end, and kill all that their programs have started.
    let begun = Instant::now();
    while !home::shims(&home).is_empty() && begun.elapsed() < PATIENCE {
        std::thread::sleep(Duration::from_millis(10));
    }
    home::clear_one(&home);
    Ok(0)
}

#[cfg(not(target_os = "linux"))]
fn own_files(_: &[(Option<&str>, &str)]) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

/// Waits until the program has ended. Its number stays its own until it is waited for, so that no signal meets another
/// process. What the program has left to this process is waited for at once: it would keep its number, and a program
/// that leaves thousands would take those of the whole machine.
#[cfg(target_os = "linux")]
fn until_ended(program: Pid) {
    use nix::errno::Errno;
    use nix::sys::wait::{Id, WaitPidFlag, waitid, waitpid};
    let program = nix::unistd::Pid::from_raw(program.as_raw_nonzero().get());
    loop {
        match waitid(Id::All, WaitPidFlag::WEXITED | WaitPidFlag::WNOWAIT).map(|ended| ended.pid()) {
            Ok(Some(ended)) if ended != program => {
                // Nobody else waits for it.
                let _ = waitpid(ended, None);
            }
            Err(Errno::EINTR) => {}
            Ok(_) | Err(_) => return,
        }
    }
}

#[cfg(not(target_os = "linux"))]
fn until_ended(program: Pid) {
    let options = rustix::process::WaitIdOptions::EXITED | rustix::process::WaitIdOptions::NOWAIT;
    while let Err(rustix::io::Errno::INTR) = rustix::process::waitid(rustix::process::WaitId::Pid(program), options) {}
}

/// Obeys the cluster's orders, until the connection ends.
fn listen(mut orders: impl Read, main: &Mutex<Option<Pid>>) {
    let mut order = [0];
    loop {
        let is_over = !matches!(orders.read(&mut order), Ok(1));
        let main = main.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(pid) = *main else { return };
        // A program that has just ended needs no signal.
        let _ = match order[0] {
            TERMINATE if !is_over => rustix::process::kill_process(pid, Signal::TERM),
            _ => rustix::process::kill_process(pid, Signal::KILL),
        };
        if is_over {
            return;
        }
    }
}

/// Kills everything below this process, and waits until it is gone.
fn end_all() {
    loop {
        for pid in Table::read().below(std::process::id()) {
            if let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) {
                // It may have ended meanwhile.
                let _ = rustix::process::kill_process(pid, Signal::KILL);
            }
        }
        // One that ends, and all that have: to look for those that are left costs more.
        let mut options = rustix::process::WaitOptions::empty();
        loop {
            match rustix::process::wait(options) {
                Ok(Some(_)) => options = rustix::process::WaitOptions::NOHANG,
                Ok(None) => break,
                Err(rustix::io::Errno::INTR) => {}
                Err(_) => return,
            }
        }
    }
}

/// Becomes the program: in a session of its own, with its limits, and with its terminal if it has one.
fn become_program(arguments: Vec<OsString>) -> io::Result<u8> {
    let [shim, limits, terminal, program, rest @ ..] = arguments.as_slice() else {
        return Err(io::Error::other("there is no command"));
    };
    rustix::process::setsid()?;
    #[cfg(target_os = "linux")]
    {
        rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
        rustix::thread::set_no_new_privs(true)?;
        drop_capabilities()?;
    }
    // The shim may have gone before this process asked to go with it.
    let parent = rustix::process::getppid().map(|pid| pid.as_raw_nonzero().to_string());
    if parent.map(OsString::from).as_ref() != Some(shim) {
        return Err(io::Error::other("its shim has gone"));
    }
    if !terminal.is_empty() {
        // The first terminal that the leader of a session opens is that of the session.
        let terminal = fs::OpenOptions::new().read(true).write(true).open(terminal)?;
        rustix::stdio::dup2_stdin(&terminal)?;
        rustix::stdio::dup2_stdout(&terminal)?;
        rustix::stdio::dup2_stderr(&terminal)?;
    }
    rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o022));
    limit(&serde_json::from_str(&limits.to_string_lossy()).map_err(io::Error::other)?)?;
    let error = Command::new(program).args(rest).exec();
    Err(io::Error::new(
        error.kind(),
        format!("{}: {error}", program.to_string_lossy()),
    ))
}

/// Gives up what a user who is not root may have been given, too.
#[cfg(target_os = "linux")]
fn drop_capabilities() -> io::Result<()> {
    use rustix::thread::{CapabilitySet, CapabilitySets, clear_ambient_capability_set, set_capabilities};
    clear_ambient_capability_set()?;
    let none = CapabilitySet::empty();
    set_capabilities(
        None,
        CapabilitySets {
            effective: none,
            permitted: none,
            inheritable: none,
        },
    )?;
    Ok(())
}

fn limit(limits: &Value) -> io::Result<()> {
    use rustix::process::{Resource, Rlimit, setrlimit};
    for (name, resource) in [("memory", Resource::Data), ("core", Resource::Core)] {
        if let Some(most) = limits[name].as_u64() {
            let most = Some(most);
            setrlimit(
                resource,
                Rlimit {
                    current: most,
                    maximum: most,
                },
            )?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_order_of_the_cluster() {
        let spec = serde_json::json!({ "command": ["sh", "-c", "x"], "environment": { "A": "b" }, "folder": "/", "limits": {} });
        let command = command(&spec).expect("a whole order");
        let arguments: Vec<_> = command.get_args().map(|text| text.to_string_lossy()).collect();
        assert_eq!(arguments[0], EXEC);
        assert_eq!(&arguments[2..], ["{}", "", "sh", "-c", "x"]);
        assert_eq!(command.get_envs().count(), 1);
        assert!(super::command(&serde_json::json!({})).is_err());
    }
}
