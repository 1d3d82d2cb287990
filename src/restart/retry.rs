//! What the new image does if the machine lacks memory or descriptors for the moment: it waits
//! for them.

use crate::platform::failed_call::lacks_resources;
use crate::platform::os::thread;
use log::error;
use std::io;
use std::time::Duration;

/// Retries for some seconds if the machine lacks memory or descriptors: giving up would
/// lose every lock.
pub(crate) fn retry_for_a_while<T>(
    what: &str,
    mut attempt: impl FnMut() -> io::Result<T>,
) -> io::Result<T> {
    const ATTEMPTS: usize = 1_000;
    const PAUSE: Duration = Duration::from_millis(10);
    for n in 0..ATTEMPTS {
        match attempt() {
            Err(e) if lacks_resources(&e) => {
                if n == 0 {
                    error!("hot restart: {what} failed and is tried again: {e}");
                }
                thread::sleep(PAUSE);
            }
            result => return result,
        }
    }
    attempt()
}
