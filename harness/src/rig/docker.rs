//! Both servers in containers. Ports are published on loopback alone, and used only where a container cannot be reached
//! without the engine's proxy; the guard removes them by their label.

use std::{
    net::{IpAddr, Ipv4Addr, SocketAddr},
    path::Path,
};

use testcontainers::{
    ContainerAsync, ContainerRequest, CopyTargetOptions, GenericImage, ImageExt, TestcontainersError,
    bollard::models::{HostConfig, PortBinding},
    core::{ContainerPort, IntoContainerPort},
    runners::AsyncRunner,
};
use tokio::net::UnixStream;

use super::{
    READY_WITHIN, RigError, ServerKind,
    containers::{Containers, ImageName},
    endpoints::Endpoints,
    engine::{self, Engine},
    folder, names, postgres, rabbitmq, secret,
    server::Starting,
};

const USER: &str = "drainbench";

/// Where PostgreSQL's image reads its password. In the environment `docker inspect` would show it.
const PASSWORD_FILE: &str = "/run/drainbench/password";

/// Read by RabbitMQ's image after its own files.
const RABBITMQ_CONF: &str = "/etc/rabbitmq/conf.d/90-drainbench.conf";

/// PostgreSQL's shared memory beside its buffers; an engine's default of 64 MB is too little for parallel workers.
const SHARED_MEMORY: u64 = 256 << 20;

/// Why `auto` does not take containers here, and what an explicit choice needs.
pub(super) const ENGINE_IS_OUTSIDE: &str = "the engine works outside of the container that this is, and ports of its \
                                            containers are on the loopback out there: run this with --network host and \
                                            ask for --rig docker";

/// Whether we are in a container and the engine is not, as where its socket was mounted into ours: the process behind the
/// socket then has no number that we know. An engine that was started in here has one.
pub(super) async fn engine_is_outside() -> bool {
    let in_a_container = ["/.dockerenv", "/run/.containerenv"].iter().any(|mark| Path::new(mark).exists());
    let host = std::env::var("DOCKER_HOST").unwrap_or_else(|_| "unix:///var/run/docker.sock".to_owned());
    // One that is reached by TCP was reached on our loopback.
    let Some(socket) = host.strip_prefix("unix://").filter(|_| in_a_container) else { return false };
    match UnixStream::connect(socket).await.and_then(|stream| stream.peer_cred()) {
        Ok(peer) => peer.pid().is_none_or(|pid| pid == 0),
        Err(_) => false,
    }
}

/// An image that is there.
#[derive(Clone)]
pub(super) struct Image {
    pub(super) name: ImageName,
    pub(super) id: String,
}

/// What the containers of a rig have in common.
pub(super) struct Ground<'a> {
    pub(super) engine: &'a Engine,
    pub(super) run: &'a str,
    pub(super) folder: &'a Path,
    pub(super) limits: &'a Containers,
}

/// Starts both at once and waits until they answer. The guard knows of them already.
pub(super) async fn start(ground: &Ground<'_>, images: &[Image; 2]) -> Result<Endpoints, RigError> {
    let [postgres, rabbitmq] = images;
    let (database_url, amqp_url) =
        tokio::try_join!(start_postgres(ground, postgres), start_rabbitmq(ground, rabbitmq))?;
    Endpoints::parse(&database_url, &amqp_url)
}

async fn start_postgres(ground: &Ground<'_>, image: &Image) -> Result<String, RigError> {
    let password = secret::random(32)?;
    let request = ground
        .request(image, names::POSTGRES, 5432.tcp())
        .with_env_var("POSTGRES_USER", USER)
        .with_env_var("POSTGRES_DB", "postgres")
        .with_env_var("POSTGRES_PASSWORD_FILE", PASSWORD_FILE)
        .with_env_var("POSTGRES_INITDB_ARGS", "--encoding=UTF8 --locale=C")
        // Its entrypoint reads it as the server's own user.
        .with_copy_to(CopyTargetOptions::new(PASSWORD_FILE).with_mode(0o444), password.clone().into_bytes())
        .with_shm_size(SHARED_MEMORY)
        .with_cmd(postgres::SETTINGS.iter().fold(
            vec!["postgres".to_owned()],
            |mut command, (name, value)| {
                command.extend(["-c".to_owned(), format!("{name}={value}")]);
                command
            },
        ));
    let (mut container, addr) = ground.start(ServerKind::PostgreSql, request, 5432.tcp()).await?;
    let url = format!("postgres://{USER}:{password}@{addr}/postgres?sslmode=disable");
    postgres::ready(&mut container, &url).await?;
    Ok(url)
}

