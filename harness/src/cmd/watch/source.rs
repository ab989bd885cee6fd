//! Which server to watch. No message here repeats a URL: it may hold a password.

use sqlx::postgres::PgConnectOptions;

use crate::rig::without_brackets;

/// Names the server without showing a secret to anybody who lists processes.
pub(super) const URL_VARIABLE: &str = "DRAINBENCH_DATABASE_URL";

/// Why no server is named.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub(super) enum SourceError {
    /// Anybody who lists processes could read it.
    #[error(
        "the URL argument holds a password, and every user of this machine can read arguments in the process list: \
         give the URL in {URL_VARIABLE}, or leave the password to PGPASSWORD or a PGPASSFILE (a `@` or `:` that is no \
         part of a password is written %40 or %3A)"
    )]
    Password,
    /// Two servers.
    #[error("`watch` takes one URL, {0} were given")]
    Several(usize),
    /// Not a database's.
    #[error("{from} is not a PostgreSQL URL ({reason}): it looks like postgres://role@host:5432/database")]
    Malformed {
        /// Where it was read.
        from: &'static str,
        /// The rule that it breaks.
        reason: String,
    },
}

/// The argument if there is one, else the variable, else libpq's own (`PGHOST`, `PGPORT`, `PGUSER`, `PGDATABASE`,
/// `PGPASSWORD`, `PGPASSFILE`, `PGSSLMODE`), which also fill in what a URL leaves out.
///
/// # Errors
/// When the argument holds a password or a URL cannot be read.
pub(super) fn options(urls: &[String], variable: Option<String>) -> Result<PgConnectOptions, SourceError> {
    match urls {
        [] => variable.map_or_else(
            || Ok(named_or_postgres(PgConnectOptions::new())),
            |url| parse(&url, "the value of DRAINBENCH_DATABASE_URL"),
        ),
        [url] if holds_password(url) => Err(SourceError::Password),
        [url] => parse(url, "the URL argument"),
        several if several.iter().any(|url| holds_password(url)) => Err(SourceError::Password),
        several => Err(SourceError::Several(several.len())),
    }
}

/// Every session of the server is seen from any of its databases, and `postgres` is there as a rule; one that is called
/// like the role is not.
fn named_or_postgres(options: PgConnectOptions) -> PgConnectOptions {
    if options.get_database().is_some() { options } else { options.database("postgres") }
}

fn parse(url: &str, from: &'static str) -> Result<PgConnectOptions, SourceError> {
    if !url.starts_with("postgres://") && !url.starts_with("postgresql://") {
        let reason = "it does not start with postgres:// or postgresql://".to_owned();
        return Err(SourceError::Malformed { from, reason });
    }
    url.parse().map(|options| named_or_postgres(without_brackets(options))).map_err(|error| {
        let reason = match error {
            sqlx::Error::Configuration(reason) => reason.to_string(),
            other => other.to_string(),
        };
        SourceError::Malformed { from, reason }
    })
}

/// Errs towards yes: a password may itself hold a `/` or an `@` that should have been encoded.
fn holds_password(url: &str) -> bool {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    let in_user = rest.rsplit_once('@').is_some_and(|(user, _)| user.contains(':'));
    in_user || rest.to_ascii_lowercase().contains("password")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(url: &str) -> SourceError {
        options(&[url.to_owned()], None).expect_err("this URL is to be refused")
    }

    #[test]
    fn a_password_in_the_argument_is_refused_and_not_repeated() {
        for url in [
            "postgres://canopy:s3cret@db/canopy",
            "postgres://canopy:s3c/ret@db/canopy",
            "postgres://canopy:s3c@ret@db/canopy",
            "postgres://db/canopy?user=canopy&password=s3cret",
            "postgres://db/canopy?PassWord=s3cret",
            "canopy:s3cret@db",
        ] {
            let error = refused(url);
            assert_eq!(error, SourceError::Password, "{url}");
            assert!(!error.to_string().contains("s3c"), "{error}");
            assert!(error.to_string().contains(URL_VARIABLE), "{error}");
        }
    }

    #[test]
    fn a_password_in_the_variable_is_where_it_belongs() {
        let found = options(&[], Some("postgres://canopy:s3cret@db:5433/appeals".to_owned())).unwrap();
        assert_eq!((found.get_host(), found.get_port()), ("db", 5433));
        assert_eq!((found.get_username(), found.get_database()), ("canopy", Some("appeals")));
    }

    #[test]
    fn an_argument_without_a_password_wins() {
        let url = "postgresql://canopy@db:5433/appeals?sslmode=disable".to_owned();
        let found = options(&[url], Some("postgres://elsewhere".to_owned())).unwrap();
        assert_eq!((found.get_host(), found.get_port()), ("db", 5433));
    }

    #[test]
    fn nonsense_is_not_repeated_either() {
        insta::assert_snapshot!(refused("db.example"), @"the URL argument is not a PostgreSQL URL (it does not start with postgres:// or postgresql://): it looks like postgres://role@host:5432/database");
        let error = options(&[], Some("postgres://u:s3cret@db:nan/x".to_owned())).expect_err("port");
        insta::assert_snapshot!(error, @"the value of DRAINBENCH_DATABASE_URL is not a PostgreSQL URL (invalid port number): it looks like postgres://role@host:5432/database");
    }

    #[test]
    fn two_urls_are_one_too_many() {
        let urls = ["postgres://a".to_owned(), "postgres://b".to_owned()];
        assert_eq!(options(&urls, None).expect_err("two"), SourceError::Several(2));
    }
}
