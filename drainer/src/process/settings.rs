//! What a drainer process is told, valid before anything is connected.

use sqlx::postgres::PgConnectOptions;

use crate::{
    BrokerUrl, BrokerUrlError, Config, ConfigError, Design,
    config::bound,
    environment::{Environment, variable},
};

/// More would need more connections than a server has.
const DATABASES: usize = 256;

/// What the settings are for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum For {
    Draining,
    Migrating,
}

/// Valid settings of a process.
pub(super) struct Settings {
    /// By name, in the order given.
    pub(super) databases: Vec<(String, PgConnectOptions)>,
    /// Never shown. Empty when migrating.
    pub(super) amqp_url: String,
    pub(super) design: Design,
    pub(super) connections: u32,
    pub(super) config: Config,
    /// Variables of ours that nothing reads.
    pub(super) unknown: Vec<String>,
}

impl Settings {
    /// # Errors
    /// The first setting that is missing or wrong. No value of a URL is shown.
    pub(super) fn read(env: &Environment, purpose: For) -> Result<Self, ConfigError> {
        let config = Config::from_environment(env)?;
        let amqp_url = match purpose {
            For::Draining => amqp_url(env)?,
            For::Migrating => String::new(),
        };
        Ok(Self {
            databases: databases(env)?,
            amqp_url,
            design: design(env)?,
            connections: connections(env)?,
            config,
            unknown: env.unknown().into_iter().map(str::to_owned).collect(),
        })
    }
}

fn rule(
    env: &Environment,
    name: &'static str,
    value: String,
    rule: &str,
    way_out: &'static str,
) -> ConfigError {
    let variable = env.names().remove(name).unwrap_or_else(|| variable(name));
    ConfigError::Rule { variable, value, rule: rule.to_owned(), way_out }
}

const HIDDEN: &str = "no such URL (not shown: it may hold a password)";

fn amqp_url(env: &Environment) -> Result<String, ConfigError> {
    let way_out = "set it to amqp://user:password@host:5672/vhost, with %2f for the virtual host /";
    let missing = || ConfigError::Missing { variable: variable("AMQP_URL"), way_out };
    let url = env.text("AMQP_URL")?.ok_or_else(missing)?;
    match url.parse::<BrokerUrl>() {
        Ok(_) => Ok(url),
        Err(BrokerUrlError::NotAmqp) => Err(rule(env, "AMQP_URL", HIDDEN.to_owned(), "an AMQP URL", way_out)),
        Err(error) => {
            let way_out = "correct it, or take it out";
            Err(rule(
                env,
                "AMQP_URL",
                "not shown: it may hold a password".to_owned(),
                &error.to_string(),
                way_out,
            ))
        }
    }
}

fn design(env: &Environment) -> Result<Design, ConfigError> {
    let Some(name) = env.text("DESIGN")? else {
        return Ok(Design::Lease);
    };
    Design::ALL.iter().copied().find(|design| design.as_str() == name).ok_or_else(|| {
        let known: Vec<&str> = Design::ALL.iter().map(|design| design.as_str()).collect();
        let way_out = "choose one of them (single-tx needs a build with the feature `baseline`)";
        rule(env, "DESIGN", format!("{name:?}"), &known.join(" or "), way_out)
    })
}

fn connections(env: &Environment) -> Result<u32, ConfigError> {
    let connections = env.number("POOL")?.unwrap_or(2);
    if bound::POOL.contains(&connections) {
        return Ok(connections);
    }
    let bounds = format!("{} to {}", bound::POOL.start(), bound::POOL.end());
    Err(rule(
        env,
        "POOL",
        connections.to_string(),
        &bounds,
        "set it within these bounds, or leave it out for 2",
    ))
}

fn databases(env: &Environment) -> Result<Vec<(String, PgConnectOptions)>, ConfigError> {
    let (name, urls) = match (env.text("DATABASE_URL")?, env.text("DATABASE_URLS")?) {
        (Some(_), Some(_)) => {
            return Err(ConfigError::Conflict {
                first: variable("DATABASE_URL"),
                second: variable("DATABASE_URLS"),
                values: "values hidden".to_owned(),
            });
        }
        (Some(one), None) => ("DATABASE_URL", vec![one.trim().to_owned()]),
        (None, Some(many)) => ("DATABASE_URLS", many.split_whitespace().map(str::to_owned).collect()),
        (None, None) => {
            return Err(ConfigError::Missing {
                variable: variable("DATABASE_URL"),
                way_out: "set it, or DRAINER_DATABASE_URLS for many, to postgres://user:password@host/database",
            });
        }
    };
    if urls.is_empty() || urls.len() > DATABASES {
        let way_out = "separate the URLs by blanks";
        return Err(rule(env, name, format!("{} URLs", urls.len()), "1 to 256 URLs", way_out));
    }
    let mut databases: Vec<(String, PgConnectOptions)> = Vec::new();
    for url in &urls {
        let way_out = "set it to postgres://user:password@host/database, many also as name=postgres://...";
        let (label, options) =
            database(url).ok_or_else(|| rule(env, name, HIDDEN.to_owned(), "PostgreSQL URLs", way_out))?;
        if databases.iter().any(|(other, _)| *other == label) {
            let way_out = "tell them apart as name=url";
            return Err(rule(
                env,
                name,
                format!("two databases called {label}"),
                "names that differ",
                way_out,
            ));
        }
        databases.push((label, options));
    }
    Ok(databases)
}

