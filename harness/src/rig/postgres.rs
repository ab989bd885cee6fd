//! A private PostgreSQL.

use std::{fs::OpenOptions, io::Write, path::Path, time::Duration};

use sqlx::{Connection, PgConnection, postgres::PgConnectOptions};
use tokio::time::Instant;

use super::{
    READY_WITHIN, RigError, ServerKind,
    binaries::Postgres,
    guard::Guard,
    secret,
    server::{ATTEMPTS, Ground, LOOK_EVERY, Server, Starting, free_port, lost_its_port, search_path},
    teardown::Held,
};

/// What every server of ours runs with. Durability is on, or nothing measured would mean anything.
pub(super) const SETTINGS: [(&str, &str); 4] =
    [("max_connections", "300"), ("fsync", "on"), ("synchronous_commit", "on"), ("full_page_writes", "on")];

/// Its superuser.
const USER: &str = "drainbench";

/// A server that answers.
pub(crate) struct Started {
    pub(crate) server: Server,
    pub(crate) url: String,
}

/// Makes a cluster in the rig's folder and starts it. The guard ends it.
pub(crate) async fn start(ground: &Ground, binaries: &Postgres, guard: &Guard) -> Result<Started, RigError> {
    let home = ground.folder.join("postgres");
    let data = home.join("data");
    let password = secret::random(32)?;
    ground.make_folder(&home).map_err(RigError::refused(format!("make {}", home.display())))?;
    init(ground, binaries, &data, &password).await?;
    let mut attempt = 1;
    loop {
        let port = free_port()?;
        configure(&data, port).map_err(RigError::refused("write PostgreSQL's configuration"))?;
        let mut command = ground.command(&binaries.folder.join("postgres"), search_path(&binaries.folder));
        command.arg("-D").arg(&data);
        let mut server =
            Server::start(ServerKind::PostgreSql, command, ground.folder.join("postgres.log"), vec![])?;
        if let Some(process) = server.process() {
            guard.hold(Held::Postgres(process));
        }
        let url = format!("postgres://{USER}:{password}@127.0.0.1:{port}/postgres?sslmode=disable");
        match ready(&mut server, &url).await {
            Ok(()) => return Ok(Started { server, url }),
            Err(error) if attempt < ATTEMPTS && lost_its_port(&error) => attempt += 1,
            Err(error) => return Err(error),
        }
    }
}

/// Not synced: a cluster whose machine goes down while it is made is made again. When it runs it has fsync on.
async fn init(ground: &Ground, binaries: &Postgres, data: &Path, password: &str) -> Result<(), RigError> {
    let password_file = ground.folder.join("postgres/password");
    let failed = RigError::refused("prepare PostgreSQL's folder");
    ground.write_secret(&password_file, password).map_err(failed)?;
    let mut command = ground.command(&binaries.folder.join("initdb"), search_path(&binaries.folder));
    command.arg("--pgdata").arg(data).arg("--pwfile").arg(&password_file).args([
        "--username",
        USER,
        "--auth=scram-sha-256",
        "--encoding=UTF8",
        "--locale=C",
        "--no-sync",
    ]);
    let output = tokio::time::timeout(READY_WITHIN, command.kill_on_drop(true).output()).await;
    std::fs::remove_file(&password_file).map_err(RigError::refused("remove PostgreSQL's password file"))?;
    let not_started =
        |reason: String, log: String| RigError::NotStarted { server: ServerKind::PostgreSql, reason, log };
    match output {
        Ok(Ok(output)) if output.status.success() => Ok(()),
        Ok(Ok(output)) => {
            let log = String::from_utf8_lossy(&output.stderr).trim().to_owned();
            Err(not_started(format!("initdb failed ({})", output.status), log))
        }
        Ok(Err(error)) => Err(not_started(format!("initdb could not be run ({error})"), String::new())),
        Err(_) => {
            Err(not_started(format!("initdb took more than {} s", READY_WITHIN.as_secs()), String::new()))
        }
    }
}

/// Later lines win, so that a second attempt just adds its port.
fn configure(data: &Path, port: u16) -> std::io::Result<()> {
    let mut file = OpenOptions::new().append(true).open(data.join("postgresql.conf"))?;
    let own: String = SETTINGS.iter().map(|(name, value)| format!("{name} = {value}\n")).collect();
    write!(
        file,
        "\nlisten_addresses = '127.0.0.1'\nport = {port}\nunix_socket_directories = ''\nlogging_collector = off\n\
         log_destination = 'stderr'\n{own}"
    )
}

/// Waits until it lets us in.
pub(super) async fn ready(server: &mut impl Starting, url: &str) -> Result<(), RigError> {
    let options: PgConnectOptions = url.parse().map_err(RigError::refused("read its own PostgreSQL URL"))?;
    let deadline = Instant::now() + READY_WITHIN;
    loop {
        let connected =
            tokio::time::timeout(Duration::from_secs(5), PgConnection::connect_with(&options)).await;
        if let Ok(Ok(connection)) = connected {
            let _ = connection.close().await;
            // Not another server that took the port.
            return server.check().await;
        }
        server.check().await?;
        if Instant::now() >= deadline {
            let reason = format!("it did not answer within {} s", READY_WITHIN.as_secs());
            return Err(server.not_started(reason).await);
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}
