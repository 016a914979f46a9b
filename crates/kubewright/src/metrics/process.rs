//! The operating system's figures of this process, under client_golang's names. On systems without `/proc` there is
//! nothing.

use std::fs;
use std::time::{SystemTime, UNIX_EPOCH};

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Registry;

/// Ticks per second in `/proc/*/stat`: `USER_HZ`, which is part of Linux's interface and 100 on every architecture that
/// Rust runs on.
const USER_HZ: f64 = 100.0;

#[derive(Debug)]
struct Process {
    started: f64,
}

pub(super) fn register(registry: &mut Registry) {
    let started = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    registry.register_collector(Box::new(Process {
        started: started.as_secs_f64(),
    }));
}

impl Collector for Process {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> std::fmt::Result {
        let mut gauge = |name: &str, help: &str, value: f64| {
            let gauge = ConstGauge::new(value);
            let metric = encoder.encode_descriptor(name, help, None, prometheus_client::metrics::MetricType::Gauge)?;
            gauge.encode(metric)
        };
        gauge(
            "process_start_time_seconds",
            "Start time of the process since unix epoch in seconds",
            self.started,
        )?;
        if let Some(bytes) = resident() {
            gauge("process_resident_memory_bytes", "Resident memory size in bytes", bytes)?;
        }
        if let Ok(open) = fs::read_dir("/proc/self/fd") {
            gauge(
                "process_open_fds",
                "Number of open file descriptors",
                open.count() as f64,
            )?;
        }
        if let Some(seconds) = cpu() {
            let help = "Total user and system CPU time spent in seconds";
            let kind = prometheus_client::metrics::MetricType::Counter;
            let metric = encoder.encode_descriptor("process_cpu_seconds", help, None, kind)?;
            ConstCounter::new(seconds).encode(metric)?;
        }
        Ok(())
    }
}

/// `VmRSS` of `/proc/self/status`, which is in kB for any page size.
fn resident() -> Option<f64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kilobytes: f64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kilobytes * 1024.0)
}

/// Fields 14 and 15 of `/proc/self/stat`. The second field may contain spaces and brackets; the later ones are counted
/// from its end.
fn cpu() -> Option<f64> {
    let stat = fs::read_to_string("/proc/self/stat").ok()?;
    let (_, rest) = stat.rsplit_once(") ")?;
    let mut ticks = rest.split(' ').skip(11);
    let user: f64 = ticks.next()?.parse().ok()?;
    let system: f64 = ticks.next()?.parse().ok()?;
    Some((user + system) / USER_HZ)
}
