//! Drainers that do wrong on purpose are found out, each by the limit that is about it; an honest one is not.
//!
//! The quick ones run with all tests, the others in `make nightly`.

use harness::record::Record;

use crate::scenarios::{drainbench, said, scenario};

const FLOW: &str = "rate = 200\nwarm_up = \"0s\"\nduration = \"4s\"";
/// Large batches, so that there is always one on its way.
const BACKLOG: &str = "rate = 50\nwarm_up = \"0s\"\nduration = \"4s\"\nbacklog = 20000";

/// What one of them is run in.
struct Stage<'a> {
    load: &'a str,
    batch: u32,
    instances: u32,
    faults: &'a str,
    criterion: &'a str,
}

impl Stage<'_> {
    fn text(&self, sin: &str, share: &str) -> String {
        let Self { load, batch, instances, faults, criterion } = self;
        format!(
            r#"
name = "sabotage"
seed = 11

[load]
services = 1
drain_deadline = "8s"
keys = 10
{load}

[service]
pool = 3

[drainer]
placement = "process"
command = "drainbench saboteur {sin} {share}"
instances = {instances}
batch_size = {batch}
pipeline_depth = 5
lease_ttl = "2s"

[broker]
latency = "10ms"

[sampler]
max_missed = 0.9
witness = true

[validity]
lag_p99 = "5s"
sink_behind = "20s"

[[cell]]
label = "new"
role = "candidate"
design = "lease"

{faults}

{criterion}
"#
        )
    }
}

fn run(stage: &Stage<'_>, sin: &str, share: &str) -> (Option<i32>, String, Record) {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("out");
    let output = drainbench()
        .arg("verify")
        .arg(scenario(dir.path(), &stage.text(sin, share)))
        .arg("--out")
        .arg(&out)
        .output()
        .unwrap();
    let (stdout, stderr) = said(&output);
    let record = std::fs::read_to_string(out.join("record.json"));
    let record = record.unwrap_or_else(|error| panic!("{error}: {stdout}{stderr}"));
    (output.status.code(), stdout + &stderr, serde_json::from_str(&record).unwrap())
}

/// It fails by this metric's limit, and an honest drainer at the same place passes.
fn is_caught(stage: &Stage<'_>, sin: &str, shares: &[&str], metric: &str) {
    let (code, said, _) = run(stage, "nothing", "1");
    assert_eq!(code, Some(0), "an honest drainer was accused: {said}");
    for share in shares {
        let (code, said, record) = run(stage, sin, share);
        assert_eq!(code, Some(3), "{sin} {share} got away: {said}");
        let missed: Vec<&str> = record
            .verdict
            .criteria
            .iter()
            .filter(|judged| !judged.passed)
            .map(|judged| judged.metric.as_str())
            .collect();
        assert!(
            missed.contains(&metric),
            "{sin} {share} was caught by {missed:?} and not by {metric}: {said}"
        );
    }
}

const CUTS: &str =
    "[[fault]]\nkind = \"cut\"\ntarget = \"broker\"\nat = \"500ms\"\nfor = \"100ms\"\nevery = \"700ms\"\n";

fn limit(metric: &str) -> String {
    format!("[[criterion]]\nmetric = \"{metric}\"\nat_most = 0\n")
}

#[test]
fn one_that_publishes_twice() {
    let criterion = limit("audit.duplicated");
    let stage = Stage { load: FLOW, batch: 50, instances: 1, faults: "", criterion: &criterion };
    is_caught(&stage, "doubles", &["0.01"], "audit.duplicated");
}

#[test]
fn one_that_deletes_what_failed() {
    let stage = Stage { load: BACKLOG, batch: 500, instances: 1, faults: CUTS, criterion: "" };
    is_caught(&stage, "drops-failed", &["0.05"], "audit.lost");
}

#[test]
fn one_that_holds_a_transaction_while_it_publishes() {
    let criterion = limit("idle_in_tx.exact_ms");
    let stage = Stage { load: FLOW, batch: 50, instances: 1, faults: "", criterion: &criterion };
    is_caught(&stage, "holds-transaction", &["0.01"], "idle_in_tx.exact_ms");
}

#[test]
#[ignore = "takes long: make nightly"]
fn one_that_publishes_twice_in_all_shares() {
    let criterion = limit("audit.duplicated");
    let stage = Stage { load: BACKLOG, batch: 500, instances: 1, faults: "", criterion: &criterion };
    is_caught(&stage, "doubles", &["1", "0.01", "0.0001"], "audit.duplicated");
}

