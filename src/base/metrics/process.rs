//! What the operating system says of this process. Of the whole process: servers that share one share these numbers.

use std::fs;

use super::{Kind, Page};

/// The kernel's unit of processor time in this file system: `USER_HZ`, 100 on every Linux.
const TICKS_PER_SECOND: f64 = 100.0;
/// Bytes of a page of memory where the kernel does not say: x86-64 and most others.
const PAGE_BYTES: u64 = 4_096;

/// Writes memory, processor time, threads and file descriptors, as far as the system tells. Reads a few small files.
pub fn write(page: &mut Page) {
    let stat = fs::read_to_string("/proc/self/stat").unwrap_or_default();
    // The second field is the program's name in brackets, and may hold spaces.
    let fields: Vec<&str> = stat.rsplit_once(") ").map_or("", |(_, rest)| rest).split_whitespace().collect();
    let number = |at: usize| fields.get(at).and_then(|text| text.parse::<u64>().ok());
    let mut one = |name, kind, help, value: Option<f64>| {
        if let Some(value) = value {
            page.family(name, kind, help);
            page.sample(&[], value);
        }
    };
    #[allow(clippy::cast_precision_loss, reason = "a metric is a float")]
    let float = |value: u64| value as f64;
    let ticks = number(11).zip(number(12)).map(|(user, system)| float(user + system) / TICKS_PER_SECOND);
    let resident = status_kib("VmRSS:").map(|kib| kib * 1024).or(number(21).map(|pages| pages * PAGE_BYTES));
    one("process_cpu_seconds_total", Kind::Counter, "Processor time of this process.", ticks);
    one("process_resident_memory_bytes", Kind::Gauge, "Memory of this process that is resident.", resident.map(float));
    one("process_virtual_memory_bytes", Kind::Gauge, "Address space of this process.", number(20).map(float));
    one("process_threads", Kind::Gauge, "Threads of this process.", number(17).map(float));
    let open = fs::read_dir("/proc/self/fd").ok().map(|all| all.count().saturating_sub(1) as u64);
    one("process_open_fds", Kind::Gauge, "Open file descriptors of this process.", open.map(float));
    one("process_max_fds", Kind::Gauge, "File descriptors that this process may open.", fds_max().map(float));
}

/// A line of the process's status, in KiB.
fn status_kib(name: &str) -> Option<u64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    status.lines().find_map(|line| line.strip_prefix(name)?.split_whitespace().next()?.parse().ok())
}

fn fds_max() -> Option<u64> {
    let limits = fs::read_to_string("/proc/self/limits").ok()?;
    let line = limits.lines().find_map(|line| line.strip_prefix("Max open files"))?;
    line.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_is_understood() {
        let mut page = Page::default();
        write(&mut page);
        let text = page.into_text();
        let value = |name: &str| -> f64 {
            let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
            line.unwrap_or_else(|| panic!("{name} is missing in\n{text}")).parse().unwrap()
        };
        assert!(value("process_resident_memory_bytes") > 500_000.0);
        assert!(value("process_virtual_memory_bytes") > value("process_resident_memory_bytes"));
        assert!(value("process_threads") >= 1.0);
        assert!((3.0..=value("process_max_fds")).contains(&value("process_open_fds")));
        assert!(value("process_cpu_seconds_total") >= 0.0);
    }
}
