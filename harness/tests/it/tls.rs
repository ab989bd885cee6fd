//! Servers that are spoken to through TLS: a private authority, a wrong one, and a wrong name.

use std::{
    fs,
    os::unix::fs::{MetadataExt, PermissionsExt, chown},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

use crate::{
    rigs::{SOON, exe, free_port, provision, wait_until},
    scenarios::verify_external,
};
use drainer::BrokerUrl;
use harness::{
    record::Record,
    rig::{RigChoice, RigRequest},
};
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use sqlx::{AssertSqlSafe, Connection as _, PgConnection};

/// PEM files: an authority, and a certificate of its for the name `localhost` with its key.
struct Certificates {
    authority: PathBuf,
    certificate: PathBuf,
    key: PathBuf,
}

fn certificates(dir: &Path) -> Certificates {
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority = params.self_signed(&key).unwrap().pem();
    let issuer = Issuer::new(params, key);
    let key = KeyPair::generate().unwrap();
    let leaf =
        CertificateParams::new(vec!["localhost".to_owned()]).unwrap().signed_by(&key, &issuer).unwrap();
    let files = Certificates {
        authority: dir.join("authority.pem"),
        certificate: dir.join("certificate.pem"),
        key: dir.join("key.pem"),
    };
    fs::write(&files.authority, authority).unwrap();
    fs::write(&files.certificate, leaf.pem()).unwrap();
    fs::write(&files.key, key.serialize_pem()).unwrap();
    files
}

/// A RabbitMQ that listens for TLS alone, with a port mapper of its own. Ends when dropped.
struct Broker {
    _server: Ends,
    _port_mapper: Ends,
    port: u16,
    _home: tempfile::TempDir,
}

/// A process that ends with its owner.
struct Ends(Child);

impl Drop for Ends {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// RabbitMQ's own script: Debian's wrapper on PATH changes user.
fn start_script() -> PathBuf {
    let found = ["/usr/lib/rabbitmq/lib", "/opt"].into_iter().flat_map(fs::read_dir).flatten().flatten();
    let scripts = found.map(|entry| entry.path().join("sbin/rabbitmq-server"));
    scripts.filter(|script| script.is_file()).max().expect("RabbitMQ is installed")
}

fn broker(certificates: &Certificates) -> Broker {
    let home = tempfile::tempdir().unwrap();
    let (port, distribution, mapper) = (free_port(), free_port(), free_port());
    let file = |path: &Path| path.display().to_string();
    let configuration = format!(
        "listeners.tcp = none\nlisteners.ssl.1 = 127.0.0.1:{port}\nssl_options.cacertfile = {}\n\
         ssl_options.certfile = {}\nssl_options.keyfile = {}\nssl_options.verify = verify_none\n\
         default_user = drainbench\ndefault_pass = secret\ndisk_free_limit.absolute = 50MB\n",
        file(&certificates.authority),
        file(&certificates.certificate),
        file(&certificates.key),
    );
    fs::write(home.path().join("rabbitmq.conf"), configuration).unwrap();
    fs::write(home.path().join("plugins"), "[].\n").unwrap();
    let port_mapper = Command::new("epmd")
        .args(["-port", &mapper.to_string(), "-address", "127.0.0.1"])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let port_mapper = Ends(port_mapper);
    wait_until("the port mapper listens", SOON, || {
        std::net::TcpStream::connect(("127.0.0.1", mapper)).is_ok()
    });
    let log = fs::File::create(home.path().join("log")).unwrap();
    let server = Command::new(start_script())
        .envs([
            ("HOME", file(home.path())),
            ("ERL_EPMD_PORT", mapper.to_string()),
            ("ERL_EPMD_ADDRESS", "127.0.0.1".to_owned()),
            ("RUNNING_UNDER_SYSTEMD", "true".to_owned()),
            ("RABBITMQ_NODENAME", format!("tls-{port}@localhost")),
            ("RABBITMQ_MNESIA_BASE", file(&home.path().join("mnesia"))),
            ("RABBITMQ_LOG_BASE", file(&home.path().join("logs"))),
            ("RABBITMQ_CONFIG_FILE", file(&home.path().join("rabbitmq"))),
            ("RABBITMQ_ADVANCED_CONFIG_FILE", file(&home.path().join("advanced"))),
            ("RABBITMQ_ENABLED_PLUGINS_FILE", file(&home.path().join("plugins"))),
            ("RABBITMQ_PID_FILE", file(&home.path().join("pid"))),
            ("RABBITMQ_CONF_ENV_FILE", "/dev/null".to_owned()),
            ("RABBITMQ_DIST_PORT", distribution.to_string()),
            ("RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS", "-kernel inet_dist_use_interface {127,0,0,1}".to_owned()),
        ])
        .stdin(Stdio::null())
        .stdout(log.try_clone().unwrap())
        .stderr(log)
        .spawn()
        .unwrap();
    let broker = Broker { _server: Ends(server), _port_mapper: port_mapper, port, _home: home };
    wait_until("the broker listens", SOON, || std::net::TcpStream::connect(("127.0.0.1", port)).is_ok());
    broker
}

/// Has a PostgreSQL of ours speak TLS from now on.
async fn encrypt(admin: &mut PgConnection, certificates: &Certificates) {
    let data: String = sqlx::query_scalar("SHOW data_directory").fetch_one(&mut *admin).await.unwrap();
    let owner = fs::metadata(&data).unwrap();
    for (from, to) in [(&certificates.certificate, "server.crt"), (&certificates.key, "server.key")] {
        let to = Path::new(&data).join(to);
        fs::copy(from, &to).unwrap();
        fs::set_permissions(&to, fs::Permissions::from_mode(0o600)).unwrap();
        chown(&to, Some(owner.uid()), Some(owner.gid())).unwrap();
    }
    for statement in ["ALTER SYSTEM SET ssl = on", "SELECT pg_reload_conf()"] {
        sqlx::raw_sql(AssertSqlSafe(statement)).execute(&mut *admin).await.unwrap();
    }
}

fn verify(dir: &Path, database_url: &str, amqp_url: &str) -> (Option<i32>, String) {
    let placement = ["--set", "drainer.placement=process"];
    let (code, said) = verify_external(dir, database_url, amqp_url, &placement);
    assert!(!said.contains("secret"), "a password: {said}");
    (code, said)
}

#[tokio::test(flavor = "multi_thread")]
async fn both_servers_are_checked_against_a_private_authority() {
    let dir = tempfile::tempdir().unwrap();
    let ours = certificates(dir.path());
    let elsewhere = tempfile::tempdir().unwrap();
    let wrong = certificates(elsewhere.path());
    let request = RigRequest::from_env(RigChoice::Local, None).unwrap();
    let rig = provision(&RigRequest { exe: exe(), ..request }).await.unwrap();
    let [(_, plain), _] = rig.environment();
    let mut admin = PgConnection::connect(&plain).await.unwrap();
    encrypt(&mut admin, &ours).await;
    let broker = tokio::task::spawn_blocking({
        let ours = Certificates {
            authority: ours.authority.clone(),
            certificate: ours.certificate.clone(),
            key: ours.key.clone(),
        };
        move || broker(&ours)
    });
    let broker = broker.await.unwrap();

    let database = |host: &str, authority: &Path| {
        let url = plain.replace("127.0.0.1", host);
        url.replace("sslmode=disable", &format!("sslmode=verify-full&sslrootcert={}", authority.display()))
    };
    let amqp = |host: &str, authority: &Path| {
        let port = broker.port;
        format!("amqps://drainbench:secret@{host}:{port}/%2f?cacertfile={}", authority.display())
    };
    // It listens before it answers.
    let url: BrokerUrl = amqp("localhost", &ours.authority).parse().unwrap();
    crate::rigs::until("the broker answers", async || url.connect("test").await.is_ok()).await;

    let (code, said) =
        verify(dir.path(), &database("localhost", &ours.authority), &amqp("localhost", &ours.authority));
    assert_eq!(code, Some(0), "{said}");
    let record = Record::read(&dir.path().join("out/record.json")).unwrap();
    let version = record.rig.unwrap().rabbitmq_version;
    assert!(version.starts_with(|c: char| c.is_ascii_digit()), "{version}");
    let new = record.cells.last().unwrap();
    assert_eq!(new.audit.tally.delivered, new.counts.committed_events);

    let good = (database("localhost", &ours.authority), amqp("localhost", &ours.authority));
    for (database_url, amqp_url, server) in [
        (database("localhost", &wrong.authority), good.1.clone(), "PostgreSQL"),
        (database("127.0.0.1", &ours.authority), good.1.clone(), "PostgreSQL"),
        (good.0.clone(), amqp("localhost", &wrong.authority), "RabbitMQ"),
        (good.0.clone(), amqp("127.0.0.1", &ours.authority), "RabbitMQ"),
    ] {
        let out = tempfile::tempdir().unwrap();
        let (code, said) = verify(out.path(), &database_url, &amqp_url);
        assert_eq!(code, Some(2), "{said}");
        assert!(said.contains(server) && said.contains("certificate"), "{server}: {said}");
    }
    rig.close().await.unwrap();
}
