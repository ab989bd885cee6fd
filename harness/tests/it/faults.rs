//! What is broken on purpose really breaks, heals, is seen by the other side, and loses nothing.

use std::process::Command;

use harness::record::{CellRecord, Record};

use crate::{
    rigs::{SOON, wait_until},
    scenarios::{drainbench, said, scenario},
};

/// One service, drainer processes, ten writes a second each 100 ms: a few seconds, and limits that a busy machine keeps.
const FAULTY: &str = r#"
name = "faulty"
seed = 7

[load]
services = 1
rate = 100
warm_up = "0s"
duration = "6s"
drain_deadline = "40s"
keys = 10

[service]
pool = 3

[drainer]
placement = "process"
batch_size = 20
pipeline_depth = 5
lease_ttl = "2s"
poll_interval = "50ms"

[broker]
latency = "10ms"

[sampler]
max_missed = 0.9

[validity]
lag_p99 = "5s"
sink_behind = "20s"

[[cell]]
label = "new"
role = "candidate"
design = "lease"
"#;

/// Runs it with these faults and returns exit code, everything said, and the record.
fn verify(faults: &str, arguments: &[&str]) -> (Option<i32>, String, Record) {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("out");
    let output = drainbench()
        .arg("verify")
        .arg(scenario(dir.path(), &format!("{FAULTY}{faults}")))
        .arg("--out")
        .arg(&out)
        .args(arguments)
        .output()
        .unwrap();
    let (stdout, stderr) = said(&output);
    let record = std::fs::read_to_string(out.join("record.json"));
    let record = record.unwrap_or_else(|error| panic!("{error}: {stdout}{stderr}"));
    (output.status.code(), stdout + &stderr, serde_json::from_str(&record).unwrap())
}

fn strikes<'a>(cell: &'a CellRecord, kind: &str) -> Vec<(u64, u64, bool, &'a str)> {
    let of_kind = cell.faults.iter().filter(|strike| strike.kind == kind);
    of_kind.map(|strike| (strike.began_ns, strike.healed_ns, strike.hit, strike.evidence.as_str())).collect()
}

fn nothing_lost(record: &Record) {
    for cell in &record.cells {
        let tally = &cell.audit.tally;
        assert_eq!((tally.lost, tally.phantom, tally.waiting), (0, 0, 0), "{}: {tally:?}", cell.label);
        assert_eq!(tally.delivered, cell.counts.committed_events);
        assert_eq!(cell.misconduct, Vec::<String>::new());
    }
}

const SECOND: u64 = 1_000_000_000;

#[test]
fn drainers_are_killed_paused_and_restarted_and_nothing_is_lost() {
    let faults = r#"
[[fault]]
kind = "kill"
at = "1s"
for = "200ms"
every = "2s"

[[fault]]
kind = "pause"
at = "1700ms"
for = "500ms"

[[fault]]
kind = "restart"
at = "3600ms"
for = "1ms"
"#;
    let (code, said, record) = verify(faults, &["--designs", "single-tx,lease"]);
    assert_eq!(code, Some(0), "{said}");
    nothing_lost(&record);
    for cell in &record.cells {
        // The schedule begins a second after the origin.
        let kills = strikes(cell, "kill");
        assert_eq!(kills.len(), 3, "{kills:?}");
        for (nth, (began, healed, hit, evidence)) in (0..).zip(kills) {
            let due = (2 + 2 * nth) * SECOND;
            assert!((due..due + SECOND).contains(&began), "{began}");
            assert!(healed >= due + SECOND / 5 && hit, "{evidence}");
            assert_eq!(evidence, "1 of 1 processes ended by signal 9");
        }
        let paused = strikes(cell, "pause");
        assert!(paused.len() == 1 && paused[0].2, "{paused:?}");
        let restarted = strikes(cell, "restart");
        assert!(restarted.len() == 1 && restarted[0].2, "{restarted:?}");
        assert!(cell.metric("recovery.time").is_some());
    }
    assert!(said.contains("kill of the drainer, hit 3 of 3 times"), "{said}");
}

#[test]
fn ways_to_both_servers_fail_and_heal_and_nothing_is_lost() {
    let faults = r#"
[[fault]]
kind = "cut"
target = "broker"
at = "500ms"
for = "200ms"

[[fault]]
kind = "stall"
target = "database"
at = "1500ms"
for = "500ms"

[[fault]]
kind = "latency"
target = "broker"
latency = "200ms"
jitter = "50ms"
at = "2500ms"
for = "500ms"

[[fault]]
kind = "bandwidth"
target = "database"
bandwidth = "5kB"
at = "3500ms"
for = "500ms"

[[fault]]
kind = "reset"
target = "broker"
after = "2KiB"
at = "4500ms"
for = "500ms"

[[fault]]
kind = "terminate"
rate = 4
at = "5200ms"
for = "500ms"
"#;
    let (code, said, record) = verify(faults, &[]);
    assert_eq!(code, Some(0), "{said}");
    nothing_lost(&record);
    for strike in &record.cells[0].faults {
        assert!(strike.hit, "{strike:?}");
    }
    assert_eq!(record.cells[0].faults.len(), 6);
}

