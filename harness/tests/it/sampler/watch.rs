//! `drainbench watch`, as a user runs it.

use std::{
    collections::BTreeSet,
    io::{BufRead as _, BufReader, Read as _},
    path::PathBuf,
    process::{Child, Command, Output, Stdio},
};

use rustix::process::{Pid, Signal, kill_process};

use super::database::{Database, server_url, with_database};

/// The program, without the environment of whoever runs the tests.
fn watch(url: Option<&str>) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_drainbench"));
    for name in ["PGHOST", "PGHOSTADDR", "PGPORT", "PGUSER", "PGDATABASE", "PGPASSWORD", "PGPASSFILE"] {
        command.env_remove(name);
    }
    command.arg("watch").env_remove("DRAINBENCH_DATABASE_URL").env("TZ", "UTC");
    if let Some(url) = url {
        command.env("DRAINBENCH_DATABASE_URL", url);
    }
    command
}

/// Runs to its end beside whatever the test does.
async fn run(mut command: Command) -> Output {
    tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

fn json(output: &Output) -> Vec<serde_json::Value> {
    text(&output.stdout).lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// `pgbench` beside the server's other programs.
fn pgbench() -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    let installed = std::fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    std::env::split_paths(&path)
        .chain(installed.map(|version| version.path().join("bin")))
        .map(|folder| folder.join("pgbench"))
        .find(|program| program.is_file())
}

/// A pgbench run that ends with the test.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn shows_what_a_pgbench_waits_for_that_it_did_not_start() {
    let Some(pgbench) = pgbench() else {
        eprintln!("skipped: no pgbench on this machine");
        return;
    };
    with_database(|database| async move {
        let bench = |arguments: &[&str]| {
            let mut command = Command::new(&pgbench);
            command.args(arguments).arg(&database.url).stdout(Stdio::null()).stderr(Stdio::null());
            command
        };
        let made = run(bench(&["-i", "-q"])).await;
        assert!(made.status.success());
        // Eight clients, one branch row: they queue for it, and for the disk.
        let running = Running(bench(&["-n", "-c", "8", "-T", "30"]).spawn().unwrap());
        let mut command = watch(Some(&server_url()));
        command.args(["--database", &database.name, "--for", "3s", "--rate", "50", "--format", "json"]);
        let output = run(command).await;
        drop(running);
        assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
        let lines = json(&output);
        let sessions: Vec<_> = lines.iter().filter(|line| line["application"] == "pgbench").collect();
        assert!(sessions.len() >= 100, "{} sessions sampled", sessions.len());
        let waits: BTreeSet<_> = sessions.iter().filter_map(|line| line["wait_event"].as_str()).collect();
        assert!(waits.contains("Lock:transactionid") || waits.contains("Lock:tuple"), "{waits:?}");
        assert!(sessions.iter().any(|line| line["query"].as_str().unwrap().starts_with("UPDATE pgbench_")));
        let summary = lines.last().unwrap();
        assert_eq!(summary["kind"], "summary");
        let active = summary["active_sessions"].as_f64().unwrap();
        assert!(active > 0.5 && active <= 8.0, "{active} active sessions");
        assert!(summary["classes"]["Lock"].as_f64().unwrap() > 0.1);
        assert!(!summary["oldest_transactions"].as_array().unwrap().is_empty());
    });
}

/// A session that holds a transaction, with a statement on several lines.
async fn hold(database: &Database) -> super::database::Session {
    let mut held = database.session("canopy").await;
    held.say("CREATE TABLE event_outbox (id int)").await;
    held.say("BEGIN").await;
    held.say("UPDATE event_outbox\n   SET id = 2\n WHERE id = 1 -- \x1b[31mred").await;
    held
}

#[test]
fn one_line_a_session_in_the_references_shape() {
    with_database(|database| async move {
        let held = hold(&database).await;
        let mut command = watch(Some(&database.url));
        command.args(["--database", &database.name, "--for", "1500ms", "--rate", "10"]);
        let output = run(command).await;
        assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
        let shown = text(&output.stdout);
        let rest = format!(
            "  pid={}  {}  idle in transaction  UPDATE event_outbox SET id = 2 WHERE id = 1 -- [31mred",
            held.pid, database.name
        );
        let lines: Vec<_> =
            shown.lines().filter(|line| line.contains("pid=") && !line.contains("xid=")).collect();
        assert!(lines.len() >= 10, "{shown}");
        for line in &lines {
            let (time, after) = line.split_at(12);
            assert!(time.chars().enumerate().all(|(place, c)| match place {
                2 | 5 => c == ':',
                8 => c == '.',
                _ => c.is_ascii_digit(),
            }));
            assert!(after.starts_with(&rest), "{line}");
        }
        // Above half a second the age stands behind it, in whole 100 ms.
        let last = lines.last().unwrap();
        let age = last.rsplit_once("  (>").unwrap().1.strip_suffix("ms)").unwrap();
        assert!(age.parse::<u32>().unwrap() >= 600 && age.ends_with("00"), "{last}");
        assert!(shown.contains("  oldest transactions\n"), "{shown}");
        assert!(!shown.contains("drainbench-watch"));
    });
}

#[test]
fn a_summary_replaces_the_lines() {
    with_database(|database| async move {
        let held = hold(&database).await;
        let mut command = watch(Some(&database.url));
        command.args(["--database", &database.name, "--for", "2500ms", "--summary", "1s"]);
        let output = run(command).await;
        let shown = text(&output.stdout);
        let summaries = shown.lines().filter(|line| line.contains(" ticks, ")).count();
        // Two whole seconds and the rest.
        assert_eq!(summaries, 3, "{shown}");
        assert!(shown.contains("  idle in transaction          1.00\n"), "{shown}");
        let oldest: Vec<_> = shown.lines().filter(|line| line.contains("pid=")).collect();
        assert_eq!(oldest.len(), 3, "{shown}");
        assert!(oldest.iter().all(|line| line.contains(&format!("pid={}  {}", held.pid, database.name))));
        // It has written nothing, so it has no xid.
        assert!(oldest.iter().all(|line| line.contains("  xid=-  xmin=")), "{shown}");
    });
}

