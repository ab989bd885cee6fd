//! The machine an experiment ran on.

use std::fs;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What decides how fast it is.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Machine {
    /// Model of its processor.
    pub cpu: String,
    /// Cores that this process may use.
    pub cores: u32,
    /// Bytes of memory.
    pub memory: u64,
    /// Kernel and version.
    pub kernel: String,
    /// Distribution.
    pub os: String,
}

impl Machine {
    /// This machine, as far as it tells; what it does not tell is `unknown` or 0.
    #[must_use]
    pub fn here() -> Self {
        let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
        Self::told_by(
            &read("/proc/cpuinfo"),
            &read("/proc/meminfo"),
            &read("/proc/version"),
            &read("/etc/os-release"),
        )
    }

    fn told_by(cpuinfo: &str, meminfo: &str, version: &str, os_release: &str) -> Self {
        let field = |text: &str, name: &str, separator: char| {
            let found = text.lines().find_map(|line| {
                let (key, value) = line.split_once(separator)?;
                (key.trim() == name).then(|| value.trim().trim_matches('"').to_owned())
            });
            found.filter(|value| !value.is_empty())
        };
        let unknown = || "unknown".to_owned();
        let kilobytes = field(meminfo, "MemTotal", ':')
            .and_then(|value| value.trim_end_matches("kB").trim().parse::<u64>().ok());
        Self {
            cpu: field(cpuinfo, "model name", ':')
                .or_else(|| field(cpuinfo, "Model", ':'))
                .unwrap_or_else(unknown),
            cores: std::thread::available_parallelism()
                .map_or(0, |cores| u32::try_from(cores.get()).unwrap_or(u32::MAX)),
            memory: kilobytes.map_or(0, |kilobytes| kilobytes.saturating_mul(1_024)),
            kernel: version
                .split_whitespace()
                .nth(2)
                .map_or_else(unknown, |release| format!("Linux {release}")),
            os: field(os_release, "PRETTY_NAME", '=').unwrap_or_else(unknown),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Machine;

    #[test]
    fn a_machine_is_what_its_files_tell() {
        let machine = Machine::told_by(
            "processor\t: 0\nmodel name\t: AMD EPYC\nmodel name\t: other\n",
            "MemTotal:       24576000 kB\nMemFree: 1 kB\n",
            "Linux version 6.1.0-9-amd64 (gcc) #1 SMP",
            "NAME=\"Debian\"\nPRETTY_NAME=\"Debian GNU/Linux 12 (bookworm)\"\n",
        );
        assert_eq!(machine.cpu, "AMD EPYC");
        assert_eq!(machine.memory, 24_576_000 * 1_024);
        assert_eq!(machine.kernel, "Linux 6.1.0-9-amd64");
        assert_eq!(machine.os, "Debian GNU/Linux 12 (bookworm)");
        assert!(machine.cores > 0);
    }

    #[test]
    fn what_it_does_not_tell_is_unknown() {
        let machine = Machine::told_by("", "", "", "");
        assert_eq!((machine.cpu.as_str(), machine.memory, machine.os.as_str()), ("unknown", 0, "unknown"));
    }
}
