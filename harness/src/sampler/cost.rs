//! What watching costs: CPU of the sampler's own thread and of its backend.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

use super::{
    activity::{bytes, number},
    probe::{Probe, ProbeError},
};

/// Ticks a second in `/proc/<pid>/stat`: the kernel's promise to programs, whatever its own timer runs at.
const USER_HZ: f64 = 100.0;

/// CPU seconds of the calling thread, user and system.
pub(crate) fn thread_seconds() -> f64 {
    let spent = clock_gettime(ClockId::ThreadCPUTime);
    let seconds = u64::try_from(spent.tv_sec).unwrap_or(0);
    let nanos = u32::try_from(spent.tv_nsec).unwrap_or(0);
    Duration::new(seconds, nanos).as_secs_f64()
}

/// CPU seconds of the backends that served us, one after the other when connections were lost.
#[derive(Debug, Default)]
pub(crate) struct BackendCpu {
    pid: Option<u32>,
    first: f64,
    last: f64,
    earlier: f64,
    blind: bool,
}

impl BackendCpu {
    /// Asks the server who serves us and begins to count, after each new connection. A backend that runs where we
    /// cannot look makes the whole figure `None`: half a cost would flatter.
    ///
    /// # Errors
    /// When the server does not answer.
    pub(crate) async fn follow(&mut self, probe: &mut Probe) -> Result<(), ProbeError> {
        self.earlier += self.last - self.first;
        (self.first, self.last, self.pid) = (0.0, 0.0, None);
        let rows = probe.rows(sqlx::query("SELECT pg_backend_pid(), inet_client_port()")).await?;
        let Some(row) = rows.first() else { return Ok(()) };
        let pid = number(bytes(row, 0)?).map(u32::from_be_bytes);
        let port = number(bytes(row, 1)?).map(i32::from_be_bytes);
        self.pid = pid.filter(|pid| is_backend(*pid, port));
        match self.pid.and_then(cpu_seconds) {
            Some(seconds) => (self.first, self.last) = (seconds, seconds),
            None => self.blind = true,
        }
        Ok(())
    }

    /// Reads the counter. Once a second is enough: it guards against a backend that ends before the sampler does.
    pub(crate) fn read(&mut self) {
        if let Some(seconds) = self.pid.and_then(cpu_seconds) {
            self.last = seconds;
        }
    }

    /// What was counted, `None` when a backend was out of sight.
    pub(crate) fn seconds(&self) -> Option<f64> {
        (!self.blind).then_some(self.earlier + self.last - self.first)
    }
}

/// Whether this machine's process `pid` is the backend that serves us. The same number may belong to another process
/// when the server runs elsewhere (or in a container), so its title must be a PostgreSQL session's and end its
/// connection at our port.
fn is_backend(pid: u32, port: Option<i32>) -> bool {
    let Ok(title) = std::fs::read(format!("/proc/{pid}/cmdline")) else { return false };
    let title = String::from_utf8_lossy(&title);
    let end = port.map_or_else(|| "[local]".to_owned(), |port| format!("({port})"));
    title.starts_with("postgres:") && title.contains(&end)
}

/// CPU seconds of a process, user and system; `None` when it is gone or hidden.
fn cpu_seconds(pid: u32) -> Option<f64> {
    parse_stat(&std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
}

/// Fields 14 and 15 of `/proc/<pid>/stat`, counted behind the name, which may itself contain blanks and brackets.
fn parse_stat(stat: &str) -> Option<f64> {
    let (_, fields) = stat.rsplit_once(')')?;
    let mut fields = fields.split_ascii_whitespace().skip(11);
    let user: f64 = fields.next()?.parse().ok()?;
    let system: f64 = fields.next()?.parse().ok()?;
    Some((user + system) / USER_HZ)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn user_and_system_time_are_added() {
        let stat = "42 (post) gres) S 1 42 42 0 -1 4194304 5 0 0 0 150 50 7 8 20 0 1 0 99 0 0";
        assert_eq!(parse_stat(stat), Some(2.0));
        assert_eq!(parse_stat("nonsense"), None);
    }

    #[test]
    fn our_own_process_is_no_backend() {
        assert!(!is_backend(std::process::id(), Some(1)));
        assert!(!is_backend(std::process::id(), None));
    }

    #[test]
    fn a_busy_thread_spends_time() {
        let before = thread_seconds();
        let mut sum = 0_u64;
        while thread_seconds() - before < 0.005 {
            sum = std::hint::black_box(sum.wrapping_add(1));
        }
        assert!(thread_seconds() > before);
    }
}
