use std::{collections::BTreeMap, time::Duration};

use miette::GraphicalReportHandler;

use super::*;

const README: &str = include_str!("../../../scenarios/README.md");

/// A scenario that is valid, to make wrong ones from.
const VALID: &str = r#"name = "mine"

[load]
services = 2
rate = 100
duration = "10s"

[drainer]
batch_size = 100

[suite]
cases = 50

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
above = 1000

[[criterion]]
metric = "persist.p99"
below = 50
"#;

fn set(pairs: &[(&str, &str)]) -> Overrides {
    let set = pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
    Overrides { set, ..Overrides::default() }
}

fn designs(designs: &[&str]) -> Overrides {
    let designs = designs.iter().map(|design| (*design).to_owned()).collect();
    Overrides { designs: Some(designs), ..Overrides::default() }
}

fn valid(overrides: &Overrides) -> Scenario {
    load("mine.toml", VALID, overrides).expect("valid")
}

/// What a person sees, without colours.
fn rendered(error: &ScenarioError) -> String {
    let mut text = String::new();
    GraphicalReportHandler::new_themed(miette::GraphicalTheme::unicode_nocolor())
        .with_width(110)
        .render_report(&mut text, error)
        .expect("a string takes everything");
    text.lines().map(str::trim_end).collect::<Vec<_>>().join("\n")
}

fn wrong(text: &str) -> String {
    rendered(&load("mine.toml", text, &Overrides::default()).expect_err("wrong"))
}

/// The valid scenario with `from` made `to`.
fn changed(from: &str, to: &str) -> String {
    assert_eq!(VALID.matches(from).count(), 1, "{from}");
    wrong(&VALID.replace(from, to))
}

fn wrong_override(overrides: &Overrides) -> String {
    rendered(&load("mine.toml", VALID, overrides).expect_err("wrong"))
}

#[test]
fn every_shipped_scenario_loads_under_its_name() {
    for (name, text) in SHIPPED {
        let scenario = load(name, text, &Overrides::default()).unwrap_or_else(|error| panic!("{}", rendered(&error)));
        assert_eq!(scenario.name, name);
        assert!(!scenario.about.is_empty(), "{name}");
        assert_eq!(scenario.text, text);
        let roles: Vec<_> = scenario.cells.iter().map(|cell| cell.role).collect();
        assert_eq!(roles, [Some(Role::Control), Some(Role::Baseline), Some(Role::Candidate)], "{name}");
        assert!(!scenario.symptoms.is_empty() && !scenario.criteria.is_empty(), "{name}");
    }
}

#[test]
fn the_workspace_is_the_one_of_the_design() {
    let (_, text) = find("workspace").expect("shipped");
    let scenario = load("workspace", &text, &Overrides::default()).expect("valid");
    let settings = &scenario.cells[1].settings;
    assert_eq!((scenario.seed, scenario.rounds.get()), (477, 1));
    assert_eq!((settings.load.services, settings.load.rate), (19, Some(400.0)));
    assert_eq!(settings.service.pool.get(), 1);
    assert_eq!(settings.broker.latency, Duration::from_millis(67));
    assert_eq!(settings.suite.cases, 1725);
    assert_eq!(scenario.symptoms.len(), 3);
    assert_eq!(scenario.criteria.len(), 4);
    let limit = &scenario.criteria[0].limit;
    assert_eq!((limit.op, limit.value, limit.times.as_deref()), (Op::Below, 50.0, None));
    assert_eq!(scenario.criteria[2].limit.op, Op::AtMost);
    assert_eq!(scenario.symptoms[2].metric.name(), "suite.failed");
}

#[test]
fn smoke_takes_about_twenty_seconds() {
    let (_, text) = find("smoke").expect("shipped");
    let scenario = load("smoke", &text, &Overrides::default()).expect("valid");
    let at_least = scenario.planned_seconds().0;
    assert!((12.0..18.0).contains(&at_least), "{at_least} s and the old drainer's drain of about 5 s");
}

#[test]
fn a_folder_path_wins_and_an_unknown_name_lists_what_there_is() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("smoke");
    std::fs::write(&path, VALID).expect("written");
    let path = path.to_str().expect("UTF-8");
    assert_eq!(find(path).expect("a file"), (path.to_owned(), VALID.to_owned()));
    let error = find("workspaces").expect_err("no such scenario");
    insta::assert_snapshot!(rendered(&error), @"");
    assert!(matches!(find(folder.path().to_str().expect("UTF-8")), Err(ScenarioError::Read { .. })));
}

