//! A drainer as a process of its own: the `drainer` binary, and what the harness starts as a child.

mod output;
mod settings;

use std::{
    ffi::OsString,
    io::Write,
    process::ExitCode,
    sync::{Arc, Mutex, PoisonError},
};

use sqlx::{
    ConnectOptions, PgPool,
    postgres::{PgConnectOptions, PgPoolOptions},
};
use tokio::{
    signal::unix::{SignalKind, signal},
    time::timeout,
};
use tokio_util::sync::CancellationToken;

use crate::{
    Broker, ConfigError, Drainer, Observer, Tick, environment::Environment, migrate_all, outbox, pooler,
};
use output::Output;
use settings::Settings;

/// Usage or settings are wrong.
const USAGE: u8 = 1;
/// A server or this machine does not give what is needed.
const ENVIRONMENT: u8 = 2;

const HELP: &str = "\
Carries events from PostgreSQL outboxes to RabbitMQ.

  drainer [run]      drain until SIGTERM or SIGINT; one JSON line a tick on stdout
  drainer migrate    bring every database to what the design needs, and say what was done
  drainer --help     this

Settings are environment variables; CANOPY_MQ_DRAINER_... is accepted for DRAINER_... everywhere.

  DRAINER_DATABASE_URL          postgres://user:password@host/database, or
  DRAINER_DATABASE_URLS         many of them, separated by blanks, each plain or as name=url
  DRAINER_AMQP_URL              amqp://user:password@host/vhost (not needed to migrate), or amqps://... for TLS,
                                with ?cacertfile=FILE where the authority is a private one
  DRAINER_EXCHANGE              exchange to publish to, which must exist (events)
  DRAINER_DESIGN                single-tx (where built in) or lease (lease)
  DRAINER_POOL                  connections for each database (2)
  DRAINER_ID                    who claims (host, pid and a random part)
  DRAINER_BATCH_SIZE            rows of a tick (100)
  DRAINER_PIPELINE_DEPTH        publishes in flight (32)
  DRAINER_LEASE_TTL_SECS        how long a claim holds; at least 3 x depth x 100 ms (30)
  DRAINER_POLL_INTERVAL_MS      pause after less than a full batch (200)
  DRAINER_CONFIRM_TIMEOUT_MS    deadline of a confirm and of every other wait on the broker (30000)
  DRAINER_STATEMENT_TIMEOUT_MS  deadline of a statement (30000)
  DRAINER_STOP_WITHIN_MS        how long a clean stop may take (15000)

Exit codes: 0 stopped cleanly, 1 usage or settings, 2 environment.
";

/// The binary: `arguments` are those after its name.
pub async fn main(arguments: impl Iterator<Item = OsString>) -> ExitCode {
    let arguments: Vec<OsString> = arguments.collect();
    let words: Vec<&str> = arguments.iter().map(|word| word.to_str().unwrap_or("?")).collect();
    match words.as_slice() {
        [] | ["run"] => run().await,
        ["migrate"] => migrate().await,
        ["--help" | "-h" | "help"] => {
            say(std::io::stdout(), HELP.trim_end());
            ExitCode::SUCCESS
        }
        // Not repeated: somebody may have put a URL there.
        _ => {
            say(std::io::stderr(), "drainer: unknown arguments; `drainer --help` lists what there is");
            ExitCode::from(USAGE)
        }
    }
}

/// Reads the environment, drains until SIGTERM or SIGINT, writes one JSON line a [`Tick`] to stdout; with many
/// databases each line has a `database`. Human messages go to stderr, no password goes anywhere. When nobody reads
/// stdout any more it stops as well.
///
/// Returns the exit code: 0 after a clean stop, 1 when settings are wrong, 2 when a database lacks the outbox table or is
/// reached through a pooler that hands sessions round ([`pooler`]), or signals can't be caught. Servers that do not answer
/// are tried again for ever.
pub async fn run() -> ExitCode {
    run_with(Poolers::AreLookedFor).await
}

/// [`run`] for a parent that knows that its databases are reached without a pooler that hands sessions round: the look at
/// it costs connections, and their transactions are counted and seen by whoever measures.
pub async fn run_as_child() -> ExitCode {
    run_with(Poolers::AreRuledOut).await
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Poolers {
    AreLookedFor,
    AreRuledOut,
}

async fn run_with(poolers: Poolers) -> ExitCode {
    let settings = match Settings::read(&Environment::of_process(), settings::For::Draining) {
        Ok(settings) => settings,
        Err(error) => return usage(&error),
    };
    match drain(settings, poolers).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            say(std::io::stderr(), &format!("drainer: {message}"));
            ExitCode::from(ENVIRONMENT)
        }
    }
}

