//! Bugs to switch on: the simulation of replicas is itself tested by them
//! (`teal_env::seeded_bugs`).

teal_env::seeded_bugs! {
    /// A bug that can be switched on. Each breaks one rule of POSIX semantics over a replica.
    pub enum Bug {
        /// Appends at the end that the file had when the writer looked.
        AppendedAtStaleSize,
    }
}
