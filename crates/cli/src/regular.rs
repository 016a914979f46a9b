//! Reading a file that a user named or that belongs to a project: only a regular file, and only up to [`MAX_SIZE`].
//!
//! A FIFO would make the command wait for a writer that never comes, and a device may have no end. The file descriptors
//! of the caller (`/dev/stdin`, `/dev/fd/63`, which a shell makes of `<(…)`) are open already, and are read.

use std::fs::{self, File};
use std::io::{self, ErrorKind, Read as _};
use std::path::Path;

use kubewright_cluster::require_regular;

/// The largest file that is read, in bytes. No file of a project comes near it.
const MAX_SIZE: u64 = 64 << 20;

/// The whole text of a file.
///
/// # Errors
/// As [`std::fs::read_to_string`], and when the file is not a regular one, or too large.
pub(crate) fn text(path: &Path) -> io::Result<String> {
    String::from_utf8(bytes(path)?)
        .map_err(|_| io::Error::new(ErrorKind::InvalidData, "stream did not contain valid UTF-8"))
}

/// The whole content of a file.
///
/// # Errors
/// As [`std::fs::read`], and when the file is not a regular one, or too large.
pub(crate) fn bytes(path: &Path) -> io::Result<Vec<u8>> {
    check(path)?;
    let mut found = Vec::new();
    File::open(path)?.take(MAX_SIZE + 1).read_to_end(&mut found)?;
    if found.len() as u64 > MAX_SIZE {
        return Err(too_large());
    }
    Ok(found)
}

/// Whether the file can be read without waiting: a regular file, a folder (which fails at once), or an open descriptor
/// of the caller.
///
/// # Errors
/// When it does not exist, or is of another kind.
pub(crate) fn check(path: &Path) -> io::Result<()> {
    let is_of_caller = path == Path::new("/dev/stdin") || path.starts_with("/dev/fd") || path.starts_with("/proc");
    if is_of_caller {
        return Ok(());
    }
    let found = fs::metadata(path)?;
    require_regular(found.file_type())?;
    if found.len() > MAX_SIZE {
        return Err(too_large());
    }
    Ok(())
}

fn too_large() -> io::Error {
    io::Error::new(
        ErrorKind::FileTooLarge,
        format!("it is larger than {} MiB", MAX_SIZE >> 20),
    )
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;

    use super::*;

    #[test]
    fn only_regular_files_are_read() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::write(at("text"), "text\n").unwrap();
        fs::write(at("latin"), b"caf\xe9\n").unwrap();
        fs::create_dir(at("folder")).unwrap();
        std::os::unix::fs::symlink("text", at("link")).unwrap();
        std::os::unix::fs::symlink("loop", at("loop")).unwrap();
        rustix::fs::mkfifoat(rustix::fs::CWD, at("fifo"), rustix::fs::Mode::RUSR).unwrap();
        let _socket = UnixListener::bind(at("socket")).unwrap();
        // As large as is said, and nothing on the disk.
        File::create(at("large")).unwrap().set_len(MAX_SIZE + 1).unwrap();
        for (path, said) in [
            (at("text"), Ok("text\n")),
            (at("link"), Ok("text\n")),
            (at("latin"), Err("UTF-8")),
            (at("folder"), Err("directory")),
            (at("loop"), Err("symbolic links")),
            (at("fifo"), Err("it is a FIFO, not a regular file")),
            (at("socket"), Err("it is a socket, not a regular file")),
            ("/dev/zero".into(), Err("it is a device, not a regular file")),
            (at("large"), Err("it is larger than 64 MiB")),
            (at("missing"), Err("No such file")),
        ] {
            let found = text(&path).map_err(|why| why.to_string());
            match said {
                Ok(expected) => assert_eq!(found.as_deref(), Ok(expected), "{path:?}"),
                Err(part) => assert!(
                    found.as_ref().is_err_and(|why| why.contains(part)),
                    "{path:?}: {found:?}"
                ),
            }
        }
    }
}
