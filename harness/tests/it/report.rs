//! What people read of a record, and the verb that renders it.

use std::{fs, process::Command};

use crate::by_hand::{cells, experiment, record, scenario};
use harness::{
    record::Record,
    report::{Look, junit, markdown, results_table, terminal},
    verdict::{ReasonKind, judge},
};

const PLAIN: Look = Look { width: 100, colour: false };

/// A candidate that fails, a symptom that does not show, and a loss.
fn bad() -> Record {
    let mut scenario = scenario();
    scenario.cells[2].design = scenario.cells[1].design;
    scenario.cells[1].design = harness::scenario::CellDesign::Lease;
    let cells = cells(&scenario);
    let verdict =
        judge(&scenario, &cells, &[]).because(ReasonKind::Environment, "`new`: the broker went away");
    record(&scenario, &cells, verdict, None)
}

#[test]
fn for_a_terminal() {
    insta::assert_snapshot!("terminal", terminal(&experiment(), PLAIN));
    insta::assert_snapshot!("terminal_bad", terminal(&bad(), PLAIN));
}

#[test]
fn a_narrow_terminal_gets_several_tables() {
    let text = terminal(&experiment(), Look { width: 56, colour: false });
    for line in text.lines() {
        assert!(line.chars().count() <= 56, "{line}");
    }
    assert_eq!(text.matches("persist p99 ").count(), 3);
}

#[test]
fn the_verdict_is_the_last_line_and_colour_is_only_there_when_asked_for() {
    let plain = terminal(&experiment(), PLAIN);
    assert_eq!(plain.lines().last(), Some("PASS: every criterion holds (exit code 0)"));
    assert!(!plain.contains('\x1b'));
    let coloured = terminal(&experiment(), Look { colour: true, ..PLAIN });
    assert!(coloured.contains("\x1b[1m\x1b[32mPASS\x1b[0m: every criterion holds"));
    let bare = regexless(&coloured);
    assert_eq!(bare, plain, "colour changes nothing else");
}

/// Without escape sequences.
fn regexless(text: &str) -> String {
    let mut bare = String::new();
    let mut inside = false;
    for letter in text.chars() {
        match (inside, letter) {
            (false, '\x1b') => inside = true,
            (false, letter) => bare.push(letter),
            (true, 'm') => inside = false,
            (true, _) => {}
        }
    }
    bare
}

#[test]
fn as_markdown() {
    insta::assert_snapshot!("markdown", markdown(&experiment()));
    insta::assert_snapshot!("markdown_bad", markdown(&bad()));
}

#[test]
fn as_junit() {
    insta::assert_snapshot!("junit", junit(&experiment()).expect("XML"));
    insta::assert_snapshot!("junit_bad", junit(&bad()).expect("XML"));
}

#[test]
fn as_a_results_table() {
    insta::assert_snapshot!("results", results_table(&experiment()));
}

#[test]
fn several_rounds_show_the_median_and_the_range() {
    let mut scenario = scenario();
    scenario.rounds = std::num::NonZeroU32::MIN.saturating_add(2);
    let persist = harness::metric::Metric::lookup("persist.p99").expect("a metric");
    let mut all = Vec::new();
    for (round, p99) in [(1, 20.0), (2, 60.0), (3, 30.0)] {
        let mut cells = cells(&scenario);
        for cell in &mut cells {
            cell.round = round;
        }
        cells[2].measurements.metrics.insert(persist, p99);
        all.extend(cells);
    }
    let record = record(&scenario, &all, judge(&scenario, &all, &[]), None);
    assert!(!record.partial);
    let text = terminal(&record, Look { width: 160, colour: false });
    assert!(text.contains("30 [20–60] ms ± < 50"), "{text}");
    assert!(text.contains("of the rounds: median [least–most]"), "{text}");
    assert!(text.contains("± holds in the median and not in every round"), "{text}");
    assert!(text.contains("rounds disagree on persist.p99 < 50 ms in `new`"), "{text}");
    assert!(markdown(&record).contains("`new`, round 3"));
}

