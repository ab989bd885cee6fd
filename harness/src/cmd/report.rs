//! stub
/// stub
#[derive(Debug, clap::Args)]
pub struct Args {}
/// stub
pub fn main(_: Args) -> crate::exit::Exit {
    crate::exit::Exit::Pass
}
