//! Arguments that several verbs share.

use std::path::PathBuf;

use crate::say::complain;
use crate::{
    exit::Exit,
    rig::{Containers, Cpus, ImageName, Memory, RigChoice, RigError, RigRequest},
    scenario::{self, Overrides, Scenario, ScenarioError},
};

/// What the command line changes in a scenario.
#[derive(Debug, Clone, Default, clap::Args)]
pub struct ScenarioArgs {
    /// Change a key, such as load.rate=200 or drainer.placement=process; may be given again
    #[arg(long, value_name = "KEY=VALUE", value_parser = key_and_value)]
    set: Vec<(String, String)>,
    /// Replace the cells: the first is the baseline, the last the candidate, the control stays
    #[arg(long, value_name = "A,B", value_delimiter = ',')]
    pub(super) designs: Option<Vec<String>>,
    /// Change the seed
    #[arg(long, value_name = "NUMBER", value_parser = whole::<u64>)]
    seed: Option<u64>,
    /// Repeat all cells so many times
    #[arg(long, value_name = "NUMBER", value_parser = whole::<u32>)]
    rounds: Option<u32>,
}

impl ScenarioArgs {
    /// Finds and loads a scenario with these changes.
    ///
    /// # Errors
    /// [`Exit::Usage`], after saying on standard error what is wrong. Nothing was started.
    pub fn load(&self, name_or_path: &str) -> Result<Scenario, Exit> {
        self.read(name_or_path).map_err(|error| {
            complain!("{:?}", miette::Report::new(error));
            Exit::Usage
        })
    }
    fn read(&self, name_or_path: &str) -> Result<Scenario, ScenarioError> {
        let overrides = Overrides {
            set: self.set.clone(),
            designs: self.designs.clone(),
            seed: self.seed,
            rounds: self.rounds,
        };
        let (name, text) = scenario::find(name_or_path)?;
        scenario::load(&name, &text, &overrides)
    }
}

fn whole<T: std::str::FromStr>(given: &str) -> Result<T, String> {
    given.parse().map_err(|_| "write a whole number, without sign or unit".to_owned())
}

fn key_and_value(given: &str) -> Result<(String, String), String> {
    match given.split_once('=') {
        Some((key, value)) if !key.trim().is_empty() => Ok((key.trim().to_owned(), value.trim().to_owned())),
        _ => Err(String::from("write it as KEY=VALUE, such as load.rate=200")),
    }
}

/// Which rig.
#[derive(Debug, Clone, clap::Args)]
pub struct RigArgs {
    /// Where the servers come from
    #[arg(long, value_enum, default_value_t)]
    rig: RigChoice,
    /// Folder of PostgreSQL's server binaries, for the local rig
    #[arg(long, value_name = "DIR")]
    pg_bin: Option<PathBuf>,
    #[command(flatten)]
    containers: ContainerArgs,
}

/// What servers in containers are made of.
#[derive(Debug, Clone, Default, clap::Args)]
pub struct ContainerArgs {
    /// Image of PostgreSQL, for the docker rig
    #[arg(long, value_name = "IMAGE")]
    postgres_image: Option<ImageName>,
    /// Image of RabbitMQ, for the docker rig
    #[arg(long, value_name = "IMAGE")]
    rabbitmq_image: Option<ImageName>,
    /// CPUs each of its servers may use, such as 2 or 0.5
    #[arg(long, value_name = "NUMBER")]
    cpus: Option<Cpus>,
    /// Memory each of its servers may use, such as 2GiB
    #[arg(long, value_name = "SIZE")]
    memory: Option<Memory>,
}

impl From<ContainerArgs> for Containers {
    fn from(args: ContainerArgs) -> Self {
        let ContainerArgs { postgres_image, rabbitmq_image, cpus, memory } = args;
        Self { postgres_image, rabbitmq_image, cpus, memory }
    }
}

impl RigArgs {
    /// The rig that is asked for, with what the environment says of it.
    ///
    /// # Errors
    /// When arguments or the environment contradict themselves, or our own program cannot be found.
    pub fn request(&self) -> Result<RigRequest, RigError> {
        let asked = Containers::from(self.containers.clone());
        let fits = matches!(self.rig, RigChoice::Auto | RigChoice::Docker);
        if !fits && asked != Containers::default() {
            return Err(RigError::Misconfigured {
                what: "--postgres-image, --rabbitmq-image, --cpus and --memory are for servers in containers"
                    .to_owned(),
                way_out: "Leave them out, or take --rig docker".to_owned(),
            });
        }
        if self.pg_bin.is_some() && matches!(self.rig, RigChoice::Docker | RigChoice::External) {
            return Err(RigError::Misconfigured {
                what: "--pg-bin is for the local rig".to_owned(),
                way_out: "Leave it out, or take --rig local".to_owned(),
            });
        }
        let mut request = RigRequest::from_env(self.rig, self.pg_bin.clone())?;
        request.wishes.arguments = asked;
        Ok(request)
    }
}
