//! The `drainer` binary: see [`drainer::process`].

#[tokio::main]
async fn main() -> std::process::ExitCode {
    drainer::process::main(std::env::args_os().skip(1)).await
}
