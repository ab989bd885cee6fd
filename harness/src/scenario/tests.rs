#![expect(clippy::too_many_lines, reason = "tables of wrong inputs, each with what it is told")]
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
        let scenario =
            load(name, text, &Overrides::default()).unwrap_or_else(|error| panic!("{}", rendered(&error)));
        assert_eq!(scenario.name, name);
        assert!(!scenario.about.is_empty(), "{name}");
        assert_eq!(scenario.text, text);
        let roles: Vec<_> = scenario.cells.iter().map(|cell| cell.role).collect();
        assert!(!scenario.criteria.is_empty(), "{name}");
        if scenario.cells.iter().any(|cell| !cell.faults.is_empty()) {
            // What becomes of the events is asked, and needs no control.
            assert_eq!(roles, [Some(Role::Baseline), Some(Role::Candidate)], "{name}");
        } else {
            assert_eq!(roles, [Some(Role::Control), Some(Role::Baseline), Some(Role::Candidate)], "{name}");
            assert!(!scenario.symptoms.is_empty(), "{name}");
        }
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
    insta::assert_snapshot!(rendered(&error), @r"
    × there is no scenario `workspaces`: no such file, and no shipped scenario of that name
    help: did you mean `workspace`? Shipped are `smoke`, `workspace`, `slow-disk`, `spare-connection`,
          `broker-stall`, `broker-cut`, `drainer-crash`, `drainer-paused`, `lease-overrun`, `backends-killed`,
          `poison-head`, `late-commit` and `held-xmin`; anything else is a path to a TOML file
    ");
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
        let in_a_list =
            ["cell.", "fault.", "symptom.", "criterion."].iter().any(|list| key.starts_with(list));
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
    let text = VALID
        .replace("design = \"lease\"\n", "design = \"lease\"\ndrainer.batch_size = 1000\nload.keys = 5\n");
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
    let mut overrides = set(&[
        ("load.rate", "12.5"),
        ("load.duration", "20s"),
        ("drainer.placement", "process"),
        ("load.rate", "20"),
    ]);
    overrides.seed = Some(9);
    overrides.rounds = Some(3);
    let scenario = valid(&overrides);
    let settings = &scenario.cells[0].settings;
    assert_eq!(settings.load.rate, Some(20.0));
    assert_eq!(settings.load.duration, Duration::from_secs(20));
    assert_eq!(settings.drainer.placement, Placement::Process);
    assert_eq!((scenario.seed, scenario.rounds.get()), (9, 3));
    let added = scenario.text.strip_prefix(VALID).expect("the file comes first");
    insta::assert_snapshot!(added, @r#"
    # --set load.rate=12.5
    # --set load.duration="20s"
    # --set drainer.placement="process"
    # --set load.rate=20
    # --seed 9
    # --rounds 3
    "#);
    // What is added is comments: the text is TOML still.
    load("mine.toml", &scenario.text, &Overrides::default()).expect("valid");
    assert_ne!(scenario.hash, valid(&Overrides::default()).hash);
    assert_eq!(scenario.hash.len(), 64);
}

#[test]
fn designs_replace_the_cells_and_the_control_stays() {
    let cells = |overrides: &Overrides| -> Vec<(String, Option<Role>, &str)> {
        let scenario =
            load("mine.toml", VALID, overrides).unwrap_or_else(|error| panic!("{}", rendered(&error)));
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
        [
            control(),
            cell("lease", Some(Role::Baseline), "lease"),
            cell("lease-2", Some(Role::Candidate), "lease")
        ]
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
    insta::assert_snapshot!(changed("rate = 100", "ratee = 100"), @r#"
     × mine.toml:5: unknown key `load.ratee`
      ╭─[mine.toml:5:1]
    4 │ services = 2
    5 │ ratee = 100
      · ──┬──
      ·   ╰── here
    6 │ duration = "10s"
      ╰────
     help: the nearest is `load.rate`; scenarios/README.md lists all keys
    "#);
    insta::assert_snapshot!(changed("batch_size", "batchsize"), @r"
     × mine.toml:9: unknown key `drainer.batchsize`
       ╭─[mine.toml:9:1]
     8 │ [drainer]
     9 │ batchsize = 100
       · ────┬────
       ·     ╰── here
    10 │
       ╰────
     help: the nearest is `drainer.batch_size`; scenarios/README.md lists all keys
    ");
    insta::assert_snapshot!(changed("cases = 50", "pool = 50"), @r"
     × mine.toml:12: unknown key `suite.pool`
       ╭─[mine.toml:12:1]
    11 │ [suite]
    12 │ pool = 50
       · ──┬─
       ·   ╰── here
    13 │
       ╰────
     help: the nearest are `service.pool` and `drainer.pool`; scenarios/README.md lists all keys
    ");
    insta::assert_snapshot!(changed("[suite]", "[suit]"), @r"
     × mine.toml:11: unknown key `suit`
       ╭─[mine.toml:11:2]
    10 │
    11 │ [suit]
       ·  ──┬─
       ·    ╰── here
    12 │ cases = 50
       ╰────
     help: the nearest is `suite`; scenarios/README.md lists all keys
    ");
    insta::assert_snapshot!(changed("above = 1000", "over = 1000"), @r#"
     × mine.toml:31: unknown key `symptom.over`
       ╭─[mine.toml:31:1]
    30 │ metric = "persist.p99"
    31 │ over = 1000
       · ──┬─
       ·   ╰── here
    32 │
       ╰────
     help: there is `symptom.metric`, `symptom.above`, `symptom.below`, `symptom.at_most`, `symptom.at_least`,
           `symptom.times` and `symptom.cell`; scenarios/README.md lists all keys
    "#);
    insta::assert_snapshot!(changed("role = \"control\"", "load.rat = 1"), @r#"
     × mine.toml:16: unknown key `load.rat`
       ╭─[mine.toml:16:6]
    15 │ label = "control"
    16 │ load.rat = 1
       ·      ─┬─
       ·       ╰── here
    17 │ design = "none"
       ╰────
     help: the nearest are `load.rate` and `load.duration`; scenarios/README.md lists all keys
    "#);
}

#[test]
fn a_wrong_unit_or_number_names_the_rule_and_the_way_out() {
    insta::assert_snapshot!(changed("duration = \"10s\"", "duration = 10"), @r#"
     × mine.toml:6: `load.duration = 10`: must be a duration with its unit
      ╭─[mine.toml:6:12]
    5 │ rate = 100
    6 │ duration = 10
      ·            ─┬
      ·             ╰── here
    7 │
      ╰────
     help: write it in quotes with its unit, one of us, ms, s, m and h: "67ms", "1.5s", "2m"
    "#);
    insta::assert_snapshot!(changed("duration = \"10s\"", "duration = \"10sec\""), @r#"
     × mine.toml:6: `load.duration = "10sec"`: must be a duration with its unit
      ╭─[mine.toml:6:12]
    5 │ rate = 100
    6 │ duration = "10sec"
      ·            ───┬───
      ·               ╰── here
    7 │
      ╰────
     help: write it in quotes with its unit, one of us, ms, s, m and h: "67ms", "1.5s", "2m"
    "#);
    insta::assert_snapshot!(changed("duration = \"10s\"", "duration = \"0s\""), @r#"
     × mine.toml:6: `load.duration = "0s"`: must be a duration from 1ms to 24h
      ╭─[mine.toml:6:12]
    5 │ rate = 100
    6 │ duration = "0s"
      ·            ──┬─
      ·              ╰── here
    7 │
      ╰────
     help: write one of that range, such as `load.duration = "1ms"`
    "#);
    insta::assert_snapshot!(changed("rate = 100", "rate = 0"), @r#"
     × mine.toml:5: `load.rate = 0`: must be a number of writes a second, above 0 and at most 1000000
      ╭─[mine.toml:5:8]
    4 │ services = 2
    5 │ rate = 0
      ·        ┬
      ·        ╰── here
    6 │ duration = "10s"
      ╰────
     help: write one such as 400 or 0.5; leave `rate` out where only the backlog is to be drained
    "#);
    insta::assert_snapshot!(changed("rate = 100", "payload = 340"), @r#"
     × mine.toml:5: `load.payload = 340`: must be a size with its unit
      ╭─[mine.toml:5:11]
    4 │ services = 2
    5 │ payload = 340
      ·           ─┬─
      ·            ╰── here
    6 │ duration = "10s"
      ╰────
     help: write it in quotes with its unit, one of B, kB, KiB, MB and MiB: "340B", "4KiB"
    "#);
    insta::assert_snapshot!(changed("batch_size = 100", "batch_size = 0"), @r"
     × mine.toml:9: `drainer.batch_size = 0`: must be a whole number from 1 to 10000
       ╭─[mine.toml:9:14]
     8 │ [drainer]
     9 │ batch_size = 0
       ·              ┬
       ·              ╰── here
    10 │
       ╰────
     help: write a number of that range, such as `drainer.batch_size = 1`
    ");
    insta::assert_snapshot!(changed("rate = 100", "rate = 100\nrollback_share = \"120%\""), @r#"
     × mine.toml:6: `load.rollback_share = "120%"`: must be a share from 0% to 100%
      ╭─[mine.toml:6:18]
    5 │ rate = 100
    6 │ rollback_share = "120%"
      ·                  ───┬──
      ·                     ╰── here
    7 │ duration = "10s"
      ╰────
     help: write it as a number from 0 to 1 or in quotes with a percent sign: 0.05, "5%"
    "#);
    insta::assert_snapshot!(changed("services = 2", "services = 4097"), @r"
     × mine.toml:4: `load.services = 4097`: must be a whole number from 1 to 4096
      ╭─[mine.toml:4:12]
    3 │ [load]
    4 │ services = 4097
      ·            ──┬─
      ·              ╰── here
    5 │ rate = 100
      ╰────
     help: write a number of that range, such as `load.services = 1`
    ");
    insta::assert_snapshot!(changed("below = 50", "below = \"50ms\""), @r#"
     × mine.toml:35: `below = "50ms"`: must be a number, because persist.p99 is in milliseconds
       ╭─[mine.toml:35:9]
    34 │ metric = "persist.p99"
    35 │ below = "50ms"
       ·         ───┬──
       ·            ╰── here
       ╰────
     help: write it without quotes and without a unit, such as `below = 50` (persist.p99: 99th percentile of
           the time of a write from the instant it was due to the return of COMMIT)
    "#);
}

#[test]
fn an_unknown_name_offers_what_there_is() {
    insta::assert_snapshot!(changed("metric = \"persist.p99\"\nabove", "metric = \"persist.p95\"\nabove"), @r#"
     × mine.toml:30: `metric = "persist.p95"`: there is no such metric
       ╭─[mine.toml:30:10]
    29 │ [[symptom]]
    30 │ metric = "persist.p95"
       ·          ──────┬──────
       ·                ╰── here
    31 │ above = 1000
       ╰────
     help: the nearest are `persist.p50`, `persist.p90` and `persist.p99`
    "#);
    insta::assert_snapshot!(changed("design = \"lease\"", "design = \"leese\""), @r#"
     × mine.toml:27: `design = "leese"`: there is no such design
       ╭─[mine.toml:27:10]
    26 │ role = "candidate"
    27 │ design = "leese"
       ·          ───┬───
       ·             ╰── here
    28 │
       ╰────
     help: there is `none`, `raw`, `single-tx` and `lease`
    "#);
    insta::assert_snapshot!(changed("design = \"lease\"", "design = \"partitioned\""), @r#"
     × mine.toml:27: `design = "partitioned"`: there is no such design
       ╭─[mine.toml:27:10]
    26 │ role = "candidate"
    27 │ design = "partitioned"
       ·          ──────┬──────
       ·                ╰── here
    28 │
       ╰────
     help: this version has `none`, `raw`, `single-tx` and `lease`; `partitioned` is planned
    "#);
    insta::assert_snapshot!(changed("role = \"candidate\"", "role = \"winner\""), @r#"
     × mine.toml:26: `role = "winner"`: must be one of `control`, `baseline` and `candidate`
       ╭─[mine.toml:26:8]
    25 │ label = "new"
    26 │ role = "winner"
       ·        ────┬───
       ·            ╰── here
    27 │ design = "lease"
       ╰────
     help: there is `control`, `baseline` and `candidate`
    "#);
    insta::assert_snapshot!(changed("below = 50", "below = 50\ncell = \"nev\""), @r#"
     × mine.toml:36: `cell = "nev"`: there is no cell of that label
       ╭─[mine.toml:36:8]
    35 │ below = 50
    36 │ cell = "nev"
       ·        ──┬──
       ·          ╰── here
       ╰────
     help: the nearest is `new`
    "#);
    insta::assert_snapshot!(changed("below = 50", "below = 1.5\ntimes = \"older\""), @r#"
     × mine.toml:36: `times = "older"`: there is no cell of that label
       ╭─[mine.toml:36:9]
    35 │ below = 1.5
    36 │ times = "older"
       ·         ───┬───
       ·            ╰── here
       ╰────
     help: the nearest is `old`
    "#);
}

#[test]
fn relations_are_proved() {
    insta::assert_snapshot!(changed("batch_size = 100", "lease_ttl = \"5s\""), @r#"
     × mine.toml:9: `drainer.lease_ttl = "5s"` in cell `old`: a lease must hold 3 x `drainer.pipeline_depth` x
     │ 100 ms, which is 9600ms for a depth of 32
       ╭─[mine.toml:9:13]
     8 │ [drainer]
     9 │ lease_ttl = "5s"
       ·             ──┬─
       ·               ╰── here
    10 │
       ╰────
     help: write `lease_ttl = "9600ms"` or more, or `pipeline_depth = 16` or less
    "#);
    insta::assert_snapshot!(changed("batch_size = 100", "pipeline_depth = 101"), @r#"
     × mine.toml:9: `drainer.lease_ttl = "30s"` in cell `old`: a lease must hold 3 x `drainer.pipeline_depth` x
     │ 100 ms, which is 30300ms for a depth of 101
       ╭─[mine.toml:9:18]
     8 │ [drainer]
     9 │ pipeline_depth = 101
       ·                  ─┬─
       ·                   ╰── here
    10 │
       ╰────
     help: write `lease_ttl = "30300ms"` or more, or `pipeline_depth = 100` or less
    "#);
    insta::assert_snapshot!(changed("cases = 50", "cases = 1725"), @r"
     × mine.toml:12: `suite.cases = 1725`: cases are drawn from the writes that are due in the measured window
     │ and don't roll back, and cell `control` has 1000 of these
       ╭─[mine.toml:12:9]
    11 │ [suite]
    12 │ cases = 1725
       ·         ──┬─
       ·           ╰── here
    13 │
       ╰────
     help: write at most 1000, or lengthen `load.duration`, or raise `load.rate`
    ");
    insta::assert_snapshot!(changed("label = \"new\"", "label = \"old\""), @r#"
     × mine.toml:25: `label = "old"`: another cell has this label
       ╭─[mine.toml:25:9]
    24 │ [[cell]]
    25 │ label = "old"
       ·         ──┬──
       ·           ╰── here
    26 │ role = "candidate"
       ╰────
     help: give each cell a label of its own
    "#);
    insta::assert_snapshot!(changed("design = \"none\"", "design = \"none\"\nload.rate = 50"), @r#"
     × mine.toml:18: `load.rate = 50`: would unpair the control `control` from cell `old`, whose `[load]` is
     │ another
       ╭─[mine.toml:18:13]
    17 │ design = "none"
    18 │ load.rate = 50
       ·             ─┬
       ·              ╰── here
    19 │
       ╰────
     help: leave it out of the control and write it at the top, for all cells
    "#);
    insta::assert_snapshot!(changed("role = \"candidate\"\n", ""), @r#"
     × mine.toml:32: a criterion on persist.p99, and no cell is a candidate to look for it in
       ╭─[mine.toml:32:1]
    31 │
    32 │ [[criterion]]
       · ──────┬──────
       ·       ╰── here
    33 │ metric = "persist.p99"
       ╰────
     help: give a cell `role = "candidate"`, or say which with `cell = "label"`
    "#);
    insta::assert_snapshot!(changed("role = \"baseline\"", "role = \"candidate\""), @r#"
     × mine.toml:29: a symptom on persist.p99, and no cell is a baseline to look for it in
       ╭─[mine.toml:29:1]
    28 │
    29 │ [[symptom]]
       · ─────┬─────
       ·      ╰── here
    30 │ metric = "persist.p99"
       ╰────
     help: give a cell `role = "baseline"`, or say which with `cell = "label"`
    "#);
    insta::assert_snapshot!(changed("role = \"baseline\"\ndesign = \"single-tx\"", "role = \"baseline\"\ndesign = \"none\""), @r#"
     × mine.toml:20: cell `old`: design `none` drains nothing, so there is nothing to judge
       ╭─[mine.toml:20:9]
    19 │ [[cell]]
    20 │ label = "old"
       ·         ──┬──
       ·           ╰── here
    21 │ role = "baseline"
       ╰────
     help: write `role = "control"`, or leave `role` out
    "#);
    insta::assert_snapshot!(changed("role = \"baseline\"", "role = \"control\""), @r#"
     × mine.toml:20: cell `old` is a control, and cell `control` is the control already
       ╭─[mine.toml:20:9]
    19 │ [[cell]]
    20 │ label = "old"
       ·         ──┬──
       ·           ╰── here
    21 │ role = "control"
       ╰────
     help: leave its `role` out: then it is reported and not judged
    "#);
    insta::assert_snapshot!(changed("rate = 100\n", ""), @r#"
     × mine.toml:14: cell `control` has neither `load.rate` nor `load.backlog`: nothing is written
       ╭─[mine.toml:14:9]
    13 │ [[cell]]
    14 │ label = "control"
       ·         ────┬────
       ·             ╰── here
    15 │ role = "control"
       ╰────
     help: add `rate = 400` under `[load]`, or a `backlog`
    "#);
    insta::assert_snapshot!(changed("rate = 100", "rate = 0.01"), @r#"
     × mine.toml:5: no write of cell `control` is due in the measured window
      ╭─[mine.toml:5:8]
    4 │ services = 2
    5 │ rate = 0.01
      ·        ──┬─
      ·          ╰── here
    6 │ duration = "10s"
      ╰────
     help: lengthen `load.duration` or raise `load.rate`
    "#);
    insta::assert_snapshot!(changed("rate = 100", "rate = 100\narrivals = \"burst\""), @r#"
     × mine.toml:6: `load.arrivals = "burst"`: needs `burst_every`
      ╭─[mine.toml:6:12]
    5 │ rate = 100
    6 │ arrivals = "burst"
      ·            ───┬───
      ·               ╰── here
    7 │ duration = "10s"
      ╰────
     help: add `burst_every = "10s"`
    "#);
    insta::assert_snapshot!(changed("rate = 100", "rate = 100000\narrivals = \"burst\"\nburst_every = \"20h\""), @r#"
     × mine.toml:5: cell `control` comes to 7200000000 writes, and a cell has at most 100000000
      ╭─[mine.toml:5:8]
    4 │ services = 2
    5 │ rate = 100000
      ·        ───┬──
      ·           ╰── here
    6 │ arrivals = "burst"
      ╰────
     help: lower `load.rate`, shorten `load.duration` or, of bursts, their `load.burst_every`
    "#);
    insta::assert_snapshot!(changed("rate = 100", "rate = 100\nramp_from = 1"), @r#"
     × mine.toml:6: `load.ramp_from = 1`: is of `arrivals = "ramp"` alone, and these are "constant"
      ╭─[mine.toml:6:13]
    5 │ rate = 100
    6 │ ramp_from = 1
      ·             ┬
      ·             ╰── here
    7 │ duration = "10s"
      ╰────
     help: leave it out, or write `arrivals = "ramp"`
    "#);
    insta::assert_snapshot!(changed("below = 50", "below = 50\nat_most = 60"), @r"
     × mine.toml:36: `at_most = 60`: stands beside `below`, and an expectation has one limit
       ╭─[mine.toml:36:11]
    35 │ below = 50
    36 │ at_most = 60
       ·           ─┬
       ·            ╰── here
       ╰────
     help: write a second expectation for the second limit
    ");
    insta::assert_snapshot!(changed("below = 50\n", ""), @r#"
     × mine.toml:34: `metric = "persist.p99"`: has no limit
       ╭─[mine.toml:34:10]
    33 │ [[criterion]]
    34 │ metric = "persist.p99"
       ·          ──────┬──────
       ·                ╰── here
       ╰────
     help: write `metric = "persist.p99"` and one of `below`, `at_most`, `above` and `at_least`
    "#);
    insta::assert_snapshot!(changed("name = \"mine\"", "name = \"My scenario\""), @r#"
     × mine.toml:1: `name = "My scenario"`: must be 1 to 40 small letters, digits, `-` and `_`
      ╭─[mine.toml:1:8]
    1 │ name = "My scenario"
      ·        ──────┬──────
      ·              ╰── here
    2 │
      ╰────
     help: it becomes part of the names of folders, databases and queues
    "#);
    insta::assert_snapshot!(changed("name = \"mine\"\n", ""), @r#"
     × mine.toml:1: `name` is missing
      ╭─[mine.toml:1:1]
    1 │
      · ▲
      · ╰── here
    2 │ [load]
    3 │ services = 2
      ╰────
     help: begin with `name = "my-scenario"`
    "#);
    insta::assert_snapshot!(wrong("name = \"mine\"\nload.rate = 1\n"), @r#"
     × mine.toml:1: there is no `[[cell]]`: nothing would run
      ╭─[mine.toml:1:1]
    1 │ name = "mine"
      · ▲
      · ╰── here
    2 │ load.rate = 1
      ╰────
     help: add a `[[cell]]` with `label`, `role` and `design`
    "#);
    insta::assert_snapshot!(wrong("name = \"mine\"\nload = 1\n"), @r#"
     × mine.toml:2: `load` must be a table
      ╭─[mine.toml:2:8]
    1 │ name = "mine"
    2 │ load = 1
      ·        ┬
      ·        ╰── here
      ╰────
     help: write its keys under `[load]`
    "#);
    insta::assert_snapshot!(wrong("name = \"mine\"\n[cell]\nlabel = \"new\"\n"), @r#"
     × mine.toml:2: `cell` must be a list of tables
      ╭─[mine.toml:2:2]
    1 │ name = "mine"
    2 │ [cell]
      ·  ──┬─
      ·    ╰── here
    3 │ label = "new"
      ╰────
     help: write each under a `[[cell]]` of its own
    "#);
    insta::assert_snapshot!(wrong("name = \"mine\"\n[load\n"), @r#"
     × mine.toml:2: not TOML: unclosed table, expected `]`
      ╭─[mine.toml:2:6]
    1 │ name = "mine"
    2 │ [load
      ·      ▲
      ·      ╰── here
      ╰────
     help: scenarios/README.md shows the format
    "#);
}

#[test]
fn a_wrong_override_points_at_itself() {
    insta::assert_snapshot!(wrong_override(&set(&[("load.rate", "0")])), @r"
     × mine.toml:36: `load.rate = 0`: must be a number of writes a second, above 0 and at most 1000000
       ╭─[mine.toml:36:19]
    35 │ below = 50
    36 │ # --set load.rate=0
       ·                   ┬
       ·                   ╰── here
       ╰────
     help: write one such as 400 or 0.5; leave `rate` out where only the backlog is to be drained
    ");
    insta::assert_snapshot!(wrong_override(&set(&[("load.duration", "10parsecs")])), @r#"
     × mine.toml:36: `load.duration = "10parsecs"`: must be a duration with its unit
       ╭─[mine.toml:36:23]
    35 │ below = 50
    36 │ # --set load.duration="10parsecs"
       ·                       ─────┬─────
       ·                            ╰── here
       ╰────
     help: write it in quotes with its unit, one of us, ms, s, m and h: "67ms", "1.5s", "2m"
    "#);
    insta::assert_snapshot!(wrong_override(&set(&[("rate", "200")])), @r"
     × mine.toml:36: unknown key `rate`
       ╭─[mine.toml:36:9]
    35 │ below = 50
    36 │ # --set rate=200
       ·         ──┬─
       ·           ╰── here
       ╰────
     help: the nearest are `load.rate` and `sampler.rate`; scenarios/README.md lists all keys
    ");
    insta::assert_snapshot!(wrong_override(&set(&[("load.rate", "1\n[load]")])), @r"
     × mine.toml:36: an override is one `key=value` on one line
       ╭─[mine.toml:36:9]
    35 │ below = 50
    36 │ # --set load.rate=1 [load]
       ·         ─────────┬────────
       ·                  ╰── here
       ╰────
     help: write `--set load.rate=200`
    ");
    insta::assert_snapshot!(wrong_override(&designs(&["lease", "work-queue"])), @r#"
     × mine.toml:36: `design = "work-queue"`: there is no such design
       ╭─[mine.toml:36:13]
    35 │ below = 50
    36 │ # --designs lease,work-queue
       ·             ────────┬───────
       ·                     ╰── here
       ╰────
     help: this version has `none`, `raw`, `single-tx` and `lease`; `work-queue` is planned
    "#);
    insta::assert_snapshot!(wrong_override(&Overrides { rounds: Some(0), ..Overrides::default() }), @r"
     × mine.toml:36: `rounds = 0`: must be a whole number from 1 to 1000
       ╭─[mine.toml:36:12]
    35 │ below = 50
    36 │ # --rounds 0
       ·            ┬
       ·            ╰── here
       ╰────
     help: write a number of that range, such as `rounds = 1`
    ");
    insta::assert_snapshot!(wrong_override(&set(&[("suite.cases", "2000")])), @r"
     × mine.toml:36: `suite.cases = 2000`: cases are drawn from the writes that are due in the measured window
     │ and don't roll back, and cell `control` has 1000 of these
       ╭─[mine.toml:36:21]
    35 │ below = 50
    36 │ # --set suite.cases=2000
       ·                     ──┬─
       ·                       ╰── here
       ╰────
     help: write at most 1000, or lengthen `load.duration`, or raise `load.rate`
    ");
}

/// What the drainer itself would refuse, minutes later.
#[test]
fn the_drainers_own_bounds_are_known_before_anything_starts() {
    for (key, value) in [
        ("drainer.batch_size", "10001"),
        ("drainer.pipeline_depth", "10001"),
        ("drainer.pool", "101"),
        ("drainer.poll_interval", "2h"),
        ("drainer.confirm_timeout", "2h"),
        ("drainer.stop_within", "2h"),
        ("drainer.lease_ttl", "299ms"),
        ("sampler.rate", "19"),
    ] {
        let told = wrong_override(&set(&[(key, value)]));
        assert!(told.contains(&format!("`{key} = ")), "{key}: {told}");
    }
}

#[test]
fn a_drainer_process_takes_whole_units() {
    let process = ("drainer.placement", "process");
    insta::assert_snapshot!(wrong_override(&set(&[process, ("drainer.lease_ttl", "9.6s")])), @r#"
     × mine.toml:37: `drainer.lease_ttl = "9600ms"` in cell `old`: a drainer process takes whole seconds
       ╭─[mine.toml:37:27]
    36 │ # --set drainer.placement="process"
    37 │ # --set drainer.lease_ttl="9.6s"
       ·                           ───┬──
       ·                              ╰── here
       ╰────
     help: round it, or write `placement = "in-service"`
    "#);
    let told = wrong_override(&set(&[process, ("drainer.poll_interval", "1500us")]));
    assert!(told.contains("a drainer process takes whole"), "{told}");
    valid(&set(&[("drainer.lease_ttl", "9.6s")]));
}

#[test]
fn an_expectation_that_can_have_no_value_is_refused() {
    insta::assert_snapshot!(wrong(&format!("{VALID}[[criterion]]\nmetric = \"recovery.time\"\nbelow = 9\n")), @r#"
     × mine.toml:36: recovery.time has no value in cell `new`: nothing is broken in it
       ╭─[mine.toml:36:1]
    35 │ below = 50
    36 │ [[criterion]]
       · ──────┬──────
       ·       ╰── here
    37 │ metric = "recovery.time"
       ╰────
     help: add a `[[fault]]`, or leave the expectation out
    "#);
    let suite = format!("{VALID}[[criterion]]\nmetric = \"suite.failed\"\nat_most = 0\n");
    insta::assert_snapshot!(wrong(&suite.replace("cases = 50", "cases = 0")), @r#"
     × mine.toml:36: suite.failed has no value in cell `new`: it has no suite
       ╭─[mine.toml:36:1]
    35 │ below = 50
    36 │ [[criterion]]
       · ──────┬──────
       ·       ╰── here
    37 │ metric = "suite.failed"
       ╰────
     help: write `cases` under `[suite]`, or leave the expectation out
    "#);
    let commit = format!("{VALID}[[criterion]]\nmetric = \"commit.p99\"\nbelow = 9\n");
    let told = wrong(&commit.replace("rate = 100", "rate = 100\nwrite = \"statement\""));
    assert!(told.contains("single statements, without a COMMIT"), "{told}");
}

/// A scenario with drainer processes and this fault.
fn with_fault(fault: &str) -> Result<Scenario, ScenarioError> {
    let text = format!("{VALID}\n[[fault]]\n{fault}");
    load("mine.toml", &text, &set(&[("drainer.placement", "process"), ("drainer.instances", "2")]))
}

#[test]
fn a_fault_strikes_where_it_can_and_as_often_as_it_says() {
    let scenario = with_fault("kind = \"kill\"\nat = \"3s\"\nfor = \"1s\"\nevery = \"4s\"\ninstance = 1\n")
        .expect("valid");
    let faults: Vec<usize> = scenario.cells.iter().map(|cell| cell.faults.len()).collect();
    assert_eq!(faults, [0, 1, 1], "nobody drains in the control");
    let cell = scenario.cell("new").expect("a cell");
    let fault = &cell.faults[0];
    assert_eq!(fault.breaks, Breaks::Kill { instance: Some(1) });
    // The schedule ends at 15 s.
    let strikes: Vec<u64> = fault.strikes(cell).map(|at| at.as_secs()).collect();
    assert_eq!(strikes, [3, 7, 11]);
    assert_eq!(fault.ends(cell), Duration::from_secs(12));

    let scenario = with_fault("kind = \"slow-disk\"\nat = \"0s\"\nfor = \"1s\"\n").expect("valid");
    assert!(scenario.cells.iter().all(|cell| cell.faults.len() == 1), "the control's disk is slow as well");
    let scenario =
        with_fault("kind = \"cut\"\ntarget = \"broker\"\nat = \"1s\"\nfor = \"1s\"\ncell = \"old\"\n");
    let faults: Vec<usize> = scenario.expect("valid").cells.iter().map(|cell| cell.faults.len()).collect();
    assert_eq!(faults, [0, 1, 0]);
}

#[test]
fn a_fault_that_cannot_be_is_refused_with_the_way_out() {
    for (fault, words) in [
        ("at = \"1s\"", &["a fault without `kind`", "`kill`"][..]),
        ("kind = \"kil\"\nat = \"1s\"", &["must be one of", "`kill`"]),
        ("kind = \"kill\"", &["has no `at`"]),
        ("kind = \"pause\"\nat = \"1s\"", &["has no `for`"]),
        (
            "kind = \"cut\"\nat = \"1s\"\nfor = \"1s\"",
            &["does not say what it strikes", "`broker` and `database`"],
        ),
        ("kind = \"kill\"\ntarget = \"broker\"\nat = \"1s\"", &["must be one of `drainer`"]),
        (
            "kind = \"cut\"\ntarget = \"broker\"\nat = \"1s\"\nfor = \"1s\"\nlatency = \"1s\"",
            &["has no such key", "`instance`"],
        ),
        ("kind = \"pause\"\nat = \"1s\"\nfor = \"2s\"\nevery = \"2s\"", &["before it has healed"]),
        ("kind = \"kill\"\nat = \"1s\"\nevery = \"2s\"", &["never heals"]),
        ("kind = \"kill\"\nat = \"15s\"", &["the schedule ends at 15s"]),
        ("kind = \"kill\"\nat = \"1s\"\ninstance = 2", &["has 2 of each service", "drainer.instances"]),
        ("kind = \"kill\"\nat = \"1s\"\ncell = \"mew\"", &["no cell of that label", "`new`"]),
        (
            "kind = \"kill\"\nat = \"1s\"\ncell = \"control\"",
            &["no cell for the kill of the drainer to strike in"],
        ),
        ("kind = \"crash\"\nat = \"1s\"", &["has no `point`", "`confirm`"]),
        ("kind = \"kill\"\nat = \"1s\"\nfro = \"2s\"", &["unknown key `fault.fro`", "fault.for"]),
    ] {
        let error = rendered(&with_fault(fault).expect_err(fault));
        for word in words {
            let error = error.split_whitespace().collect::<Vec<_>>().join(" ").replace("│ ", "");
            assert!(error.contains(word), "{word:?} is missing in: {error}");
        }
    }
    let text = format!("{VALID}\n[[fault]]\nkind = \"kill\"\nat = \"1s\"\n");
    let error =
        rendered(&load("mine.toml", &text, &Overrides::default()).expect_err("in the services' processes"));
    assert!(error.contains("placement = \"process\""), "{error}");
}
