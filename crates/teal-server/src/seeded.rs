//! Bugs to switch on: the simulation of replicas is itself tested by them
//! (`teal_env::seeded_bugs`).

teal_env::seeded_bugs! {
    /// A bug that can be switched on. Each breaks one rule of the server.
    pub enum Bug {
        /// A commit is answered before it is durable.
        AnsweredTooEarly,
        /// A batch that comes again is carried out again.
        BatchTwice,
        /// Half of a large batch is carried out.
        HalfABatch,
        /// The later content replaces the first.
        LastWriterWins,
        /// Appended content is put behind content that another replica has rewritten meanwhile.
        MergedOverRewrite,
        /// A conflict copy has only what its author changed, not what he had seen.
        CopyWithoutBase,
        /// An object that another replica has changed is removed all the same.
        ChangedRemoved,
        /// A change that an author has sent itself counts as another replica's.
        OwnUnseen,
        /// Content of another commit than was asked for is given.
        OtherContent,
        /// History is given to a client that has not said hello, and goes on from another one.
        OtherHistory,
        /// A filter forgets the directories that its client has listed.
        FilterForgetsListed,
        /// A filter forgets where something lay before it was moved or removed.
        FilterForgetsOrigin,
        /// A copy of a drive is taken for the drive.
        DriveCopyTaken,
        /// More names and extended attributes are merged than a client can have.
        LimitsDiffer,
    }
}
