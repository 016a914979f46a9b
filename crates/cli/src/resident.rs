//! What a cluster that has nothing to do needs of the program: next to nothing.
//!
//! Work runs through many megabytes of the program's text, of which the kernel keeps mapped what was touched and what lay beside it.
//! These pages are the file's own, clean, and come back by themselves when they are executed again; so whenever nothing is left to do,
//! they are given back.
//!
//! Only Linux says in a file what is mapped where; elsewhere nothing is given back. Not here: the heap, which is the allocator's.

use std::time::Duration;

/// How often is looked whether there is something to do.
const PERIOD: Duration = Duration::from_millis(500);
/// With less time on a processor in a period, the process is idle.
const IDLE: Duration = Duration::from_millis(3);
/// With less since the pages were given back, hardly any of them came back.
const WORTH_IT: Duration = Duration::from_millis(4);

/// Waits for the end, and whenever nothing happens in the meantime, gives back what only work needs. `prepare` is done the first time, when
/// there is time for it.
pub(crate) async fn give_back_when_idle(stop: impl Future<Output = ()>, prepare: impl FnOnce()) {
    let mut stop = std::pin::pin!(stop);
    let mut prepare = Some(prepare);
    let (mut before, mut given) = (linux::processor_time(), Duration::ZERO);
    while tokio::time::timeout(PERIOD, &mut stop).await.is_err() {
        let used = linux::processor_time();
        let idle = used - before < IDLE;
        before = used;
        if let Some(prepare) = prepare.take_if(|_| idle) {
            prepare();
            // That was no client's work.
            before = linux::processor_time();
        } else if idle && used - given > WORTH_IT {
            if let Err(why) = linux::give_back_text() {
                tracing::debug!(%why, "the memory of an idle cluster is not given back");
            }
            given = used;
        }
    }
}

#[cfg(not(target_os = "linux"))]
mod linux {
    pub(super) fn processor_time() -> std::time::Duration {
        std::time::Duration::ZERO
    }

    pub(super) fn give_back_text() -> std::io::Result<usize> {
        Ok(0)
    }
}

#[cfg(target_os = "linux")]
mod linux {
    use std::time::Duration;

    use rustix::mm::{Advice, madvise};
    use rustix::time::{ClockId, clock_gettime};

    /// What all threads of this process have used.
    pub(super) fn processor_time() -> Duration {
        Duration::try_from(clock_gettime(ClockId::ProcessCPUTime)).unwrap_or_default()
    }

    /// Unmaps the pages of the program's text and of its libraries, and says how many bytes of address space that was. They are read
    /// again, mostly from the page cache, when they are needed.
    ///
    /// # Errors
    /// When `/proc` does not say what is mapped where, or the kernel refuses.
    #[expect(unsafe_code, reason = "giving pages back is a call of the kernel about addresses")]
    pub(super) fn give_back_text() -> std::io::Result<usize> {
        let maps = std::fs::read_to_string("/proc/self/maps")?;
        let mut bytes = 0;
        for (start, length) in texts(&maps) {
            // SAFETY: the range is a private mapping of a file that cannot be written through it, so its pages are those of the file;
            // what this unmaps, the next access maps again with the same content.
            unsafe { madvise(std::ptr::without_provenance_mut(start), length, Advice::LinuxDontNeed)? };
            bytes += length;
        }
        Ok(bytes)
    }

    /// The mappings of files that can be executed and not written: start and length.
    pub(super) fn texts(maps: &str) -> impl Iterator<Item = (usize, usize)> {
        maps.lines().filter_map(|line| {
            let mut fields = line.split_ascii_whitespace();
            let (range, permissions, path) = (fields.next()?, fields.next()?, fields.nth(3)?);
            let (start, end) = range.split_once('-')?;
            let address = |text| usize::from_str_radix(text, 16).ok();
            let (start, end) = (address(start)?, address(end)?);
            (permissions == "r-xp" && path.starts_with('/')).then(|| (start, end.saturating_sub(start)))
        })
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::linux::{give_back_text, texts};

    #[test]
    fn only_the_text_of_files_is_given_back() {
        #[track_caller]
        fn check(line: &str, want: Option<(usize, usize)>) {
            assert_eq!(texts(line).next(), want);
        }
        check(
            "1000-3000 r-xp 00c78000 fe:00 10011578   /usr/bin/a b",
            Some((0x1000, 0x2000)),
        );
        check("1000-3000 r--p 00000000 fe:00 10011578   /usr/bin/a", None);
        check("1000-3000 rwxp 00000000 fe:00 10011578   /usr/bin/a", None);
        check("1000-3000 r-xp 00000000 00:00 0          [vdso]", None);
        check("1000-3000 r-xp 00000000 00:00 0", None);
        check("", None);
    }

    #[test]
    fn the_program_goes_on() {
        assert!(give_back_text().expect("the kernel takes it") > 1 << 20);
    }
}