/// `url` or `name=url`; the name is the database's otherwise.
fn database(text: &str) -> Option<(String, PgConnectOptions)> {
    let named = text.split_once('=').filter(|(name, _)| !name.is_empty() && !name.contains(['/', ':', '?']));
    let (name, url) = named.map_or((None, text), |(name, url)| (Some(name), url));
    if !["postgres://", "postgresql://"].iter().any(|scheme| url.starts_with(scheme)) {
        return None;
    }
    let options: PgConnectOptions = url.parse().ok()?;
    let name = name.or(options.get_database()).unwrap_or(options.get_username()).to_owned();
    Some((name, options))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(variables: &[(&str, &str)]) -> Result<Settings, String> {
        let env = Environment::of(variables.iter().map(|(name, value)| ((*name).into(), (*value).into())));
        Settings::read(&env, For::Draining).map_err(|error| error.to_string())
    }

    fn refused(variables: &[(&str, &str)]) -> String {
        let error = read(variables).err().expect("the settings are wrong");
        assert!(!error.contains("hunter2"), "{error}");
        error
    }

    const DB: (&str, &str) = ("DRAINER_DATABASE_URL", "postgres://u:hunter2@h/appeals");
    const MQ: (&str, &str) = ("DRAINER_AMQP_URL", "amqp://u:hunter2@h/%2f");

    #[test]
    fn one_database_is_called_by_its_name() {
        let settings = read(&[DB, MQ]).unwrap();
        assert_eq!(settings.databases[0].0, "appeals");
        assert_eq!((settings.design, settings.connections), (Design::Lease, 2));
    }

    #[test]
    fn many_databases_have_names_that_differ() {
        let many = |urls| read(&[("DRAINER_DATABASE_URLS", urls), MQ]);
        let names =
            |urls| many(urls).unwrap().databases.into_iter().map(|(name, _)| name).collect::<Vec<_>>();
        assert_eq!(
            names("postgres://h/a  b=postgresql://h/a?sslmode=disable\npostgres://h/c"),
            ["a", "b", "c"]
        );
        assert!(many("postgres://h/a postgres://g/a").err().unwrap().contains("two databases called a"));
        assert!(many("  ").err().unwrap().contains("0 URLs"));
        assert!(many("postgres://h/a mysql://h/b").err().unwrap().contains("DRAINER_DATABASE_URLS"));
    }

    #[test]
    fn what_is_missing_is_named() {
        assert!(refused(&[MQ]).starts_with("DRAINER_DATABASE_URL is not set; set it"));
        assert!(refused(&[DB]).starts_with("DRAINER_AMQP_URL is not set; set it to amqp://"));
    }

    #[test]
    fn no_error_shows_a_password() {
        let wrong = ("DRAINER_DATABASE_URL", "postgres://u:hunter2@h:port/x");
        assert!(refused(&[wrong, MQ]).starts_with("DRAINER_DATABASE_URL is no such URL"));
        assert!(
            refused(&[DB, ("DRAINER_AMQP_URL", "http://u:hunter2@h")])
                .starts_with("DRAINER_AMQP_URL is no such")
        );
        assert!(refused(&[DB, ("DRAINER_DATABASE_URLS", "postgres://u:hunter2@h/y"), MQ]).contains("hidden"));
    }

    #[test]
    fn unknown_designs_and_pools_are_refused() {
        assert!(
            refused(&[DB, MQ, ("DRAINER_DESIGN", "leese")])
                .starts_with("DRAINER_DESIGN is \"leese\": it must be ")
        );
        assert!(
            refused(&[DB, MQ, ("DRAINER_POOL", "0")]).starts_with("DRAINER_POOL is 0: it must be 1 to 100")
        );
    }
}
