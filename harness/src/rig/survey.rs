//! Which rigs this machine can run, without starting one.

use super::{
    AMQP_URL, DATABASE_URL, RigError, RigKind, RigRequest, binaries, broker::Broker, endpoints::Endpoints,
    provision::NO_DOCKER,
};

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
    let docker =
        Finding { kind: RigKind::Docker, works: false, lines: vec![format!("not there yet: {NO_DOCKER}")] };
    vec![external(request).await, docker, local(request)]
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
    let works = database.is_ok() && broker.is_ok();
    let line = |name: &str, at: String, error: Option<&RigError>| {
        error.map_or_else(|| format!("{name} answers at {at}"), ToString::to_string)
    };
    let lines = vec![
        line("PostgreSQL", endpoints.database_at(), database.as_ref().err()),
        line("RabbitMQ", endpoints.amqp.at(), broker.as_ref().err()),
    ];
    if let Ok(broker) = broker {
        broker.close().await;
    }
    finding(works, lines)
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
