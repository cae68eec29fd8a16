//! Restores the order of beginnings for things that end in any order.
//!
//! # Guarantees
//! 1. Results come out in the order of the tickets. A result is held back only for an older one
//!    that has not ended.

use std::collections::VecDeque;

/// Names a place in the order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EventTicket(u64);

#[derive(Debug)]
enum OrderSlot<B, D> {
    Begun(B),
    Done(D),
}

/// Holds things that begin in order and end in any, up to a limit.
#[derive(Debug)]
pub(crate) struct InOrder<B, D> {
    slots: VecDeque<OrderSlot<B, D>>,
    /// Ticket of the first slot.
    first: u64,
    most: usize,
}

impl<B, D> InOrder<B, D> {
    pub(crate) fn new(most: usize) -> Self {
        Self {
            slots: VecDeque::new(),
            first: 0,
            most,
        }
    }

    pub(crate) fn is_full(&self) -> bool {
        self.slots.len() >= self.most
    }

    /// Begins something; returns `None` when the limit is reached.
    pub(crate) fn push_begun(&mut self, begun: B) -> Option<EventTicket> {
        if self.is_full() {
            return None;
        }
        self.slots.push_back(OrderSlot::Begun(begun));
        debug_assert!(self.slots.len() <= self.most, "more things go on than may");
        Some(EventTicket(self.first + self.slots.len() as u64 - 1))
    }

    /// Ends something; does nothing if it was given up before.
    pub(crate) fn mark_done(&mut self, ticket: EventTicket, done: impl FnOnce(&B) -> D) {
        // A ticket below the first one was given up, or has gone out.
        let at = ticket
            .0
            .checked_sub(self.first)
            .and_then(|at| usize::try_from(at).ok());
        // A slot that is done stays as it is: a ticket ends once.
        if let Some(slot) = at.and_then(|at| self.slots.get_mut(at))
            && let OrderSlot::Begun(begun) = slot
        {
            *slot = OrderSlot::Done(done(begun));
        }
    }

    /// Returns whether there is something to [`pop`](Self::pop).
    pub(crate) fn is_ready(&self) -> bool {
        matches!(self.slots.front(), Some(OrderSlot::Done(_)))
    }

    /// Returns the oldest, if it has ended.
    pub(crate) fn pop(&mut self) -> Option<D> {
        if !self.is_ready() {
            return None;
        }
        debug_assert!(!self.slots.is_empty(), "a ready order has a first slot");
        self.first += 1;
        match self.slots.pop_front() {
            Some(OrderSlot::Done(done)) => Some(done),
            _ => None,
        }
    }

    /// Gives the oldest up: its end is no longer waited for.
    pub(crate) fn give_up(&mut self, done: impl FnOnce(&B) -> D) {
        self.mark_done(EventTicket(self.first), done);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_ends_in_any_order_comes_out_in_the_order_of_its_beginning() {
        let mut order = InOrder::new(3);
        let [a, b, c] = [1, 2, 3].map(|n| order.push_begun(n).unwrap());
        assert_eq!(order.push_begun(4), None, "full");
        order.mark_done(c, |n| n * 10);
        order.mark_done(b, |n| n * 10);
        assert_eq!((order.is_ready(), order.pop()), (false, None));
        order.mark_done(a, |n| n * 10);
        assert_eq!(
            [order.pop(), order.pop(), order.pop(), order.pop()],
            [Some(10), Some(20), Some(30), None]
        );
        // A ticket that was given up, or used, does nothing.
        let d = order.push_begun(4).unwrap();
        order.give_up(|n| -n);
        order.mark_done(d, |n| n * 10);
        assert_eq!(order.pop(), Some(-4));
        order.mark_done(d, |n| n * 10);
        assert!(order.is_empty());
    }
}
