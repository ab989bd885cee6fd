//! `docker-compose.yml`: up, a run against it as an external rig, down. Needs a Docker engine, images and compose: `make
//! rigs` sees to them.

use std::{
    path::Path,
    process::{Command, Output},
};

use crate::{
    rigs::{SOON, URLS, exe, free_port, wait_until},
    scenarios::{SMALL, said, scenario},
};
use harness::{
    record::Record,
    rig::{RigKind, Separation},
};

/// A project of compose; goes down with its volumes when dropped.
struct Project {
    name: String,
    ports: [u16; 2],
    subnet: String,
}

const PASSWORD: &str = "0123456789abcdef";

impl Project {
    fn compose(&self, arguments: &[&str]) -> String {
        let output = self.ask(arguments);
        let (stdout, stderr) = said(&output);
        assert!(output.status.success(), "{arguments:?}: {stdout}{stderr}");
        stdout
    }

    fn ask(&self, arguments: &[&str]) -> Output {
        let compose = std::env::var("DRAINBENCH_TEST_COMPOSE").expect("make rigs sets it");
        let mut words = compose.split_whitespace();
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docker-compose.yml");
        Command::new(words.next().unwrap())
            .args(words)
            .arg("--file")
            .arg(file)
            .args(["--project-name", &self.name])
            .args(arguments)
            .env("DRAINBENCH_POSTGRES_PASSWORD", PASSWORD)
            .env("DRAINBENCH_RABBITMQ_PASSWORD", PASSWORD)
            .env("DRAINBENCH_POSTGRES_PORT", self.ports[0].to_string())
            .env("DRAINBENCH_RABBITMQ_PORT", self.ports[1].to_string())
            .env("DRAINBENCH_SUBNET", &self.subnet)
            .output()
            .unwrap()
    }

    /// `docker compose up --wait` for those that do not know it.
    fn healthy(&self) {
        for service in ["postgres", "rabbitmq"] {
            let id = self.compose(&["ps", "-q", service]).trim().to_owned();
            wait_until(&format!("{service} is healthy"), 3 * SOON, || {
                let format = "{{.State.Health.Status}}";
                let output =
                    Command::new("docker").args(["inspect", "--format", format, &id]).output().unwrap();
                said(&output).0.trim() == "healthy"
            });
        }
    }
}

impl Drop for Project {
    fn drop(&mut self) {
        // No assertion: it may be on its way out of one.
        let _ = self.ask(&["down", "--volumes"]);
    }
}

#[test]
#[ignore = "needs a Docker engine, images and compose: make rigs"]
fn its_servers_are_an_external_rig() {
    let ports = [free_port(), free_port()];
    let pid = std::process::id();
    // Not the one that somebody's own has who left the default.
    let subnet = format!("172.29.{}", pid % 200);
    let project = Project { name: format!("drainbenchtest{pid}"), ports, subnet };
    project.compose(&["up", "--detach"]);
    project.healthy();
    let dir = tempfile::tempdir().unwrap();
    let output = Command::new(exe())
        .args(["verify", "--rig", "external", "--out"])
        .arg(dir.path().join("out"))
        .arg(scenario(dir.path(), SMALL))
        // One as .env.example has them, one by its port.
        .env(URLS[0], format!("postgres://drainbench:{PASSWORD}@{}.2:5432/drainbench", project.subnet))
        .env(URLS[1], format!("amqp://drainbench:{PASSWORD}@127.0.0.1:{}/%2f", project.ports[1]))
        .output()
        .unwrap();
    let (stdout, stderr) = said(&output);
    assert_eq!(output.status.code(), Some(0), "{stdout}{stderr}");
    let facts = Record::read(&dir.path().join("out/record.json")).unwrap().rig.unwrap();
    assert_eq!((facts.kind, facts.separation), (RigKind::External, Separation::Databases));
    assert_eq!(facts.postgres_settings["max_connections"], "300");
    assert_eq!(facts.postgres_settings["fsync"], "on");
}
