//! The Python wheel: the package of clients/python with the program inside, which pip puts where it puts commands.
//!
//! Its name says on which systems pip installs it. pyproject.toml stays the only place for what the package is.

use std::fmt::Write as _;
use std::fs;

use toml_edit::DocumentMut;

use super::archive::{Entry, What, sha256, zip};
use super::program::{Processor, Program, System};
use super::{File, NOTICES, Release, read};

/// The wheel.
pub(super) fn make(release: &Release) -> Result<File, String> {
    let source = release.root.join("clients/python");
    let manifest: DocumentMut = read(&source.join("pyproject.toml"))?
        .parse()
        .map_err(|why| format!("clients/python/pyproject.toml: {why}"))?;
    if release.version.contains('-') {
        return Err(format!(
            "{}: Python writes versions before a release otherwise",
            release.version
        ));
    }
    let stem = format!("kubewright-{}", release.version);
    let mut entries = Vec::new();
    let package = source.join("src/kubewright");
    let listed = fs::read_dir(&package).map_err(|why| format!("cannot read {}: {why}", package.display()))?;
    for file in listed {
        let path = file
            .map_err(|why| format!("cannot read {}: {why}", package.display()))?
            .path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if name.ends_with(".py") || name == "py.typed" {
            entries.push(Entry::file(format!("kubewright/{name}"), read(&path)?));
        }
    }
    entries.sort_by(|a, b| a.path.cmp(&b.path));
    entries.push(Entry::program(
        format!("{stem}.data/scripts/kubewright"),
        release.program.bytes.clone(),
    ));
    let information = format!("{stem}.dist-info");
    let readme = read(&source.join("README.md"))?;
    let metadata = metadata(&manifest, &release.version, &readme)?;
    entries.push(Entry::file(format!("{information}/METADATA"), metadata));
    let tags = tags(&release.program);
    let mut wheel = "Wheel-Version: 1.0\nGenerator: kubewright\nRoot-Is-Purelib: false\n".to_owned();
    for tag in &tags {
        let _ = writeln!(wheel, "Tag: py3-none-{tag}");
    }
    entries.push(Entry::file(format!("{information}/WHEEL"), wheel));
    entries.push(Entry::file(
        format!("{information}/entry_points.txt"),
        plugins(&manifest)?,
    ));
    let license = read(&release.root.join("LICENSE"))?;
    entries.push(Entry::file(format!("{information}/licenses/LICENSE"), license));
    entries.push(Entry::file(
        format!("{information}/licenses/{NOTICES}"),
        release.notices.clone(),
    ));
    let mut record = String::new();
    for entry in &entries {
        if let What::File(data) = &entry.what {
            let _ = writeln!(record, "{},sha256={},{}", entry.path, base64(&sha256(data)), data.len());
        }
    }
    let _ = writeln!(record, "{information}/RECORD,,");
    entries.push(Entry::file(format!("{information}/RECORD"), record));
    Ok(File {
        name: format!("{stem}-py3-none-{}.whl", tags.join(".")),
        what: "the command, the package for Python, its plug-in for pytest",
        bytes: zip(&entries)?,
    })
}

/// The systems, as pip calls them.
fn tags(program: &Program) -> Vec<String> {
    let processor = program.processor.pick("x86_64", "aarch64");
    match program.system {
        System::Static => ["manylinux_2_17", "manylinux2014", "musllinux_1_1"]
            .map(|system| format!("{system}_{processor}"))
            .to_vec(),
        System::Glibc { minor, .. } => vec![format!("manylinux_2_{minor}_{processor}")],
        // The oldest that rustc builds for.
        System::MacOs => vec![match program.processor {
            Processor::X86_64 => "macosx_10_12_x86_64".to_owned(),
            Processor::Aarch64 => "macosx_11_0_arm64".to_owned(),
        }],
    }
}

/// The core metadata, from pyproject.toml.
fn metadata(manifest: &DocumentMut, version: &str, readme: &str) -> Result<String, String> {
    let project = &manifest["project"];
    let text = |name: &str| {
        let value = project.get(name).and_then(|value| value.as_str());
        value.ok_or_else(|| format!("pyproject.toml: [project] has no {name}"))
    };
    let mut said = format!(
        "Metadata-Version: 2.4\nName: {}\nVersion: {version}\nSummary: {}\nLicense-Expression: {}\nLicense-File: LICENSE\nLicense-File: {NOTICES}\nRequires-Python: {}\n",
        text("name")?,
        text("description")?,
        text("license")?,
        text("requires-python")?,
    );
    let strings = |value: &toml_edit::Item| -> Vec<String> {
        let list = value.as_array().into_iter().flatten();
        list.filter_map(|one| Some(one.as_str()?.to_owned())).collect()
    };
    for classifier in strings(&project["classifiers"]) {
        let _ = writeln!(said, "Classifier: {classifier}");
    }
    for (name, url) in project["urls"].as_table().into_iter().flatten() {
        let _ = writeln!(said, "Project-URL: {name}, {}", url.as_str().unwrap_or_default());
    }
    for (extra, needed) in project["optional-dependencies"].as_table().into_iter().flatten() {
        let _ = writeln!(said, "Provides-Extra: {extra}");
        for requirement in strings(needed) {
            let _ = writeln!(said, "Requires-Dist: {requirement}; extra == '{extra}'");
        }
    }
    Ok(format!("{said}Description-Content-Type: text/markdown\n\n{readme}"))
}

