//! The machine's figures: free ports and the memory of processes.

use std::net::{SocketAddr, TcpListener};

/// A loopback address that was free a moment ago.
pub(crate) fn free_address() -> Result<SocketAddr, String> {
    let listener = TcpListener::bind("127.0.0.1:0").map_err(|why| format!("no free port on loopback: {why}"))?;
    listener
        .local_addr()
        .map_err(|why| format!("no address on loopback: {why}"))
}

/// The private memory of a process, in megabytes (Linux: `RssAnon`): the memory that the machine would gain if the
/// process ended, but for the pages of its program, which the system shares and takes back.
pub(crate) fn private_megabytes(process: Option<u32>) -> Result<f64, String> {
    let process = process.ok_or("the process has ended")?;
    let status = std::fs::read_to_string(format!("/proc/{process}/status"))
        .map_err(|why| format!("cannot read the memory of process {process}: {why}"))?;
    let kilobytes = status
        .lines()
        .find_map(|line| line.strip_prefix("RssAnon:"))
        .and_then(|rest| rest.trim().strip_suffix(" kB")?.trim().parse::<f64>().ok())
        .ok_or_else(|| format!("process {process} does not say how much memory it has"))?;
    Ok(kilobytes / 1024.0)
}

/// How many files a process has open (Linux).
pub(crate) fn descriptors(process: Option<u32>) -> Result<usize, String> {
    let process = process.ok_or("the process has ended")?;
    let open = std::fs::read_dir(format!("/proc/{process}/fd"))
        .map_err(|why| format!("cannot read the open files of process {process}: {why}"))?;
    Ok(open.count())
}

/// Time that the threads of a process have spent on a processor, in milliseconds (Linux: `schedstat`, exact to the
/// nanosecond; the time of ended threads is not in it, and servers keep theirs).
pub(crate) fn cpu_milliseconds(process: Option<u32>) -> Result<f64, String> {
    let process = process.ok_or("the process has ended")?;
    let failed = |why: std::io::Error| format!("cannot read the time of process {process}: {why}");
    let mut nanoseconds = 0.0;
    for thread in std::fs::read_dir(format!("/proc/{process}/task")).map_err(failed)? {
        let path = thread.map_err(failed)?.path().join("schedstat");
        // A thread may end between the two.
        let Ok(text) = std::fs::read_to_string(path) else {
            continue;
        };
        nanoseconds += text
            .split_whitespace()
            .next()
            .and_then(|first| first.parse::<f64>().ok())
            .ok_or_else(|| format!("process {process} does not say how long it ran"))?;
    }
    Ok(nanoseconds / 1e6)
}
