//! Asks several servers at the same time.

use connect::ServerName;
use std::thread;

/// What `ask` returns for each server, in their order. All are asked at the same time, so
/// that several take as long as one.
pub(super) fn ask_each<T: Send>(
    servers: &[ServerName],
    ask: impl Fn(&ServerName) -> T + Sync,
) -> Vec<T> {
    thread::scope(|scope| {
        let ask = &ask;
        // All are started before the first is waited for.
        let threads: Vec<_> =
            servers.iter().map(|server| scope.spawn(move || ask(server))).collect();
        threads.into_iter().map(|thread| thread.join().expect("an answer")).collect()
    })
}

/// The servers, each once.
pub(super) fn distinct(servers: &[ServerName]) -> Vec<ServerName> {
    let mut distinct: Vec<ServerName> = Vec::new();
    for server in servers {
        if !distinct.contains(server) {
            distinct.push(server.clone());
        }
    }
    distinct
}
