//! `drainbench watch`.

use std::{
    io::IsTerminal as _,
    pin::Pin,
    time::{Duration, Instant},
};

use serde::Serialize;
use tokio::io::AsyncWriteExt as _;

use crate::say::complain;
use crate::{
    exit::Exit,
    sampler::{
        State,
        activity::{bytes, statement},
        pace::Pace,
        probe::{Probe, ProbeError},
    },
};

use self::{
    summary::Summary,
    view::{Columns, View},
};

mod source;
mod summary;
mod view;

/// `application_name` of its session.
const APPLICATION_NAME: &str = "drainbench-watch";

/// How long the last words may take when nobody reads.
const LAST_WORDS_WITHIN: Duration = Duration::from_secs(1);

/// Shows what the sessions of a PostgreSQL do and wait for, one line a sampled session. Starts no load and needs only
/// pg_monitor. Ctrl-C ends it with a summary.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The server, as postgres://role@host:5432/database without a password. Default: `DRAINBENCH_DATABASE_URL`, else
    /// libpq's PGHOST, PGPORT, PGUSER, PGDATABASE, PGPASSWORD, PGPASSFILE and PGSSLMODE
    #[arg(value_name = "URL")]
    url: Vec<String>,
    /// Ticks a second, 1 to 100
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=100))]
    rate: u32,
    /// Only sessions of this database; repeat for several
    #[arg(long = "database", value_name = "NAME")]
    databases: Vec<String>,
    /// Only sessions in this state; repeat for several. `idle-in-transaction` takes aborted ones too
    #[arg(long = "state", value_name = "STATE", value_enum)]
    states: Vec<State>,
    /// Show idle sessions as well
    #[arg(long)]
    idle: bool,
    /// End after this long, such as 90s or 5m
    #[arg(long = "for", value_name = "DURATION", value_parser = duration)]
    within: Option<Duration>,
    /// Instead of lines: average active sessions a wait class and the oldest transactions, each time this has passed
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    summary: Option<Duration>,
    /// Lines for people, or JSON lines for programs
    #[arg(long, value_name = "FORMAT", value_enum, default_value_t = Format::Text)]
    format: Format,
}

/// Who reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Format {
    /// People.
    Text,
    /// Programs: one JSON object a line.
    Json,
}

/// Why it ended early.
#[derive(Debug, thiserror::Error)]
enum WatchError {
    #[error(transparent)]
    Source(#[from] source::SourceError),
    #[error(
        "cannot watch {server}: {reason}. Name another server in {}, or in PGHOST, PGPORT, PGUSER and PGDATABASE",
        source::URL_VARIABLE
    )]
    Unreachable { server: String, reason: ProbeError },
    #[error(
        "role `{0}` may not see what other roles' sessions do (the server would show <insufficient privilege>). Let an \
         administrator say: GRANT pg_monitor TO \"{0}\""
    )]
    Privilege(String),
    #[error("cannot listen for Ctrl-C: {0}")]
    Signals(std::io::Error),
    #[error("cannot write: {0}")]
    Output(std::io::Error),
}

/// Watches until Ctrl-C, SIGTERM, `--for` or a closed output. Errors go to the standard error.
pub async fn main(args: Args) -> Exit {
    let error = match watch(&args).await {
        Ok(()) => return Exit::Pass,
        Err(error) => error,
    };
    let exit = match error {
        // `| head` has what it wanted.
        WatchError::Output(ref error) if error.kind() == std::io::ErrorKind::BrokenPipe => return Exit::Pass,
        WatchError::Source(_) => Exit::Usage,
        WatchError::Unreachable { .. }
        | WatchError::Privilege(_)
        | WatchError::Signals(_)
        | WatchError::Output(_) => Exit::Environment,
    };
    complain!("drainbench watch: {error}");
    exit
}