async fn start_rabbitmq(ground: &Ground<'_>, image: &Image) -> Result<String, RigError> {
    let password = secret::random(32)?;
    let configuration = format!(
        "default_user = {USER}\ndefault_pass = {password}\ndisk_free_limit.absolute = 50MB\nlog.console = true\n"
    );
    let request = ground
        .request(image, names::RABBITMQ, 5672.tcp())
        .with_copy_to(CopyTargetOptions::new(RABBITMQ_CONF).with_mode(0o444), configuration.into_bytes());
    let (mut container, addr) = ground.start(ServerKind::RabbitMq, request, 5672.tcp()).await?;
    let url = format!("amqp://{USER}:{password}@{addr}/%2f");
    rabbitmq::ready(&mut container, &url).await?;
    Ok(url)
}

impl Ground<'_> {
    fn request(&self, image: &Image, server: &str, port: ContainerPort) -> ContainerRequest<GenericImage> {
        let (name, tag) = image.name.name_and_tag();
        let (cpus, memory) = (self.limits.cpus, self.limits.memory);
        let publish = move |host: &mut HostConfig| {
            let loopback =
                PortBinding { host_ip: Some("127.0.0.1".to_owned()), host_port: Some("0".to_owned()) };
            host.publish_all_ports = Some(false);
            host.port_bindings = Some([(port.to_string(), Some(vec![loopback]))].into());
            host.nano_cpus = cpus.map(super::Cpus::nanos);
            host.memory = memory.map(super::Memory::bytes);
            // Without it the engine allows as much swap again, and a limit would mean a slow disk.
            host.memory_swap = host.memory;
        };
        GenericImage::new(name, tag)
            .with_exposed_port(port)
            .with_container_name(names::container(self.run, server))
            .with_labels([
                (engine::RUN, self.run),
                (engine::FOLDER, &self.folder.display().to_string()),
                (engine::PLACE, &folder::place()),
            ])
            .with_startup_timeout(READY_WITHIN)
            .with_host_config_modifier(publish)
    }

    async fn start(
        &self,
        kind: ServerKind,
        request: ContainerRequest<GenericImage>,
        port: ContainerPort,
    ) -> Result<(Container, SocketAddr), RigError> {
        let failed = |error: TestcontainersError| RigError::NotStarted {
            server: kind,
            reason: engine::innermost(&error),
            log: String::new(),
        };
        let started = request.start().await.map_err(failed)?;
        let published = started.get_host_port_ipv4(port).await;
        let container = Container { kind, id: started.id().to_owned(), engine: self.engine.clone() };
        hand_over(started);
        match published {
            // The proxy of a published port copies each message twice. On two cores with `workspace` that made 34,000 of the
            // 20,000 context switches a second, and 130 ms of a p99 of 33 ms.
            Ok(published) => Ok(match self.engine.own_address(&container.id).await {
                Some(own) => (container, SocketAddr::new(own, port.as_u16())),
                None => (container, SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), published)),
            }),
            // One that ended at once has no ports any more: say that instead.
            Err(error) => {
                container.check_now().await?;
                Err(failed(error))
            }
        }
    }
}

/// The guard removes it. The library would as well when this is dropped, needs a runtime for that and panics without.
fn hand_over(container: ContainerAsync<GenericImage>) {
    std::mem::forget(container);
}

/// A container that was started.
struct Container {
    kind: ServerKind,
    id: String,
    engine: Engine,
}

impl Container {
    async fn check_now(&self) -> Result<(), RigError> {
        match self.engine.ended(&self.id).await? {
            None => Ok(()),
            Some(reason) => Err(self.not_started(reason).await),
        }
    }
}

impl Starting for Container {
    async fn check(&mut self) -> Result<(), RigError> {
        self.check_now().await
    }

    async fn not_started(&self, reason: String) -> RigError {
        let reason =
            if engine_is_outside().await { format!("{reason}; {ENGINE_IS_OUTSIDE}") } else { reason };
        RigError::NotStarted { server: self.kind, reason, log: self.engine.log(&self.id).await }
    }
}
