//! Outside suites and real programs, on whichever mount they are given.

mod fio;
mod fsx;
mod git;
mod pjdfstest;
mod postgresql;
mod sources;
mod sqlite;

pub(crate) use fio::{ASYNC_BESIDE_BUFFERED, DIRECT_AND_MAPPED, MIXED, fio};
pub(crate) use fsx::fsx;
pub(crate) use git::git;
pub(crate) use pjdfstest::pjdfstest;
pub(crate) use postgresql::postgresql;
pub(crate) use sources::sources;
pub(crate) use sqlite::sqlite;
