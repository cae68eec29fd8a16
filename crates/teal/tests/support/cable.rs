//! Two machines of a test's own, with a cable between them ([`teal_testkit::NetworkCable`]).

use super::World;
use std::path::PathBuf;
use std::sync::Arc;
pub(crate) use teal_testkit::NetworkNamespace;

/// The machines' addresses.
pub(crate) const ADDRESSES: [&str; 2] = teal_testkit::NetworkCable::ADDRESSES;

/// Two machines, and what connects them.
#[derive(Debug)]
pub(crate) struct Cable(teal_testkit::NetworkCable);

impl Cable {
    /// `None`, on record as skipped, where there are no namespaces.
    pub(crate) fn new(test: &str) -> Option<Self> {
        let made = if super::is_root() {
            teal_testkit::NetworkCable::new().unwrap()
        } else {
            None
        };
        if made.is_none() {
            teal_testkit::skip_test(
                test,
                "needs root, network namespaces and the Debian package iproute2",
            );
        }
        made.map(Self)
    }

    /// The namespaces, as long as the machines live.
    pub(crate) fn namespaces(&self) -> [PathBuf; 2] {
        [0, 1].map(|end| self.0.namespace_at(end).namespace_path())
    }

    /// A test's world on the first or second machine.
    pub(crate) fn world(&self, end: usize, world: World) -> World {
        world.on(Arc::clone(self.0.namespace_at(end)))
    }

    /// See [`teal_testkit::NetworkCable::unplug`].
    pub(crate) fn unplug(&self, end: usize) {
        self.0.unplug(end).unwrap();
    }

    pub(crate) fn plug(&self, end: usize) {
        self.0.plug(end).unwrap();
    }
}
