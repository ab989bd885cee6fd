//! `drainbench rig`: brings a rig up, runs a command against it, tears it down.
//!
//! The command finds the servers as an external rig, so that a whole test suite shares one start.

use std::{
    ffi::{OsStr, OsString},
    io::IsTerminal,
    os::unix::process::ExitStatusExt,
    path::Path,
    process::{ExitCode, ExitStatus},
    time::Duration,
};

use rustix::process::{Pid, Signal};
use tokio::{
    process::{Child, Command},
    signal::unix::{SignalKind, signal},
    time::Instant,
};

use crate::say::complain;
use crate::{
    cmd::args::RigArgs,
    exit::Exit,
    rig::{Rig, RigError, RigRequest},
};

/// How long a command may take to end after a signal, before it is killed.
const STOPS_WITHIN: Duration = Duration::from_secs(20);

/// Which rig, and what to run.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    rig: RigArgs,
    /// What to run; it finds the servers in DRAINBENCH_DATABASE_URL and DRAINBENCH_AMQP_URL
    #[arg(last = true, required = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

/// Ends with the command's own code, or 128 and the signal that ended it; with 2 when there is no rig, with 130 when it
/// was interrupted before the command began.
pub async fn main(args: Args) -> ExitCode {
    let mut signals = match Signals::listen() {
        Ok(signals) => signals,
        Err(error) => return fail(&format!("cannot listen for signals: {error}")),
    };
    // Servers take seconds; a typing error need not wait for them.
    if let Some(program) = args.command.first().filter(|program| !can_be_found(program)) {
        return fail(&format!(
            "there is no command {} to run: it is neither a file nor in PATH",
            program.display()
        ));
    }
    let request = match args.rig.request() {
        Ok(request) => request,
        Err(error) => return broken(&error),
    };
    let rig = tokio::select! {
        rig = Rig::provision(&request, &say) => rig,
        // What had started is gone when the future is.
        _ = signals.next() => return Exit::Interrupted.into(),
    };
    let rig = match rig {
        Ok(rig) => rig,
        Err(error) => return broken(&error),
    };
    let facts = rig.facts();
    for why in &facts.why {
        complain!("drainbench: {why}");
    }
    complain!(
        "drainbench: {} rig is ready after {:.1} s (PostgreSQL {}, RabbitMQ {})",
        facts.kind,
        facts.ready_seconds,
        facts.postgres_version,
        facts.rabbitmq_version
    );
    let ended = run(&rig, &request, &args.command, &mut signals).await;
    let closed = rig.close().await;
    match (ended, closed) {
        (Ok(status), Ok(())) => code(status),
        (Err(error), _) | (Ok(_), Err(error)) => fail(&error),
    }
}

fn say(line: &str) {
    complain!("drainbench: {line}");
}

/// Whether a command of this name can be started, as far as names tell.
fn can_be_found(program: &OsStr) -> bool {
    let path = Path::new(program);
    if path.components().count() > 1 {
        return path.exists();
    }
    let search = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&search).any(|folder| folder.join(path).is_file())
}

fn broken(error: &RigError) -> ExitCode {
    complain!("drainbench: {error}");
    error.exit().into()
}

fn fail(error: &dyn std::fmt::Display) -> ExitCode {
    complain!("drainbench: {error}");
    Exit::Environment.into()
}

fn code(status: ExitStatus) -> ExitCode {
    let code = status.code().or_else(|| status.signal().map(|signal| 128 + signal));
    ExitCode::from(code.and_then(|code| u8::try_from(code).ok()).unwrap_or(Exit::Environment as u8))
}

/// Ctrl-C, SIGTERM and SIGHUP.
struct Signals {
    interrupt: tokio::signal::unix::Signal,
    terminate: tokio::signal::unix::Signal,
    hangup: tokio::signal::unix::Signal,
}

impl Signals {
    fn listen() -> std::io::Result<Self> {
        Ok(Self {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
            hangup: signal(SignalKind::hangup())?,
        })
    }

    async fn next(&mut self) -> Signal {
        tokio::select! {
            _ = self.interrupt.recv() => Signal::INT,
            _ = self.terminate.recv() => Signal::TERM,
            _ = self.hangup.recv() => Signal::HUP,
        }
    }
}

async fn run(
    rig: &Rig,
    request: &RigRequest,
    command: &[OsString],
    signals: &mut Signals,
) -> Result<ExitStatus, RigError> {
    let Some((program, arguments)) = command.split_first() else {
        return Err(RigError::Missing {
            what: "There is no command to run".to_owned(),
            way_out: "Write it behind --".to_owned(),
        });
    };
    // At a terminal the command stays in our process group: it may read from it, and Ctrl-C reaches it by itself.
    let shares_terminal = std::io::stdin().is_terminal();
    let mut command = Command::new(program);
    command.args(arguments).envs(rig.environment()).env("DRAINBENCH_EXE", &request.exe).kill_on_drop(true);
    if !shares_terminal {
        command.process_group(0);
    }
    let refused = |error: std::io::Error| RigError::Refused {
        doing: format!("run {}", program.display()),
        reason: error.to_string(),
    };
    let mut child = command.spawn().map_err(refused)?;
    if let Some(pid) = child.id() {
        rig.guard_child(pid);
    }
    wait(&mut child, signals, shares_terminal).await.map_err(refused)
}

/// Waits for the command, passing signals on. One that does not end after a signal is killed.
async fn wait(
    child: &mut Child,
    signals: &mut Signals,
    shares_terminal: bool,
) -> std::io::Result<ExitStatus> {
    let mut deadline = None;
    loop {
        let late = async {
            match deadline {
                Some(deadline) => tokio::time::sleep_until(deadline).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            status = child.wait() => return status,
            signal = signals.next() => {
                if !(shares_terminal && signal == Signal::INT) {
                    send(child, signal, shares_terminal);
                }
                deadline = deadline.or(Some(Instant::now() + STOPS_WITHIN));
            }
            () = late => {
                send(child, Signal::KILL, shares_terminal);
                deadline = None;
            }
        }
    }
}

/// To the command's whole process group where it has one of its own.
fn send(child: &Child, signal: Signal, shares_group: bool) {
    let Some(pid) = child.id().and_then(|pid| i32::try_from(pid).ok()).and_then(Pid::from_raw) else {
        return;
    };
    // It may just have ended.
    let _ = if shares_group {
        rustix::process::kill_process(pid, signal)
    } else {
        rustix::process::kill_process_group(pid, signal)
    };
}