#[test]
fn filters_choose_states_and_databases() {
    with_database(|database| async move {
        let held = hold(&database).await;
        let mut idle = database.session("canopy").await;
        idle.say("SELECT 'rests'").await;
        let seen = async |arguments: &[&str]| -> BTreeSet<i64> {
            let mut command = watch(Some(&database.url));
            command.args(["--for", "500ms", "--format", "json"]).args(arguments);
            let output = run(command).await;
            assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
            let sessions = json(&output).into_iter().filter(|line| line["kind"] == "session");
            sessions.map(|line| line["pid"].as_i64().unwrap()).collect()
        };
        let (held, idle) = (i64::from(held.pid), i64::from(idle.pid));
        let here = ["--database", database.name.as_str()];
        assert_eq!(seen(&here).await, [held].into());
        assert_eq!(seen(&[&here[..], &["--idle"]].concat()).await, [held, idle].into());
        assert_eq!(seen(&[&here[..], &["--state", "idle"]].concat()).await, [idle].into());
        assert_eq!(seen(&[&here[..], &["--state", "active"]].concat()).await, [].into());
        let both = ["--state", "active", "--state", "idle-in-transaction"];
        assert_eq!(seen(&[&here[..], &both].concat()).await, [held].into());
        assert_eq!(seen(&["--database", "no such database", "--idle"]).await, [].into());
        assert!(seen(&[]).await.contains(&held));
    });
}

/// Starts it and waits for its first line.
fn started(database: &Database) -> (Child, BufReader<std::process::ChildStdout>) {
    let mut command = watch(Some(&database.url));
    command.args(["--database", &database.name]).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap());
    let mut first = String::new();
    lines.read_line(&mut first).unwrap();
    assert!(first.contains("idle in transaction"), "{first}");
    (child, lines)
}

#[test]
fn signals_end_it_with_a_last_summary() {
    with_database(|database| async move {
        let _held = hold(&database).await;
        for signal in [Signal::INT, Signal::TERM] {
            let (mut child, mut lines) = started(&database);
            kill_process(Pid::from_child(&child), signal).unwrap();
            let mut rest = String::new();
            lines.read_to_string(&mut rest).unwrap();
            assert_eq!(child.wait().unwrap().code(), Some(0));
            assert!(rest.contains(" ticks, ") && rest.contains("oldest transactions"), "{rest}");
        }
    });
}

#[test]
fn a_closed_output_ends_it_quietly() {
    with_database(|database| async move {
        let _held = hold(&database).await;
        let (child, lines) = started(&database);
        drop(lines);
        let output = child.wait_with_output().unwrap();
        assert_eq!((output.status.code(), text(&output.stderr)), (Some(0), String::new()));
    });
}

#[test]
fn it_needs_pg_monitor_and_says_so() {
    with_database(|database| async move {
        let mut admin = database.session("test").await;
        let role = format!("{}_role", database.name);
        admin.say(&format!("CREATE ROLE {role} LOGIN PASSWORD 'secret'")).await;
        let (scheme, rest) = database.url.split_once("://").unwrap();
        let host = rest.rsplit_once('@').map_or(rest, |(_, host)| host);
        let url = format!("{scheme}://{role}:secret@{host}");
        let short = || {
            let mut command = watch(Some(&url));
            command.args(["--for", "300ms"]);
            command
        };
        let blind = run(short()).await;
        admin.say(&format!("GRANT pg_monitor TO {role}")).await;
        let sees = run(short()).await;
        admin.say(&format!("DROP ROLE {role}")).await;
        assert_eq!(blind.status.code(), Some(2));
        let said = text(&blind.stderr);
        assert!(
            said.contains(&format!("GRANT pg_monitor TO \"{role}\"")) && !said.contains("secret"),
            "{said}"
        );
        assert_eq!(sees.status.code(), Some(0), "{}", text(&sees.stderr));
    });
}

#[test]
fn what_is_wrong_has_its_exit_code_and_no_password_is_repeated() {
    for (arguments, code, says) in [
        (&["postgres://canopy:s3cret@127.0.0.1:1/x"][..], 1, "DRAINBENCH_DATABASE_URL"),
        (&["postgres://127.0.0.1:1/x?user=a&password=s3cret"], 1, "DRAINBENCH_DATABASE_URL"),
        (&["postgres://a@127.0.0.1:1", "postgres://a:s3cret@127.0.0.1:1"], 1, "DRAINBENCH_DATABASE_URL"),
        (&["--rate", "0"], 1, "1..=100"),
        (&["--rate", "101"], 1, "1..=100"),
        (&["--summary", "30"], 1, "30s"),
        (&["--for", "0s"], 1, "above zero"),
        (&["--state", "asleep"], 1, "idle-in-transaction"),
        (&["postgres://a@127.0.0.1:1/x"], 2, "127.0.0.1:1"),
    ] {
        let output = watch(None).args(arguments).output().unwrap();
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {said}");
        assert!(said.contains(says) && !said.contains("s3cret"), "{arguments:?}: {said}");
        assert!(output.stdout.is_empty());
    }
    let output = watch(Some("postgres://canopy:s3cret@127.0.0.1:1/x")).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(!text(&output.stderr).contains("s3cret"));
}
