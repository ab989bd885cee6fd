//! PostgreSQL's versions that people run: everything that a cell needs of the server, on each of them. `make rigs` fetches
//! their binaries.

use crate::{
    rigs::alone,
    scenarios::{SMALL, said, scenario},
};
use harness::record::{Record, recompute};

/// Migrations, all designs, the sampler with its wait events, counters of WAL, commits, HOT updates and dead tuples.
fn all_of_it(folder: &str) -> String {
    let dir = tempfile::tempdir().unwrap();
    let output = alone()
        .args(["verify", "--rig", "local", "--pg-bin", folder, "--out"])
        .arg(dir.path().join("out"))
        .arg(scenario(dir.path(), SMALL))
        .output()
        .unwrap();
    let (stdout, stderr) = said(&output);
    assert_eq!(output.status.code(), Some(0), "{folder}: {stdout}{stderr}");
    let record = Record::read(&dir.path().join("out/record.json")).unwrap();
    assert_eq!(recompute(&record), []);
    let version = record.rig.as_ref().unwrap().postgres_version.clone();
    for cell in record.cells.iter().filter(|cell| cell.label != "control") {
        for metric in [
            "db.wal_bytes_per_event",
            "db.commits_per_event",
            "db.dead_tuples_peak",
            "db.hot_share",
            "sampler.missed",
        ] {
            assert!(
                cell.metric(metric).is_some(),
                "{version} {}: {metric}: {:?}",
                cell.label,
                cell.unmeasured
            );
        }
        assert!(cell.metric("db.wal_bytes_per_event") > Some(100.0), "{version} {}", cell.label);
    }
    // PostgreSQL 17 writes names of wait events in another way than 16 does: ours are the same for all.
    let seen = serde_json::to_string(&record).unwrap();
    assert!(seen.contains("IO:WalSync"), "{version}: the wait for the disk has another name");
    assert!(!seen.contains("IO:WALSync"), "{version}");
    version
}

#[test]
#[ignore = "needs binaries of several versions: make rigs"]
fn every_version_measures_everything() {
    let folders = std::env::var("DRAINBENCH_TEST_PG_BINS").expect("make rigs sets it");
    let versions: Vec<String> = folders.split(':').map(all_of_it).collect();
    println!("{versions:?}");
    for major in ["15", "17", "18"] {
        assert!(
            versions.iter().any(|version| version.starts_with(major)),
            "{major} is missing: {versions:?}"
        );
    }
}
