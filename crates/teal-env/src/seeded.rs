//! Bugs to switch on: a test harness is itself tested by breaking the code on purpose and seeing it
//! caught.
//!
//! # Guarantees
//! 1. Without the feature `seeded-bugs` of the crate that defines them, every hook is the constant
//!    `false`.
//! 2. At most one bug of a crate is on, for the whole process.

/// Defines the bugs of a crate that has the feature `seeded-bugs` as an enum, the function `seed`,
/// which switches one of them on (with the feature), and their hook: `bug(ENUM::NAME)`.
#[macro_export]
macro_rules! seeded_bugs {
    ($(#[$of_all:meta])* pub enum $bug:ident { $($(#[$of_one:meta])* $name:ident),+ $(,)? }) => {
        $(#[$of_all])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        #[repr(u8)]
        pub enum $bug { $($(#[$of_one])* $name),+ }

        impl $bug {
            /// Every bug.
            pub const ALL: [Self; [$(stringify!($name)),+].len()] = [$(Self::$name),+];
        }

        /// The one that is on, counted from one; 0: none.
        #[cfg(feature = "seeded-bugs")]
        static SEEDED: std::sync::atomic::AtomicU8 = std::sync::atomic::AtomicU8::new(0);

        /// Switches one bug on for the whole process, or all off.
        #[cfg(feature = "seeded-bugs")]
        pub fn seed(bug: Option<$bug>) {
            SEEDED.store(bug.map_or(0, |bug| bug as u8 + 1), std::sync::atomic::Ordering::SeqCst);
        }

        /// Returns whether this bug is switched on.
        #[cfg(feature = "seeded-bugs")]
        pub(crate) fn bug(bug: $bug) -> bool {
            SEEDED.load(std::sync::atomic::Ordering::SeqCst) == bug as u8 + 1
        }

        /// Returns whether this bug is switched on: never.
        #[cfg(not(feature = "seeded-bugs"))]
        pub(crate) const fn bug(_: $bug) -> bool {
            false
        }
    };
}