async fn watch(args: &Args) -> Result<(), WatchError> {
    let options = source::options(&args.url, std::env::var(source::URL_VARIABLE).ok())?;
    let mut stop = Box::pin(stop(args.within).map_err(WatchError::Signals)?);
    let server = server_name(&options);
    let open = async {
        let mut probe = Probe::connect(options, APPLICATION_NAME).await?;
        let query = sqlx::query(statement(include_str!("watch/rights.sql"))).bind(&args.databases);
        let rows = probe.rows(query).await?;
        Ok((probe, rows))
    };
    let opened: Result<_, ProbeError> = tokio::select! {
        () = &mut stop => return Ok(()),
        opened = open => opened,
    };
    let (probe, rows) = opened.map_err(|reason| WatchError::Unreachable { server, reason })?;
    let cell = |column| rows.first().and_then(|row| bytes(row, column).ok()).unwrap_or_default();
    if cell(0) != [1] {
        return Err(WatchError::Privilege(view::one_line(cell(1))));
    }
    if !cell(2).is_empty() {
        complain!("drainbench watch: no database of this name yet: {}", view::one_line(cell(2)));
    }
    Watch::new(args, probe).run(stop).await
}

/// Ends at Ctrl-C, SIGTERM, or when the time is up.
fn stop(within: Option<Duration>) -> std::io::Result<impl Future<Output = ()>> {
    use tokio::signal::unix::{SignalKind, signal};
    let (mut interrupt, mut terminate) = (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
    Ok(async move {
        let time_is_up = async {
            match within {
                Some(within) => tokio::time::sleep(within).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
            () = time_is_up => {}
        }
    })
}

/// Where it leads, without a secret.
fn server_name(options: &sqlx::postgres::PgConnectOptions) -> String {
    let host = options
        .get_socket()
        .map_or_else(|| options.get_host().to_owned(), |socket| socket.display().to_string());
    format!("the server at {host}:{} as role `{}`", options.get_port(), options.get_username())
}

/// At work.
struct Watch<'a> {
    args: &'a Args,
    probe: Probe,
    columns: Columns,
    output: tokio::io::Stdout,
    /// Since the last summary; since the start when there are lines instead.
    summary: Summary,
    since: Instant,
    lost: bool,
}

/// A session as a JSON line.
#[derive(Serialize)]
struct Line<'v> {
    kind: &'static str,
    at: &'v str,
    #[serde(flatten)]
    view: &'v View,
}

impl<'a> Watch<'a> {
    fn new(args: &'a Args, probe: Probe) -> Self {
        Self {
            args,
            probe,
            columns: Columns::default(),
            output: tokio::io::stdout(),
            summary: Summary::default(),
            since: Instant::now(),
            lost: false,
        }
    }

    async fn run(mut self, mut stop: Pin<Box<impl Future<Output = ()>>>) -> Result<(), WatchError> {
        let mut pace = Pace::new(self.since, self.args.rate);
        loop {
            tokio::select! {
                biased;
                () = &mut stop => break,
                () = tokio::time::sleep_until(pace.due().into()) => {}
            }
            // Writing is within: a reader that stands still must not keep Ctrl-C from us.
            let written = tokio::select! {
                biased;
                () = &mut stop => break,
                written = self.tick() => written,
            };
            written.map_err(WatchError::Output)?;
            self.summary.miss(pace.advance(Instant::now()));
        }
        let text = self.summed_up();
        let last_words = tokio::time::timeout(LAST_WORDS_WITHIN, write(&mut self.output, &text));
        last_words.await.unwrap_or(Ok(())).map_err(WatchError::Output)?;
        self.probe.close().await;
        Ok(())
    }

