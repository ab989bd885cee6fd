//! `drainbench verify` and `run` from outside: exit codes, records, and what they leave behind.

use std::{path::Path, process::Command, time::Duration};

use crate::scenarios::{SMALL, drainbench, passwords, said, scenario};
use harness::record::{Record, recompute};

fn verify(dir: &Path, text: &str, arguments: &[&str]) -> (i32, String, String) {
    let path = scenario(dir, text);
    let mut command = drainbench();
    command.arg("verify").arg(path).arg("--out").arg(dir.join("out")).args(arguments);
    let output = command.output().expect("the program starts");
    let (stdout, stderr) = said(&output);
    for password in passwords() {
        assert!(!stdout.contains(&password) && !stderr.contains(&password), "a password was printed");
    }
    (output.status.code().unwrap_or(-1), stdout, stderr)
}

fn record(dir: &Path) -> Record {
    let path = dir.join("out/record.json");
    let text = std::fs::read_to_string(&path).expect("a record was written");
    for password in passwords() {
        assert!(!text.contains(&password), "a password stands in the record");
    }
    let schema = jsonschema::validator_for(&Record::schema()).expect("the schema is one");
    let value: serde_json::Value = serde_json::from_str(&text).expect("a record is JSON");
    let errors: Vec<String> = schema.iter_errors(&value).map(|error| error.to_string()).collect();
    assert!(errors.is_empty(), "the record does not match its schema: {errors:?}");
    let record = Record::read(&path).expect("a record is readable");
    assert_eq!(recompute(&record), [], "the record contradicts itself");
    record
}

#[test]
fn the_new_design_passes_and_the_old_one_shows_its_symptoms() {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let (code, stdout, stderr) = verify(dir.path(), SMALL, &[]);
    assert_eq!(code, 0, "{stdout}{stderr}");
    assert!(stdout.contains("PASS"), "{stdout}");
    let record = record(dir.path());
    let [control, old, new] = record.cells.as_slice() else {
        panic!("three cells: {:?}", record.cells.len())
    };
    assert!(control.counts.committed > 200 && control.counts.rolled_back > 0, "{:?}", control.counts);
    for cell in [old, new] {
        assert_eq!((cell.audit.tally.lost, cell.audit.tally.phantom, cell.audit.tally.waiting), (0, 0, 0));
        assert_eq!((cell.audit.tally.duplicated, cell.audit.tally.foreign), (0, 0));
        assert_eq!(cell.audit.tally.delivered, cell.counts.committed_events);
        assert!(cell.troubles.is_empty(), "{:?}", cell.troubles);
    }
    assert!(old.metric("idle_in_tx.rows") > Some(0.0));
    assert_eq!(new.metric("idle_in_tx.rows"), Some(0.0));
    assert!(dir.path().join("out/report.md").exists());
}

#[test]
fn a_bad_candidate_fails() {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let (code, stdout, stderr) = verify(dir.path(), SMALL, &["--designs", "lease,single-tx"]);
    assert_eq!(code, 3, "{stdout}{stderr}");
    record(dir.path());
}

#[test]
fn drainers_in_processes_of_their_own_are_measured_from_outside() {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let arguments = ["--designs", "lease", "--set", "drainer.placement=process", "--format", "json"];
    let (code, stdout, stderr) = verify(dir.path(), SMALL, &arguments);
    assert_eq!(code, 0, "{stdout}{stderr}");
    let record = record(dir.path());
    let printed: serde_json::Value = serde_json::from_str(&stdout).expect("the record and nothing else");
    assert_eq!(printed["format"], 1);
    let new = record.cells.last().expect("a candidate");
    assert!(new.metric("drainer.rss_peak") > Some(1e6), "{:?}", new.unmeasured.get("drainer.rss_peak"));
    assert!(new.metric("drainer.cpu") > Some(0.0));
    assert_eq!(new.audit.tally.delivered, new.counts.committed_events);
}

#[test]
fn a_control_cell_runs_alone() {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let path = scenario(dir.path(), SMALL);
    let mut command = drainbench();
    command.arg("run").arg(path).args(["--design", "none"]).arg("--out").arg(dir.path().join("out"));
    let output = command.output().expect("the program starts");
    assert_eq!(output.status.code(), Some(0), "{:?}", said(&output));
    let record = record(dir.path());
    assert_eq!(record.cells.len(), 1);
    assert!(record.cells[0].metric("persist.p99").is_some());
}

#[test]
fn what_cannot_be_saved_is_still_printed() {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let path = scenario(dir.path(), SMALL);
    let out = dir.path().join("out");
    std::fs::create_dir_all(out.join("report.md")).expect("a folder in the report's place");
    let mut command = drainbench();
    command.arg("run").arg(path).args(["--design", "none", "--format", "json"]).arg("--out").arg(&out);
    let output = command.output().expect("the program starts");
    let (stdout, stderr) = said(&output);
    assert_eq!(output.status.code(), Some(2), "{stdout}{stderr}");
    assert!(stderr.contains("was not saved") && stderr.contains("report.md"), "{stderr}");
    let printed: serde_json::Value = serde_json::from_str(&stdout).expect("the record and nothing else");
    assert_eq!(printed["cells"][0]["label"], "none");
}

