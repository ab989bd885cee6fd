//! Where scenarios come from: a file, or the binary itself.

use std::{io::Read as _, path::Path};

use super::{
    ScenarioError,
    nearest::{listed, nearest},
};

/// The scenarios in this binary: name and text.
pub const SHIPPED: [(&str, &str); 13] = [
    ("smoke", include_str!("../../../scenarios/smoke.toml")),
    ("workspace", include_str!("../../../scenarios/workspace.toml")),
    ("slow-disk", include_str!("../../../scenarios/slow-disk.toml")),
    ("spare-connection", include_str!("../../../scenarios/spare-connection.toml")),
    ("broker-stall", include_str!("../../../scenarios/broker-stall.toml")),
    ("broker-cut", include_str!("../../../scenarios/broker-cut.toml")),
    ("drainer-crash", include_str!("../../../scenarios/drainer-crash.toml")),
    ("drainer-paused", include_str!("../../../scenarios/drainer-paused.toml")),
    ("lease-overrun", include_str!("../../../scenarios/lease-overrun.toml")),
    ("backends-killed", include_str!("../../../scenarios/backends-killed.toml")),
    ("poison-head", include_str!("../../../scenarios/poison-head.toml")),
    ("late-commit", include_str!("../../../scenarios/late-commit.toml")),
    ("held-xmin", include_str!("../../../scenarios/held-xmin.toml")),
];

/// A file's text, as far as a scenario may be long: what is longer (`/dev/zero` never ends) is refused by its length.
fn read(path: &Path) -> std::io::Result<String> {
    let mut text = String::new();
    let most = u64::try_from(super::load::MAX_TEXT_BYTES).unwrap_or(u64::MAX);
    std::fs::File::open(path)?.take(most + 1).read_to_string(&mut text)?;
    Ok(text)
}

/// The name that errors call it and the text of a scenario. A file that exists wins over a shipped scenario.
///
/// # Errors
/// When it is neither, or the file cannot be read.
pub fn find(name_or_path: &str) -> Result<(String, String), ScenarioError> {
    let path = Path::new(name_or_path);
    let shipped = SHIPPED.iter().find(|(name, _)| *name == name_or_path);
    // A folder that happens to have a shipped scenario's name is no scenario.
    if path.exists() && !(path.is_dir() && shipped.is_some()) {
        return match read(path) {
            Ok(text) => Ok((name_or_path.to_owned(), text)),
            Err(error) => Err(ScenarioError::Read { path: path.to_owned(), why: error.to_string() }),
        };
    }
    if let Some((name, text)) = shipped {
        return Ok(((*name).to_owned(), (*text).to_owned()));
    }
    let names = SHIPPED.map(|(name, _)| name);
    let near = nearest(name_or_path, names, 1);
    let offer = near.first().map(|name| format!("did you mean `{name}`? ")).unwrap_or_default();
    let help = format!("{offer}Shipped are {}; anything else is a path to a TOML file", listed(&names));
    Err(ScenarioError::NotFound { asked: name_or_path.to_owned(), help })
}
