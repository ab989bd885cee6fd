//! The environment's variables: two name families for one set of settings.

use std::{collections::BTreeMap, ffi::OsString, str::FromStr};

use crate::ConfigError;

/// Our family first, so that errors about what is not set name it.
const PREFIXES: [&str; 2] = ["DRAINER_", "CANOPY_MQ_DRAINER_"];

/// Every name that is read, without its prefix.
const NAMES: [&str; 14] = [
    "AMQP_URL",
    "BATCH_SIZE",
    "CONFIRM_TIMEOUT_MS",
    "DATABASE_URL",
    "DATABASE_URLS",
    "DESIGN",
    "EXCHANGE",
    "ID",
    "LEASE_TTL_SECS",
    "PIPELINE_DEPTH",
    "POLL_INTERVAL_MS",
    "POOL",
    "STATEMENT_TIMEOUT_MS",
    "STOP_WITHIN_MS",
];

/// Our name of a setting.
pub(crate) fn variable(name: &str) -> String {
    format!("{}{name}", PREFIXES[0])
}

/// Variables, read once. What holds a password is never shown: see [`is_secret`].
pub(crate) struct Environment(BTreeMap<String, OsString>);

/// URLs carry passwords, and an error message ends in a log.
fn is_secret(name: &str) -> bool {
    name.contains("URL")
}

impl Environment {
    /// The variables of this process.
    pub(crate) fn of_process() -> Self {
        Self::of(std::env::vars_os())
    }

    /// Any variables; the tests' way in.
    pub(crate) fn of(variables: impl IntoIterator<Item = (OsString, OsString)>) -> Self {
        let texts = variables.into_iter().filter_map(|(name, value)| Some((name.into_string().ok()?, value)));
        Self(texts.filter(|(name, _)| PREFIXES.iter().any(|prefix| name.starts_with(prefix))).collect())
    }

    /// A setting's value, or `None` when it is not set. An empty value is a value.
    pub(crate) fn text(&self, name: &'static str) -> Result<Option<String>, ConfigError> {
        let set: Vec<(String, &OsString)> = PREFIXES
            .iter()
            .map(|prefix| format!("{prefix}{name}"))
            .filter_map(|variable| self.0.get(&variable).map(|value| (variable, value)))
            .collect();
        if let [(first, one), (second, other)] = set.as_slice()
            && one != other
        {
            let values =
                if is_secret(name) { "values hidden".to_owned() } else { format!("{one:?} and {other:?}") };
            return Err(ConfigError::Conflict { first: first.clone(), second: second.clone(), values });
        }
        let Some((variable, value)) = set.into_iter().next() else {
            return Ok(None);
        };
        value.to_str().map(|text| Some(text.to_owned())).ok_or_else(|| ConfigError::Rule {
            variable,
            value: "not UTF-8".to_owned(),
            rule: "UTF-8 text".to_owned(),
            way_out: "set it to plain text",
        })
    }

    /// A setting that is a whole number.
    pub(crate) fn number<T: FromStr>(&self, name: &'static str) -> Result<Option<T>, ConfigError> {
        let Some(text) = self.text(name)? else {
            return Ok(None);
        };
        text.trim().parse().map(Some).map_err(|_| ConfigError::Rule {
            variable: self.names().remove(name).unwrap_or_else(|| variable(name)),
            value: format!("{text:?}"),
            rule: "a whole number, without sign or unit (the unit is in the name)".to_owned(),
            way_out: "set a number such as 100, or leave it out for the default",
        })
    }

    /// Under which variable each setting was found, by its name without a prefix.
    pub(crate) fn names(&self) -> BTreeMap<&'static str, String> {
        let found = |name: &&'static str| {
            let mut variables = PREFIXES.iter().map(|prefix| format!("{prefix}{name}"));
            variables.find(|variable| self.0.contains_key(variable)).map(|variable| (*name, variable))
        };
        NAMES.iter().filter_map(found).collect()
    }

    /// Variables of our families that nothing reads: perhaps typing errors. Not an error, because Kubernetes gives
    /// every pod `DRAINER_SERVICE_HOST`, `DRAINER_PORT` and the like as soon as a Service is called `drainer`.
    pub(crate) fn unknown(&self) -> Vec<&str> {
        let known = |variable: &str| {
            PREFIXES.iter().filter_map(|p| variable.strip_prefix(p)).any(|name| NAMES.contains(&name))
        };
        self.0.keys().map(String::as_str).filter(|variable| !known(variable)).collect()
    }
}
