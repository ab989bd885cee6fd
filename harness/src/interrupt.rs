//! Ctrl-C and SIGTERM, which mean the same.

use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

use crate::exit::Exit;

/// A token that the first Ctrl-C or SIGTERM cancels. A second one ends the process at once; the rig's guard then
/// cleans up.
///
/// # Errors
/// When the signals cannot be had.
pub fn token() -> std::io::Result<CancellationToken> {
    let token = CancellationToken::new();
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    let cancelled = token.clone();
    tokio::spawn(async move {
        for round in 0..2 {
            tokio::select! {
                _ = interrupt.recv() => {}
                _ = terminate.recv() => {}
            }
            if round == 0 {
                eprintln!(
                    "drainbench: stopping; what was measured is recorded as partial (again to stop at once)"
                );
                cancelled.cancel();
            }
        }
        std::process::exit(Exit::Interrupted as i32);
    });
    Ok(token)
}
