//! The Debian package: the program, its completions for three shells and its man pages.
//!
//! Written by ourselves, and so on any system: three members of an `ar` archive, of which two are tar archives.

use super::archive::{Entry, What, ar, gzip, tar};
use super::program::System;
use super::{File, NOTICES, Release, read};

/// The package.
pub(super) fn make(release: &Release) -> Result<File, String> {
    let processor = release.program.processor.pick("amd64", "arm64");
    let mut entries = vec![Entry::program("usr/bin/kubewright", release.program.bytes.clone())];
    for (shell, path) in [
        ("bash", "usr/share/bash-completion/completions/kubewright"),
        ("zsh", "usr/share/zsh/vendor-completions/_kubewright"),
        ("fish", "usr/share/fish/vendor_completions.d/kubewright.fish"),
    ] {
        let script = release.completions.iter().find(|(of, _)| *of == shell);
        let (_, script) = script.ok_or_else(|| format!("no completions for {shell}"))?;
        entries.push(Entry::file(path, script.clone()));
    }
    for (name, page) in &release.pages {
        entries.push(Entry::file(format!("usr/share/man/man1/{name}.gz"), gzip(page)?));
    }
    let license = read(&release.root.join("LICENSE"))?;
    entries.push(Entry::file("usr/share/doc/kubewright/copyright", license));
    let notices = gzip(release.notices.as_bytes())?;
    entries.push(Entry::file(format!("usr/share/doc/kubewright/{NOTICES}.gz"), notices));
    let sizes = entries.iter().map(|entry| match &entry.what {
        What::File(data) => data.len().div_ceil(1024),
        What::Folder => 0,
    });
    let kibibytes: usize = sizes.sum();
    let needed = match release.program.system {
        System::Glibc { minor, .. } => format!("Depends: libc6 (>= 2.{minor}), libgcc-s1\n"),
        _ => String::new(),
    };
    let control = format!(
        "Package: kubewright\n\
         Version: {}\n\
         Architecture: {processor}\n\
         Maintainer: The kubewright authors <kubewright@users.noreply.github.com>\n\
         Installed-Size: {kibibytes}\n\
         {needed}\
         Section: devel\n\
         Priority: optional\n\
         Homepage: https://github.com/kubewright/kubewright\n\
         Description: Kubernetes operators in Rust, with a cluster inside the program\n \
         A command that scaffolds, builds, tests and deploys operators, and runs a\n \
         Kubernetes API server with its controllers in one process.\n",
        release.version.replace('-', "~"),
    );
    let mut folders: Vec<String> = Vec::new();
    for entry in &entries {
        for (at, _) in entry.path.match_indices('/') {
            let folder = entry.path[..=at].to_owned();
            if !folders.contains(&folder) {
                folders.push(folder);
            }
        }
    }
    let folders = folders.into_iter().map(|path| Entry::folder(path, 0o755, 0));
    let data: Vec<Entry> = folders.chain(entries).collect();
    let control = gzip(&tar(&[Entry::file("control", control)], release.time)?)?;
    let data = gzip(&tar(&data, release.time)?)?;
    let members = [
        ("debian-binary", b"2.0\n".as_slice()),
        ("control.tar.gz", &control),
        ("data.tar.gz", &data),
    ];
    Ok(File {
        name: format!("kubewright_{}_{processor}.deb", release.version.replace('-', "~")),
        what: "the command, completions, man pages",
        bytes: ar(&members, release.time),
    })
}

#[cfg(test)]
mod tests {
    use super::super::tests::{PROGRAM, release, untar};
    use super::*;

    #[test]
    fn a_debian_package_has_three_members() {
        let release = release();
        let package = make(&release).unwrap();
        let mut rest = package.bytes.strip_prefix(b"!<arch>\n").unwrap();
        let mut members = Vec::new();
        while !rest.is_empty() {
            let (header, data) = rest.split_at(60);
            let header = std::str::from_utf8(header).unwrap();
            assert!(header.ends_with("`\n"), "{header:?}");
            let size: usize = header[48..58].trim().parse().unwrap();
            members.push((header[..16].trim(), &data[..size]));
            rest = &data[size + size % 2..];
        }
        let [
            ("debian-binary", b"2.0\n"),
            ("control.tar.gz", control),
            ("data.tar.gz", data),
        ] = members[..]
        else {
            panic!("{:?}", members.iter().map(|(name, _)| name).collect::<Vec<_>>());
        };
        let control = untar(control).remove("control").unwrap().0;
        let control = String::from_utf8(control).unwrap();
        assert!(control.contains("\nArchitecture: amd64\n"), "{control}");
        assert!(control.contains("\nDepends: libc6 (>= 2.31), libgcc-s1\n"), "{control}");
        let files = untar(data);
        assert_eq!(files["usr/bin/kubewright"], (PROGRAM.to_vec(), 0o755));
        for path in ["man/man1/kubewright.1.gz", "bash-completion/completions/kubewright"] {
            assert!(files.contains_key(&format!("usr/share/{path}")), "{path}");
        }
    }
}
