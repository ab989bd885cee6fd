//! Where the servers are and how to get in. Holds passwords: nothing here is ever shown but [`Endpoints::at`].

use std::{net::SocketAddr, time::Duration};

use drainer::{BrokerUrl, BrokerUrlError};
use sqlx::{Connection, PgConnection, postgres::PgConnectOptions};

use super::{RigError, ServerKind};
use crate::sampler::probe::said;

/// How long a server that is up may take to let us in.
pub(crate) const CONNECT_WITHIN: Duration = Duration::from_secs(5);

/// Both servers.
#[derive(Clone)]
pub(crate) struct Endpoints {
    /// As it was given or made up; for the guard and for commands that run against the rig.
    pub(crate) database_url: String,
    /// The same, parsed.
    pub(crate) database: PgConnectOptions,
    /// The broker.
    pub(crate) amqp: Amqp,
}

/// The broker's URL.
#[derive(Clone)]
pub(crate) struct Amqp(pub(crate) BrokerUrl);

impl Endpoints {
    /// Reads both URLs.
    pub(crate) fn parse(database_url: &str, amqp_url: &str) -> Result<Self, RigError> {
        let database = database_url
            .parse::<PgConnectOptions>()
            .ok()
            // A part of the password would be taken for the host, and shown.
            .filter(|_| !drainer::broker_url::is_ambiguous(database_url))
            .filter(|_| ["postgres://", "postgresql://"].iter().any(|scheme| database_url.starts_with(scheme)))
            .ok_or_else(|| RigError::Misconfigured {
                what: "DRAINBENCH_DATABASE_URL is not a PostgreSQL URL".to_owned(),
                way_out: "Write it as postgres://user:password@host:port/database, special characters percent-encoded"
                    .to_owned(),
            })?;
        let database = without_brackets(database);
        Ok(Self { database_url: database_url.to_owned(), database, amqp: Amqp::parse(amqp_url)? })
    }

    /// `host:port` of the database, or its socket.
    pub(crate) fn database_at(&self) -> String {
        match self.database.get_socket() {
            Some(socket) => socket.display().to_string(),
            None => format!("{}:{}", self.database.get_host(), self.database.get_port()),
        }
    }

    /// A connection to the maintenance database.
    pub(crate) async fn connect(&self) -> Result<PgConnection, RigError> {
        self.connect_to(&self.database).await
    }

    /// A connection to one of our databases.
    pub(crate) async fn connect_to(&self, options: &PgConnectOptions) -> Result<PgConnection, RigError> {
        let unreachable = |reason: String| RigError::Unreachable {
            server: ServerKind::PostgreSql,
            at: self.database_at(),
            reason,
        };
        let options = options.clone().application_name("drainbench rig");
        match tokio::time::timeout(CONNECT_WITHIN, PgConnection::connect_with(&options)).await {
            Ok(Ok(connection)) => Ok(connection),
            Ok(Err(error)) => Err(unreachable(said(&error))),
            Err(_) => Err(unreachable(no_answer())),
        }
    }
}

/// A URL writes an IPv6 address in brackets, and whoever looks names up wants it without.
pub(crate) fn without_brackets(options: PgConnectOptions) -> PgConnectOptions {
    match options.get_host().strip_prefix('[').and_then(|host| host.strip_suffix(']')) {
        Some(host) => {
            let host = host.to_owned();
            options.host(&host)
        }
        None => options,
    }
}

/// What a deadline that passed reads like.
pub(crate) fn no_answer() -> String {
    format!("no answer within {} s", CONNECT_WITHIN.as_secs())
}

impl Amqp {
    fn parse(url: &str) -> Result<Self, RigError> {
        let wrong = |what: String, way_out: &str| RigError::Misconfigured {
            what: format!("DRAINBENCH_AMQP_URL {what}"),
            way_out: way_out.to_owned(),
        };
        if url.contains("@[") || url.contains("//[") {
            return Err(wrong(
                "holds an IPv6 address, which the client library can't read".to_owned(),
                "Give a host name that leads there",
            ));
        }
        match url.parse::<BrokerUrl>() {
            Ok(url) => Ok(Self(url)),
            Err(BrokerUrlError::NotAmqp) => Err(wrong(
                "is not an AMQP URL".to_owned(),
                "Write it as amqp://user:password@host:port/vhost, special characters percent-encoded (the vhost / is \
                 %2f), or amqps://... for TLS",
            )),
            Err(error) => Err(wrong(format!("can't be used: {error}"), "Correct it, or take it out")),
        }
    }

    /// `host:port`.
    pub(crate) fn at(&self) -> String {
        self.0.address()
    }

