//! Checking a server's data while it serves, and mending what can be mended.
//!
//! # Guarantees
//! 1. *Looked at*: a report without problems means that the database was checked, that every pack
//!    was read and every chunk compared with its name, and that every chunk that history names is
//!    there.
//! 2. *Named*: content that cannot be read is reported by the path of its file, and it is said
//!    whether the file's present state needs it or only earlier ones.
//! 3. *In the background*: after each pack the check rests for as long as the pack took.
//! 4. *Mended by name*: content is stored again only if its bytes have the name of the chunk that
//!    was lost, so that a wrong source cannot spoil anything.

use crate::refusal::{Outcome, RequestRefusal, refuse};
use crate::server::Server;
use crate::version::path_of;
use std::collections::BTreeMap;
use std::ops::Range;
use std::time::Duration;
use teal_meta::{EXTENT_MAX, PastPlace, ReadTransaction};
use teal_proto::RefusalCode;
use teal_types::{ChunkId, ObjectNo, VolumeId};

/// The number of history's rows that one transaction looks at.
const ROWS: usize = 4096;
/// The longest rest after a pack.
const REST_MAX: Duration = Duration::from_secs(1);
/// The number of damaged files that a report lists.
const FILES_LISTED: usize = 100;

/// A file of which the server cannot read some content.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DamagedFile {
    /// The volume of the file.
    pub volume: VolumeId,
    /// The file.
    pub object: ObjectNo,
    /// The path of the file; empty if it has been removed.
    pub path: String,
    /// Pieces of the file's present content that cannot be read.
    pub present_pieces: u64,
    /// Pieces of content that only earlier states of the file need.
    pub past_pieces: u64,
}

/// The findings of a check of a server's data.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ServerCheckReport {
    /// Packs that were read.
    pub packs: usize,
    /// Chunks that are whole.
    pub chunks: usize,
    /// Pieces of content that history names.
    pub pieces: u64,
    /// Problems of the database and of packs, in words.
    pub problems: Vec<String>,
    /// The number of these problems, of which only the first ones are kept.
    pub problem_count: usize,
    /// Pieces of present content that were stored again.
    pub mended: u64,
    /// The first files with damaged content.
    pub files: Vec<DamagedFile>,
    /// The number of files with damaged content.
    pub file_count: usize,
}

impl ServerCheckReport {
    /// Returns whether nothing is wrong now.
    pub fn is_clean(&self) -> bool {
        self.problem_count == 0 && self.file_count == 0
    }
}

/// Reads a range of a file's content from somewhere else than the server; `None` if it is not all
/// there. The content may be of another version: it is compared by name.
pub type ContentSource<'a> = &'a dyn Fn(VolumeId, ObjectNo, Range<u64>) -> Option<Vec<u8>>;

/// A piece of content whose chunk cannot be read.
struct LostPiece {
    volume: VolumeId,
    place: PastPlace,
    chunk: ChunkId,
    /// The file's present content that lies in the chunk, if it does, from the chunk's first byte
    /// on.
    present: Option<Range<u64>>,
}

impl Server {
    /// Checks the database and all content, and stores content again that `source` has. Other
    /// requests are served meanwhile.
    ///
    /// # Errors
    /// Returns the failure in words: the database or a pack cannot be reached, or the server stops
    /// before all was looked at.
    pub fn check_data(
        &self,
        source: ContentSource<'_>,
    ) -> Result<ServerCheckReport, teal_proto::RefusalReply> {
        self.do_check(source).map_err(|refusal| refusal.0)
    }

    fn do_check(&self, source: ContentSource<'_>) -> Outcome<ServerCheckReport> {
        let mut report = ServerCheckReport::default();
        for problem in self
            .meta()
            .check_integrity()
            .map_err(RequestRefusal::from)?
        {
            report.problem_count += 1;
            report.problems.push(format!("the database: {problem}"));
        }
        self.check_packs(&mut report)?;
        let mut lost = Vec::new();
        for volume in self.meta().volumes()? {
            self.check_named_content(volume, source, &mut report, &mut lost)?;
        }
        // A later row of history may have had the same chunk mended.
        lost.retain(|piece| !self.is_present(piece.chunk));
        self.report_files(&lost, &mut report)?;
        *self.lost_chunks.lock() = lost.iter().map(|piece| piece.chunk).collect();
        if report.is_clean() {
            log::info!(
                "checked the server's data: {} packs, {} chunks, {} pieces mended",
                report.packs,
                report.chunks,
                report.mended
            );
        } else {
            log::error!(
                "the server's data is damaged: {} problems, {} files; `teal check --server` \
                 names them",
                report.problem_count,
                report.file_count
            );
        }
        Ok(report)
    }

