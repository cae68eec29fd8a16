//! Bugs to switch on: the simulation of replicas is itself tested by them
//! (`teal_env::seeded_bugs`).

teal_env::seeded_bugs! {
    /// A bug that can be switched on. Each breaks one rule between a replica and its server.
    pub enum Bug {
        /// Dirty components count as sent when they are cut, before the server has answered.
        ClearedTooEarly,
        /// The position moves, and is durable, before the states up to it are installed.
        PositionTooEarly,
        /// After a restart numbers are given out again from the beginning of the lease.
        NumbersReused,
        /// Objects that a copied store has made keep the numbers that the other life used, too.
        NotRenumbered,
        /// Objects that another store of this identity has made are not noticed in a pull.
        CopyUnnoticed,
        /// The server's state is installed over content that has changed here since it was sent.
        NewerOverwritten,
        /// The news of the time in which a device was away is not installed.
        NewsSkipped,
        /// Components in flight at a power cut are not made dirty again.
        FlyingForgotten,
        /// The batch's name is not durable when the server is asked to commit it.
        UnsyncedCommit,
        /// A removal is not noted.
        RemovalNotNoted,
        /// Content that is fetched is entered whatever commit it is of.
        StaleFetched,
        /// A component that has changed meanwhile keeps the base it had before its batch committed.
        BaseKept,
        /// A write elsewhere in a file that was appended to counts as appended, too.
        RewriteTakenForAppend,
        /// The server is not told of all directories that are kept here.
        KeptHalfSaid,
        /// A drive is read at whatever version it has.
        DriveStale,
        /// Content that is dirty here is copied to drives as if it were the server's.
        DriveGetsPending,
        /// A drive's position moves without what has changed making way.
        DriveMissesNews,
        /// A drive's position is durable before what has changed makes way.
        DrivePositionTooEarly,
        /// The server hears of an attachment before that is durable on the drive.
        DriveToldTooEarly,
        /// A drive that has not come back is asked for more.
        LateAskedAgain,
        /// Damaged content of a drive counts as zeros.
        SpoiledServed,
        /// Damaged content stays on a drive, and counts as being there.
        SpoiledKept,
        /// Content that is dirty here is given back as if the server had it.
        PendingGivenBack,
        /// Objects that come to a pinned directory are not looked at.
        PinNotFollowed,
        /// One change that cannot be sent, or state that cannot be installed, stops all others.
        OneStopsAll,
    }
}
