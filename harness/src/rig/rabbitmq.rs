//! A private RabbitMQ: a node of its own, with a port mapper of its own, that no other node knows.

use std::{
    fs,
    net::{Ipv4Addr, SocketAddr},
    path::PathBuf,
};

use tokio::{net::TcpStream, process::Command, time::Instant};

use super::{
    READY_WITHIN, RigError, ServerKind,
    binaries::RabbitMq,
    broker,
    guard::Guard,
    secret,
    server::{ATTEMPTS, Ground, LOOK_EVERY, Server, Starting, free_port, lost_its_port, search_path},
    teardown::Held,
};

/// A broker that answers.
pub(crate) struct Started {
    pub(crate) server: Server,
    pub(crate) port_mapper: Server,
    pub(crate) url: String,
}

/// Ports of one attempt.
struct Ports {
    amqp: u16,
    distribution: u16,
    port_mapper: u16,
}

/// Credentials and folders.
struct Node<'a> {
    ground: &'a Ground,
    binaries: &'a RabbitMq,
    home: PathBuf,
    name: String,
    password: String,
}

/// User of the broker.
const USER: &str = "drainbench";

/// Starts a broker in the rig's folder. The guard ends it.
pub(crate) async fn start(
    ground: &Ground,
    binaries: &RabbitMq,
    run: &str,
    guard: &Guard,
) -> Result<Started, RigError> {
    let node = Node {
        ground,
        binaries,
        home: ground.folder.join("rabbitmq"),
        name: format!("drainbench-{run}@localhost"),
        password: secret::random(32)?,
    };
    let mut attempt = 1;
    loop {
        match node.attempt(guard).await {
            Err(error) if attempt < ATTEMPTS && lost_its_port(&error) => attempt += 1,
            ended => return ended,
        }
    }
}

impl Node<'_> {
    async fn attempt(&self, guard: &Guard) -> Result<Started, RigError> {
        let ports = Ports { amqp: free_port()?, distribution: free_port()?, port_mapper: free_port()? };
        self.prepare(&ports)?;
        let hold = |server: &Server| {
            if let Some(process) = server.process() {
                guard.hold(Held::Server(process));
            }
        };
        let mut port_mapper = self.start_port_mapper(&ports)?;
        hold(&port_mapper);
        let started = async {
            // Without one that runs in the foreground Erlang would start its own, which outlives everything.
            answers(&mut port_mapper, ports.port_mapper).await?;
            let mut server = self.start_server(&ports)?;
            hold(&server);
            let url = format!("amqp://{USER}:{}@127.0.0.1:{}/%2f", self.password, ports.amqp);
            ready(&mut server, &url).await?;
            Ok((server, url))
        };
        match started.await {
            Ok((server, url)) => Ok(Started { server, port_mapper, url }),
            Err(error) => {
                port_mapper.kill().await;
                Err(error)
            }
        }
    }

    /// Folders and files of one attempt; what an earlier one left is gone before.
    fn prepare(&self, ports: &Ports) -> Result<(), RigError> {
        let cookie = secret::random(32)?;
        let prepared = || {
            if self.home.exists() {
                fs::remove_dir_all(&self.home)?;
            }
            self.ground.make_folder(&self.home)?;
            for folder in ["mnesia", "log"] {
                self.ground.make_folder(&self.home.join(folder))?;
            }
            // Read from the home folder: on the command line everybody could see it.
            self.ground.write_secret(&self.home.join(".erlang.cookie"), &cookie)?;
            self.ground.write_secret(&self.home.join("plugins"), "[].\n")?;
            self.ground.write_secret(&self.home.join("rabbitmq.conf"), &self.configuration(ports))
        };
        prepared().map_err(RigError::refused(format!("prepare {}", self.home.display())))
    }

    fn configuration(&self, ports: &Ports) -> String {
        let Ports { amqp, .. } = ports;
        format!(
            "listeners.tcp.1 = 127.0.0.1:{amqp}\ndefault_user = {USER}\ndefault_pass = {}\ndisk_free_limit.absolute = 50MB\n\
             log.console = false\nlog.file.level = info\n",
            self.password
        )
    }

    fn command(&self, program: &std::path::Path, ports: &Ports) -> Command {
        let mut command = self.ground.command(program, search_path(&self.binaries.erlang));
        command
            .env("HOME", &self.home)
            .env("ERL_EPMD_PORT", ports.port_mapper.to_string())
            .env("ERL_EPMD_ADDRESS", "127.0.0.1")
            // A killed node must not spend its last seconds on a crash dump.
            .env("ERL_CRASH_DUMP_SECONDS", "0");
        command
    }

    fn start_port_mapper(&self, ports: &Ports) -> Result<Server, RigError> {
        let mut command = self.command(&self.binaries.epmd, ports);
        command.args(["-port", &ports.port_mapper.to_string(), "-address", "127.0.0.1"]);
        Server::start(ServerKind::RabbitMq, command, self.ground.folder.join("epmd.log"), vec![])
    }

    fn start_server(&self, ports: &Ports) -> Result<Server, RigError> {
        let mut command = self.command(&self.binaries.server, ports);
        let own_log = self.home.join("log").join(format!("{}.log", self.name));
        command
            // Then the start script replaces itself by the Erlang machine, which so is a child of ours.
            .env("RUNNING_UNDER_SYSTEMD", "true")
            .env("RABBITMQ_NODENAME", &self.name)
            .env("RABBITMQ_MNESIA_BASE", self.home.join("mnesia"))
            .env("RABBITMQ_LOG_BASE", self.home.join("log"))
            // Without its `.conf`.
            .env("RABBITMQ_CONFIG_FILE", self.home.join("rabbitmq"))
            .env("RABBITMQ_ADVANCED_CONFIG_FILE", self.home.join("advanced"))
            .env("RABBITMQ_ENABLED_PLUGINS_FILE", self.home.join("plugins"))
            .env("RABBITMQ_PID_FILE", self.home.join("pid"))
            // The machine's own node has its settings there.
            .env("RABBITMQ_CONF_ENV_FILE", "/dev/null")
            .env("RABBITMQ_DIST_PORT", ports.distribution.to_string())
            .env("RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS", "-kernel inet_dist_use_interface {127,0,0,1}");
        let log = self.ground.folder.join("rabbitmq.log");
        Server::start(ServerKind::RabbitMq, command, log, vec![own_log])
    }
}

fn local(port: u16) -> SocketAddr {
    (Ipv4Addr::LOCALHOST, port).into()
}

/// Waits until the port mapper listens.
async fn answers(port_mapper: &mut Server, port: u16) -> Result<(), RigError> {
    let deadline = Instant::now() + READY_WITHIN;
    while TcpStream::connect(local(port)).await.is_err() {
        port_mapper.check().await?;
        if Instant::now() >= deadline {
            let reason = format!("epmd did not answer within {} s", READY_WITHIN.as_secs());
            return Err(port_mapper.not_started(reason).await);
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
    port_mapper.check().await
}

/// Waits until the broker greets: it opens its port as the last thing it does.
pub(super) async fn ready(server: &mut impl Starting, url: &str) -> Result<(), RigError> {
    let url = url.parse().map_err(RigError::refused("read its own RabbitMQ URL"))?;
    let deadline = Instant::now() + READY_WITHIN;
    while broker::version(&url).await.is_err() {
        server.check().await?;
        if Instant::now() >= deadline {
            let reason = format!("it did not answer within {} s", READY_WITHIN.as_secs());
            return Err(server.not_started(reason).await);
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
    server.check().await
}
