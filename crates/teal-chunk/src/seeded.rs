//! Bugs to switch on: the crash tests of the store is itself tested by them
//! (`teal_env::seeded_bugs`).

teal_env::seeded_bugs! {
    /// A bug that can be switched on. Each breaks one promise of the store.
    pub enum ChunkBug {
        /// A chunk's content is not held against its name.
        DigestUnverified,
        /// Packs are put without syncing file and directory.
        NotSynced,
        /// A pack that could not be put counts as put.
        FailedPutForgotten,
        /// Chunks can be had before their pack is durable.
        HadTooEarly,
        /// Collection does not look at the pins that there are.
        PinsIgnored,
        /// A chunk that is pinned and unpinned while a collection runs is not marked.
        PinNotMarked,
        /// Collection takes young packs.
        GraceIgnored,
        /// A half-dead pack is removed before what lives in it is durable elsewhere.
        RemovedTooEarly,
        /// A damaged chunk is still said to be there, so that no client sends it again.
        DamageHad,
        /// A chunk that a client was told to be here may be collected at once.
        HaveForgotten,
        /// Leftovers of interrupted puts stay.
        LeftoversStay,
    }
}