/// The README's table rows: key, unit, default.
fn documented() -> BTreeMap<String, String> {
    let rows = README.lines().filter(|line| line.starts_with("| `") && !line.starts_with("| `smoke"));
    rows.map(|row| row.split('|').map(str::trim).collect::<Vec<_>>())
        .filter(|cells| cells.len() == 6)
        .map(|cells| (cells[1].trim_matches('`').to_owned(), cells[3].trim_matches('`').to_owned()))
        .collect()
}

#[test]
fn the_readme_names_every_key_and_no_other() {
    let mut keys = keys::all();
    keys.sort();
    assert_eq!(documented().into_keys().collect::<Vec<_>>(), keys);
}

#[test]
fn the_readmes_defaults_are_the_defaults() {
    let mut overrides = Overrides::default();
    for (key, default) in documented() {
        let in_a_list = ["cell.", "symptom.", "criterion."].iter().any(|list| key.starts_with(list));
        if !in_a_list && !["none", "required"].contains(&default.as_str()) {
            overrides.set.push((key, default));
        }
    }
    assert!(overrides.set.len() > 30, "{overrides:?}");
    let bare = "name = \"mine\"\n[load]\nrate = 1\n[[cell]]\nlabel = \"new\"\ndesign = \"lease\"\n";
    let written = load("mine.toml", bare, &overrides).unwrap_or_else(|error| panic!("{}", rendered(&error)));
    let mut default = Settings::default();
    default.load.rate = Some(1.0);
    let json = |settings: &Settings| serde_json::to_value(settings).expect("JSON");
    assert_eq!(json(&written.cells[0].settings), json(&default));
    let left_out = load("mine.toml", bare, &Overrides::default()).expect("valid");
    assert_eq!(json(&left_out.cells[0].settings), json(&default));
    assert_eq!((left_out.seed, left_out.rounds.get(), left_out.about.as_str()), (1, 1, ""));
    assert_eq!((written.seed, written.rounds.get(), written.about.as_str()), (1, 1, ""));
}

#[test]
fn a_cell_overrides_any_key_and_only_for_itself() {
    let text = VALID.replace("design = \"lease\"\n", "design = \"lease\"\ndrainer.batch_size = 1000\nload.keys = 5\n");
    let scenario = load("mine.toml", &text, &Overrides::default()).expect("valid");
    let of = |label| &scenario.cell(label).expect("a cell").settings;
    assert_eq!((of("new").drainer.batch_size.get(), of("new").load.keys), (1000, 5));
    assert_eq!((of("old").drainer.batch_size.get(), of("old").load.keys), (100, 1000));
    // An override of the command line is the file's, so the cell's own still wins.
    let scenario = load("mine.toml", &text, &set(&[("drainer.batch_size", "7")])).expect("valid");
    let sizes: Vec<u32> = scenario.cells.iter().map(|cell| cell.settings.drainer.batch_size.get()).collect();
    assert_eq!(sizes, [7, 7, 1000]);
}

#[test]
fn overrides_are_read_as_toml_or_as_words_and_recorded() {
    let mut overrides =
        set(&[("load.rate", "12.5"), ("load.duration", "20s"), ("drainer.placement", "process"), ("load.rate", "20")]);
    overrides.seed = Some(9);
    overrides.rounds = Some(3);
    let scenario = valid(&overrides);
    let settings = &scenario.cells[0].settings;
    assert_eq!(settings.load.rate, Some(20.0));
    assert_eq!(settings.load.duration, Duration::from_secs(20));
    assert_eq!(settings.drainer.placement, Placement::Process);
    assert_eq!((scenario.seed, scenario.rounds.get()), (9, 3));
    let added = scenario.text.strip_prefix(VALID).expect("the file comes first");
    insta::assert_snapshot!(added, @"");
    // What is added is comments: the text is TOML still.
    load("mine.toml", &scenario.text, &Overrides::default()).expect("valid");
    assert_ne!(scenario.hash, valid(&Overrides::default()).hash);
    assert_eq!(scenario.hash.len(), 64);
}

