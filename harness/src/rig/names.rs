//! What a run's databases, exchanges, queues and folders are called. Nothing that is not called so is ever touched.

/// Length of a run's name.
pub(crate) const RUN_LENGTH: usize = 8;

/// What every name of ours starts with.
pub(crate) const PREFIX: &str = "drainbench_";

/// Last part of the name of what a probe event goes through.
const PROBE: &str = "probe";

/// Last part of the name of a container.
pub(crate) const POSTGRES: &str = "postgres";
/// Last part of the name of a container.
pub(crate) const RABBITMQ: &str = "rabbitmq";

/// Name of a database, exchange and queue: `drainbench_<run>_c<cell>r<round>_<service>`. At most 44 bytes (PostgreSQL
/// takes 63) with four digits each.
pub(crate) fn service(run: &str, cell_index: usize, round: u32, service: &str) -> String {
    format!("{PREFIX}{run}_c{cell_index}r{round}_{service}")
}

/// Name of what a probe event goes through.
pub(crate) fn probe(run: &str) -> String {
    format!("{PREFIX}{run}_{PROBE}")
}

/// Name of a run's container.
pub(crate) fn container(run: &str, server: &str) -> String {
    format!("{PREFIX}{run}_{server}")
}

/// Whether a container is called like one of `run`.
pub(crate) fn is_container(name: &str, run: &str) -> bool {
    is_run(run) && [POSTGRES, RABBITMQ].iter().any(|server| name == container(run, server))
}

/// Name of a run's temporary folder.
pub(crate) fn folder(run: &str) -> String {
    format!("{PREFIX}{run}")
}

/// Whether a folder is called like ours.
pub(crate) fn is_folder(name: &str) -> bool {
    name.strip_prefix(PREFIX).is_some_and(is_run)
}

/// The run that made `name`, if one of ours did: the whole of the name must be one that is made here, because what is
/// called so is dropped when its run is dead.
pub(crate) fn run_of(name: &str) -> Option<&str> {
    let (run, rest) = name.strip_prefix(PREFIX)?.split_once('_')?;
    (is_run(run) && (rest == PROBE || is_service(rest))).then_some(run)
}

/// `c<cell>r<round>_svc<service>`
fn is_service(rest: &str) -> bool {
    let parts = || {
        let (cell, rest) = rest.strip_prefix('c')?.split_once('r')?;
        let (round, service) = rest.split_once("_svc")?;
        Some([cell, round, service])
    };
    let number = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    parts().is_some_and(|parts| parts.into_iter().all(number))
}

fn is_run(run: &str) -> bool {
    run.len() == RUN_LENGTH && run.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_tells_its_run() {
        let name = service("ab12cd34", 9999, 9999, "svc4095");
        assert_eq!(name, "drainbench_ab12cd34_c9999r9999_svc4095");
        assert!(name.len() <= 63);
        assert_eq!(run_of(&name), Some("ab12cd34"));
        assert_eq!(run_of(&probe("ab12cd34")), Some("ab12cd34"));
    }

    #[test]
    fn names_of_others_have_no_run() {
        for name in [
            "postgres",
            "drainbench",
            "drainbench_",
            "drainbench_prod",
            "drainbench_ab12cd34",
            "drainbench_ab12cd34_",
            "drainbench_AB12CD34_probe",
            "drainbench_ab12cd3_probe",
            "my_drainbench_ab12cd34_probe",
            "drainbench_personal_data",
            "drainbench_customer_probes",
            "drainbench_internal_c0r1",
            "drainbench_internal_c0r1_svc",
            "drainbench_internal_c0r_svc00",
            "drainbench_internal_c0r1_svc00_copy",
        ] {
            assert_eq!(run_of(name), None, "{name}");
        }
    }
}
