//! Records: their schema, their file, and that they prove themselves.

use std::{fs, path::Path};

use crate::by_hand::{experiment, scenario};
use harness::{
    history::Outcome as WriteOutcome,
    ledger::synthetic::{Builder, MS, SECOND, cell},
    measure::measure,
    record::{FORMAT, Record, RecordError, recompute},
    scenario::{CellDesign, Role},
    verdict::{Cut, MeasuredCell, judge},
};
use proptest::prelude::*;

const SCHEMA: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/record.schema.json");

/// `UPDATE_SCHEMA=1 cargo test -p harness --test it record` writes it anew.
#[test]
fn the_schema_file_is_current() {
    let mut current = serde_json::to_string_pretty(&Record::schema()).expect("a schema is JSON");
    current.push('\n');
    if std::env::var_os("UPDATE_SCHEMA").is_some() {
        fs::write(SCHEMA, &current).expect("the schema can be written");
    }
    let stored = fs::read_to_string(SCHEMA).expect("the schema is there");
    assert!(stored == current, "run UPDATE_SCHEMA=1 cargo test -p harness --test record");
}

fn errors(record: &Record) -> Vec<String> {
    let schema: serde_json::Value =
        serde_json::from_str(&fs::read_to_string(SCHEMA).expect("the schema is there")).expect("JSON");
    let validator = jsonschema::validator_for(&schema).expect("a schema");
    let json = serde_json::to_value(record).expect("a record is JSON");
    validator.iter_errors(&json).map(|error| format!("{}: {error}", error.instance_path())).collect()
}

#[test]
fn records_validate_against_the_schema() {
    assert_eq!(errors(&experiment()), Vec::<String>::new());
    let scenario = scenario();
    let rigless =
        crate::by_hand::record(&scenario, &[], judge(&scenario, &[], &["fsync is off".to_owned()]), None);
    assert_eq!(errors(&rigless), Vec::<String>::new());
    assert!(rigless.partial);
}

#[test]
fn the_schema_can_fail() {
    let mut json = serde_json::to_value(experiment()).expect("a record is JSON");
    let validator = jsonschema::validator_for(&Record::schema()).expect("a schema");
    assert!(validator.is_valid(&json));
    json["cells"][0]["metrics"]["persist.p99"] = "fast".into();
    assert!(!validator.is_valid(&json));
}

#[test]
fn a_record_survives_its_file() {
    let dir = tempfile::tempdir().expect("a folder");
    let inner = dir.path().join("made/by/write");
    let record = experiment();
    let path = record.write(&inner).expect("it can be written");
    assert_eq!(path, inner.join("record.json"));
    let read = Record::read(&inner).expect("a folder is enough");
    assert_eq!(read.to_json().expect("JSON"), record.to_json().expect("JSON"));
    assert_eq!(recompute(&read), []);
    record.write(&inner).expect("over the first");
    let left: Vec<_> =
        fs::read_dir(&inner).expect("a folder").map(|entry| entry.expect("an entry").file_name()).collect();
    assert_eq!(left, ["record.json"], "no half of a file is left");
}

#[test]
fn every_field_of_the_contract_is_there() {
    let json = serde_json::to_value(experiment()).expect("a record is JSON");
    for field in ["format", "tool", "started_at", "command", "scenario", "machine", "rig", "cells", "verdict"]
    {
        assert!(json.get(field).is_some(), "{field}");
    }
    for field in [
        "label",
        "design",
        "role",
        "round",
        "window",
        "counts",
        "metrics",
        "histograms",
        "series",
        "waits",
        "audit",
        "faults",
    ] {
        assert!(json["cells"][1].get(field).is_some(), "cells[].{field}");
    }
    for field in ["metric", "limit", "value", "passed"] {
        assert!(json["verdict"]["criteria"][0].get(field).is_some(), "verdict.criteria[].{field}");
    }
    assert_eq!(json["format"], 1);
    assert_eq!(json["verdict"]["outcome"], "PASS");
    assert_eq!(json["cells"][1]["audit"]["lost"], 0);
    assert!(json["cells"][1]["metrics"]["persist.p99"].is_number());
}

#[test]
fn a_record_proves_itself() {
    assert_eq!(recompute(&experiment()), []);
}

#[test]
fn what_was_tampered_with_is_found() {
    type Change = fn(&mut Record);
    let cases: [(&str, Change); 9] = [
        ("persist.p99 is 1 and comes to", |record| {
            record.cells[0].metrics.insert("persist.p99".to_owned(), 1.0);
        }),
        ("persist.p99_worst_service is 1 and comes to", |record| {
            record.cells[0].metrics.insert("persist.p99_worst_service".to_owned(), 1.0);
        }),
        ("committed events = delivered + waiting + dead + lost does not hold", |record| {
            record.cells[1].audit.tally.delivered -= 1;
        }),
        ("scheduled = committed + rolled back + failed + unsure does not hold", |record| {
            record.cells[0].counts.scheduled += 1;
        }),
        ("audit.lost is 3 and comes to 0", |record| {
            record.cells[1].metrics.insert("audit.lost".to_owned(), 3.0);
        }),
        ("the services' histograms together are not the merged one", |record| {
            if let Some(times) = record.cells[1].histograms.values_mut().next() {
                times.services.pop_first();
            }
        }),
        ("a histogram cannot be read", |record| {
            if let Some(times) = record.cells[1].histograms.values_mut().next() {
                times.merged.truncate(12);
            }
        }),
        ("the series are of different lengths", |record| {
            record.cells[0].series.backlog.pop();
        }),
        ("persist.p99 has no histogram", |record| record.cells[0].histograms.clear()),
    ];
    for (expected, change) in cases {
        let mut record = experiment();
        change(&mut record);
        let wrong: Vec<String> = recompute(&record).iter().map(ToString::to_string).collect();
        assert!(wrong.iter().any(|what| what.contains(expected)), "{expected}: {wrong:#?}");
    }
}