#[test]
fn the_raw_yardstick_delivers_what_was_committed_and_the_backlog() {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let path = scenario(dir.path(), SMALL);
    let mut command = drainbench();
    command.arg("run").arg(path).args(["--design", "raw", "--set", "load.backlog=3000"]);
    let output = command.arg("--out").arg(dir.path().join("out")).output().expect("the program starts");
    assert_eq!(output.status.code(), Some(0), "{:?}", said(&output));
    let cell = &record(dir.path()).cells[0];
    assert_eq!(cell.audit.tally.delivered, cell.counts.committed_events);
    assert!(cell.counts.committed_events > 3_000, "{:?}", cell.counts);
}

#[test]
fn too_few_connections_are_known_before_anything_runs() {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let (code, _, stderr) = verify(dir.path(), SMALL, &["--set", "service.pool=5000"]);
    assert_eq!(code, 2, "{stderr}");
    assert!(stderr.contains("needs 10") && stderr.contains("has "), "both numbers: {stderr}");
    assert!(!dir.path().join("out/record.json").exists());
}

#[test]
fn an_interrupted_run_is_recorded_as_partial() {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let path = scenario(dir.path(), SMALL);
    let mut command = drainbench();
    command.arg("run").arg(path).args(["--design", "lease", "--set", "load.duration=60s"]);
    let child = command.arg("--out").arg(dir.path().join("out")).stderr(std::process::Stdio::piped()).spawn();
    let mut child = child.expect("the program starts");
    wait_for_load(child.stderr.take().expect("it is piped"));
    interrupt(child.id());
    let status = child.wait().expect("it ends");
    assert_eq!(status.code(), Some(130));
    let record = record(dir.path());
    assert!(record.partial && record.cells[0].interrupted);
    assert_eq!(record.verdict.exit_code, 130);
}

/// A terminal or a `tee` that went away must lose no run: nothing that is only said may stop what is done.
#[test]
fn a_run_whose_standard_error_is_gone_is_interrupted_and_recorded_all_the_same() {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let path = scenario(dir.path(), SMALL);
    let mut command = drainbench();
    command.arg("run").arg(path).args(["--design", "lease", "--set", "load.duration=60s"]);
    let child = command.arg("--out").arg(dir.path().join("out")).stderr(std::process::Stdio::piped()).spawn();
    let mut child = child.expect("the program starts");
    let stderr = child.stderr.take().expect("it is piped");
    let mut lines = std::io::BufRead::lines(std::io::BufReader::new(stderr)).map_while(Result::ok);
    assert!(lines.any(|line| line.contains("the first write is committed")), "the load did not begin");
    drop(lines);
    signal("HUP", child.id());
    let status = child.wait().expect("it ends");
    assert_eq!(status.code(), Some(130));
    assert!(record(dir.path()).partial);
}

#[test]
fn a_verdict_on_nothing_is_refused() {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let text = "name = \"idle\"\n[load]\nrate = 10\n[[cell]]\nlabel = \"only\"\ndesign = \"lease\"\n";
    let (code, _, stderr) = verify(dir.path(), text, &[]);
    assert_eq!(code, 1, "{stderr}");
    assert!(stderr.contains("nothing to judge") && stderr.contains("drainbench run"), "{stderr}");
    let text = text
        .replace("design", "role = \"candidate\"\ndesign")
        .replace("rate = 10", "rate = 10\nduration = \"1s\"");
    let (code, stdout, stderr) = verify(dir.path(), &text, &["--set", "load.rollback_share=1.0"]);
    assert_eq!(code, 5, "{stdout}{stderr}");
    assert!(stdout.contains("nothing was committed"), "{stdout}");
}

/// What is known at once needs no cell: a commit that does not wait for the disk measures nothing.
#[test]
fn a_server_without_durability_is_invalid_before_any_cell() {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let path = scenario(dir.path(), SMALL);
    let (url, _) = crate::scenarios::rig_urls();
    let url = format!("{url}{}options[synchronous_commit]=off", if url.contains('?') { '&' } else { '?' });
    let mut command = drainbench();
    command.env("DRAINBENCH_DATABASE_URL", url).args(["verify", "--rig", "external", "--out"]);
    let output = command.arg(dir.path().join("out")).arg(path).output().expect("the program starts");
    assert_eq!(output.status.code(), Some(5), "{:?}", said(&output));
    let record = record(dir.path());
    assert!(record.cells.is_empty());
    assert!(record.verdict.reasons.iter().any(|reason| reason.text.contains("synchronous_commit")));
}

/// Reads the program's own words until it says that the load runs.
fn wait_for_load(stderr: impl std::io::Read + Send + 'static) {
    use std::io::BufRead as _;
    let (say, said) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        for line in std::io::BufReader::new(stderr).lines().map_while(Result::ok) {
            // The test may have seen enough.
            let _ = say.send(line);
        }
    });
    while let Ok(line) = said.recv_timeout(Duration::from_secs(60)) {
        if line.contains("the first write is committed") {
            return;
        }
    }
    panic!("the load did not begin");
}

fn interrupt(pid: u32) {
    signal("INT", pid);
}

fn signal(name: &str, pid: u32) {
    let status = Command::new("kill").args(["-s", name, &pid.to_string()]).status();
    assert!(status.expect("kill is there").success());
}