#[test]
fn a_record_without_cells_can_be_read() {
    let scenario = scenario();
    let verdict = judge(&scenario, &[], &["fsync is off: nothing measured would mean anything".to_owned()]);
    let record = record(&scenario, &[], verdict, None);
    let text = terminal(&record, PLAIN);
    assert!(text.contains("invalid: fsync is off"), "{text}");
    assert!(text.ends_with("INVALID: the numbers do not mean what they should (exit code 5)\n"), "{text}");
    assert!(markdown(&record).contains("- invalid: fsync is off"));
    assert!(junit(&record).expect("XML").contains("type=\"invalid\""));
    assert!(results_table(&record).contains("**INVALID**"));
}

fn report(arguments: &[&str]) -> (Option<i32>, String, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_drainbench"))
        .arg("report")
        .args(arguments)
        .env("COLUMNS", "100")
        .output()
        .expect("drainbench starts");
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("UTF-8");
    (output.status.code(), text(output.stdout), text(output.stderr))
}

#[test]
fn the_verb_renders_a_file_or_a_folder() {
    let dir = tempfile::tempdir().expect("a folder");
    let path = bad().write(dir.path()).expect("written");
    let (folder, file) = (dir.path().to_str().expect("UTF-8"), path.to_str().expect("UTF-8"));
    let (code, stdout, stderr) = report(&[folder]);
    assert_eq!((code, stderr.as_str()), (Some(0), ""), "the record's verdict is not this command's");
    assert_eq!(stdout, terminal(&bad(), PLAIN));
    assert_eq!(report(&[file, "--format", "markdown"]).1, markdown(&bad()));
    assert_eq!(report(&[file, "--format", "junit"]).1, junit(&bad()).expect("XML"));
    assert_eq!(report(&[file, "--format", "json"]).1, bad().to_json().expect("JSON"));
    assert_eq!(report(&[file, "--check"]).0, Some(0));
}

#[test]
fn the_verb_writes_between_the_markers() {
    let dir = tempfile::tempdir().expect("a folder");
    experiment().write(dir.path()).expect("written");
    let readme = dir.path().join("README.md");
    let (folder, path) = (dir.path().to_str().expect("UTF-8"), readme.to_str().expect("UTF-8"));
    fs::write(&readme, "# Title\n\n<!-- results:begin -->\n<!-- results:end -->\n\nEnd.\n").expect("written");
    assert_eq!(report(&[folder, "--into", path]).0, Some(0));
    let text = fs::read_to_string(&readme).expect("read");
    assert!(text.starts_with("# Title\n") && text.ends_with("\nEnd.\n"));
    assert!(text.contains(results_table(&experiment()).trim_end()));

    fs::write(&readme, "nothing here\n").expect("written");
    let (code, _, stderr) = report(&[folder, "--into", path]);
    assert_eq!(code, Some(1));
    assert!(stderr.contains("needs `<!-- results:begin -->`"), "{stderr}");
    assert_eq!(fs::read_to_string(&readme).expect("read"), "nothing here\n");
}

#[test]
fn bad_input_is_exit_code_1() {
    let dir = tempfile::tempdir().expect("a folder");
    let path = dir.path().join("record.json");
    let file = path.to_str().expect("UTF-8");
    let (code, stdout, stderr) = report(&[file]);
    assert_eq!((code, stdout.as_str()), (Some(1), ""));
    assert!(stderr.contains("cannot read"), "{stderr}");
    fs::write(&path, "{\"format\": 1, \"tool\"").expect("written");
    assert!(report(&[file]).2.contains("is not a whole record"));

    let mut record = experiment();
    record.cells[0].metrics.insert("persist.p99".to_owned(), 1.0);
    record.write(dir.path()).expect("written");
    let (code, _, stderr) = report(&[file, "--check"]);
    assert_eq!(code, Some(1));
    assert!(stderr.contains("cell `control`, round 1: persist.p99 is 1 and comes to"), "{stderr}");
    let (code, _, stderr) = report(&[file, "--format", "html"]);
    assert_eq!(code, Some(1));
    assert!(stderr.contains("no HTML report"), "{stderr}");
}