/// The entry points, by which pytest finds the plug-in.
fn plugins(manifest: &DocumentMut) -> Result<String, String> {
    let groups = manifest["project"]["entry-points"].as_table();
    let groups = groups.ok_or("pyproject.toml: no [project.entry-points]")?;
    let mut said = String::new();
    for (group, points) in groups {
        let _ = writeln!(said, "[{group}]");
        for (name, target) in points.as_table().into_iter().flatten() {
            let _ = writeln!(said, "{name} = {}", target.as_str().unwrap_or_default());
        }
    }
    Ok(said)
}

/// Hexadecimal digits in base64 for addresses, without the signs at its end, as RECORD has them.
fn base64(digits: &str) -> String {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    let bits = digits.chars().flat_map(|digit| {
        let value = digit.to_digit(16).unwrap_or_default();
        (0..4).rev().map(move |bit| value >> bit & 1)
    });
    let bits: Vec<u32> = bits.collect();
    let letter = |six: &[u32]| {
        let value = (0..6).fold(0, |value, at| value << 1 | six.get(at).copied().unwrap_or_default());
        char::from(LETTERS[value as usize])
    };
    bits.chunks(6).map(letter).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::io::Read as _;

    use super::super::tests::{PROGRAM, release};
    use super::*;

    /// The files of a zip archive, as its directory at the end has them, each with its mode.
    fn unzip(archive: &[u8]) -> BTreeMap<String, (Vec<u8>, u32)> {
        let number = |at: usize, size: usize| {
            let bytes = archive[at..at + size].iter().rev();
            bytes.fold(0usize, |number, byte| number << 8 | usize::from(*byte))
        };
        let end = archive.len() - 22;
        assert_eq!(&archive[end..end + 4], b"PK\x05\x06");
        let mut at = number(end + 16, 4);
        let mut files = BTreeMap::new();
        for _ in 0..number(end + 10, 2) {
            let (compressed, size, name) = (number(at + 20, 4), number(at + 24, 4), number(at + 28, 2));
            let path = String::from_utf8(archive[at + 46..at + 46 + name].to_vec()).unwrap();
            let start = number(at + 42, 4);
            assert_eq!(
                archive[start + 4..start + 30],
                archive[at + 6..at + 32],
                "{path}: both headers are equal"
            );
            let mut data = Vec::new();
            flate2::read::DeflateDecoder::new(&archive[start + 30 + name..][..compressed])
                .read_to_end(&mut data)
                .unwrap();
            let mut crc = flate2::Crc::new();
            crc.update(&data);
            assert_eq!((data.len(), crc.sum() as usize), (size, number(at + 16, 4)), "{path}");
            files.insert(path, (data, u32::try_from(number(at + 40, 2)).unwrap()));
            at += 46 + name;
        }
        assert_eq!(at, end);
        files
    }

    #[test]
    fn the_record_of_a_wheel_is_true() {
        let release = release();
        let wheel = make(&release).unwrap();
        assert_eq!(
            wheel.name,
            format!("kubewright-{}-py3-none-manylinux_2_31_x86_64.whl", release.version)
        );
        let mut files = unzip(&wheel.bytes);
        let stem = format!("kubewright-{}", release.version);
        let (program, mode) = &files[&format!("{stem}.data/scripts/kubewright")];
        assert_eq!((program.as_slice(), *mode), (PROGRAM, 0o100_755));
        for file in ["__init__", "__main__", "pytest_plugin", "_process"] {
            assert!(files.contains_key(&format!("kubewright/{file}.py")), "{file}");
        }
        let text = |name: &str| String::from_utf8(files[&format!("{stem}.dist-info/{name}")].0.clone()).unwrap();
        assert!(text("entry_points.txt").contains("[pytest11]\nkubewright = kubewright.pytest_plugin\n"));
        assert!(text("METADATA").contains("\nRequires-Python: >=3.10\n"));
        assert!(text("WHEEL").ends_with("\nTag: py3-none-manylinux_2_31_x86_64\n"));
        let record = text("RECORD");
        for line in record.lines() {
            let [path, hash, size] = line.split(',').collect::<Vec<_>>()[..] else {
                panic!("{line}");
            };
            let (data, _) = files.remove(path).unwrap();
            if !path.ends_with("RECORD") {
                assert_eq!(hash, format!("sha256={}", base64(&sha256(&data))), "{path}");
                assert_eq!(size, data.len().to_string(), "{path}");
            }
        }
        assert!(files.is_empty(), "not in RECORD: {:?}", files.keys());
    }

    #[test]
    fn base64_is_that_of_addresses() {
        for (digits, letters) in [("", ""), ("fb", "-w"), ("fbff", "-_8"), ("6b7562", "a3Vi")] {
            assert_eq!(base64(digits), letters);
        }
    }
}
