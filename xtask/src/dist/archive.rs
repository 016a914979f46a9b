//! The formats of packages, written so that the same files give the same bytes: tar with gzip, zip, and ar.
//!
//! Zip and ar are as much of these formats as a wheel and a Debian package need; the crates for them bring more than they
//! save. Not here: which files a package has.

use std::io::Write as _;

use flate2::write::{DeflateEncoder, GzEncoder};
use flate2::{Compression, Crc, GzBuilder};
use sha2::{Digest as _, Sha256};

/// Something in a package, below its root.
pub(crate) struct Entry {
    /// With slashes, and none at the beginning.
    pub(crate) path: String,
    pub(crate) mode: u32,
    /// The user and the group.
    pub(crate) owner: u64,
    pub(crate) what: What,
}

pub(crate) enum What {
    File(Vec<u8>),
    Folder,
}

impl Entry {
    /// A file that everybody reads and root owns.
    pub(crate) fn file(path: impl Into<String>, data: impl Into<Vec<u8>>) -> Entry {
        Entry {
            path: path.into(),
            mode: 0o644,
            owner: 0,
            what: What::File(data.into()),
        }
    }

    /// A program that everybody runs and root owns.
    pub(crate) fn program(path: impl Into<String>, data: impl Into<Vec<u8>>) -> Entry {
        Entry {
            mode: 0o755,
            ..Entry::file(path, data)
        }
    }

    pub(crate) fn folder(path: impl Into<String>, mode: u32, owner: u64) -> Entry {
        Entry {
            path: path.into(),
            mode,
            owner,
            what: What::Folder,
        }
    }
}

/// A tar archive, with `modified` as the time of everything, in seconds.
pub(crate) fn tar(entries: &[Entry], modified: u64) -> Result<Vec<u8>, String> {
    let mut archive = tar::Builder::new(Vec::new());
    for entry in entries {
        let (kind, data) = match &entry.what {
            What::File(data) => (tar::EntryType::Regular, data.as_slice()),
            What::Folder => (tar::EntryType::Directory, [].as_slice()),
        };
        let mut header = tar::Header::new_gnu();
        header.set_entry_type(kind);
        header.set_mode(entry.mode);
        header.set_uid(entry.owner);
        header.set_gid(entry.owner);
        header.set_mtime(modified);
        header.set_size(data.len() as u64);
        archive
            .append_data(&mut header, &entry.path, data)
            .map_err(|why| format!("cannot pack {}: {why}", entry.path))?;
    }
    archive
        .into_inner()
        .map_err(|why| format!("cannot finish an archive: {why}"))
}

/// Bytes, compressed as gzip does it; without a name and a time.
pub(crate) fn gzip(data: &[u8]) -> Result<Vec<u8>, String> {
    let mut encoder: GzEncoder<Vec<u8>> = GzBuilder::new().write(Vec::new(), Compression::best());
    let done = encoder.write_all(data).and_then(|()| encoder.finish());
    done.map_err(|why| format!("cannot compress: {why}"))
}

/// A zip archive of files. Times are the earliest that the format has.
pub(crate) fn zip(entries: &[Entry]) -> Result<Vec<u8>, String> {
    /// 1 January 1980, 0:00, as the format writes it.
    const MODIFIED: [u8; 4] = [0, 0, 0x21, 0];
    /// Made on Unix, by version 2.0 of the format, which has what is used here.
    const MADE_BY: [u8; 2] = [20, 3];
    const DEFLATE: u16 = 8;
    let too_large = |_| "a zip archive has at most 4 GiB".to_owned();
    let mut archive = Vec::new();
    let mut directory = Vec::new();
    let mut count: u16 = 0;
    for entry in entries {
        let What::File(data) = &entry.what else {
            return Err(format!("{}: a wheel has files only", entry.path));
        };
        let mut encoder = DeflateEncoder::new(Vec::new(), Compression::best());
        let done = encoder.write_all(data).and_then(|()| encoder.finish());
        let compressed = done.map_err(|why| format!("cannot compress {}: {why}", entry.path))?;
        let mut crc = Crc::new();
        crc.update(data);
        // What the local header and the directory say alike.
        let mut common = Vec::new();
        common.extend([20, 0, 0, 0]);
        common.extend(DEFLATE.to_le_bytes());
        common.extend(MODIFIED);
        common.extend(crc.sum().to_le_bytes());
        common.extend(u32::try_from(compressed.len()).map_err(too_large)?.to_le_bytes());
        common.extend(u32::try_from(data.len()).map_err(too_large)?.to_le_bytes());
        let name = u16::try_from(entry.path.len()).map_err(|_| format!("{}: too long a name", entry.path))?;
        common.extend(name.to_le_bytes());
        common.extend([0, 0]);

        let offset = u32::try_from(archive.len()).map_err(too_large)?;
        archive.extend(b"PK\x03\x04");
        archive.extend(&common);
        archive.extend(entry.path.as_bytes());
        archive.extend(&compressed);

        directory.extend(b"PK\x01\x02");
        directory.extend(MADE_BY);
        directory.extend(&common);
        directory.extend([0; 6]); // no comment, the first disk, no attributes within
        directory.extend(((0o100_000 | entry.mode) << 16).to_le_bytes());
        directory.extend(offset.to_le_bytes());
        directory.extend(entry.path.as_bytes());
        count += 1;
    }
    let start = u32::try_from(archive.len()).map_err(too_large)?;
    archive.extend(&directory);
    archive.extend(b"PK\x05\x06\0\0\0\0");
    archive.extend(count.to_le_bytes());
    archive.extend(count.to_le_bytes());
    archive.extend(u32::try_from(directory.len()).map_err(too_large)?.to_le_bytes());
    archive.extend(start.to_le_bytes());
    archive.extend([0, 0]);
    Ok(archive)
}

/// An archive as `ar` writes it, of files with short names.
pub(crate) fn ar(members: &[(&str, &[u8])], modified: u64) -> Vec<u8> {
    let mut archive = b"!<arch>\n".to_vec();
    for (name, data) in members {
        debug_assert!(name.len() <= 16, "{name}: longer names are written otherwise");
        let size = data.len();
        let header = format!("{name:<16}{modified:<12}{:<6}{:<6}{:<8}{size:<10}`\n", 0, 0, 100_644);
        archive.extend(header.as_bytes());
        archive.extend(*data);
        if size % 2 == 1 {
            archive.push(b'\n');
        }
    }
    archive
}

/// SHA-256, in hexadecimal digits.
pub(crate) fn sha256(data: &[u8]) -> String {
    Sha256::digest(data).iter().map(|byte| format!("{byte:02x}")).collect()
}
