//! A drainer as a process of its own: the `drainer` binary, and what the harness starts as a child.

/// Reads the environment, drains until SIGTERM or SIGINT, writes one JSON line a [`Tick`](crate::Tick) to stdout.
/// Returns the exit code.
pub async fn run() -> std::process::ExitCode {
    todo!()
}
