//! The Docker engine: whether one answers, the images it has or can get, and our containers in it.

use std::{
    collections::{BTreeMap, HashMap},
    error::Error,
    future::Future,
    net::IpAddr,
    path::PathBuf,
    time::Duration,
};

use docker_credential::DockerCredential;
use futures_util::StreamExt;
use testcontainers::{
    bollard::{
        Docker,
        auth::DockerCredentials,
        errors::Error as EngineError,
        models::{ContainerSummary, ContainerSummaryStateEnum, CreateImageInfo},
        query_parameters::{
            CreateImageOptionsBuilder, InspectContainerOptions, ListContainersOptionsBuilder,
            LogsOptionsBuilder, RemoveContainerOptionsBuilder,
        },
    },
    core::client::docker_client_instance,
};
use tokio::time::{Instant, timeout};

use super::{RigError, containers::ImageName, names, provision::Say, server::last_lines};

/// How long an engine that is up may take to say who it is.
const ANSWERS_WITHIN: Duration = Duration::from_secs(5);

/// How long one of its other answers may take: it may be busy removing a volume.
const WORKS_WITHIN: Duration = Duration::from_secs(20);

/// How long a registry may take to say a first word. The engine itself gives up a connection after 15 s.
const REGISTRY_WITHIN: Duration = Duration::from_secs(20);

/// How long a pull may stand still.
const PULL_STALLS: Duration = Duration::from_secs(60);

/// How often a pull says how far it is.
const SAYS_EVERY: Duration = Duration::from_secs(2);

/// Label: the run that a container belongs to.
pub(super) const RUN: &str = "org.drainbench.run";
/// Label: the folder whose lock says that the run lives.
pub(super) const FOLDER: &str = "org.drainbench.folder";
/// Label: where that folder's path means anything.
pub(super) const PLACE: &str = "org.drainbench.place";

const WAY_OUT: &str = "Start one (dockerd, Docker Desktop), name another in DOCKER_HOST, or take --rig local";

/// An engine that answers.
#[derive(Clone)]
pub(crate) struct Engine {
    docker: Docker,
    /// `Docker 20.10.24`
    pub(super) version: String,
}

/// One of our containers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Found {
    pub(super) id: String,
    pub(super) run: String,
    pub(super) folder: PathBuf,
    pub(super) place: String,
    pub(super) runs: bool,
    /// Seconds since 1970.
    pub(super) created: i64,
}

impl Engine {
    /// The one of DOCKER_HOST, or of the default socket.
    ///
    /// # Errors
    /// When none answers, or when it is one whose loopback is not ours.
    pub(crate) async fn connect() -> Result<Self, RigError> {
        let told = std::env::var("DOCKER_HOST").ok();
        let is_remote =
            told.as_ref().is_some_and(|host| host.starts_with("tcp:") || host.starts_with("http"));
        let at = is_here(told)?;
        let missing = |reason: String| RigError::Missing {
            what: format!("No Docker engine answers at {at} ({reason})"),
            way_out: WAY_OUT.to_owned(),
        };
        // The container library has a panic for a certificate's folder that is missing.
        if is_remote
            && std::env::var_os("DOCKER_TLS_VERIFY").is_some_and(|value| value == "1")
            && std::env::var_os("DOCKER_CERT_PATH").is_none()
        {
            return Err(missing("DOCKER_TLS_VERIFY is set and DOCKER_CERT_PATH is not".to_owned()));
        }
        let docker = docker_client_instance().await.map_err(|error| missing(innermost(&error)))?;
        let version = match timeout(ANSWERS_WITHIN, docker.version()).await {
            Ok(Ok(version)) => version.version.unwrap_or_else(|| "of unknown version".to_owned()),
            Ok(Err(error)) => return Err(missing(innermost(&error))),
            Err(_) => return Err(missing(format!("no answer within {} s", ANSWERS_WITHIN.as_secs()))),
        };
        Ok(Self { docker, version: format!("Docker {version}") })
    }

    /// CPUs and bytes of memory that its containers can have.
    pub(super) async fn size(&self) -> Result<(i64, i64), RigError> {
        let info =
            within(self.docker.info()).await.map_err(|refusal| refusal.of("ask the engine for its size"))?;
        Ok((info.ncpu.unwrap_or(i64::MAX), info.mem_total.unwrap_or(i64::MAX)))
    }

