//! PgBouncer in front of the server: refused where it hands sessions round, used where it does not. `make rigs` installs
//! it.

use std::{
    fs,
    net::TcpStream,
    os::unix::fs::PermissionsExt,
    process::{Child, Command, Stdio},
};

use crate::{
    rigs::{exe, free_port, shared, until},
    scenarios::{said, verify_external},
};
use harness::rig::Rig;
use sqlx::postgres::PgConnectOptions;

/// Ends when dropped.
struct Pooler {
    process: Child,
    port: u16,
    _folder: tempfile::TempDir,
}

impl Drop for Pooler {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// In front of the rig's PostgreSQL, with these settings; whoever comes gets the rig's role.
async fn pooler(rig: &Rig, settings: &str) -> Pooler {
    let [(_, url), _] = rig.environment();
    let server: PgConnectOptions = url.parse().unwrap();
    let password = url.split_once(":").unwrap().1.split_once(':').unwrap().1.split_once('@').unwrap().0;
    let port = free_port();
    let folder = tempfile::tempdir().unwrap();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let file = folder.path().join("pgbouncer.ini");
    let text = format!(
        "[databases]\n* = host={} port={} user={} password={password}\n[pgbouncer]\nlisten_addr = 127.0.0.1\n\
         listen_port = {port}\nunix_socket_dir =\nauth_type = any\nmax_client_conn = 300\ndefault_pool_size = 50\n{settings}\n",
        server.get_host(),
        server.get_port(),
        server.get_username(),
    );
    fs::write(&file, text).unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).unwrap();
    let mut command = Command::new("/usr/sbin/pgbouncer");
    if rustix::process::geteuid().is_root() {
        // It does not run as root.
        command.args(["-u", "nobody"]);
    }
    let process = command.arg("-q").arg(&file).stdin(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let pooler = Pooler { process, port, _folder: folder };
    until("the pooler listens", async || TcpStream::connect(("127.0.0.1", port)).is_ok()).await;
    pooler
}

fn url(pooler: &Pooler) -> String {
    format!("postgres://drainbench:any@127.0.0.1:{}/postgres?sslmode=disable", pooler.port)
}

fn verify(rig: &Rig, pooler: &Pooler) -> (Option<i32>, String) {
    let dir = tempfile::tempdir().unwrap();
    let [_, (_, amqp_url)] = rig.environment();
    verify_external(dir.path(), &url(pooler), &amqp_url, &[])
}

const TAKES_OUR_PARAMETERS: &str = "ignore_startup_parameters = extra_float_digits, options";

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs PgBouncer: make rigs"]
async fn a_pool_of_transactions_is_refused_with_the_reason() {
    let rig = shared().await;
    for mode in ["transaction", "transaction\nserver_round_robin = 1", "statement"] {
        let pooler = pooler(&rig, &format!("pool_mode = {mode}\n{TAKES_OUR_PARAMETERS}")).await;
        // The second time there are idle sessions to be handed round.
        for _ in 0..2 {
            let (code, said) = verify(&rig, &pooler);
            assert_eq!(code, Some(2), "{said}");
            assert!(
                said.contains("pool_mode = transaction") && said.contains("DRAINBENCH_DATABASE_URL"),
                "{said}"
            );
        }
        let [_, (_, amqp_url)] = rig.environment();
        let output = Command::new(exe().with_file_name("drainer"))
            .env("DRAINER_DATABASE_URL", url(&pooler))
            .env("DRAINER_AMQP_URL", amqp_url)
            .output()
            .unwrap();
        let (_, said) = said(&output);
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(said.contains("pool_mode = transaction"), "{said}");
    }
    rig.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs PgBouncer: make rigs"]
async fn a_pooler_that_refuses_the_connection_is_quoted() {
    let rig = shared().await;
    let pooler = pooler(&rig, "pool_mode = transaction").await;
    let (code, said) = verify(&rig, &pooler);
    assert_eq!(code, Some(2), "{said}");
    assert!(said.contains("startup parameter"), "{said}");
    rig.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs PgBouncer: make rigs"]
async fn a_pool_of_sessions_is_used() {
    let rig = shared().await;
    let pooler = pooler(&rig, &format!("pool_mode = session\n{TAKES_OUR_PARAMETERS}")).await;
    let (code, said) = verify(&rig, &pooler);
    assert_eq!(code, Some(0), "{said}");
    rig.close().await.unwrap();
}
