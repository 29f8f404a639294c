//! What the kernel knows about this process.

use std::fs;

/// Processor time, memory and files of this process.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Process {
    pub(crate) cpu_seconds: f64,
    pub(crate) resident_bytes: f64,
    pub(crate) virtual_bytes: f64,
    pub(crate) open_files: f64,
    pub(crate) max_files: f64,
    pub(crate) started_seconds: f64,
}

/// Reads the state of this process; `None` where there is no `/proc`.
pub(crate) fn read() -> Option<Process> {
    let stat = fs::read_to_string("/proc/self/stat").ok()?;
    let limits = fs::read_to_string("/proc/self/limits").ok()?;
    let boot = fs::read_to_string("/proc/stat").ok()?;
    let open_files = fs::read_dir("/proc/self/fd").ok()?.count();
    parse(&stat, &limits, &boot, open_files, rustix::param::page_size(), ticks_per_second())
}

fn ticks_per_second() -> f64 {
    rustix::param::clock_ticks_per_second() as f64
}

fn parse(
    stat: &str,
    limits: &str,
    boot: &str,
    open_files: usize,
    page_bytes: usize,
    ticks: f64,
) -> Option<Process> {
    // The command name is in parentheses and may contain anything, spaces and parentheses too.
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_ascii_whitespace().collect();
    // Numbered as in proc_pid_stat(5), where the state is field 3.
    let field = |number: usize| fields.get(number - 3)?.parse::<f64>().ok();
    let boot_seconds: f64 = boot.lines().find_map(|line| line.strip_prefix("btime "))?.trim().parse().ok()?;
    let max_files = limits
        .lines()
        .find_map(|line| line.strip_prefix("Max open files"))
        .and_then(|line| line.split_ascii_whitespace().next())
        .and_then(|soft| soft.parse().ok())
        .unwrap_or(f64::INFINITY);
    Some(Process {
        cpu_seconds: (field(14)? + field(15)?) / ticks,
        started_seconds: boot_seconds + field(22)? / ticks,
        virtual_bytes: field(23)?,
        resident_bytes: field(24)? * page_bytes as f64,
        open_files: open_files as f64,
        max_files,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fields_are_those_of_the_manual() {
        let stat = "42 (odd) name) S 1 42 42 0 -1 4194560 900 0 0 0 250 50 0 0 20 0 8 0 1200 104857600 2560 1844 1 1";
        let limits = "Limit                     Soft Limit           Hard Limit           Units\n\
                      Max open files            1024                 524288               files\n";
        assert_eq!(
            parse(stat, limits, "cpu 1 2 3\nbtime 1700000000\n", 7, 4096, 100.0),
            Some(Process {
                cpu_seconds: 3.0,
                resident_bytes: 2560.0 * 4096.0,
                virtual_bytes: 104_857_600.0,
                open_files: 7.0,
                max_files: 1024.0,
                started_seconds: 1_700_000_012.0,
            })
        );
    }
}
