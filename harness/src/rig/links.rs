//! The ways of a cell's drainers to their servers.

use std::{
    net::{Ipv4Addr, SocketAddr},
    time::Duration,
};

use drainer::BrokerUrl;
use sqlx::postgres::{PgConnectOptions, PgSslMode};

use super::{
    RigError,
    endpoints::{Amqp, CONNECT_WITHIN, Endpoints, no_answer},
    link::{Link, Protocol},
};
use crate::{
    scenario::{Breaks, Cell, Placement, Server},
    wire::postgres::Idle,
};

/// Links of the drainers. Only theirs: the load, the sampler and the sink never go through one.
///
/// Where nothing is broken on purpose all drainers share one to the broker, which has its latency, and go to the
/// database without. Else each drainer has one of its own to each server it can be cut off from: to the broker always,
/// to the database where it is a process, because one that shares its service's pool would take it along.
#[derive(Debug)]
pub struct Links {
    instances: usize,
    broker: Vec<(Link, BrokerUrl)>,
    database: Vec<Link>,
}

impl Links {
    pub(super) async fn start(endpoints: &Endpoints, cell: &Cell) -> Result<Self, RigError> {
        let drainer = &cell.settings.drainer;
        let instances = if cell.design.drains_database() { drainer.instances.get() as usize } else { 1 };
        let seats = usize::from(cell.settings.load.services) * instances;
        let to_broker = if cell.faults.is_empty() || !cell.design.drains_database() { 1 } else { seats };
        let on_the_way = |server| cell.faults.iter().any(|fault| fault.breaks.way() == Some(server));
        let needed = on_the_way(Server::Database) || cell.settings.sampler.witness;
        let of_their_own = cell.design.drains_database() && drainer.placement == Placement::Process;
        let to_database = if needed && of_their_own { seats } else { 0 };
        let crashes = cell.faults.iter().any(|fault| matches!(fault.breaks, Breaks::Crash { .. }));
        let broker_says = if crashes { Protocol::Amqp } else { Protocol::Unread };

        let upstream = broker_address(&endpoints.amqp).await?;
        let mut links = Self { instances, broker: Vec::new(), database: Vec::new() };
        for _ in 0..to_broker {
            let link = start(broker_says, upstream, cell.settings.broker.latency).await?;
            let url = endpoints
                .amqp
                .via(link.addr())
                .map_err(RigError::refused("put the link in the broker's URL"))?;
            links.broker.push((link, url));
        }
        if to_database > 0 {
            let upstream = database_address(&endpoints.database).await?;
            for _ in 0..to_database {
                links.database.push(start(Protocol::Postgres, upstream, Duration::ZERO).await?);
            }
        }
        Ok(links)
    }

    /// Where that drainer finds the broker. Secret.
    #[must_use]
    pub fn broker_url(&self, service: u16, instance: u16) -> &BrokerUrl {
        let place = if self.broker.len() == 1 { 0 } else { self.place(service, instance) };
        &self.broker[place].1
    }

    /// Where that drainer finds the database, when not where everybody does.
    pub(crate) fn database(&self, service: u16, instance: u16) -> Option<SocketAddr> {
        self.database.get(self.place(service, instance)).map(Link::addr)
    }

    /// The links to a server of all drainers, or of those that are that instance of their service.
    pub fn to(&self, server: Server, instance: Option<u16>) -> Vec<&Link> {
        let all: Vec<&Link> = match server {
            Server::Broker => self.broker.iter().map(|(link, _)| link).collect(),
            Server::Database => self.database.iter().collect(),
        };
        let shared = all.len() == 1;
        let is_meant = |place: usize| {
            shared || instance.is_none_or(|instance| place % self.instances == usize::from(instance))
        };
        all.into_iter().enumerate().filter(|(place, _)| is_meant(*place)).map(|(_, link)| link).collect()
    }

    /// The link to a server of that drainer.
    pub fn of(&self, server: Server, service: u16, instance: u16) -> Option<&Link> {
        let place = self.place(service, instance);
        match server {
            Server::Broker => self.broker.get(place).map(|(link, _)| link),
            Server::Database => self.database.get(place),
        }
    }

    /// How long drainers sat in a transaction while they did something else, of all connections that went through a link
    /// and have ended; `None` where none reads along.
    ///
    /// # Errors
    /// Why one of them could not be read.
    pub fn idle(&self) -> Option<Result<Idle, String>> {
        let first = self.database.first()?.idle();
        Some(self.database[1..].iter().fold(first, |all, link| {
            let (all, here) = (all?, link.idle()?);
            Ok(Idle {
                total_ns: all.total_ns + here.total_ns,
                longest_ns: all.longest_ns.max(here.longest_ns),
                spells: all.spells + here.spells,
                longest_transaction_ns: all.longest_transaction_ns.max(here.longest_transaction_ns),
            })
        }))
    }

    /// Client connections that the broker has from drainers, all of which go through a link; 0 when the broker has read
    /// what they sent and has closed them all.
    #[must_use]
    pub fn broker_connections(&self) -> usize {
        self.broker.iter().map(|(link, _)| link.connections()).sum()
    }

    fn place(&self, service: u16, instance: u16) -> usize {
        usize::from(service) * self.instances + usize::from(instance)
    }
}

async fn start(protocol: Protocol, upstream: SocketAddr, delay: Duration) -> Result<Link, RigError> {
    Link::reading(protocol, upstream, delay).await.map_err(RigError::refused("start a link"))
}

/// The first of the broker's addresses that answers.
async fn broker_address(amqp: &Amqp) -> Result<SocketAddr, RigError> {
    answering(amqp.addresses().await?).await.map_err(|reason| amqp.unreachable(reason))
}

async fn database_address(options: &PgConnectOptions) -> Result<SocketAddr, RigError> {
    let refused = |reason: String| RigError::Refused {
        doing: "put a link between the drainers and their database".to_owned(),
        reason,
    };
    if options.get_socket().is_some() {
        return Err(refused("the database's URL names a socket: name a host and a port".to_owned()));
    }
    if matches!(options.get_ssl_mode(), PgSslMode::VerifyFull) {
        // The certificate is the server's and the link is on loopback.
        return Err(refused("its URL has sslmode=verify-full: write verify-ca for this run".to_owned()));
    }
    let host = options.get_host().trim_matches(['[', ']']);
    let addresses = tokio::net::lookup_host((host, options.get_port())).await;
    let addresses = addresses.map_err(|error| refused(error.to_string()))?.collect();
    answering(addresses).await.map_err(refused)
}

async fn answering(addresses: Vec<SocketAddr>) -> Result<SocketAddr, String> {
    let mut reason = "its name has no address".to_owned();
    for addr in addresses {
        match tokio::time::timeout(CONNECT_WITHIN, tokio::net::TcpStream::connect(addr)).await {
            Ok(Ok(_)) => return Ok(addr),
            Ok(Err(error)) => reason = error.to_string(),
            Err(_) => reason = no_answer(),
        }
    }
    Err(reason)
}

/// The same database, through a link.
pub(super) fn via(options: PgConnectOptions, link: SocketAddr) -> PgConnectOptions {
    options.host(&Ipv4Addr::LOCALHOST.to_string()).port(link.port())
}