#[test]
#[ignore = "takes long: make nightly"]
fn one_that_deletes_what_failed_in_all_shares() {
    let stage = Stage { load: BACKLOG, batch: 500, instances: 1, faults: CUTS, criterion: "" };
    is_caught(&stage, "drops-failed", &["1", "0.01"], "audit.lost");
}

#[test]
#[ignore = "takes long: make nightly"]
fn one_that_holds_a_transaction_in_all_shares() {
    let criterion = limit("idle_in_tx.exact_ms");
    let stage = Stage { load: BACKLOG, batch: 500, instances: 1, faults: "", criterion: &criterion };
    is_caught(&stage, "holds-transaction", &["1", "0.01", "0.0001"], "idle_in_tx.exact_ms");
}

#[test]
#[ignore = "takes long: make nightly"]
fn one_that_marks_before_it_publishes() {
    let faults = "[[fault]]\nkind = \"crash\"\npoint = \"publish\"\nwhen = \"before\"\nat = \"200ms\"\nfor = \"50ms\"\nevery = \"600ms\"\n";
    let stage = Stage { load: BACKLOG, batch: 2_000, instances: 1, faults, criterion: "" };
    is_caught(&stage, "marks-early", &["1", "0.01"], "audit.lost");
}

#[test]
#[ignore = "takes long: make nightly"]
fn one_that_does_not_wait_for_confirms() {
    let faults = "[[fault]]\nkind = \"stall\"\ntarget = \"broker\"\nat = \"300ms\"\nfor = \"600ms\"\nevery = \"1s\"\n\
                  [[fault]]\nkind = \"cut\"\ntarget = \"broker\"\nat = \"800ms\"\nfor = \"150ms\"\nevery = \"1s\"\n";
    let stage = Stage { load: BACKLOG, batch: 1_000, instances: 1, faults, criterion: "" };
    is_caught(&stage, "no-confirms", &["1", "0.01"], "audit.lost");
}

#[test]
#[ignore = "takes long: make nightly"]
fn one_that_counts_an_outage_as_a_failure_of_the_event() {
    let faults =
        "[[fault]]\nkind = \"reset\"\ntarget = \"broker\"\nafter = \"16KiB\"\nat = \"200ms\"\nfor = \"2s\"\n";
    let stage = Stage { load: BACKLOG, batch: 500, instances: 1, faults, criterion: "" };
    is_caught(&stage, "counts-outages", &["1", "0.01"], "audit.lost");
}

#[test]
#[ignore = "takes long: make nightly"]
fn one_that_skips_what_was_committed_late() {
    let faults = "[[fault]]\nkind = \"late-commit\"\nat = \"200ms\"\nfor = \"150ms\"\nevery = \"200ms\"\n";
    let stage = Stage { load: FLOW, batch: 50, instances: 1, faults, criterion: "" };
    is_caught(&stage, "cursor", &["1", "0.2"], "audit.waiting");
}

#[test]
#[ignore = "takes long: make nightly"]
fn one_that_publishes_out_of_order() {
    let criterion = limit("audit.reordered");
    let stage = Stage { load: BACKLOG, batch: 500, instances: 1, faults: "", criterion: &criterion };
    is_caught(&stage, "reorders", &["1", "0.01", "0.0001"], "audit.reordered");
}

#[test]
#[ignore = "takes long: make nightly"]
fn one_that_takes_what_another_has_claimed() {
    let criterion = limit("audit.duplicated");
    let stage = Stage { load: BACKLOG, batch: 200, instances: 2, faults: "", criterion: &criterion };
    is_caught(&stage, "ignores-leases", &["1", "0.05"], "audit.duplicated");
}

#[test]
#[ignore = "takes long: make nightly"]
fn one_that_stops_for_ever() {
    let stage = Stage { load: BACKLOG, batch: 500, instances: 1, faults: "", criterion: "" };
    is_caught(&stage, "stalls", &["1", "0.01", "0.0001"], "audit.waiting");
}

#[test]
#[ignore = "takes long: make nightly"]
fn one_that_burns_a_core_while_it_has_nothing_to_do() {
    let load = "rate = 5\nwarm_up = \"0s\"\nduration = \"5s\"";
    let criterion = "[[criterion]]\nmetric = \"drainer.cpu\"\nat_most = 0.3\n";
    let stage = Stage { load, batch: 50, instances: 1, faults: "", criterion };
    is_caught(&stage, "burns", &["1"], "drainer.cpu");
}
