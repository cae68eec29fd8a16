//! The objects that clients keep: requests that fill filters, and answers that add to them.
//!
//! # Guarantees
//! 1. Whatever [`Server::read_for_client`] returns was read after the directories it lies in had
//!    come into the client's filters.

use crate::peer::Peer;
use crate::refusal::{Outcome, bad_request};
use crate::seeded::{Bug, bug};
use crate::server::Server;
use crate::volume::volume_of;
use teal_meta::ReadTransaction;
use teal_proto::{KEPT_MAX, ServerReply};
use teal_types::ObjectNo;

impl Server {
    /// Adds a part of what a client keeps to a filter of it; filter 0 begins a new one.
    pub(crate) fn answer_keep(
        &self,
        peer: Peer,
        filter: u64,
        objects: Vec<ObjectNo>,
        is_last: bool,
    ) -> Outcome<ServerReply> {
        if objects.len() > KEPT_MAX {
            return bad_request(format!(
                "{} objects are kept; at most {KEPT_MAX} are allowed in one message",
                objects.len()
            ));
        }
        let now = self.clock().monotonic_time();
        let filter = if filter == 0 {
            let head = self.read(peer.volume, |txn| Ok(volume_of(txn)?.head))?;
            // The number is drawn at random and is never 0, which means that there is no filter.
            let id = u64::from(self.draw_number()) << 32 | u64::from(self.draw_number().max(1));
            self.presence.lock().begin_filter(peer, id, head, now);
            id
        } else {
            filter
        };
        let Some(found) = self.presence.lock().filter_to_fill(peer, filter, is_last) else {
            return Ok(ServerReply::Kept { filter: 0 });
        };
        found.add_objects(objects);
        Ok(ServerReply::Kept { filter })
    }

    /// Reads what is told to a client, and adds to the client's filters the directories in which
    /// that lies. Reads again until all of them were in the filters before; `first` always are.
    pub(crate) fn read_for_client<T>(
        &self,
        peer: Peer,
        first: impl IntoIterator<Item = ObjectNo>,
        read: impl Fn(&dyn ReadTransaction) -> Outcome<(T, Vec<ObjectNo>)>,
    ) -> Outcome<T> {
        let filters = self.presence.lock().filters_of(peer);
        let add = |objects: Vec<ObjectNo>| {
            // Every filter takes the objects, so the iterator must not stop at the first one that
            // is new.
            let new = filters
                .iter()
                .filter(|filter| filter.add_objects(objects.iter().copied()));
            new.count() > 0
        };
        // Added before the first reading, so that a commit in between concerns the client.
        if !bug(Bug::FilterForgetsListed) {
            add(first.into_iter().collect());
        }
        loop {
            let (told, dirs) = self.read(peer.volume, &read)?;
            // Nothing was new to the filters, so they had everything while it was read.
            if bug(Bug::FilterForgetsListed) || !add(dirs) {
                return Ok(told);
            }
        }
    }
}
