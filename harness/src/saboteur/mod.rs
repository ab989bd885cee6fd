//! Drainers that do wrong on purpose, so that it is known that the harness finds them out.
//!
//! A hidden verb of the binary, run as anybody's own drainer is: `drainer.command = "drainbench saboteur doubles 0.01"`. But
//! for its sin each is an honest drainer of the `lease` table: it claims, publishes with confirms, marks what was
//! confirmed and gives back the rest.

mod sin;
mod work;

use std::time::Duration;

pub use sin::Sin;

use self::work::{Bench, Row};

/// A pause, where there is nothing to do or something went wrong.
const PAUSE: Duration = Duration::from_millis(50);

/// Arguments of the verb.
#[derive(Debug, Clone, Copy, clap::Args)]
pub struct Args {
    /// What it does wrong
    sin: Sin,
    /// With which share of the events, 0 to 1
    share: f64,
}

/// Runs until it is told to stop.
pub async fn main(args: Args) {
    let Ok(mut stop) = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate()) else {
        return;
    };
    tokio::select! {
        _ = stop.recv() => {}
        () = sabotage(args) => {}
    }
}

async fn sabotage(args: Args) {
    let mut wrong = sin::Wrongs::new(args.sin, args.share);
    loop {
        let mut bench = match Bench::open().await {
            Ok(bench) => bench,
            Err(error) => {
                trouble(&*error).await;
                continue;
            }
        };
        loop {
            match tick(&mut bench, &mut wrong).await {
                Ok(0) if args.sin == Sin::Burns => burn(),
                Ok(0) => tokio::time::sleep(PAUSE).await,
                Ok(_) => {}
                Err(error) => {
                    trouble(&*error).await;
                    break;
                }
            }
        }
    }
}

async fn trouble(error: &(dyn std::error::Error + Send + Sync)) {
    use std::io::Write as _;
    // For the harness, which keeps a drainer's last words.
    let _ = writeln!(std::io::stderr(), "saboteur: {error}");
    tokio::time::sleep(PAUSE).await;
}

/// Asks again and again whether time has passed.
fn burn() {
    let until = std::time::Instant::now() + PAUSE;
    while std::time::Instant::now() < until {
        std::hint::spin_loop();
    }
}

/// Rows that were claimed.
async fn tick(bench: &mut Bench, wrong: &mut sin::Wrongs) -> Result<usize, work::Trouble> {
    let mut rows = bench.claim(wrong.ignores_leases()).await?;
    let claimed = rows.len();
    if wrong.stalls(&rows) {
        std::future::pending::<()>().await;
    }
    let skipped = wrong.skipped(&mut rows);
    bench.hide(&skipped).await?;
    let early: Vec<_> = rows.iter().filter(|row| wrong.marks_early(row)).map(|row| row.id).collect();
    bench.mark(&early).await?;
    let holds = wrong.holds(&rows);
    if holds {
        bench.begin().await?;
    }
    wrong.reorder(&mut rows);
    let outcome = publish(bench, wrong, &rows).await;
    bench.mark(&outcome.confirmed).await?;
    bench.delete(&wrong.given_up(&outcome.failed)).await?;
    bench.release(&outcome.failed).await?;
    if holds {
        bench.commit().await?;
    }
    match outcome.trouble {
        Some(trouble) => Err(trouble),
        None => Ok(claimed),
    }
}

/// What became of a batch.
#[derive(Default)]
struct Outcome {
    confirmed: Vec<uuid::Uuid>,
    failed: Vec<uuid::Uuid>,
    trouble: Option<work::Trouble>,
}

async fn publish(bench: &Bench, wrong: &sin::Wrongs, rows: &[Row]) -> Outcome {
    let mut outcome = Outcome::default();
    let mut in_flight = Vec::new();
    for row in rows {
        for _ in 0..wrong.times(row) {
            match bench.publish(row).await {
                Ok(confirm) if !wrong.waits_for(row) => {
                    drop(confirm);
                    outcome.confirmed.push(row.id);
                }
                Ok(confirm) => in_flight.push((row.id, confirm)),
                Err(trouble) => {
                    outcome.failed.push(row.id);
                    outcome.trouble = Some(trouble);
                }
            }
        }
    }
    for (id, confirm) in in_flight {
        match work::confirmed(confirm).await {
            Ok(()) => outcome.confirmed.push(id),
            Err(trouble) => {
                outcome.failed.push(id);
                outcome.trouble = Some(trouble);
            }
        }
    }
    outcome
}
