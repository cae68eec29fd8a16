//! Workloads that come with the program, stated anew in the language.
//!
//! # Guarantees
//! 1. Each is sound, lies wholly in the directory of the run, and says in its first line what it
//!    is.

/// A workload that comes with the program.
#[derive(Debug, Clone, Copy)]
pub struct Shipped {
    /// Its name.
    pub name: &'static str,
    /// What Filebench and others call it, too.
    pub alias: &'static str,
    /// The script.
    pub text: &'static str,
}

/// All of them: four servers (parameters of the study of 248 benchmarks), then phases of a thesis
/// on energy.
pub const SHIPPED: &[Shipped] = &[
    Shipped {
        name: "web",
        alias: "webserver",
        text: include_str!("shipped/web.wml"),
    },
    Shipped {
        name: "file",
        alias: "fileserver",
        text: include_str!("shipped/file.wml"),
    },
    Shipped {
        name: "mail",
        alias: "varmail",
        text: include_str!("shipped/mail.wml"),
    },
    Shipped {
        name: "db",
        alias: "oltp",
        text: include_str!("shipped/db.wml"),
    },
    Shipped {
        name: "create",
        alias: "create",
        text: include_str!("shipped/create.wml"),
    },
    Shipped {
        name: "read",
        alias: "reread",
        text: include_str!("shipped/read.wml"),
    },
    Shipped {
        name: "rand_read",
        alias: "rand_reread",
        text: include_str!("shipped/rand_read.wml"),
    },
    Shipped {
        name: "rewrite",
        alias: "rewrite",
        text: include_str!("shipped/rewrite.wml"),
    },
    Shipped {
        name: "updates",
        alias: "updates",
        text: include_str!("shipped/updates.wml"),
    },
    Shipped {
        name: "updates_reread",
        alias: "updates_reread",
        text: include_str!("shipped/updates_reread.wml"),
    },
    Shipped {
        name: "camera",
        alias: "camera",
        text: include_str!("shipped/camera.wml"),
    },
    Shipped {
        name: "mp3",
        alias: "mp3",
        text: include_str!("shipped/mp3.wml"),
    },
    Shipped {
        name: "fragmented",
        alias: "fragmented",
        text: include_str!("shipped/fragmented.wml"),
    },
];

impl Shipped {
    /// The one of that name, or alias.
    pub fn named(name: &str) -> Option<&'static Self> {
        SHIPPED
            .iter()
            .find(|shipped| shipped.name == name || shipped.alias == name)
    }

    /// Returns what it is: its first line.
    pub fn about(&self) -> &'static str {
        self.text
            .lines()
            .next()
            .unwrap_or_default()
            .trim_start_matches("# ")
    }

    /// Its variables and what they are set to, as written.
    pub fn variables(&self) -> impl Iterator<Item = (&'static str, &'static str)> {
        self.text
            .lines()
            .filter_map(|line| line.strip_prefix("set $")?.split_once('='))
    }
}
