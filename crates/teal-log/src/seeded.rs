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
        /// Ignores the durable watermark: a flipped bit cuts the log silently.
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
        /// Counts a reference to a shared extent that is left in two places as one.
        SplitNotCounted,
        /// A shared extent goes while one still refers to it.
        SharedFreedEarly,
        /// Changes of the table of shared extents are not recorded.
        SharedNotRecorded,
        /// Counts written records as durable before their barrier.
        WrittenPromised,
        /// A checkpoint forgets the changes that still wait since the store was opened.
        DeferredForgotten,
        /// Making an object does not look whether changes wait for one that had its number.
        DeferredOutlived,
        /// The cleaner looks at objects for which changes wait.
        DeferredUncleaned,
        /// Counts the space that deferred changes will give back as in use.
        DeferredCounted,
        /// A page cannot be read between its fold and the end of the sealing.
        PageUnreadableWhileSealed,
        /// A page and its second copy may lie in the same segment.
        CopiesTogether,
        /// A second copy is counted as dead while its page lives.
        CopyFreedEarly,
        /// Second copies are written behind the anchor.
        CopyNotDurable,
        /// Second copies that a power cut prevented stay away.
        CopiesUnfinished,
        /// The log does not say for how many blocks room is set aside.
        RoomForgotten,
        /// Repair puts back what may have been deleted.
        DeletedRepaired,
    }
}
