//! `drainbench check` as a user meets it: exit codes, and errors that say what to change.

use std::process::{Command, Output};

fn check(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_drainbench"))
        .arg("check")
        .args(arguments)
        .env("NO_COLOR", "1")
        .output()
        .expect("drainbench starts")
}

fn stderr_of_usage_error(arguments: &[&str]) -> String {
    let output = check(arguments);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(output.stdout.is_empty(), "{output:?}");
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn shipped_scenarios_go_by_name_anywhere() {
    let output = Command::new(env!("CARGO_BIN_EXE_drainbench"))
        .args(["check", "smoke", "workspace", "slow-disk", "spare-connection"])
        .current_dir(std::env::temp_dir())
        .output()
        .expect("drainbench starts");
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let plans = String::from_utf8_lossy(&output.stdout);
    for name in ["smoke: ", "workspace: ", "slow-disk: ", "spare-connection: "] {
        assert!(plans.lines().any(|line| line.starts_with(name)), "{name} in {plans}");
    }
}

#[test]
fn a_wrong_file_names_file_line_and_nearest_key() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("mine.toml");
    std::fs::write(&path, "name = \"mine\"\n[load]\nratee = 1\n").expect("written");
    let stderr = stderr_of_usage_error(&[path.to_str().expect("UTF-8")]);
    for part in ["mine.toml", "3", "unknown key `load.ratee`", "`load.rate`"] {
        assert!(stderr.contains(part), "{part} in {stderr}");
    }
}

#[test]
fn a_wrong_scenario_does_not_hide_the_others() {
    let output = check(&["no-such-scenario", "smoke"]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(String::from_utf8_lossy(&output.stdout).starts_with("smoke: "), "{output:?}");
    assert!(String::from_utf8_lossy(&output.stderr).contains("no-such-scenario"), "{output:?}");
}

#[test]
fn wrong_overrides_are_usage_errors() {
    for (arguments, part) in [
        (["workspace", "--set", "load.rate=0"], "above 0"),
        (["workspace", "--set", "load.latency=5ms"], "broker.latency"),
        (["workspace", "--set", "drainer.batch_size=0"], "from 1 to"),
        (["workspace", "--set", "drainer.lease_ttl=1s"], "3 x `drainer.pipeline_depth` x 100 ms"),
        (["workspace", "--set", "suite.cases=99999"], "12000"),
        (["workspace", "--set", "load.rate"], "KEY=VALUE"),
        (["workspace", "--designs", "leese"], "there is no such design"),
        (["workspace", "--rounds", "0"], "from 1 to"),
    ] {
        // Lines are wrapped to the terminal's width.
        let stderr = stderr_of_usage_error(&arguments).replace("\n", " ");
        let stderr = stderr.split_whitespace().filter(|word| *word != "│").collect::<Vec<_>>().join(" ");
        assert!(stderr.contains(part), "{part} in {stderr}");
    }
}

#[test]
fn overrides_change_the_plan() {
    let output = check(&["workspace", "--set", "load.rate=200", "--designs", "lease,raw", "--rounds", "2"]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let plan = String::from_utf8_lossy(&output.stdout);
    for part in ["2 rounds", "200/s constant", "7000"] {
        assert!(plan.contains(part), "{part} in {plan}");
    }
    let cells: Vec<&str> = plan.lines().filter_map(|line| line.split_whitespace().next()).collect();
    assert!(cells.windows(3).any(|cells| cells == ["control", "lease", "raw"]), "{plan}");
}
