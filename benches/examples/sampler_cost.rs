//! What the sampler costs the database it watches: pgbench, closed loop, in interleaved blocks with and without it.
//!
//! `drainbench rig -- cargo run --release -p benches --example sampler_cost [PAIRS] [SECONDS]`
//!
//! The order within a pair alternates, so that a machine that drifts does not favour one side. Printed are both rates
//! of each pair, and the mean of the differences with its 95 % interval (Student's t over the pairs).

use std::{process::Command, time::Instant};

use harness::{sampler::Sampler, scenario::SamplerSettings};
use sqlx::{ConnectOptions as _, Connection as _, postgres::PgConnectOptions};

const CLIENTS: &str = "8";
const TICKS_A_SECOND: u32 = 50;

type Failure = Box<dyn std::error::Error>;

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let mut arguments = std::env::args().skip(1).filter_map(|argument| argument.parse::<u32>().ok());
    let pairs = arguments.next().unwrap_or(10).max(2);
    let seconds = arguments.next().unwrap_or(60).max(1);
    let url = std::env::var("DRAINBENCH_DATABASE_URL").map_err(|_| "run it inside `drainbench rig --`")?;
    let admin: PgConnectOptions = url.parse()?;
    let database = format!("drainbench_cost_{}", std::process::id());
    let mut connection = admin.connect().await?;
    let create = sqlx::AssertSqlSafe(format!("CREATE DATABASE \"{database}\""));
    sqlx::raw_sql(create).execute(&mut connection).await?;
    let bench = Bench { url: admin.clone().database(&database).to_url_lossy().to_string(), seconds };
    let measured = measure(&bench, &admin, &database, pairs).await;
    let drop = sqlx::AssertSqlSafe(format!("DROP DATABASE \"{database}\" WITH (FORCE)"));
    sqlx::raw_sql(drop).execute(&mut connection).await?;
    connection.close().await?;
    measured
}

async fn measure(bench: &Bench, admin: &PgConnectOptions, database: &str, pairs: u32) -> Result<(), Failure> {
    bench.pgbench(&["-i", "-q", "-s", "10"])?;
    let mut differences = Vec::new();
    for pair in 0..pairs {
        let (without, with) = if pair % 2 == 0 {
            let without = bench.rate()?;
            (without, bench.sampled(admin, database).await?)
        } else {
            let with = bench.sampled(admin, database).await?;
            (bench.rate()?, with)
        };
        let percent = (with / without - 1.0) * 100.0;
        println!("pair {:2}: without {without:.1} tps, with {with:.1} tps, {percent:+.2} %", pair + 1);
        differences.push(percent);
    }
    let n = differences.len() as f64;
    let mean = differences.iter().sum::<f64>() / n;
    let variance = differences.iter().map(|d| (d - mean).powi(2)).sum::<f64>() / (n - 1.0);
    let half = t95(differences.len() - 1) * (variance / n).sqrt();
    println!(
        "{pairs} pairs of {} s: {mean:+.2} % transactions a second with the sampler, 95 % interval {:+.2} to {:+.2} %",
        bench.seconds,
        mean - half,
        mean + half
    );
    Ok(())
}

struct Bench {
    url: String,
    seconds: u32,
}

impl Bench {
    fn pgbench(&self, arguments: &[&str]) -> Result<String, Failure> {
        // The password travels by environment: a process list shows arguments.
        let options: PgConnectOptions = self.url.parse()?;
        let url = options.to_url_lossy();
        let output = Command::new("pgbench")
            .args(["-h", options.get_host(), "-p", &options.get_port().to_string()])
            .args(["-U", options.get_username()])
            .args(arguments)
            .arg(options.get_database().unwrap_or_default())
            .env("PGPASSWORD", url.password().unwrap_or_default())
            .output()?;
        if output.status.success() {
            return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
        }
        Err(String::from_utf8_lossy(&output.stderr).into_owned().into())
    }

    fn rate(&self) -> Result<f64, Failure> {
        let report = self.pgbench(&["-n", "-c", CLIENTS, "-j", "2", "-T", &self.seconds.to_string()])?;
        let line =
            report.lines().find_map(|line| line.strip_prefix("tps = ")).ok_or("pgbench printed no rate")?;
        Ok(line.split(' ').next().unwrap_or_default().parse()?)
    }

    async fn sampled(&self, admin: &PgConnectOptions, database: &str) -> Result<f64, Failure> {
        let rate = TICKS_A_SECOND.try_into()?;
        let settings = SamplerSettings { rate, max_missed: 1.0, witness: false };
        let sampler =
            Sampler::start(admin.clone(), vec![database.to_owned().into()], &settings, Instant::now());
        let sampler = sampler.await?;
        let rate = self.rate();
        let log = sampler.stop().await;
        let cpu = log.own_cpu_seconds + log.backend_cpu_seconds.unwrap_or(f64::NAN);
        println!(
            "         sampler: {:.2} % of a core, {} ticks missed",
            cpu / log.wall_seconds * 100.0,
            log.missed
        );
        rate
    }
}

/// Two-sided 95 % quantile of Student's t.
fn t95(freedom: usize) -> f64 {
    const TABLE: [f64; 20] = [
        12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145,
        2.131, 2.120, 2.110, 2.101, 2.093, 2.086,
    ];
    freedom.checked_sub(1).and_then(|place| TABLE.get(place)).copied().unwrap_or(1.96)
}