    fn check_packs(&self, report: &mut ServerCheckReport) -> Outcome<()> {
        let mut begun = self.clock().monotonic_time();
        let checked = self.chunks().check(|_, _| {
            let took = self.clock().monotonic_time().saturating_sub(begun);
            // Rests between packs, so that requests have half of the time.
            self.pause(took.min(REST_MAX));
            begun = self.clock().monotonic_time();
        })?;
        report.packs = checked.packs;
        report.chunks = checked.chunks;
        // A damaged chunk that something names is reported by the file it belongs to, below; of
        // one that nothing names, nothing is lost.
        report.problem_count += checked.pack_problem_count;
        for problem in &checked.pack_problems {
            report.problems.push(problem.to_string());
        }
        Ok(())
    }

    /// Looks for every chunk that the history of a volume names, and mends what `source` has.
    fn check_named_content(
        &self,
        volume: VolumeId,
        source: ContentSource<'_>,
        report: &mut ServerCheckReport,
        all_lost: &mut Vec<LostPiece>,
    ) -> Outcome<()> {
        let mut after = None;
        loop {
            // Each page has a transaction of its own, so that commits go on meanwhile.
            let rows = self.read(volume, |txn| Ok(txn.named_chunks(after, ROWS)?))?;
            let Some((last, _)) = rows.last() else {
                return Ok(());
            };
            after = Some(*last);
            report.pieces += rows.len() as u64;
            let chunks: Vec<ChunkId> = rows.iter().map(|(_, chunk)| *chunk).collect();
            let present = self.chunks().peek_present(&chunks);
            for ((place, chunk), is_present) in rows.into_iter().zip(present) {
                if is_present {
                    continue;
                }
                let lost =
                    self.read(volume, |txn| find_present_piece(txn, volume, place, chunk))?;
                if self.mend_piece(&lost, source)? {
                    report.mended += 1;
                } else {
                    all_lost.push(lost);
                }
            }
            if self.presence.lock().is_stopping() {
                return refuse(
                    RefusalCode::Stopping,
                    "the server stops before all is checked",
                );
            }
        }
    }

    fn is_present(&self, chunk: ChunkId) -> bool {
        self.chunks().peek_present(&[chunk]) == [true]
    }

    /// Stores the chunk of a lost piece again if `source` has its content; returns whether it is
    /// there now.
    fn mend_piece(&self, lost: &LostPiece, source: ContentSource<'_>) -> Outcome<bool> {
        // An earlier row may have named the same chunk, and had it mended.
        if self.is_present(lost.chunk) {
            return Ok(true);
        }
        let Some(range) = lost.present.clone() else {
            return Ok(false);
        };
        let Some(content) = source(lost.volume, lost.place.object, range) else {
            return Ok(false);
        };
        if self.chunks().domain().name_content(&content) != lost.chunk {
            return Ok(false);
        }
        let (_, pin) = self.chunks().put([&content[..]])?;
        // The row of history names the chunk; nothing else has to keep it.
        drop(pin);
        Ok(true)
    }

    /// Adds the files to which lost pieces belong to the report; the first ones with their paths.
    fn report_files(&self, lost: &[LostPiece], report: &mut ServerCheckReport) -> Outcome<()> {
        let mut pieces: BTreeMap<(VolumeId, ObjectNo), (u64, u64)> = BTreeMap::new();
        for piece in lost {
            let (present, past) = pieces
                .entry((piece.volume, piece.place.object))
                .or_default();
            match piece.present {
                Some(_) => *present += 1,
                None => *past += 1,
            }
        }
        report.file_count = pieces.len();
        for ((volume, object), (present_pieces, past_pieces)) in
            pieces.into_iter().take(FILES_LISTED)
        {
            report.files.push(DamagedFile {
                volume,
                object,
                path: self.read(volume, |txn| path_of(txn, object))?,
                present_pieces,
                past_pieces,
            });
        }
        Ok(())
    }
}

/// Finds out whether a file's present content still lies in the chunk that a row of history names.
fn find_present_piece(
    txn: &dyn ReadTransaction,
    volume: VolumeId,
    place: PastPlace,
    chunk: ChunkId,
) -> Outcome<LostPiece> {
    // The first bytes may have been overwritten since: the rest of the piece counts too.
    let within = place.offset..place.offset.saturating_add(EXTENT_MAX);
    let extents = txn.extents(place.object, within)?;
    let found = extents.iter().find(|extent| extent.chunk == chunk);
    let present = found.map(|extent| {
        // The chunk begins before the piece if its first bytes were overwritten.
        let first = extent.offset.saturating_sub(u64::from(extent.start));
        first..extent.offset.saturating_add(extent.len)
    });
    Ok(LostPiece {
        volume,
        place,
        chunk,
        present,
    })
}
