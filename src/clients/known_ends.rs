//! Which connections have an end that is known, but not handled, and how many: a newcomer at a
//! limit waits for them. A flag changes only together with the count.

/// Of a connection: the peer has closed, reset or sent urgent data. A short read does not mean
/// that the socket is drained then.
#[derive(Debug, Default)]
pub(super) struct KnownEnd(bool);

impl KnownEnd {
    pub(super) fn is_known(&self) -> bool {
        self.0
    }
}

/// How many connections have a [`KnownEnd`].
#[derive(Default)]
pub(super) struct KnownEnds(usize);

impl KnownEnds {
    pub(super) fn note(&mut self, end: &mut KnownEnd) {
        self.0 += usize::from(!std::mem::replace(&mut end.0, true));
    }

    pub(super) fn forget(&mut self, end: &mut KnownEnd) {
        self.0 -= usize::from(std::mem::take(&mut end.0));
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0 == 0
    }
}