#[test]
fn services_and_their_database_suffer_and_nothing_is_lost() {
    let faults = r#"
[[fault]]
kind = "late-commit"
at = "500ms"
for = "1s"

[[fault]]
kind = "held-xmin"
at = "500ms"
for = "2s"

[[fault]]
kind = "starve"
at = "3s"
for = "500ms"

[[fault]]
kind = "poison"
events = 20
at = "4s"
for = "1s"
"#;
    let (code, said, record) = verify(faults, &["--designs", "single-tx,lease"]);
    assert_eq!(code, Some(0), "{said}");
    nothing_lost(&record);
    for cell in &record.cells {
        assert_eq!(cell.faults.len(), 4, "{:?}", cell.faults);
        for strike in &cell.faults {
            assert!(strike.hit, "{}: {strike:?}", cell.label);
        }
        // Nothing passes a full batch of them: who waited longest waited for them to go.
        assert!(cell.metric("backlog.age_max").unwrap() >= 900.0, "{:?}", cell.metric("backlog.age_max"));
    }
}

#[test]
fn a_fault_that_never_hit_makes_a_run_invalid() {
    let faults = r#"
[[fault]]
kind = "reset"
target = "broker"
after = "1024MiB"
at = "1s"
for = "1s"
"#;
    let (code, said, record) = verify(faults, &["--set", "load.duration=3s"]);
    assert_eq!(code, Some(5), "{said}");
    assert!(!record.cells[0].faults[0].hit);
    assert!(said.contains("the reset of the broker never hit: 0 connections were reset"), "{said}");
}

/// What is broken heals when the harness is told to stop, and its report says what was broken.
#[test]
fn an_interrupt_heals_what_is_broken() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("out");
    let faults = "[[fault]]\nkind = \"pause\"\nat = \"500ms\"\nfor = \"1h\"\n";
    let text = format!("{FAULTY}{faults}").replace("duration = \"6s\"", "duration = \"10m\"");
    let mut child = drainbench()
        .arg("verify")
        .arg(scenario(dir.path(), &text))
        .arg("--out")
        .arg(&out)
        .stdout(std::process::Stdio::null())
        .spawn()
        .unwrap();
    let pid = child.id();
    wait_until("a drainer was stopped", 3 * SOON, || has_stopped_child(pid));
    let killed = Command::new("kill").args(["-TERM", &pid.to_string()]).status().unwrap();
    assert!(killed.success());
    assert_eq!(child.wait().unwrap().code(), Some(130));
    let record: Record =
        serde_json::from_str(&std::fs::read_to_string(out.join("record.json")).unwrap()).unwrap();
    let strike = &record.cells[0].faults[0];
    assert!(strike.hit && strike.kind == "pause", "{strike:?}");
    assert_eq!(record.cells[0].misconduct, Vec::<String>::new());
}

fn has_stopped_child(parent: u32) -> bool {
    let Ok(entries) = std::fs::read_dir("/proc") else { return false };
    entries.flatten().any(|entry| {
        let stat = std::fs::read_to_string(entry.path().join("stat")).unwrap_or_default();
        let Some((_, fields)) = stat.rsplit_once(") ") else { return false };
        let mut fields = fields.split(' ');
        fields.next() == Some("T") && fields.next() == Some(&parent.to_string())
    })
}

/// Every point of both designs, one after the other. A drainer that is killed there repeats at most a batch, and only where
/// something had been published.
#[test]
fn drainers_crash_at_every_point_and_nothing_is_lost() {
    for (design, points) in [
        ("single-tx", &["claim", "publish", "confirm", "mark", "commit"][..]),
        ("lease", &["claim", "publish", "confirm", "mark"]),
    ] {
        let mut faults = String::new();
        let mut at_ms = 500;
        for point in points {
            for when in ["before", "after"] {
                faults += &format!(
                    "[[fault]]\nkind = \"crash\"\npoint = \"{point}\"\nwhen = \"{when}\"\nat = \"{at_ms}ms\"\nfor = \"50ms\"\n"
                );
                at_ms += 1_500;
            }
        }
        let duration = format!("load.duration={}ms", at_ms + 500);
        let (code, said, record) = verify(&faults, &["--designs", design, "--set", &duration]);
        assert_eq!(code, Some(0), "{said}");
        nothing_lost(&record);
        let cell = &record.cells[0];
        assert_eq!(cell.faults.len(), points.len() * 2);
        for strike in &cell.faults {
            assert!(strike.hit, "{design}: {strike:?}");
        }
        // Before the first publish of a batch there is nothing to repeat; of the eight others each repeats a batch of 20.
        let most = 20 * (cell.faults.len() as u64 - 2);
        assert!(cell.audit.tally.duplicated <= most, "{design}: {:?}", cell.audit.tally);
        assert!(
            cell.audit.tally.duplicated > 0,
            "{design}: nothing was published twice: {:?}",
            cell.audit.tally
        );
    }
}

/// What is read on the wire and what is sampled are one thing seen twice.
#[test]
fn the_wire_and_the_sampler_agree_on_idle_in_transaction() {
    let settings =
        ["--designs", "single-tx,lease", "--set", "sampler.witness=true", "--set", "sampler.rate=100"];
    let (code, said, record) = verify("", &settings);
    assert_eq!(code, Some(0), "{said}");
    let [old, new] = record.cells.as_slice() else { panic!("{} cells", record.cells.len()) };
    assert_eq!((new.metric("idle_in_tx.exact_ms"), new.metric("idle_in_tx.rows")), (Some(0.0), Some(0.0)));
    let exact_ms = old.metric("idle_in_tx.exact_ms").unwrap();
    // Each made tick stands for its share of the cell.
    let missed = old.metric("sampler.missed").unwrap();
    let sampled_ms = old.metric("idle_in_tx.rows").unwrap() * 10.0 / (1.0 - missed);
    assert!(exact_ms > 1_000.0, "{exact_ms}");
    assert!((exact_ms - sampled_ms).abs() < 0.2 * exact_ms, "exact {exact_ms} ms, sampled {sampled_ms} ms");
}
