//! Bugs to switch on: the simulation of drives is itself tested by them (`teal_env::seeded_bugs`).

teal_env::seeded_bugs! {
    /// A bug that can be switched on. Each breaks one rule of a drive.
    pub enum DriveBug {
        /// Content that makes way stays noted.
        EvictedNoted,
        /// Objects with affinity make way, too.
        AffinityEvicted,
    }
}