    /// The id of an image that is there.
    pub(super) async fn image(&self, name: &ImageName) -> Result<Option<String>, RigError> {
        match within(self.docker.inspect_image(&name.full())).await {
            Ok(image) => Ok(Some(image.id.unwrap_or_default())),
            Err(Refusal::Engine(EngineError::DockerResponseServerError { status_code: 404, .. })) => Ok(None),
            Err(refusal) => Err(refusal.of(format!("look for image {name}"))),
        }
    }

    /// Whether an image that is not there could be pulled, as far as the registry's first word tells.
    ///
    /// # Errors
    /// Why it could not.
    pub(super) async fn can_pull(&self, name: &ImageName) -> Result<(), RigError> {
        let (full, credentials) = (name.full(), credentials(name).await);
        match timeout(REGISTRY_WITHIN, self.docker.inspect_registry_image(&full, credentials)).await {
            Ok(Ok(_)) => Ok(()),
            Ok(Err(error)) => Err(cannot_pull(name, &innermost(&error))),
            Err(_) => Err(cannot_pull(name, &silent())),
        }
    }

    /// Gets an image from its registry.
    ///
    /// # Errors
    /// When the registry does not answer soon, says no, or stops sending.
    pub(super) async fn pull(&self, name: &ImageName, say: Say<'_>) -> Result<(), RigError> {
        let options = CreateImageOptionsBuilder::new().from_image(&name.full()).build();
        let events = self.docker.create_image(Some(options), None, credentials(name).await);
        tokio::pin!(events);
        let mut layers = Layers::default();
        let mut said: Option<Instant> = None;
        let mut patience = REGISTRY_WITHIN;
        loop {
            match timeout(patience, events.next()).await {
                Ok(None) => return Ok(()),
                Ok(Some(Ok(event))) => {
                    if let Some(error) =
                        event.error_detail.as_ref().and_then(|detail| detail.message.as_ref())
                    {
                        return Err(cannot_pull(name, error));
                    }
                    layers.learn(&event);
                    if said.is_none_or(|said| said.elapsed() >= SAYS_EVERY) {
                        said = Some(Instant::now());
                        say(&format!("pulling {name}{}", layers.text()));
                    }
                    patience = PULL_STALLS;
                }
                Ok(Some(Err(error))) => return Err(cannot_pull(name, &innermost(&error))),
                Err(_) => return Err(cannot_pull(name, &silent())),
            }
        }
    }

    /// Whether a container runs; why not, if it does not.
    pub(super) async fn ended(&self, id: &str) -> Result<Option<String>, RigError> {
        let state = match within(self.docker.inspect_container(id, None::<InspectContainerOptions>)).await {
            Ok(container) => container.state.unwrap_or_default(),
            Err(Refusal::Engine(EngineError::DockerResponseServerError { status_code: 404, .. })) => {
                return Ok(Some("its container is gone".to_owned()));
            }
            Err(refusal) => return Err(refusal.of(format!("look at container {id}"))),
        };
        if state.running == Some(true) {
            return Ok(None);
        }
        let code = state.exit_code.unwrap_or_default();
        let memory = if state.oom_killed == Some(true) { ", out of memory" } else { "" };
        let error = state.error.filter(|error| !error.is_empty()).map(|error| format!(": {error}"));
        Ok(Some(format!("its container ended (exit code {code}{memory}){}", error.unwrap_or_default())))
    }

    /// Where a container is reached without the engine's port proxy: its own address, where that lies in a network of
    /// this machine. Elsewhere (an engine in a virtual machine, or without root) there may be somebody else.
    pub(super) async fn own_address(&self, id: &str) -> Option<IpAddr> {
        let inspected =
            within(self.docker.inspect_container(id, None::<InspectContainerOptions>)).await.ok()?;
        let networks = inspected.network_settings?.networks?;
        networks.into_values().find_map(|network| {
            let own = network.ip_address?.parse().ok()?;
            let gateway: IpAddr = network.gateway?.parse().ok()?;
            // Only an address of this machine can be bound.
            std::net::UdpSocket::bind((gateway, 0)).ok().map(|_| own)
        })
    }

    /// The last lines that a container wrote.
    pub(super) async fn log(&self, id: &str) -> String {
        let options = LogsOptionsBuilder::new().stdout(true).stderr(true).tail("50").build();
        let mut lines = self.docker.logs(id, Some(options));
        let mut text = String::new();
        while let Ok(Some(Ok(line))) = timeout(WORKS_WITHIN, lines.next()).await {
            text.push_str(&line.to_string());
        }
        last_lines(&text)
    }

