//! Which rigs this machine can run, without starting one.

use super::{
    AMQP_URL, DATABASE_URL, RigError, RigKind, RigRequest, binaries,
    broker::Broker,
    containers::ImageName,
    docker,
    endpoints::Endpoints,
    engine::Engine,
    provision::refuse_pooler,
    space::{Rights, Separation},
};
use sqlx::PgConnection;

/// What was found of one rig.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// Which.
    pub kind: RigKind,
    /// Whether it would work, as far as that can be told without starting it.
    pub works: bool,
    /// What is there, or what is missing and how to get it. No secret is in it.
    pub lines: Vec<String>,
}

/// Looks at each rig, in the order in which `auto` takes them.
pub async fn survey(request: &RigRequest) -> Vec<Finding> {
    let (external, docker) = tokio::join!(external(request), containers(request));
    vec![external, docker, local(request)]
}

/// An image that is not there is asked for at its registry, and not pulled.
async fn containers(request: &RigRequest) -> Finding {
    let finding = |works, lines| Finding { kind: RigKind::Docker, works, lines };
    let engine = match Engine::connect().await {
        Ok(engine) => engine,
        Err(error) => return finding(false, vec![error.to_string()]),
    };
    if docker::engine_is_outside().await {
        return finding(
            false,
            vec![format!("{} answers", engine.version), docker::ENGINE_IS_OUTSIDE.to_owned()],
        );
    }
    let [postgres, rabbitmq] = request.wishes.all().images();
    let (postgres, rabbitmq) = tokio::join!(image(&engine, &postgres), image(&engine, &rabbitmq));
    let works = postgres.is_ok() && rabbitmq.is_ok();
    let images = [postgres, rabbitmq].map(|image| image.unwrap_or_else(|error| error.to_string()));
    finding(works, [format!("{} answers", engine.version)].into_iter().chain(images).collect())
}

async fn image(engine: &Engine, name: &ImageName) -> Result<String, RigError> {
    if engine.image(name).await?.is_some() {
        return Ok(format!("image {name} is there"));
    }
    engine.can_pull(name).await?;
    Ok(format!("image {name} is not there; its registry has it, and the first run pulls it"))
}

async fn external(request: &RigRequest) -> Finding {
    let finding = |works, lines| Finding { kind: RigKind::External, works, lines };
    let (Some(database), Some(amqp)) = &request.external else {
        return finding(
            false,
            vec![format!("set {DATABASE_URL} and {AMQP_URL} to use servers that are there")],
        );
    };
    let endpoints = match Endpoints::parse(database, amqp) {
        Ok(endpoints) => endpoints,
        Err(error) => return finding(false, vec![error.to_string()]),
    };
    let (database, broker) = tokio::join!(endpoints.connect(), Broker::connect(&endpoints.amqp));
    let (database, rights) = match database {
        Ok(mut connection) => {
            let rights = rights(&mut connection).await;
            (Ok(()), Some(refuse_pooler(&endpoints).await.and(rights)))
        }
        Err(error) => (Err(error), None),
    };
    let works = database.is_ok() && broker.is_ok() && rights.as_ref().is_some_and(Result::is_ok);
    let line = |name: &str, at: String, error: Option<&RigError>| {
        error.map_or_else(|| format!("{name} answers at {at}"), ToString::to_string)
    };
    let mut lines = vec![line("PostgreSQL", endpoints.database_at(), database.as_ref().err())];
    lines.extend(rights.map(|rights| rights.unwrap_or_else(|error| error.to_string())));
    lines.push(line("RabbitMQ", endpoints.amqp.at(), broker.as_ref().err()));
    if let Ok(broker) = broker {
        broker.close().await;
    }
    finding(works, lines)
}

/// What the role may do there.
async fn rights(connection: &mut PgConnection) -> Result<String, RigError> {
    let version: String = sqlx::query_scalar("SELECT current_setting('server_version')")
        .fetch_one(&mut *connection)
        .await
        .map_err(RigError::refused("ask for the version"))?;
    let rights = Rights::read(connection).await?;
    let space = match rights.separation()? {
        Separation::Databases => "may create databases",
        Separation::Schemas => "may create schemas and no databases",
    };
    let lacks = [(rights.checkpoint, "pg_checkpoint"), (rights.read_all_stats, "pg_monitor")];
    let lacks: Vec<_> = lacks.iter().filter(|(has, _)| !has).map(|(_, role)| *role).collect();
    let lacks =
        if lacks.is_empty() { String::new() } else { format!(", is no member of {}", lacks.join(" and ")) };
    Ok(format!("PostgreSQL {version}; the role {space}{lacks}"))
}

fn local(request: &RigRequest) -> Finding {
    let postgres = binaries::postgres(request.pg_bin.as_deref())
        .map(|found| format!("PostgreSQL {} in {}", found.version, found.folder.display()));
    let rabbitmq = binaries::rabbitmq().map(|found| {
        let version = found.version.as_deref().unwrap_or("of unknown version");
        format!("RabbitMQ {version} at {}, {} for Erlang", found.server.display(), found.erlang.display())
    });
    let localhost = binaries::localhost().map(|()| "localhost has an address".to_owned());
    let found = [postgres, rabbitmq, localhost];
    let works = found.iter().all(Result::is_ok);
    let lines = found.into_iter().map(|one| one.unwrap_or_else(|error| error.to_string())).collect();
    Finding { kind: RigKind::Local, works, lines }
}