#[test]
fn designs_replace_the_cells_and_the_control_stays() {
    let cells = |overrides: &Overrides| -> Vec<(String, Option<Role>, &str)> {
        let scenario = load("mine.toml", VALID, overrides).unwrap_or_else(|error| panic!("{}", rendered(&error)));
        scenario.cells.into_iter().map(|cell| (cell.label, cell.role, cell.design.name())).collect()
    };
    let control = || ("control".to_owned(), Some(Role::Control), "none");
    let cell = |label: &str, role, design| (label.to_owned(), role, design);
    assert_eq!(
        cells(&designs(&["lease", "raw", "single-tx"])),
        [
            control(),
            cell("lease", Some(Role::Baseline), "lease"),
            cell("raw", None, "raw"),
            cell("single-tx", Some(Role::Candidate), "single-tx"),
        ]
    );
    assert_eq!(
        cells(&designs(&["lease", "lease"])),
        [control(), cell("lease", Some(Role::Baseline), "lease"), cell("lease-2", Some(Role::Candidate), "lease")]
    );
    assert_eq!(cells(&designs(&["raw"])), [control(), cell("raw", Some(Role::Candidate), "raw")]);
    assert_eq!(cells(&designs(&["none"])), [control(), cell("none", None, "none")]);
}

#[test]
fn one_design_is_held_to_the_criteria_and_to_no_symptom() {
    let one = valid(&designs(&["single-tx"]));
    assert_eq!((one.symptoms.len(), one.criteria.len()), (0, 1));
    let undrained = valid(&designs(&["none"]));
    assert_eq!((undrained.symptoms.len(), undrained.criteria.len()), (0, 0));
}

#[test]
fn limits_may_be_multiples_and_speak_of_one_cell() {
    let text = VALID.replace("below = 50", "at_least = 10\ntimes = \"old\"\ncell = \"new\"");
    let scenario = load("mine.toml", &text, &Overrides::default()).expect("valid");
    let expectation = &scenario.criteria[0];
    assert_eq!(expectation.cell.as_deref(), Some("new"));
    assert_eq!(expectation.limit, Limit { op: Op::AtLeast, value: 10.0, times: Some("old".to_owned()) });
}

#[test]
fn connections_are_counted_per_cell() {
    // Two services of 5, an inspector each, the sampler and three of ours.
    assert_eq!(valid(&Overrides::default()).connections_needed(), 2 * 5 + 2 + 1 + 3);
    let process = valid(&set(&[("drainer.placement", "process"), ("drainer.instances", "3")]));
    let needed: Vec<u32> = process.cells.iter().map(Cell::connections_needed).collect();
    // Three drainers of two connections each, where somebody drains.
    assert_eq!(needed, [16, 28, 28]);
    assert_eq!(process.connections_needed(), 28);
}

#[test]
fn settings_stand_in_records_as_in_scenarios() {
    let scenario = valid(&set(&[("load.arrivals", "burst"), ("load.burst_every", "500ms")]));
    let cell = serde_json::to_value(&scenario.cells[2]).expect("JSON");
    assert_eq!(cell["design"], "lease");
    assert_eq!(cell["role"], "candidate");
    assert_eq!(cell["load"]["arrivals"], serde_json::json!({"kind": "burst", "every": "500ms"}));
    assert_eq!(cell["drainer"]["lease_ttl"], "30s");
}

#[test]
fn an_unknown_key_names_its_line_and_the_nearest() {
    insta::assert_snapshot!(changed("rate = 100", "ratee = 100"), @"");
    insta::assert_snapshot!(changed("batch_size", "batchsize"), @"");
    insta::assert_snapshot!(changed("cases = 50", "pool = 50"), @"");
    insta::assert_snapshot!(changed("[suite]", "[suit]"), @"");
    insta::assert_snapshot!(changed("above = 1000", "over = 1000"), @"");
    insta::assert_snapshot!(changed("role = \"control\"", "load.rat = 1"), @"");
}

