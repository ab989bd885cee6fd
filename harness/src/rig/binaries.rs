//! Where the servers' binaries are.

use std::{
    cmp::Reverse,
    env, fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use super::RigError;

/// Oldest PostgreSQL that is good enough: DESIGN's statements need 14.
const MIN_POSTGRES: u32 = 14;

const WAY_OUT: &str = "`make setup` installs what is missing (on Debian and Ubuntu: the packages postgresql and \
                       rabbitmq-server); or set DRAINBENCH_DATABASE_URL and DRAINBENCH_AMQP_URL to servers that are there";

/// PostgreSQL's server binaries.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Postgres {
    /// Holds `postgres` and `initdb`.
    pub(crate) folder: PathBuf,
    /// As it says itself, `15.18`.
    pub(crate) version: String,
}

/// RabbitMQ's start script and what it needs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RabbitMq {
    /// The script itself, not Debian's wrapper, which changes user.
    pub(crate) server: PathBuf,
    /// From its folder's name, where that tells.
    pub(crate) version: Option<String>,
    /// Erlang's port mapper.
    pub(crate) epmd: PathBuf,
    /// Folder of `erl`.
    pub(crate) erlang: PathBuf,
}

/// Looks for PostgreSQL: in `asked` and nowhere else if it is given, else on PATH, where `pg_config` points, and in the
/// folders of the usual packages, newest first.
///
/// # Errors
/// What is missing and how to get it.
pub(crate) fn postgres(asked: Option<&Path>) -> Result<Postgres, RigError> {
    if let Some(folder) = asked {
        return postgres_in(folder).ok_or_else(|| RigError::Missing {
            what: format!(
                "--pg-bin {}: no postgres and initdb of PostgreSQL {MIN_POSTGRES} or newer there",
                folder.display()
            ),
            way_out: "Name the folder of its server binaries, such as /usr/lib/postgresql/15/bin".to_owned(),
        });
    }
    let mut usual = folders_of("/usr/lib/postgresql", "", "bin");
    usual.extend(folders_of("/usr", "pgsql-", "bin"));
    usual.extend(["/usr/local/pgsql/bin", "/opt/homebrew/bin"].map(PathBuf::from));
    on_path().chain(pg_config()).chain(usual).find_map(|folder| postgres_in(&folder)).ok_or_else(|| RigError::Missing {
        what: format!(
            "PostgreSQL's server binaries (postgres and initdb, {MIN_POSTGRES} or newer) were not found on PATH, by \
             pg_config, or in /usr/lib/postgresql/*/bin"
        ),
        way_out: format!("{WAY_OUT}; or name their folder with --pg-bin"),
    })
}

fn postgres_in(folder: &Path) -> Option<Postgres> {
    if !folder.join("initdb").is_file() {
        return None;
    }
    let said = say(&folder.join("postgres"), "--version")?;
    let version = said.split_once(") ")?.1.split_whitespace().next()?.to_owned();
    // A beta says `19beta1`.
    let major: String = version.chars().take_while(char::is_ascii_digit).collect();
    (major.parse::<u32>().ok()? >= MIN_POSTGRES).then(|| Postgres { folder: folder.to_owned(), version })
}

fn pg_config() -> Option<PathBuf> {
    say(Path::new("pg_config"), "--bindir").map(PathBuf::from)
}

/// Looks for RabbitMQ and Erlang.
///
/// # Errors
/// What is missing and how to get it.
pub(crate) fn rabbitmq() -> Result<RabbitMq, RigError> {
    let missing = |what: &str| RigError::Missing { what: what.to_owned(), way_out: WAY_OUT.to_owned() };
    let mut usual = folders_of("/usr/lib/rabbitmq/lib", "rabbitmq_server-", "sbin");
    usual.extend(folders_of("/opt", "rabbitmq_server-", "sbin"));
    usual.extend(["/opt/rabbitmq/sbin", "/usr/local/sbin", "/opt/homebrew/sbin"].map(PathBuf::from));
    let server = on_path().chain(usual).find_map(|folder| script_in(&folder)).ok_or_else(|| {
        missing(
            "RabbitMQ was not found: no rabbitmq-server with its rabbitmq-env beside it on PATH or in \
                 /usr/lib/rabbitmq/lib/rabbitmq_server-*/sbin",
        )
    })?;
    let mut usual = vec![PathBuf::from("/usr/lib/erlang/bin"), PathBuf::from("/usr/local/lib/erlang/bin")];
    usual.extend(folders_of("/usr/lib/erlang", "erts-", "bin"));
    usual.extend(folders_of("/usr/local/lib/erlang", "erts-", "bin"));
    let find = |name: &str| on_path().chain(usual.clone()).find(|folder| folder.join(name).is_file());
    let erlang = find("erl").ok_or_else(|| missing("Erlang's erl, which RabbitMQ runs on, was not found"))?;
    let epmd = find("epmd").ok_or_else(|| missing("Erlang's epmd, which RabbitMQ needs, was not found"))?;
    Ok(RabbitMq { version: version_of(&server), server, epmd: epmd.join("epmd"), erlang })
}