#[test]
fn a_newer_format_names_the_version_that_reads_it() {
    let mut json = serde_json::to_value(experiment()).expect("a record is JSON");
    json["format"] = (FORMAT + 1).into();
    json["tool"]["version"] = "9.1.0".into();
    // A later format may look like nothing we know.
    json.as_object_mut().expect("an object").remove("cells");
    let error = Record::parse(&json.to_string(), Path::new("x/record.json")).expect_err("it is newer");
    assert!(matches!(error, RecordError::Newer { format: 2, .. }), "{error:?}");
    let text = error.to_string();
    assert!(
        text.contains("x/record.json has format 2") && text.contains("drainbench 9.1.0 or newer"),
        "{text}"
    );
}

#[test]
fn an_unknown_field_of_the_same_format_is_passed_over() {
    let mut json = serde_json::to_value(experiment()).expect("a record is JSON");
    json["later"] = true.into();
    assert!(Record::parse(&json.to_string(), Path::new("r")).is_ok());
}

#[test]
fn what_is_no_record_says_so() {
    let whole = experiment().to_json().expect("JSON");
    let parse = |text: &str| Record::parse(text, Path::new("r.json")).expect_err("no record").to_string();
    assert!(parse(&whole[..whole.len() / 2]).starts_with("r.json is not a whole record"), "cut off");
    assert!(parse("").starts_with("r.json is not a whole record"));
    assert!(parse("hello").starts_with("r.json is not a whole record"));
    assert!(parse("{\"format\": 0}").contains("format 0 does not exist"));
    assert!(parse("{\"format\": 1}").starts_with("r.json is no record of drainbench: missing field"));
    assert!(parse("{\"name\": \"x\"}").contains("missing field `format`"));
    let missing = Record::read(Path::new("/nonexistent/record.json")).expect_err("no file").to_string();
    assert!(missing.starts_with("cannot read /nonexistent/record.json: "), "{missing}");
}

#[test]
fn an_interrupted_record_is_partial() {
    let scenario = scenario();
    let mut cells = crate::by_hand::cells(&scenario);
    cells.truncate(1);
    cells[0].cut = Some(Cut::Interrupted);
    let verdict = judge(&scenario, &cells, &[]);
    let record = crate::by_hand::record(&scenario, &cells, verdict, None);
    assert!(record.partial);
    assert_eq!(record.verdict.exit_code, 130);
    assert_eq!(errors(&record), Vec::<String>::new());
    assert_eq!(recompute(&record), []);
    assert!(!experiment().partial);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Whatever happened, the record of it proves itself.
    #[test]
    fn the_record_of_any_history_proves_itself(
        writes in prop::collection::vec((0u16..3, 0u64..12_000, 0u64..40_000, 0u8..6), 0..80),
        arrivals in prop::collection::vec((0u16..3, 0u32..40, 0u64..20_000, 0u64..3), 0..120),
        none in any::<bool>(),
    ) {
        let mut builder = Builder::new(3);
        for (service, due, took, how) in writes {
            let outcome = match how {
                0 => WriteOutcome::Failed,
                1 => WriteOutcome::Unsure,
                2 => WriteOutcome::RolledBack,
                _ => WriteOutcome::Committed,
            };
            let (from, took) = (due * MS, took * MS / 10);
            builder.write(service, [from, from + took / 9, from + took / 5, from + took / 2, from + took], outcome);
        }
        for (service, write, at, publish) in arrivals {
            builder.arrive(service, write, 0, at * MS, publish);
        }
        let cell = cell("any", Some(Role::Candidate), if none { CellDesign::None } else { CellDesign::Lease });
        let history = builder.with(|history| history.window_ns = SECOND..10 * SECOND).build();
        let measured = MeasuredCell {
            label: cell.label.clone(),
            role: cell.role,
            design: cell.design,
            round: 1,
            measurements: measure(&history, &cell, None),
            troubles: Vec::new(),
            void: Vec::new(),
            misconduct: Vec::new(),
            cut: None,
        };
        let mut scenario = scenario();
        scenario.cells = vec![cell];
        let cells = [measured];
        let verdict = judge(&scenario, &cells, &[]);
        let record = crate::by_hand::record(&scenario, &cells, verdict, None);
        let json = record.to_json().expect("JSON");
        let read = Record::parse(&json, Path::new("r")).expect("its own reader reads it");
        prop_assert_eq!(recompute(&read), vec![]);
        prop_assert_eq!(read.to_json().expect("JSON"), json);
    }
}