    /// Its addresses.
    pub(crate) async fn addresses(&self) -> Result<Vec<SocketAddr>, RigError> {
        let found =
            tokio::time::timeout(CONNECT_WITHIN, tokio::net::lookup_host((self.0.host(), self.0.port())));
        match found.await {
            Ok(Ok(addresses)) => Ok(addresses.collect()),
            Ok(Err(error)) => Err(self.unreachable(error.to_string())),
            Err(_) => Err(self.unreachable("its name was not resolved in time".to_owned())),
        }
    }

    /// Why the broker can't be used.
    pub(crate) fn unreachable(&self, reason: String) -> RigError {
        RigError::Unreachable { server: ServerKind::RabbitMq, at: self.at(), reason }
    }

    /// The same credentials and vhost, by way of `addr`. With TLS the certificate must still be the broker's: its name
    /// goes along.
    pub(crate) fn via(&self, addr: SocketAddr) -> Result<BrokerUrl, BrokerUrlError> {
        let (scheme, rest) = self.0.as_str().split_once("://").ok_or(BrokerUrlError::NotAmqp)?;
        let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
        let (authority, tail) = rest.split_at(end);
        let tail = tail.split('#').next().unwrap_or_default();
        let user = authority.rsplit_once('@').map_or(String::new(), |(user, _)| format!("{user}@"));
        let mut url = format!("{scheme}://{user}{addr}{tail}");
        let query = tail.split_once('?').map_or("", |(_, query)| query);
        if self.0.is_encrypted() && !query.split('&').any(|pair| pair.starts_with("server_name_indication="))
        {
            let and = if tail.contains('?') { '&' } else { '?' };
            url.push_str(&format!("{and}server_name_indication={}", self.0.server_name()));
        }
        url.parse()
    }
}

#[cfg(test)]
mod tests {
    use lapin::uri::AMQPUri;

    use super::*;

    const PG: &str = "postgres://me:se%40cret@db.example:6543/app";

    #[test]
    fn a_url_by_way_of_a_proxy_keeps_all_but_host_and_port() {
        let addr: SocketAddr = "127.0.0.1:4000".parse().unwrap();
        for (url, expected) in [
            (
                "amqp://u:p%40ss@mq.example:5673/%2fv?heartbeat=10",
                "amqp://u:p%40ss@127.0.0.1:4000/%2fv?heartbeat=10",
            ),
            ("amqp://mq.example", "amqp://127.0.0.1:4000"),
            ("amqps://u:p@mq.example/v", "amqps://u:p@127.0.0.1:4000/v?server_name_indication=mq.example"),
            (
                "amqps://u:p@mq.example/v?heartbeat=10",
                "amqps://u:p@127.0.0.1:4000/v?heartbeat=10&server_name_indication=mq.example",
            ),
            (
                "amqps://u:p@mq.example/v?server_name_indication=other",
                "amqps://u:p@127.0.0.1:4000/v?server_name_indication=other",
            ),
        ] {
            let endpoints = Endpoints::parse(PG, url).unwrap();
            let via = endpoints.amqp.via(addr).unwrap();
            assert_eq!(via.as_str(), expected);
            assert_eq!(via.as_str().parse::<AMQPUri>().unwrap().vhost, url.parse::<AMQPUri>().unwrap().vhost);
        }
    }

    #[test]
    fn says_where_without_the_password() {
        let endpoints = Endpoints::parse(PG, "amqp://u:hidden@mq.example/v").unwrap();
        assert_eq!(endpoints.database_at(), "db.example:6543");
        assert_eq!(endpoints.amqp.at(), "mq.example:5672");
    }

    #[test]
    fn a_wrong_url_is_named_and_not_repeated() {
        for (database, amqp, named) in [
            ("mysql://u:hidden@h/d", "amqp://h", "DRAINBENCH_DATABASE_URL"),
            (PG, "amqp://u:hidden@[2001:db8::1]:5672/%2f", "IPv6"),
            ("postgres://u:hidden@h:port/d", "amqp://h", "DRAINBENCH_DATABASE_URL"),
            ("postgres://me:a@hidden/p@h/d", "amqp://h", "DRAINBENCH_DATABASE_URL"),
            (PG, "amqp://me:1/hidden@h/v", "DRAINBENCH_AMQP_URL"),
            (PG, "http://u:hidden@h", "DRAINBENCH_AMQP_URL"),
            (PG, "amqp://u:hidden@h:port", "DRAINBENCH_AMQP_URL"),
            (PG, "amqps://u:hidden@h?cacertfile=/no/such.pem", "/no/such.pem"),
            (PG, "amqps://u:hidden@h?verify=verify_none", "verify_peer"),
        ] {
            let Err(error) = Endpoints::parse(database, amqp) else { panic!("{database} {amqp} was taken") };
            let said = error.to_string();
            assert!(said.contains(named), "{said}");
            assert!(!said.contains("hidden"), "{said}");
        }
    }
}
