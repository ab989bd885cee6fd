//! Where the servers are and how to get in. Holds passwords: nothing here is ever shown but [`Endpoints::at`].

use std::{net::SocketAddr, str::FromStr, time::Duration};

use lapin::uri::{AMQPScheme, AMQPUri};
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
pub(crate) struct Amqp {
    /// As it was given or made up.
    pub(crate) url: String,
    /// Host, without brackets.
    host: String,
    port: u16,
}

impl Endpoints {
    /// Reads both URLs.
    pub(crate) fn parse(database_url: &str, amqp_url: &str) -> Result<Self, RigError> {
        let database = database_url
            .parse::<PgConnectOptions>()
            .ok()
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
        let wrong = |what: &str, way_out: &str| RigError::Misconfigured {
            what: format!("DRAINBENCH_AMQP_URL {what}"),
            way_out: way_out.to_owned(),
        };
        let form = "Write it as amqp://user:password@host:port/vhost, special characters percent-encoded (the vhost / is \
                    %2f)";
        // The client takes such an address for a missing one and goes to localhost: to another broker.
        if url.contains("@[") || url.contains("//[") {
            return Err(wrong(
                "holds an IPv6 address, which the client library can't read",
                "Give a host name that leads there",
            ));
        }
        // Its own error would repeat the URL, password and all.
        let parsed = AMQPUri::from_str(url).map_err(|_| wrong("is not an AMQP URL", form))?;
        match parsed.scheme {
            AMQPScheme::AMQP => {}
            AMQPScheme::AMQPS => {
                return Err(wrong(
                    "asks for TLS, which this release does not speak: drainers go through a delay line on loopback, \
                     whose name no certificate has",
                    "Give an amqp:// URL",
                ));
            }
        }
        let host = parsed.authority.host.trim_start_matches('[').trim_end_matches(']').to_owned();
        Ok(Self { url: url.to_owned(), host, port: parsed.authority.port })
    }

    /// `host:port`.
    pub(crate) fn at(&self) -> String {
        format!("{}:{}", self.host, self.port)
    }

    /// Its addresses.
    pub(crate) async fn addresses(&self) -> Result<Vec<SocketAddr>, RigError> {
        let found =
            tokio::time::timeout(CONNECT_WITHIN, tokio::net::lookup_host((self.host.as_str(), self.port)));
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

    /// The same credentials and vhost, by way of `addr`.
    pub(crate) fn via(&self, addr: SocketAddr) -> String {
        let Some((scheme, rest)) = self.url.split_once("://") else { return self.url.clone() };
        let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
        let (authority, tail) = rest.split_at(end);
        match authority.rsplit_once('@') {
            Some((user, _)) => format!("{scheme}://{user}@{addr}{tail}"),
            None => format!("{scheme}://{addr}{tail}"),
        }
    }
}

#[cfg(test)]
mod tests {
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
        ] {
            let endpoints = Endpoints::parse(PG, url).unwrap();
            assert_eq!(endpoints.amqp.via(addr), expected);
            assert_eq!(
                AMQPUri::from_str(&endpoints.amqp.via(addr)).unwrap().vhost,
                AMQPUri::from_str(url).unwrap().vhost
            );
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
            (PG, "http://u:hidden@h", "DRAINBENCH_AMQP_URL"),
            (PG, "amqp://u:hidden@h:port", "DRAINBENCH_AMQP_URL"),
            (PG, "amqps://u:hidden@h", "TLS"),
        ] {
            let Err(error) = Endpoints::parse(database, amqp) else { panic!("{database} {amqp} was taken") };
            let said = error.to_string();
            assert!(said.contains(named), "{said}");
            assert!(!said.contains("hidden"), "{said}");
        }
    }
}
