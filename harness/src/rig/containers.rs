//! What servers in containers are made of: image names and limits, and who may say so.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};

/// The one place that names the images: what `docker compose` takes, the docker rig takes.
const COMPOSE: &str = include_str!("../../../docker-compose.yml");

/// The variables that name other images, for this rig and for `docker compose`.
pub(super) const IMAGE_VARIABLES: [&str; 2] = ["DRAINBENCH_POSTGRES_IMAGE", "DRAINBENCH_RABBITMQ_IMAGE"];

/// Longest image name. Registries allow 255 for the name itself; a digest has 71 more.
const LONGEST: usize = 512;

/// Least memory that both servers work in: in 128 MiB RabbitMQ starts and blocks whoever publishes.
const LEAST_MEMORY: u64 = 512 << 20;

/// What does not hold of a text, and what to write instead.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{rule}: {help}")]
pub struct Unfit {
    /// The rule.
    pub rule: &'static str,
    /// The way out.
    pub help: &'static str,
}

/// What is wished of the servers in containers; what is left out is the default.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Containers {
    /// Image of PostgreSQL.
    pub postgres_image: Option<ImageName>,
    /// Image of RabbitMQ.
    pub rabbitmq_image: Option<ImageName>,
    /// CPUs that each server may use.
    pub cpus: Option<Cpus>,
    /// Memory that each server may use.
    pub memory: Option<Memory>,
}

impl Containers {
    /// What is wished here, and else what `other` wishes.
    #[must_use]
    pub fn or(self, other: Self) -> Self {
        Self {
            postgres_image: self.postgres_image.or(other.postgres_image),
            rabbitmq_image: self.rabbitmq_image.or(other.rabbitmq_image),
            cpus: self.cpus.or(other.cpus),
            memory: self.memory.or(other.memory),
        }
    }

    /// The images, by default those of `docker-compose.yml`.
    pub(super) fn images(&self) -> [ImageName; 2] {
        let [postgres, rabbitmq] = IMAGE_VARIABLES.map(default_image);
        [self.postgres_image.clone().unwrap_or(postgres), self.rabbitmq_image.clone().unwrap_or(rabbitmq)]
    }

    /// What is wished, for a rig that has no containers to say that it was in vain.
    pub(super) fn wishes(&self) -> Vec<String> {
        let image =
            |what: &str, image: &Option<ImageName>| image.as_ref().map(|name| format!("{what} {name}"));
        [
            image("image", &self.postgres_image),
            image("image", &self.rabbitmq_image),
            self.cpus.map(|cpus| format!("{cpus} CPUs")),
            self.memory.map(|memory| format!("{memory} of memory")),
        ]
        .into_iter()
        .flatten()
        .collect()
    }
}

/// `${VARIABLE:-image}` in the compose file.
fn default_image(variable: &str) -> ImageName {
    let marker = format!("${{{variable}:-");
    let name = COMPOSE.split_once(&marker).and_then(|(_, rest)| rest.split_once('}')).map(|(name, _)| name);
    // A test reads both, so that this is never empty.
    ImageName(name.unwrap_or_default().to_owned())
}

/// An image as engines know it: `postgres:17`, `registry.example:5000/team/postgres:17`, `postgres@sha256:...`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(transparent)]
pub struct ImageName(String);

impl ImageName {
    /// Name and tag (or digest), as the container library wants them: put together with a colon they are the whole.
    pub(super) fn name_and_tag(&self) -> (&str, &str) {
        let last = self.0.rfind('/').map_or(0, |slash| slash + 1);
        match self.0[last..].rfind(':') {
            Some(colon) => (&self.0[..last + colon], &self.0[last + colon + 1..]),
            None => (&self.0, "latest"),
        }
    }

    /// Name, tag included.
    pub(super) fn full(&self) -> String {
        let (name, tag) = self.name_and_tag();
        format!("{name}:{tag}")
    }

    /// The registry it comes from, as credentials are kept for it.
    pub(super) fn registry(&self) -> &str {
        match self.0.split_once('/') {
            Some((first, _)) if first.contains(['.', ':']) || first == "localhost" => first,
            _ => "https://index.docker.io/v1/",
        }
    }
}

impl FromStr for ImageName {
    type Err = Unfit;

    fn from_str(text: &str) -> Result<Self, Unfit> {
        let fits = |c: char| c.is_ascii_alphanumeric() || "._-/:@".contains(c);
        let ends = |c: char| c.is_ascii_alphanumeric();
        let is_one = text.len() <= LONGEST
            && text.chars().all(fits)
            && text.starts_with(ends)
            && text.ends_with(ends)
            && !["//", "::", ":/", "/:"].iter().any(|twice| text.contains(twice));
        let image = Self(text.to_owned());
        // Engines take capitals in a tag alone.
        if is_one && !image.name_and_tag().0.contains(|c: char| c.is_ascii_uppercase()) {
            return Ok(image);
        }
        Err(Unfit {
            rule: "must be the name of an image",
            help: "write it as postgres:17 or registry/name:tag",
        })
    }
}

