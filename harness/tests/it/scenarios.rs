//! What the integration tests share: the program, a small scenario, the rig of the run.

use std::{
    path::{Path, PathBuf},
    process::{Command, Output},
};

/// One service on one connection, confirms that take 30 ms: the old design starves it within a second, the new one
/// never holds it. About 6 seconds a cell.
pub(crate) const SMALL: &str = r#"
name = "small"
about = "the integration tests' own"
seed = 7

[load]
services = 2
rate = 80
warm_up = "1s"
duration = "3s"
drain_deadline = "30s"
keys = 10
rollback_share = 0.05

[service]
pool = 1

[drainer]
batch_size = 50
poll_interval = "50ms"

[broker]
latency = "30ms"

[validity]
lag_p99 = "100ms"
sink_behind = "5s"

[suite]
cases = 100
persist_within = "500ms"
arrive_within = "5s"

[[cell]]
label = "control"
role = "control"
design = "none"

[[cell]]
label = "old"
role = "baseline"
design = "single-tx"

[[cell]]
label = "new"
role = "candidate"
design = "lease"

[[symptom]]
metric = "persist.p99"
above = 300

[[symptom]]
metric = "idle_in_tx.rows"
above = 0

[[criterion]]
metric = "persist.p99"
below = 300

[[criterion]]
metric = "idle_in_tx.rows"
at_most = 0
"#;

/// A second of the new design and its control, where something else than time is asked: a machine that is busy with
/// other tests fails none of it.
fn quick() -> String {
    let (settings, _) = SMALL.split_once("[[symptom]]").unwrap();
    let settings = settings
        .replace("warm_up = \"1s\"\nduration = \"3s\"", "warm_up = \"0s\"\nduration = \"1s\"")
        .replace("cases = 100\npersist_within = \"500ms\"", "cases = 20\npersist_within = \"10s\"")
        .replace("arrive_within = \"5s\"", "arrive_within = \"30s\"")
        .replace("lag_p99 = \"100ms\"", "lag_p99 = \"2s\"");
    format!(
        "{settings}\n[sampler]\nmax_missed = 0.6\n\n[[criterion]]\nmetric = \"idle_in_tx.rows\"\nat_most = 0\n\n\
         [[criterion]]\nmetric = \"suite.failed\"\nat_most = 0\n"
    )
}

/// `drainbench verify --rig external` of the quick scenario, `lease` alone unless the arguments say otherwise: the code, and
/// all that was said. The record is in `dir/out`.
pub(crate) fn verify_external(
    dir: &Path,
    database_url: &str,
    amqp_url: &str,
    arguments: &[&str],
) -> (Option<i32>, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_drainbench"))
        .arg("verify")
        .arg(scenario(dir, &quick()))
        .args(["--rig", "external", "--out"])
        .arg(dir.join("out"))
        .args(if arguments.contains(&"--designs") { &[][..] } else { &["--designs", "lease"] })
        .args(arguments)
        .env("DRAINBENCH_DATABASE_URL", database_url)
        .env("DRAINBENCH_AMQP_URL", amqp_url)
        .output()
        .unwrap();
    let (stdout, stderr) = said(&output);
    (output.status.code(), stdout + &stderr)
}

/// The servers of this run of the tests.
pub(crate) fn rig_urls() -> (String, String) {
    let url = |name: &str| {
        std::env::var(name).unwrap_or_else(|_| {
            panic!("{name} is not set: run `make test`, or `drainbench rig -- cargo nextest run`")
        })
    };
    (url("DRAINBENCH_DATABASE_URL"), url("DRAINBENCH_AMQP_URL"))
}

/// The program, with the rig of this run.
pub(crate) fn drainbench() -> Command {
    rig_urls();
    Command::new(env!("CARGO_BIN_EXE_drainbench"))
}

/// Writes a scenario and returns its path.
pub(crate) fn scenario(dir: &Path, text: &str) -> PathBuf {
    let path = dir.join("scenario.toml");
    std::fs::write(&path, text).expect("a temporary folder takes a file");
    path
}

/// Standard output and error as text.
pub(crate) fn said(output: &Output) -> (String, String) {
    (
        String::from_utf8_lossy(&output.stdout).into_owned(),
        String::from_utf8_lossy(&output.stderr).into_owned(),
    )
}

/// Passwords of the rig of this run: no output, record or process list may hold one.
pub(crate) fn passwords() -> Vec<String> {
    let (database, broker) = rig_urls();
    [database, broker]
        .iter()
        .filter_map(|url| {
            let (_, rest) = url.split_once("://")?;
            let (user, _) = rest.split_once('@')?;
            user.split_once(':').map(|(_, password)| password.to_owned())
        })
        .filter(|password| !password.is_empty())
        .collect()
}
