//! `teal config`: the settings of a running mount.

use crate::cli::ConfigCommand;
use crate::control::{self, ControlAnswer, ControlRequest};
use crate::mounts::no_daemon_error;
use anyhow::Result;
use std::process::ExitCode;
use std::time::Duration;
use teal_command::paths;
use teal_command::say::say;
use teal_command::size::parse_size;
use teal_log::StoreSettings;

/// Returns every setting by name, with its value as a number.
pub(crate) fn list_settings(s: &StoreSettings) -> Vec<(String, u64)> {
    vec![
        ("commit-seconds".into(), s.commit_interval.as_secs()),
        ("checkpoint-seconds".into(), s.checkpoint_interval.as_secs()),
        ("checkpoint-bytes".into(), s.checkpoint_bytes),
        ("batch-bytes".into(), s.batch_bytes),
        (
            "clean-below-percent".into(),
            u64::from(s.clean_below_percent),
        ),
    ]
}

/// Changes one setting; says what is wrong with it otherwise.
pub(crate) fn apply_setting(
    settings: &mut StoreSettings,
    key: &str,
    value: u64,
) -> Result<(), String> {
    let between = |low: u64, high: u64| {
        if (low..=high).contains(&value) {
            Ok(value)
        } else {
            Err(format!(
                "{key} must be between {low} and {high}, not {value}"
            ))
        }
    };
    match key {
        "commit-seconds" => settings.commit_interval = Duration::from_secs(between(1, 3600)?),
        "checkpoint-seconds" => {
            settings.checkpoint_interval = Duration::from_secs(between(1, 86_400)?)
        }
        "checkpoint-bytes" => settings.checkpoint_bytes = between(1 << 20, 1 << 32)?,
        "batch-bytes" => settings.batch_bytes = between(1 << 16, 1 << 28)?,
        "clean-below-percent" => settings.clean_below_percent = between(0, 50)? as u32,
        _ => {
            // The error lists every name, so that a mistyped one can be corrected at once.
            let mut known = Vec::new();
            for (key, _) in list_settings(settings) {
                known.push(key);
            }
            known.push(PRIORITY_KEY.into());
            return Err(format!(
                "unknown setting {key}; known are {}",
                known.join(", ")
            ));
        }
    }
    Ok(())
}

/// Changes one setting, of the store or of the client.
pub(crate) fn change_setting(
    client: &teal_posix::FileSystem,
    settings: &mut StoreSettings,
    key: &str,
    value: u64,
) -> Result<(), String> {
    match key {
        PRIORITY_KEY => set_priority(client, value),
        _ => apply_setting(settings, key, value),
    }
}

/// Changes how much speed counts against joules, in percent.
fn set_priority(client: &teal_posix::FileSystem, percent: u64) -> Result<(), String> {
    // Control messages carry integers, so the priority travels in whole percent.
    let percent = u32::try_from(percent)
        .ok()
        .filter(|percent| *percent <= 100)
        .ok_or_else(|| PRIORITY_RANGE.to_owned())?;
    let Some(replica) = client.replica() else {
        return Err("this volume has no server: there is nothing to choose from".into());
    };
    replica.set_priority(percent);
    Ok(())
}

/// Returns the setting that belongs to the client, not to the store, in percent; `None` where there
/// is nothing to choose from.
pub(crate) fn priority_setting(client: &teal_posix::FileSystem) -> Option<(String, u64)> {
    Some((PRIORITY_KEY.into(), client.replica()?.priority().into()))
}

/// The setting that says how sources of content are chosen.
const PRIORITY_KEY: &str = "priority";
const PRIORITY_RANGE: &str = "the priority goes from 0 (joules) to 1 (speed)";

/// Reads a priority as people write it.
fn parse_priority(text: &str) -> Result<u64> {
    match text.parse::<f64>() {
        Ok(share) if (0.0..=1.0).contains(&share) => Ok((share * 100.0).round() as u64),
        _ => anyhow::bail!("'{text}' is no priority: {PRIORITY_RANGE}, such as 0.5"),
    }
}

/// Runs the command.
pub(crate) fn run_config(what: ConfigCommand) -> Result<ExitCode> {
    match what {
        ConfigCommand::Ls { dir } => {
            let dir = paths::mount_point_for(dir)?;
            let Some(ControlAnswer::Status(status)) = control::ask(&dir, &ControlRequest::Status)?
            else {
                return Err(no_daemon_error(&dir));
            };
            for (key, value) in status.settings {
                // The daemon counts the priority in percent; people see a share from 0 to 1.
                match key.as_str() {
                    PRIORITY_KEY => say!("{key} {}", value as f64 / 100.0),
                    _ => say!("{key} {value}"),
                }
            }
        }
        ConfigCommand::Set { key, value, dir } => {
            let dir = paths::mount_point_for(dir)?;
            // Values are parsed here, so that the error can show the text as it was typed.
            let value = match key.as_str() {
                PRIORITY_KEY => parse_priority(&value)?,
                sized if sized.ends_with("-bytes") => {
                    parse_size(&value).map_err(|e| anyhow::anyhow!("{key}: {e}"))?
                }
                _ => value.parse().map_err(|_| {
                    anyhow::anyhow!(
                        "'{value}' is no value of {key}: give a whole number, such as 5"
                    )
                })?,
            };
            if control::ask(&dir, &ControlRequest::Set { key, value })?.is_none() {
                return Err(no_daemon_error(&dir));
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_setting_is_changed_within_its_bounds_only() {
        let mut settings = StoreSettings::default();
        for (key, value) in list_settings(&settings) {
            assert_eq!(apply_setting(&mut settings, &key, value), Ok(()), "{key}");
            assert!(
                apply_setting(&mut settings, &key, u64::MAX).is_err(),
                "{key}"
            );
        }
        assert_eq!(settings, StoreSettings::default());
        assert!(
            apply_setting(&mut settings, "nonsense", 1)
                .unwrap_err()
                .contains("commit-seconds")
        );
        assert!(
            apply_setting(&mut settings, "prioriti", 1)
                .unwrap_err()
                .contains(PRIORITY_KEY)
        );
    }
}