impl fmt::Display for ImageName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// How many CPUs a container may use: any share of one, in thousandths.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(try_from = "f64", into = "f64")]
pub struct Cpus {
    thousandths: u32,
}

impl Cpus {
    /// In billionths of a CPU, as engines count.
    pub(super) fn nanos(self) -> i64 {
        i64::from(self.thousandths) * 1_000_000
    }
}

impl FromStr for Cpus {
    type Err = Unfit;

    fn from_str(text: &str) -> Result<Self, Unfit> {
        text.parse::<f64>().map_err(|_| Self::UNFIT)?.try_into()
    }
}

impl Cpus {
    const UNFIT: Unfit =
        Unfit { rule: "must be a number of CPUs from 0.1 to 1024", help: "write one such as 2 or 0.5" };
}

impl TryFrom<f64> for Cpus {
    type Error = Unfit;

    fn try_from(cpus: f64) -> Result<Self, Unfit> {
        if (0.1..=1024.0).contains(&cpus) {
            return Ok(Self { thousandths: (cpus * 1000.0).round() as u32 });
        }
        Err(Self::UNFIT)
    }
}

impl From<Cpus> for f64 {
    fn from(cpus: Cpus) -> Self {
        Self::from(cpus.thousandths) / 1000.0
    }
}

impl fmt::Display for Cpus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f64::from(*self).fmt(f)
    }
}

/// How much memory a container may use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(transparent)]
pub struct Memory {
    bytes: u64,
}

impl Memory {
    /// In bytes.
    pub(super) fn bytes(self) -> i64 {
        i64::try_from(self.bytes).unwrap_or(i64::MAX)
    }
}

impl FromStr for Memory {
    type Err = Unfit;

    fn from_str(text: &str) -> Result<Self, Unfit> {
        const UNITS: [(&str, u64); 4] =
            [("MiB", 1 << 20), ("GiB", 1 << 30), ("MB", 1_000_000), ("GB", 1_000_000_000)];
        let unfit = Unfit {
            rule: "must be a size of at least 512MiB",
            help: "write a whole number with its unit, one of MB, MiB, GB and GiB: \"512MiB\", \"2GiB\"",
        };
        let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
        let (number, unit) = text.split_at(digits);
        let worth = UNITS.iter().find(|(name, _)| *name == unit.trim_start()).map(|(_, worth)| *worth);
        let bytes =
            number.parse::<u64>().ok().zip(worth).and_then(|(number, worth)| number.checked_mul(worth));
        match bytes {
            Some(bytes) if (LEAST_MEMORY..=1 << 50).contains(&bytes) => Ok(Self { bytes }),
            _ => Err(unfit),
        }
    }
}

impl fmt::Display for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} MiB", self.bytes >> 20)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_images_are_those_of_the_compose_file() {
        let names = Containers::default().images().map(|image| image.to_string());
        assert_eq!(names, ["postgres:17", "rabbitmq:4"]);
        for name in names {
            name.parse::<ImageName>().unwrap();
        }
    }

    #[test]
    fn an_image_has_a_name_a_tag_and_a_registry() {
        for (text, name, tag, registry) in [
            ("postgres:17", "postgres", "17", "https://index.docker.io/v1/"),
            ("postgres", "postgres", "latest", "https://index.docker.io/v1/"),
            ("team/postgres", "team/postgres", "latest", "https://index.docker.io/v1/"),
            ("reg.example:5000/a/b", "reg.example:5000/a/b", "latest", "reg.example:5000"),
            ("localhost/b:1", "localhost/b", "1", "localhost"),
            ("postgres@sha256:0af1", "postgres@sha256", "0af1", "https://index.docker.io/v1/"),
        ] {
            let image: ImageName = text.parse().unwrap();
            assert_eq!((image.name_and_tag(), image.registry()), ((name, tag), registry), "{text}");
        }
        for text in [
            "",
            "post gres",
            "postgres:",
            "/postgres",
            "a//b",
            "--privileged",
            "a;b",
            "a\nb",
            "a:/b",
            "UPPER/Case",
        ] {
            assert!(text.parse::<ImageName>().is_err(), "{text:?}");
        }
    }

    #[test]
    fn limits_have_bounds() {
        assert_eq!("0.5".parse::<Cpus>().unwrap().nanos(), 500_000_000);
        assert_eq!("2GiB".parse::<Memory>().unwrap().bytes(), 2 << 30);
        for text in ["0", "-1", "NaN", "many", "1e9"] {
            assert!(text.parse::<Cpus>().is_err(), "{text}");
        }
        for text in ["1", "256MiB", "512", "512 mib", "99999999999GiB", "-1GiB"] {
            assert!(text.parse::<Memory>().is_err(), "{text}");
        }
    }
}