/// Migrates every database of the environment and reports one line each on stdout.
///
/// Returns the exit code: 0 when all are up to date, 1 when settings are wrong, 2 when a database failed.
pub async fn migrate() -> ExitCode {
    let settings = match Settings::read(&Environment::of_process(), settings::For::Migrating) {
        Ok(settings) => settings,
        Err(error) => return usage(&error),
    };
    let pools: Vec<(String, PgPool)> =
        settings.databases.iter().map(|(name, options)| (name.clone(), settings.pool(options))).collect();
    let mut failed = 0_usize;
    for (name, outcome) in migrate_all(&pools, settings.design).await {
        let line = match outcome {
            Ok(done) if done.applied.is_empty() => format!("{name}: up to date"),
            Ok(done) => format!("{name}: applied {}", done.applied.join(", ")),
            Err(error) => {
                failed += 1;
                format!("{name}: {error}")
            }
        };
        say(std::io::stdout(), &line);
    }
    if failed == 0 {
        return ExitCode::SUCCESS;
    }
    say(std::io::stderr(), &format!("drainer: {failed} of {} databases were not migrated", pools.len()));
    ExitCode::from(ENVIRONMENT)
}

fn usage(error: &ConfigError) -> ExitCode {
    say(std::io::stderr(), &format!("drainer: {error}"));
    ExitCode::from(USAGE)
}

/// One line for a person. A closed pipe is no reason to fail.
fn say(mut to: impl Write, line: &str) {
    let _ = writeln!(to, "{line}");
}

async fn drain(settings: Settings, poolers: Poolers) -> Result<(), String> {
    let stop = stop_on_signals()?;
    let output = Output::start(stop.clone())?;
    for variable in &settings.unknown {
        output.note(format!("drainer: {variable} is set and nothing reads it"));
    }
    if poolers == Poolers::AreLookedFor {
        refuse_poolers(&settings).await?;
    }
    let drainers = assemble(&settings, &output).await?;
    output.note(format!(
        "drainer: {} databases, design {}, id {}",
        drainers.len(),
        settings.design,
        settings.config.id()
    ));
    let running: Vec<_> = drainers
        .into_iter()
        .map(|drainer| {
            let stop = stop.clone();
            tokio::spawn(async move { drainer.run(stop).await })
        })
        .collect();
    for drainer in running {
        drainer.await.map_err(|error| format!("a drainer died: {error}"))?;
    }
    output.finish().await;
    Ok(())
}

fn stop_on_signals() -> Result<CancellationToken, String> {
    let stop = CancellationToken::new();
    for kind in [SignalKind::terminate(), SignalKind::interrupt()] {
        let mut arrives = signal(kind).map_err(|error| format!("signals can't be caught: {error}"))?;
        let stop = stop.clone();
        tokio::spawn(async move {
            arrives.recv().await;
            stop.cancel();
        });
    }
    Ok(stop)
}

/// Prepared statements don't work there, and a drainer that tries for ever looks as if it did.
async fn refuse_poolers(settings: &Settings) -> Result<(), String> {
    for (name, options) in &settings.databases {
        let looked = timeout(settings.config.statement_timeout, pooler::shares_sessions(options)).await;
        // A database that does not answer now is tried again later.
        if let Ok(Ok(true)) = looked {
            return Err(format!(
                "{name} is reached through a pooler that gives each transaction another session (PgBouncer with pool_mode \
                 = transaction): prepared statements do not work there; name the server itself, or a pool with pool_mode = \
                 session"
            ));
        }
    }
    Ok(())
}

/// A drainer for each database, after a look whether its outbox is there.
async fn assemble(settings: &Settings, output: &Output) -> Result<Vec<Drainer>, String> {
    let mut drainers = Vec::new();
    for (name, options) in &settings.databases {
        let pool = settings.pool(options);
        match outbox::is_migrated(&pool, settings.design).await {
            Ok(true) => {}
            Ok(false) => {
                return Err(format!(
                    "{name} has no outbox for the design {}; run `drainer migrate` with the same settings first",
                    settings.design
                ));
            }
            Err(error) => output.note(format!("drainer: {name}: {error}; will try again")),
        }
        let config = settings.config.clone();
        let broker = Broker::new(&settings.amqp_url, &config.session_name(), config.confirm_timeout())
            .map_err(|error| error.to_string())?;
        let database = (settings.databases.len() > 1).then(|| name.clone());
        let observer = observer(output.clone(), name.clone(), database);
        drainers.push(Drainer::new(settings.design, pool, broker, config).observed_by(observer));
    }
    Ok(drainers)
}

/// Writes each tick, and tells a person when something goes wrong in a new way or right again.
fn observer(output: Output, name: String, database: Option<String>) -> Observer {
    let last: Mutex<Option<String>> = Mutex::default();
    Arc::new(move |tick: Tick| {
        let mut last = last.lock().unwrap_or_else(PoisonError::into_inner);
        if *last != tick.error {
            let what = tick.error.as_deref().map_or("works again", |error| error);
            output.note(format!("drainer: {name}: {what}"));
            last.clone_from(&tick.error);
        }
        output.tick(&tick, database.as_deref());
    })
}

impl Settings {
    /// Connects on first use.
    fn pool(&self, options: &PgConnectOptions) -> PgPool {
        let options =
            options.clone().application_name(&self.config.session_name()).disable_statement_logging();
        PgPoolOptions::new()
            .max_connections(self.connections)
            .acquire_timeout(self.config.statement_timeout)
            .connect_lazy_with(options)
    }
}