    /// All containers that are ours by label and by name: of one run, or of every run.
    pub(super) async fn ours(&self, run: Option<&str>) -> Result<Vec<Found>, RigError> {
        let label = run.map_or_else(|| RUN.to_owned(), |run| format!("{RUN}={run}"));
        let filters = HashMap::from([("label".to_owned(), vec![label])]);
        let options = ListContainersOptionsBuilder::new().all(true).filters(&filters).build();
        let listed = within(self.docker.list_containers(Some(options))).await;
        let listed = listed.map_err(|refusal| refusal.of("list its containers"))?;
        Ok(listed.into_iter().filter_map(found).collect())
    }

    /// Removes all containers of a run with their volumes, until none was seen for `quiet`. Returns what is left, by name.
    pub(crate) async fn remove_run(&self, run: &str, quiet: Duration) -> Vec<String> {
        let begun = Instant::now();
        let mut seen = begun;
        loop {
            let found = match self.ours(Some(run)).await {
                Ok(found) => found,
                Err(error) => return vec![format!("containers of run {run}, if any ({error})")],
            };
            if found.is_empty() && seen.elapsed() >= quiet {
                return Vec::new();
            }
            if !found.is_empty() {
                seen = Instant::now();
            }
            let mut left = Vec::new();
            for Found { id, .. } in found {
                let reason = self.remove(&id).await.err();
                left.push(
                    reason.map_or_else(
                        || format!("container {id}"),
                        |error| format!("container {id} ({error})"),
                    ),
                );
            }
            if begun.elapsed() >= quiet + WORKS_WITHIN {
                return left;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    async fn remove(&self, id: &str) -> Result<(), RigError> {
        let options = RemoveContainerOptionsBuilder::new().force(true).v(true).build();
        match within(self.docker.remove_container(id, Some(options))).await {
            // 404: gone; 409: somebody else is at it, and the next look tells.
            Ok(())
            | Err(Refusal::Engine(EngineError::DockerResponseServerError {
                status_code: 404 | 409, ..
            })) => Ok(()),
            Err(refusal) => Err(refusal.of("remove it")),
        }
    }
}

/// A no, or none in time.
enum Refusal {
    Engine(EngineError),
    Late,
}

impl Refusal {
    fn of(self, doing: impl Into<String>) -> RigError {
        let reason = match self {
            Self::Engine(error) => innermost(&error),
            Self::Late => format!("no answer of the Docker engine within {} s", WORKS_WITHIN.as_secs()),
        };
        RigError::refused(doing)(reason)
    }
}

async fn within<T>(answer: impl Future<Output = Result<T, EngineError>>) -> Result<T, Refusal> {
    timeout(WORKS_WITHIN, answer).await.map_err(|_| Refusal::Late)?.map_err(Refusal::Engine)
}

/// Where the engine is, if its loopback addresses are ours: that is where ports are published.
fn is_here(docker_host: Option<String>) -> Result<String, RigError> {
    let unread = |what: &str| RigError::Missing {
        what: format!("{what}, and says nothing to this program"),
        way_out: "Name the engine's socket in DOCKER_HOST, such as unix:///run/docker.sock, or unset it"
            .to_owned(),
    };
    let Some(host) = docker_host else {
        return match std::env::var("DOCKER_CONTEXT") {
            Ok(context) if !["", "default"].contains(&context.as_str()) => {
                Err(unread(&format!("DOCKER_CONTEXT is {context}")))
            }
            _ => Ok("the default socket".to_owned()),
        };
    };
    if host.is_empty() {
        return Err(unread("DOCKER_HOST is empty"));
    }
    // Whoever puts a password there must not read it in a log.
    let host = match (host.split_once("://"), host.rsplit_once('@')) {
        (Some((scheme, _)), Some((_, at))) => format!("{scheme}://{at}"),
        _ => host,
    };
    let remote = host.split_once("://").filter(|(scheme, _)| *scheme != "unix").map(|(_, rest)| rest);
    let is_loopback = |at: &str| ["localhost", "127.", "[::1]"].iter().any(|name| at.starts_with(name));
    match remote {
        Some(at) if !is_loopback(at) => Err(RigError::Missing {
            what: format!(
                "DOCKER_HOST is {host}, an engine on another machine: its servers' ports are on loopback there"
            ),
            way_out: "Use an engine of this machine, or start the servers there and take --rig external"
                .to_owned(),
        }),
        _ => Ok(host),
    }
}

fn silent() -> String {
    format!("its registry does not answer within {} s", REGISTRY_WITHIN.as_secs())
}

fn cannot_pull(name: &ImageName, reason: &str) -> RigError {
    RigError::Missing {
        what: format!("Image {name} is not there and cannot be pulled: {reason}"),
        way_out: "Name an image that is there with --postgres-image or --rabbitmq-image, load this one (docker load), \
                  build both from Debian packages (scripts/images --debian), or take --rig local"
            .to_owned(),
    }
}

/// As `docker login` left them. A registry that wants none gets none, and so does one whose helper (a program) hangs.
async fn credentials(name: &ImageName) -> Option<DockerCredentials> {
    let registry = name.registry().to_owned();
    let server = Some(registry.clone());
    let asked = tokio::task::spawn_blocking(move || docker_credential::get_credential(&registry).ok());
    match timeout(ANSWERS_WITHIN, asked).await.ok()?.ok()?? {
        DockerCredential::IdentityToken(token) => Some(DockerCredentials {
            identitytoken: Some(token),
            serveraddress: server,
            ..Default::default()
        }),
        DockerCredential::UsernamePassword(user, password) => Some(DockerCredentials {
            username: Some(user),
            password: Some(password),
            serveraddress: server,
            ..Default::default()
        }),
    }
}

/// What went wrong at the bottom: the layers above it say "error" in other words. The engine's own word stands alone.
pub(super) fn innermost(error: &(dyn Error + 'static)) -> String {
    let mut error = error;
    while let Some(source) = error.source() {
        error = source;
    }
    match error.downcast_ref::<EngineError>() {
        Some(EngineError::DockerResponseServerError { message, .. }) => message.clone(),
        _ => error.to_string(),
    }
}

/// One that carries our labels and our form of name.
fn found(container: ContainerSummary) -> Option<Found> {
    let labels = container.labels?;
    let run = labels.get(RUN)?;
    let is_named = container.names?.iter().any(|name| names::is_container(name.trim_start_matches('/'), run));
    let folder = labels.get(FOLDER)?.into();
    let place = labels.get(PLACE)?.clone();
    is_named.then(|| Found {
        id: container.id.unwrap_or_default(),
        run: run.clone(),
        folder,
        place,
        runs: container.state == Some(ContainerSummaryStateEnum::RUNNING),
        created: container.created.unwrap_or_default(),
    })
}

/// How far a pull is: bytes of each layer.
#[derive(Default)]
struct Layers(BTreeMap<String, (i64, i64)>);

impl Layers {
    fn learn(&mut self, event: &CreateImageInfo) {
        let downloads = event.status.as_deref() == Some("Downloading");
        let progress = event.progress_detail.as_ref().filter(|_| downloads);
        if let (Some(id), Some(progress)) = (&event.id, progress) {
            let bytes = (progress.current.unwrap_or(0), progress.total.unwrap_or(0));
            self.0.insert(id.clone(), bytes);
        }
    }

    fn text(&self) -> String {
        let (done, all) = self.0.values().fold((0, 0), |(done, all), layer| (done + layer.0, all + layer.1));
        if all > 0 { format!(": {} of {} MB", done / 1_000_000, all / 1_000_000) } else { String::new() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_engine_elsewhere_is_refused() {
        for here in ["unix:///run/docker.sock", "tcp://127.0.0.1:2375", "tcp://localhost:2375"] {
            assert!(is_here(Some(here.to_owned())).is_ok(), "{here}");
        }
        let said = is_here(Some("tcp://me:hidden@build.example:1".to_owned())).unwrap_err().to_string();
        assert!(said.contains("build.example") && !said.contains("hidden"), "{said}");
        assert!(is_here(Some(String::new())).is_err());
        let said = is_here(Some("tcp://build.example:2376".to_owned())).unwrap_err().to_string();
        assert!(said.contains("build.example") && said.contains("--rig external"), "{said}");
    }

    #[test]
    fn a_container_of_others_is_not_ours() {
        let labels = |run: &str| {
            Some(HashMap::from([
                (RUN.to_owned(), run.to_owned()),
                (FOLDER.to_owned(), "/tmp/x".to_owned()),
                (PLACE.to_owned(), "here".to_owned()),
            ]))
        };
        let container = |name: &str, run: &str| ContainerSummary {
            names: Some(vec![format!("/{name}")]),
            labels: labels(run),
            ..Default::default()
        };
        assert!(found(container("drainbench_ab12cd34_postgres", "ab12cd34")).is_some());
        for (name, run) in [
            ("drainbench_ab12cd34_postgres", "other123"),
            ("postgres", "ab12cd34"),
            ("drainbench_ab12cd34_something", "ab12cd34"),
        ] {
            assert_eq!(found(container(name, run)), None, "{name} {run}");
        }
        assert_eq!(found(ContainerSummary::default()), None);
    }
}
