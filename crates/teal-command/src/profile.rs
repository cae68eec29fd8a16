//! Profiles that people name on the command line.

use anyhow::{Context, Result, bail};
use teal_energy::Profile;

/// Returns a shipped profile, or one in a file.
pub fn load_profile(name: &str) -> Result<Profile> {
    // A path or a file name: names of profiles contain neither slash nor suffix.
    if name.contains('/') || name.ends_with(".toml") {
        let text = std::fs::read_to_string(name).with_context(|| name.to_owned())?;
        return Profile::parse(&text).with_context(|| name.to_owned());
    }
    shipped_profile(name)
}

/// Returns a shipped profile: one that other machines know, too.
pub fn shipped_profile(name: &str) -> Result<Profile> {
    if let Some(profile) = Profile::find_shipped(name) {
        return Ok(profile);
    }
    match nearest_name(name, Profile::shipped_names()) {
        Some(known) => bail!("there is no profile {name}; did you mean {known}?"),
        None => {
            bail!(
                "there is no profile {name}; there are {}",
                Profile::shipped_names().collect::<Vec<_>>().join(", ")
            )
        }
    }
}

/// Returns the known name that is most like a given one, if any is.
pub fn nearest_name<'a>(
    name: &str,
    known: impl Iterator<Item = &'a str> + Clone,
) -> Option<&'a str> {
    let distance = |known: &&str| strsim::damerau_levenshtein(name, known);
    // A part of a name is as good a hint as one that is misspelt.
    let part = known
        .clone()
        .find(|known| name.len() > 2 && known.contains(name));
    part.or_else(|| {
        known
            .min_by_key(distance)
            .filter(|known| distance(known) <= known.len() / 2)
    })
}