#[test]
fn a_wrong_unit_or_number_names_the_rule_and_the_way_out() {
    insta::assert_snapshot!(changed("duration = \"10s\"", "duration = 10"), @"");
    insta::assert_snapshot!(changed("duration = \"10s\"", "duration = \"10sec\""), @"");
    insta::assert_snapshot!(changed("duration = \"10s\"", "duration = \"0s\""), @"");
    insta::assert_snapshot!(changed("rate = 100", "rate = 0"), @"");
    insta::assert_snapshot!(changed("rate = 100", "payload = 340"), @"");
    insta::assert_snapshot!(changed("batch_size = 100", "batch_size = 0"), @"");
    insta::assert_snapshot!(changed("rate = 100", "rate = 100\nrollback_share = \"120%\""), @"");
    insta::assert_snapshot!(changed("services = 2", "services = 4097"), @"");
    insta::assert_snapshot!(changed("below = 50", "below = \"50ms\""), @"");
}

#[test]
fn an_unknown_name_offers_what_there_is() {
    insta::assert_snapshot!(changed("metric = \"persist.p99\"\nabove", "metric = \"persist.p95\"\nabove"), @"");
    insta::assert_snapshot!(changed("design = \"lease\"", "design = \"leese\""), @"");
    insta::assert_snapshot!(changed("design = \"lease\"", "design = \"partitioned\""), @"");
    insta::assert_snapshot!(changed("role = \"candidate\"", "role = \"winner\""), @"");
    insta::assert_snapshot!(changed("below = 50", "below = 50\ncell = \"nev\""), @"");
    insta::assert_snapshot!(changed("below = 50", "below = 1.5\ntimes = \"older\""), @"");
}

#[test]
fn relations_are_proved() {
    insta::assert_snapshot!(changed("batch_size = 100", "lease_ttl = \"5s\""), @"");
    insta::assert_snapshot!(changed("batch_size = 100", "pipeline_depth = 101"), @"");
    insta::assert_snapshot!(changed("cases = 50", "cases = 1725"), @"");
    insta::assert_snapshot!(changed("label = \"new\"", "label = \"old\""), @"");
    insta::assert_snapshot!(changed("design = \"none\"", "design = \"none\"\nload.rate = 50"), @"");
    insta::assert_snapshot!(changed("role = \"candidate\"\n", ""), @"");
    insta::assert_snapshot!(changed("role = \"baseline\"", "role = \"candidate\""), @"");
    insta::assert_snapshot!(changed("role = \"baseline\"\ndesign = \"single-tx\"", "role = \"baseline\"\ndesign = \"none\""), @"");
    insta::assert_snapshot!(changed("role = \"baseline\"", "role = \"control\""), @"");
    insta::assert_snapshot!(changed("rate = 100\n", ""), @"");
    insta::assert_snapshot!(changed("rate = 100", "rate = 0.01"), @"");
    insta::assert_snapshot!(changed("rate = 100", "rate = 100\narrivals = \"burst\""), @"");
    insta::assert_snapshot!(changed("rate = 100", "rate = 100\nramp_from = 1"), @"");
    insta::assert_snapshot!(changed("below = 50", "below = 50\nat_most = 60"), @"");
    insta::assert_snapshot!(changed("below = 50\n", ""), @"");
    insta::assert_snapshot!(changed("name = \"mine\"", "name = \"My scenario\""), @"");
    insta::assert_snapshot!(changed("name = \"mine\"\n", ""), @"");
    insta::assert_snapshot!(wrong("name = \"mine\"\nload.rate = 1\n"), @"");
    insta::assert_snapshot!(wrong("name = \"mine\"\nload = 1\n"), @"");
    insta::assert_snapshot!(wrong("name = \"mine\"\n[cell]\nlabel = \"new\"\n"), @"");
    insta::assert_snapshot!(wrong("name = \"mine\"\n[load\n"), @"");
}

#[test]
fn a_wrong_override_points_at_itself() {
    insta::assert_snapshot!(wrong_override(&set(&[("load.rate", "0")])), @"");
    insta::assert_snapshot!(wrong_override(&set(&[("load.duration", "10parsecs")])), @"");
    insta::assert_snapshot!(wrong_override(&set(&[("rate", "200")])), @"");
    insta::assert_snapshot!(wrong_override(&set(&[("load.rate", "1\n[load]")])), @"");
    insta::assert_snapshot!(wrong_override(&designs(&["lease", "work-queue"])), @"");
    insta::assert_snapshot!(wrong_override(&Overrides { rounds: Some(0), ..Overrides::default() }), @"");
    insta::assert_snapshot!(wrong_override(&set(&[("suite.cases", "2000")])), @"");
}
