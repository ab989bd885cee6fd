//! Ctrl-C, SIGTERM and SIGHUP (a terminal that was closed), which mean the same.

use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

use crate::exit::Exit;
use crate::say::complain;

/// A token that the first Ctrl-C, SIGTERM or SIGHUP cancels. A second one ends the process at once; the rig's guard then
/// cleans up.
///
/// # Errors
/// When the signals cannot be had.
pub fn token() -> std::io::Result<CancellationToken> {
    let token = CancellationToken::new();
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    let mut hangup = signal(SignalKind::hangup())?;
    let cancelled = token.clone();
    tokio::spawn(async move {
        for round in 0..2 {
            tokio::select! {
                _ = interrupt.recv() => {}
                _ = terminate.recv() => {}
                _ = hangup.recv() => {}
            }
            if round == 0 {
                cancelled.cancel();
                complain!(
                    "drainbench: stopping; what was measured is recorded as partial (again to stop at once)"
                );
            }
        }
        std::process::exit(Exit::Interrupted as i32);
    });
    Ok(token)
}
