//! Where memory comes from: two allocators, by size.
//!
//! A request makes and drops hundreds of small blocks, the nodes and names of its trees of values; mimalloc is made for
//! that, and for threads that do so side by side. The texts of objects stay, of every size, and there classes of sizes,
//! as all such allocators have them, would waste a fifth; the system's allocator fits them exactly. With both, a server
//! with many objects is as small as with the system's alone, and answers more requests.
//!
//! The system's allocator keeps the memory of blocks that are free between others. A cluster that held much for a moment
//! would look as large for ever; so the free pages are given back once a minute.
//!
//! Invariant: a block is given back to where it came from. Rust says at the end of a block how large it is, so its size
//! tells.

#![expect(
    unsafe_code,
    reason = "an allocator is a promise about memory that the compiler cannot check"
)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::time::Duration;

use mimalloc::MiMalloc;

/// The larger ones of the blocks that requests make by the hundred are nodes of maps, with 700 bytes; the largest block
/// for mimalloc.
const SMALL: usize = 1024;

/// See the top of this file.
pub(crate) struct BySize;

fn is_small(size: usize) -> bool {
    // musl's own allocator has one lock for all threads: in a static program every block is mimalloc's.
    cfg!(target_env = "musl") || size <= SMALL
}

// SAFETY: both allocators keep the contract. A block is asked for, resized and given back with a layout of the same
// size, which says whose it is; one that is resized across the boundary is copied into a new block of the other.
unsafe impl GlobalAlloc for BySize {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as the caller promises.
        unsafe {
            if is_small(layout.size()) {
                MiMalloc.alloc(layout)
            } else {
                System.alloc(layout)
            }
        }
    }

    #[inline]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as the caller promises.
        unsafe {
            if is_small(layout.size()) {
                MiMalloc.alloc_zeroed(layout)
            } else {
                System.alloc_zeroed(layout)
            }
        }
    }

    #[inline]
    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: as the caller promises, and `layout` is that of the allocation.
        unsafe {
            if is_small(layout.size()) {
                MiMalloc.dealloc(block, layout);
            } else {
                System.dealloc(block, layout);
            }
        }
    }

    #[inline]
    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: as the caller promises; the new size with the old alignment is a layout by that promise, too. Old and
        // new block do not overlap, and both have room for the smaller of the two sizes.
        unsafe {
            match (is_small(layout.size()), is_small(size)) {
                (true, true) => MiMalloc.realloc(block, layout, size),
                (false, false) => System.realloc(block, layout, size),
                _ => {
                    let moved = self.alloc(Layout::from_size_align_unchecked(size, layout.align()));
                    if !moved.is_null() {
                        std::ptr::copy_nonoverlapping(block, moved, layout.size().min(size));
                        self.dealloc(block, layout);
                    }
                    moved
                }
            }
        }
    }
}

/// How often free pages are given back.
const INTERVAL: Duration = Duration::from_secs(60);

/// Gives free pages back to the system as long as it is polled.
pub(crate) async fn give_back() {
    loop {
        tokio::time::sleep(INTERVAL).await;
        trim();
    }
}

/// Gives the pages back that the system's allocator has free anywhere. Takes some milliseconds for a hundred megabytes.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
fn trim() {
    unsafe extern "C" {
        fn malloc_trim(pad: usize) -> std::ffi::c_int;
    }
    // SAFETY: it takes a number of bytes to keep, and other threads may allocate meanwhile.
    unsafe { malloc_trim(0) };
}

/// Other allocators do it themselves, or cannot be asked to.
#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
fn trim() {}

#[cfg(test)]
mod tests {
    use super::SMALL;

    /// The sizes around the boundary, and far from it.
    const SIZES: [usize; 9] = [1, 8, 100, SMALL - 1, SMALL, SMALL + 1, 2 * SMALL, 10_000, 1 << 20];

    #[test]
    fn a_block_keeps_its_content_when_it_is_resized() {
        for from in SIZES {
            for to in SIZES {
                let pattern = |at: usize| u8::try_from(at % 251).expect("a remainder of 251 is a byte");
                let mut block: Vec<u8> = Vec::with_capacity(from);
                block.extend((0..from).map(pattern));
                block.truncate(to);
                block.shrink_to_fit();
                block.reserve_exact(to.saturating_sub(block.len()));
                let kept = from.min(to);
                assert_eq!(block.len(), kept, "{from} to {to}");
                assert!(
                    block.iter().enumerate().all(|(at, byte)| *byte == pattern(at)),
                    "{from} to {to}"
                );
                block.resize(to, 7);
                assert!(block[kept..].iter().all(|byte| *byte == 7), "{from} to {to}");
            }
        }
    }

    /// Every thirty-second block of 64 MiB stays: all that is free lies between others.
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    #[test]
    fn free_pages_are_given_back() {
        let resident = || {
            let status = std::fs::read_to_string("/proc/self/status").expect("Linux has it");
            let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:"));
            let kib = line.and_then(|line| line.trim().strip_suffix(" kB")?.parse::<usize>().ok());
            kib.expect("a number of KiB") << 10
        };
        let mut blocks: Vec<Vec<u8>> = (0..16_384).map(|_| vec![1; 4096]).collect();
        let mut number = 0;
        blocks.retain(|_| {
            number += 1;
            number % 32 == 0
        });
        let before = resident();
        super::trim();
        let after = resident();
        assert!(before > after + (32 << 20), "{before} bytes became {after}");
        assert_eq!(blocks.len(), 512);
    }

    #[test]
    fn what_is_to_be_zero_is_zero() {
        for size in SIZES {
            // Dirty memory that was given back comes again.
            drop(vec![1_u8; size]);
            assert!(vec![0_u8; size].iter().all(|byte| *byte == 0), "{size}");
        }
    }

    #[test]
    fn blocks_are_aligned() {
        #[repr(align(256))]
        struct Line(u8);
        #[repr(align(4096))]
        struct Page(u8);
        for number in 0..20 {
            let (line, page) = (Box::new(Line(number)), Box::new(Page(number)));
            assert_eq!((&raw const *line).addr() % 256, 0);
            assert_eq!((&raw const *page).addr() % 4096, 0);
            assert_eq!((line.0, page.0), (number, number));
        }
    }
}
