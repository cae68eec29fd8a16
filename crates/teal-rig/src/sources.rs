//! Finds scripts in Filebench's language by name or path, and keeps them as text: with all that
//! they load, they can be parsed again where their files are missing.

use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::Path;
use teal_command::profile::nearest_name;
use teal_study::wml::{self, WorkloadScript};
use teal_study::workload::shipped::{SHIPPED, ShippedWorkload};

/// Holds the text of a script, and of the scripts that it loads, by the names they are loaded by.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ScriptSources {
    name: String,
    text: String,
    loaded: BTreeMap<String, String>,
}

impl ScriptSources {
    /// Finds a script by name or path, and checks that it is sound.
    pub fn by_name(name: &str) -> Result<Self> {
        let is_path = name.contains('/') || name.ends_with(".wml") || name.ends_with(".f");
        let (text, beside) = match ShippedWorkload::by_name(name) {
            Some(shipped) if !is_path => (shipped.text.to_owned(), None),
            _ if is_path || Path::new(name).is_file() => {
                (read_script(Path::new(name))?, Path::new(name).parent())
            }
            _ => bail!(no_such_workload(name)),
        };
        let beside = beside.unwrap_or(Path::new("."));
        // Parsing tells which scripts are loaded, and finds faults early.
        let mut loaded = BTreeMap::new();
        wml::parse_script(name, &text, &mut |wanted| {
            let found = find_script(wanted, beside)?;
            loaded.insert(wanted.to_owned(), found.clone());
            Ok(found)
        })?;
        Ok(Self {
            name: name.to_owned(),
            text,
            loaded,
        })
    }

    /// Returns whether both have the same text, whatever their names are.
    pub fn is_same(&self, other: &Self) -> bool {
        self.text == other.text && self.loaded == other.loaded
    }

    /// Parses the script.
    pub fn parse_script(&self) -> Result<WorkloadScript> {
        let mut load = |wanted: &str| {
            self.loaded
                .get(wanted)
                .cloned()
                .ok_or_else(|| format!("{wanted} is not here"))
        };
        Ok(wml::parse_script(&self.name, &self.text, &mut load)?)
    }
}

fn find_script(wanted: &str, beside: &Path) -> Result<String, String> {
    let named = [
        wanted.to_owned(),
        format!("{wanted}.wml"),
        format!("{wanted}.f"),
    ];
    match named
        .iter()
        .map(|name| beside.join(name))
        .find(|path| path.is_file())
    {
        Some(path) => read_script(&path).map_err(|e| format!("{e:#}")),
        None => match ShippedWorkload::by_name(wanted) {
            Some(shipped) => Ok(shipped.text.to_owned()),
            None => Err(format!(
                "there is no such script in {}, and no such workload",
                beside.display()
            )),
        },
    }
}

fn read_script(path: &Path) -> Result<String> {
    let bytes = std::fs::read(path).with_context(|| path.display().to_string())?;
    // The line of the first bad byte is what an editor can show.
    String::from_utf8(bytes).map_err(|e| {
        let before = &e.as_bytes()[..e.utf8_error().valid_up_to()];
        let line = before.split(|byte| *byte == b'\n').count();
        anyhow::anyhow!("{}:{line}: these bytes are no text (UTF-8)", path.display())
    })
}

/// Returns the message for a name that no workload has.
pub fn no_such_workload(name: &str) -> String {
    let names = SHIPPED
        .iter()
        .flat_map(|shipped| [shipped.name, shipped.alias]);
    match nearest_name(name, names.clone()) {
        Some(known) => {
            format!(
                "there is no workload {name}; did you mean {known}? A script is named with its \
                 .wml or a '/'"
            )
        }
        None => format!(
            "there is no workload {name}; `teal lab workloads` lists them, and a script is named \
             with its .wml or a '/'"
        ),
    }
}
