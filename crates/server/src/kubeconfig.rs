//! The file that gives a client the address of the cluster and its credentials: a kubeconfig with everything embedded.
//!
//! A reader of this text is the cluster's administrator, so a file that holds it is readable by its owner alone, from
//! its first moment on, and it appears complete or not at all.

use std::io::{self, Write as _};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;

use crate::certificates::{ADMIN_USER, Authority, Certified};

/// The name of the cluster in a kubeconfig.
const CLUSTER: &str = "kubewright";

/// The URL under which this machine reaches a server that listens on `address`.
///
/// A server that listens on all addresses is reached over loopback: it is the one address that is certain to be its
/// own.
pub(crate) fn server_url(address: SocketAddr) -> String {
    let ip = match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => IpAddr::V4(Ipv4Addr::LOCALHOST),
        IpAddr::V6(ip) if ip.is_unspecified() => IpAddr::V6(Ipv6Addr::LOCALHOST),
        ip => ip,
    };
    format!("https://{}", SocketAddr::new(ip, address.port()))
}

/// A kubeconfig for the administrator of the API server at `address`, with everything embedded, the **private key**
/// among it.
///
/// # Errors
/// [`Error::Certificate`](crate::Error::Certificate) when the system has no entropy.
pub fn admin(address: SocketAddr, authority: &Authority) -> crate::Result<String> {
    Ok(text(address, authority, &authority.admin()?))
}

/// The text of a kubeconfig (YAML) for the administrator, with the CA's certificate, the client certificate and its key
/// embedded.
fn text(address: SocketAddr, authority: &Authority, admin: &Certified) -> String {
    let server = server_url(address);
    let ca = BASE64_STANDARD.encode(authority.pem());
    let certificate = BASE64_STANDARD.encode(admin.certificate_pem());
    let key = BASE64_STANDARD.encode(admin.key_sec1_pem());
    format!(
        "apiVersion: v1
kind: Config
clusters:
- name: {CLUSTER}
  cluster:
    server: {server}
    certificate-authority-data: {ca}
users:
- name: {ADMIN_USER}
  user:
    client-certificate-data: {certificate}
    client-key-data: {key}
contexts:
- name: {ADMIN_USER}@{CLUSTER}
  context:
    cluster: {CLUSTER}
    user: {ADMIN_USER}
current-context: {ADMIN_USER}@{CLUSTER}
"
    )
}

/// Writes a kubeconfig to `path`: atomically (a reader sees the old text or the new one, never a part) and readable by
/// its owner alone (mode 0600). A symbolic link at `path` is followed. Blocks for as long as the disk takes.
///
/// # Errors
/// The error of the operating system, with the path: its directory does not exist or may not be written.
pub fn write(path: &Path, text: &str) -> io::Result<()> {
    // Renaming over a link would replace the link and leave the file that the user cares about as it was.
    let target = std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let partial = partial_path(&target)?;
    let written = create_private(&partial)
        .and_then(|mut file| file.write_all(text.as_bytes()))
        .and_then(|()| std::fs::rename(&partial, &target));
    written.map_err(|error| {
        // The partial file may not exist; there is nothing better to do about one that cannot be removed.
        let _ = std::fs::remove_file(&partial);
        io::Error::new(
            error.kind(),
            format!("cannot write the kubeconfig {}: {error}", path.display()),
        )
    })
}

/// A name in the same directory (a rename is atomic only within one file system) that two processes do not share.
fn partial_path(target: &Path) -> io::Result<PathBuf> {
    let name = target.file_name().ok_or_else(|| {
        io::Error::new(
            io::ErrorKind::InvalidInput,
            format!(
                "cannot write the kubeconfig {}: the path names no file",
                target.display()
            ),
        )
    })?;
    let mut partial = std::ffi::OsString::from(".");
    partial.push(name);
    partial.push(format!(".{}.partial", std::process::id()));
    Ok(target.with_file_name(partial))
}

fn create_private(path: &Path) -> io::Result<std::fs::File> {
    // A file that an earlier process with this id left behind, killed in the middle.
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut options = std::fs::OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    {
        use std::os::unix::fs::OpenOptionsExt as _;
        options.mode(0o600);
    }
    options.open(path)
}

#[cfg(test)]
mod tests {
    use kube::config::Kubeconfig;

    use super::*;

    #[test]
    fn urls_point_to_what_this_machine_can_reach() {
        let check = |address: &str, url: &str| assert_eq!(server_url(address.parse().unwrap()), url);
        check("127.0.0.1:6443", "https://127.0.0.1:6443");
        check("0.0.0.0:1", "https://127.0.0.1:1");
        check("[::]:2", "https://[::1]:2");
        check("192.0.2.7:443", "https://192.0.2.7:443");
    }

    #[test]
    fn the_text_is_a_kubeconfig() {
        let authority = Authority::new().unwrap();
        let text = admin("127.0.0.1:6443".parse().unwrap(), &authority).unwrap();
        let config = Kubeconfig::from_yaml(&text).unwrap();
        assert_eq!(config.current_context.as_deref(), Some("kubernetes-admin@kubewright"));
        let cluster = config.clusters[0].cluster.as_ref().unwrap();
        assert_eq!(cluster.server.as_deref(), Some("https://127.0.0.1:6443"));
        let ca = BASE64_STANDARD
            .decode(cluster.certificate_authority_data.as_ref().unwrap())
            .unwrap();
        assert_eq!(String::from_utf8(ca).unwrap(), authority.pem());
    }

    #[test]
    fn a_written_file_is_complete_and_private() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("config");
        for text in ["first", "the second, longer", "3"] {
            write(&path, text).unwrap();
            assert_eq!(std::fs::read_to_string(&path).unwrap(), text);
            #[cfg(unix)]
            {
                use std::os::unix::fs::PermissionsExt as _;
                assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
            }
        }
        assert_eq!(
            std::fs::read_dir(folder.path()).unwrap().count(),
            1,
            "nothing is left behind"
        );
    }

    #[cfg(unix)]
    #[test]
    fn a_link_is_followed() {
        let folder = tempfile::tempdir().unwrap();
        let (real, link) = (folder.path().join("real"), folder.path().join("link"));
        std::fs::write(&real, "old").unwrap();
        std::os::unix::fs::symlink(&real, &link).unwrap();
        write(&link, "new").unwrap();
        assert_eq!(std::fs::read_to_string(&real).unwrap(), "new");
        assert!(std::fs::symlink_metadata(&link).unwrap().is_symlink());
    }

    #[test]
    fn errors_name_the_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("missing").join("config");
        let error = write(&path, "text").unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
        assert!(
            error
                .to_string()
                .starts_with(&format!("cannot write the kubeconfig {}: ", path.display())),
            "{error}"
        );
    }
}