    /// Reads once and writes what is due.
    async fn tick(&mut self) -> std::io::Result<()> {
        let query = sqlx::query(statement(include_str!("watch/sessions.sql")));
        let query = query.bind(self.wants(State::Idle)).bind(&self.args.databases);
        let read = self.probe.rows(query).await;
        let views = read.and_then(|rows| Ok(rows.iter().map(View::read).collect::<Result<Vec<_>, _>>()?));
        let mut text = String::new();
        match views {
            Ok(mut views) => {
                self.found();
                views.retain(|view| self.wants(view.state));
                self.summary.tick(&views);
                if self.args.summary.is_none() {
                    text = self.lines(&views);
                }
            }
            Err(error) => {
                self.summary.miss(1);
                self.lost(&error);
            }
        }
        if self.args.summary.is_some_and(|every| self.since.elapsed() >= every) {
            text = self.summed_up();
            self.summary = Summary::default();
            self.since = Instant::now();
        }
        write(&mut self.output, &text).await
    }

    /// Whether sessions in this state are shown.
    fn wants(&self, state: State) -> bool {
        if self.args.states.is_empty() {
            return self.args.idle || state != State::Idle;
        }
        let asked = |state| self.args.states.contains(&state);
        match state {
            State::Idle => self.args.idle || asked(state),
            State::IdleInTransactionAborted => asked(state) || asked(State::IdleInTransaction),
            State::Active | State::IdleInTransaction | State::Other => asked(state),
        }
    }

    fn lines(&mut self, views: &[View]) -> String {
        if views.is_empty() {
            return String::new();
        }
        let at = now(self.args.format);
        self.columns.fit(views);
        let width = width();
        let line = |view| match self.args.format {
            Format::Text => self.columns.line(&at, view, width) + "\n",
            // Numbers and texts only: it cannot fail.
            Format::Json => {
                serde_json::to_string(&Line { kind: "session", at: &at, view }).unwrap_or_default() + "\n"
            }
        };
        views.iter().map(line).collect()
    }

    fn summed_up(&self) -> String {
        let (at, seconds) = (now(self.args.format), self.since.elapsed().as_secs_f64());
        match self.args.format {
            Format::Text => self.summary.text(&at, seconds, width()),
            Format::Json => self.summary.json(&at, seconds),
        }
    }

    /// Says once that the server is out of reach; every tick until it is back is missed.
    fn lost(&mut self, error: &ProbeError) {
        if !self.lost {
            complain!("drainbench watch: lost the server, trying again: {error}");
        }
        self.lost = true;
    }

    fn found(&mut self) {
        if self.lost {
            complain!("drainbench watch: the server is back");
        }
        self.lost = false;
    }
}

async fn write(output: &mut tokio::io::Stdout, text: &str) -> std::io::Result<()> {
    if text.is_empty() {
        return Ok(());
    }
    output.write_all(text.as_bytes()).await?;
    output.flush().await
}

/// Wall clock: local time of day for people, an RFC 3339 instant for programs.
fn now(format: Format) -> String {
    let now = jiff::ZonedDateTime::now();
    match format {
        Format::Text => now.strftime("%H:%M:%S%.3f").to_string(),
        Format::Json => format!("{:.3}", now.timestamp()),
    }
}

/// Columns of the terminal on the standard output, if it is one.
fn width() -> Option<usize> {
    let output = std::io::stdout();
    if !output.is_terminal() {
        return None;
    }
    let size = rustix::termios::tcgetwinsize(&output).ok()?;
    (size.ws_col > 0).then_some(usize::from(size.ws_col))
}

/// A time above zero with its unit.
fn duration(text: &str) -> Result<Duration, String> {
    let duration: jiff::SignedDuration =
        text.parse().map_err(|_| format!("`{text}` is no time: write 30s or 5m"))?;
    match Duration::try_from(duration) {
        Ok(duration) if !duration.is_zero() => Ok(duration),
        Ok(_) | Err(_) => Err(format!("`{text}` is not above zero: write 30s or 5m")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_need_a_unit_and_are_above_zero() {
        assert_eq!(duration("30s"), Ok(Duration::from_secs(30)));
        assert_eq!(duration("1m 30s"), Ok(Duration::from_secs(90)));
        for wrong in ["30", "0s", "-1s", "soon", ""] {
            duration(wrong).expect_err(wrong);
        }
    }
}
