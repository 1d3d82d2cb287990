//! Asks several servers at the same time.

use connect::ServerName;
use std::collections::HashSet;
use std::thread;

/// What `ask` returns for each server, in their order. All are asked at the same time, so
/// that several take as long as one; those for which there can be no thread, before the others
/// are waited for.
pub(super) fn ask_each<T: Send>(
    servers: &[ServerName],
    ask: impl Fn(&ServerName) -> T + Sync,
) -> Vec<T> {
    thread::scope(|scope| {
        let ask = &ask;
        // All are started before the first is waited for.
        let start = |server| {
            let thread = thread::Builder::new().spawn_scoped(scope, move || ask(server));
            thread.map_err(|_| ask(server))
        };
        let threads: Vec<_> = servers.iter().map(start).collect();
        let answer = |thread: Result<thread::ScopedJoinHandle<'_, T>, T>| match thread {
            Ok(thread) => thread.join().expect("an answer"),
            Err(answer) => answer,
        };
        threads.into_iter().map(answer).collect()
    })
}

/// The servers, each once.
pub(super) fn distinct(servers: &[ServerName]) -> Vec<ServerName> {
    let mut seen = HashSet::new();
    servers.iter().filter(|server| seen.insert(*server)).cloned().collect()
}
