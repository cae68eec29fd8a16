//! Holds the workloads that come with the program, written anew in the language.
//!
//! # Guarantees
//! 1. Each is sound, lies wholly in the directory of the run, and describes itself in its first
//!    line.

/// Describes a workload that comes with the program.
#[derive(Debug, Clone, Copy)]
pub struct ShippedWorkload {
    /// Name of the workload.
    pub name: &'static str,
    /// Name in Filebench and other programs.
    pub alias: &'static str,
    /// Text of the script.
    pub text: &'static str,
}

/// All workloads: four servers (parameters of the study of 248 benchmarks), then phases of a thesis
/// on energy.
pub const SHIPPED: &[ShippedWorkload] = &[
    ShippedWorkload {
        name: "web",
        alias: "webserver",
        text: include_str!("shipped/web.wml"),
    },
    ShippedWorkload {
        name: "file",
        alias: "fileserver",
        text: include_str!("shipped/file.wml"),
    },
    ShippedWorkload {
        name: "mail",
        alias: "varmail",
        text: include_str!("shipped/mail.wml"),
    },
    ShippedWorkload {
        name: "db",
        alias: "oltp",
        text: include_str!("shipped/db.wml"),
    },
    ShippedWorkload {
        name: "create",
        alias: "create",
        text: include_str!("shipped/create.wml"),
    },
    ShippedWorkload {
        name: "read",
        alias: "reread",
        text: include_str!("shipped/read.wml"),
    },
    ShippedWorkload {
        name: "rand_read",
        alias: "rand_reread",
        text: include_str!("shipped/rand_read.wml"),
    },
    ShippedWorkload {
        name: "rewrite",
        alias: "rewrite",
        text: include_str!("shipped/rewrite.wml"),
    },
    ShippedWorkload {
        name: "updates",
        alias: "updates",
        text: include_str!("shipped/updates.wml"),
    },
    ShippedWorkload {
        name: "updates_reread",
        alias: "updates_reread",
        text: include_str!("shipped/updates_reread.wml"),
    },
    ShippedWorkload {
        name: "camera",
        alias: "camera",
        text: include_str!("shipped/camera.wml"),
    },
    ShippedWorkload {
        name: "mp3",
        alias: "mp3",
        text: include_str!("shipped/mp3.wml"),
    },
    ShippedWorkload {
        name: "fragmented",
        alias: "fragmented",
        text: include_str!("shipped/fragmented.wml"),
    },
];

impl ShippedWorkload {
    /// Returns the workload of that name, or alias.
    pub fn by_name(name: &str) -> Option<&'static Self> {
        SHIPPED
            .iter()
            .find(|shipped| shipped.name == name || shipped.alias == name)
    }

    /// Returns its description: the first line.
    pub fn about(&self) -> &'static str {
        self.text
            .lines()
            .next()
            .unwrap_or_default()
            .trim_start_matches("# ")
    }

    /// Returns its variables and their values, as written.
    pub fn variables(&self) -> impl Iterator<Item = (&'static str, &'static str)> {
        self.text
            .lines()
            .filter_map(|line| line.strip_prefix("set $")?.split_once('='))
    }
}