/// The script that `folder/rabbitmq-server` is or links to, if it is the real one: Debian puts a wrapper on PATH that
/// starts it as the user `rabbitmq`.
fn script_in(folder: &Path) -> Option<PathBuf> {
    let script = fs::canonicalize(folder.join("rabbitmq-server")).ok()?;
    (script.file_name()? == "rabbitmq-server" && script.with_file_name("rabbitmq-env").is_file())
        .then_some(script)
}

fn version_of(server: &Path) -> Option<String> {
    let home = server.parent()?.parent()?.file_name()?.to_str()?;
    Some(home.strip_prefix("rabbitmq_server-")?.to_owned())
}

/// What RabbitMQ's node name needs, beside the binaries.
///
/// # Errors
/// When `localhost` has no address.
pub(crate) fn localhost() -> Result<(), RigError> {
    use std::net::ToSocketAddrs;
    match ("localhost", 0).to_socket_addrs() {
        Ok(_) => Ok(()),
        Err(error) => Err(RigError::Missing {
            what: format!("The name localhost has no address ({error}), and RabbitMQ's node is called by it"),
            way_out: "Add the line `127.0.0.1 localhost` to /etc/hosts".to_owned(),
        }),
    }
}

fn on_path() -> impl Iterator<Item = PathBuf> {
    env::split_paths(&env::var_os("PATH").unwrap_or_default()).collect::<Vec<_>>().into_iter()
}

/// `base/<prefix><version>/<inner>`, highest version first.
fn folders_of(base: &str, prefix: &str, inner: &str) -> Vec<PathBuf> {
    let mut found: Vec<(Vec<u32>, PathBuf)> = fs::read_dir(base)
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| {
            let name = entry.file_name();
            let version = name.to_str()?.strip_prefix(prefix)?;
            let parts = version.split('.').map_while(|part| part.parse().ok()).collect::<Vec<_>>();
            (!parts.is_empty()).then(|| (parts, entry.path().join(inner)))
        })
        .collect();
    found.sort_by_key(|(version, _)| Reverse(version.clone()));
    found.into_iter().map(|(_, path)| path).collect()
}

/// First line a program prints.
fn say(program: &Path, argument: &str) -> Option<String> {
    let output =
        Command::new(program).arg(argument).stdin(Stdio::null()).stderr(Stdio::null()).output().ok()?;
    output
        .status
        .success()
        .then(|| String::from_utf8_lossy(&output.stdout).lines().next().map(str::to_owned))?
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn program(folder: &Path, name: &str, says: &str) {
        fs::create_dir_all(folder).unwrap();
        let path = folder.join(name);
        fs::write(&path, format!("#!/bin/sh\necho '{says}'\n")).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    }

    #[test]
    fn a_folder_that_was_asked_for_is_the_only_one() {
        let base = tempfile::tempdir().unwrap();
        let folder = base.path().join("bin");
        program(&folder, "initdb", "");
        program(&folder, "postgres", "postgres (PostgreSQL) 17.2 (Debian 17.2-1)");
        assert_eq!(postgres(Some(&folder)).unwrap().version, "17.2");

        program(&folder, "postgres", "postgres (PostgreSQL) 12.9");
        let said = postgres(Some(&folder)).unwrap_err().to_string();
        assert!(said.contains("--pg-bin") && said.contains("14 or newer"), "{said}");
    }

    #[test]
    fn folders_come_with_the_highest_version_first() {
        let base = tempfile::tempdir().unwrap();
        for name in [
            "rabbitmq_server-3.9.13",
            "rabbitmq_server-3.10.8",
            "rabbitmq_server-3",
            "other",
            "rabbitmq_server-x",
        ] {
            fs::create_dir(base.path().join(name)).unwrap();
        }
        let found = folders_of(base.path().to_str().unwrap(), "rabbitmq_server-", "sbin");
        let names: Vec<_> =
            found.iter().map(|path| path.strip_prefix(base.path()).unwrap().to_str().unwrap()).collect();
        assert_eq!(
            names,
            ["rabbitmq_server-3.10.8/sbin", "rabbitmq_server-3.9.13/sbin", "rabbitmq_server-3/sbin"]
        );
    }

    #[test]
    fn a_wrapper_is_not_the_script() {
        let base = tempfile::tempdir().unwrap();
        let (wrapped, real) = (base.path().join("bin"), base.path().join("rabbitmq_server-3.10.8/sbin"));
        program(&wrapped, "rabbitmq-server", "");
        assert_eq!(script_in(&wrapped), None);
        program(&real, "rabbitmq-server", "");
        program(&real, "rabbitmq-env", "");
        let script = script_in(&real).unwrap();
        assert_eq!(version_of(&script).as_deref(), Some("3.10.8"));
    }
}
