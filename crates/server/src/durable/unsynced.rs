//! A file that is never waited for: written bytes are the kernel's at once, and on the disk when the kernel likes.
//!
//! Written data survives this process, even a killed one. It does not survive a crash of the machine. The lock of the
//! folder keeps others out.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use redb::StorageBackend;

#[derive(Debug)]
pub(super) struct Unsynced(File);

impl Unsynced {
    pub(super) fn open(path: &Path) -> io::Result<Unsynced> {
        File::options().read(true).write(true).open(path).map(Unsynced)
    }
}

impl StorageBackend for Unsynced {
    fn len(&self) -> io::Result<u64> {
        Ok(self.0.metadata()?.len())
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.0.read_exact_at(out, offset)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.0.set_len(len)
    }

    fn sync_data(&self) -> io::Result<()> {
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.0.write_all_at(data, offset)
    }
}
