//! A wait that ends while the new image is on its way. It must outlast the trial and the
//! exec, so the machine has to be quick enough.

use crate::support::restart::{Gap, wait_until};
use std::time::Instant;

#[test]
fn a_wait_that_ends_while_the_new_image_is_on_its_way_is_answered() {
    let gap = Gap::new();
    let server = gap.place.start(&[]);
    let [mut holder, mut waiter] = [(); 2].map(|()| server.connect());
    holder.exchange("ACQ4ME k 1 9 0", "LOCKED");
    let begin = Instant::now();
    waiter.send("ACQ4ME k 1 9 1");
    server.settle();
    gap.open(&server);
    wait_until("a second has passed", || (begin.elapsed().as_millis() > 1100).then_some(()));
    waiter.expect_nothing();
    gap.close(&server);
    waiter.expect("TIMEOUT");
}
