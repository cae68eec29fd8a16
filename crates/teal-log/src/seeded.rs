//! Bugs to switch on: the crash explorer is itself tested by them (`teal_env::seeded_bugs`).

teal_env::seeded_bugs! {
    /// A bug that can be switched on. Each breaks one rule of crash recovery.
    pub enum Bug {
        /// Payloads above the watermark are not verified: a torn one is read as data.
        PayloadUnverified,
        /// A torn tail is an error instead of the end.
        TornTailRefused,
        /// No fresh epoch, and leftovers are not told apart by digest either (each guards alone).
        LeftoversLineUp,
        /// What is known durable is not used: a flipped bit cuts silently.
        NoWatermark,
        /// A failed write or sync does not poison.
        FailureForgotten,
        /// A clean end leaves no record.
        NoCleanRecord,
        /// The anchor goes out before the checkpoint's barrier.
        AnchorTooEarly,
        /// A freed segment is reused at once, not after two checkpoints.
        ReuseAtOnce,
        /// Opening does not sync first.
        NoSyncOnOpen,
        /// Half of a batch is applied.
        CommitFlagIgnored,
        /// Roll-forward forgets holes.
        HolesNotRedone,
        /// Overwritten content stays counted as live.
        OverwrittenCounted,
        /// Bytes behind a new end of a file stay.
        TailNotZeroed,
        /// Joining or leaving the orphan set is not recorded.
        OrphanNotRecorded,
        /// Notes are not recorded.
        NoteNotRecorded,
        /// An entry removed is not recorded.
        RemovalNotRecorded,
        /// What is left of a reference to a shared extent in two places counts as one.
        SplitNotCounted,
        /// A shared extent goes while one still refers to it.
        SharedFreedEarly,
        /// Changes of the table of shared extents are not recorded.
        SharedNotRecorded,
        /// What is written counts as durable before its barrier.
        WrittenPromised,
        /// A checkpoint forgets the changes that still wait since the store was opened.
        DeferredForgotten,
        /// Making an object does not look whether changes wait for one that had its number.
        DeferredOutlived,
        /// The cleaner looks at objects for which changes wait.
        DeferredUncleaned,
        /// What changes that wait will give back counts as in use.
        DeferredCounted,
    }
}
