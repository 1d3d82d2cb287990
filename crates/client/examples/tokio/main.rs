//! The client without I/O in an async runtime. `cargo run --example tokio -- SERVER,SERVER KEY`
//! works under a lock for a second; without arguments it serves itself. `async_client.rs` is the
//! client.

mod async_client;

use async_client::AsyncClient;
use poolcounter::{LockRequest, Outcome, ServerName};
use std::time::Duration;
use tokio::time::{sleep, timeout};

include!("../support/server.rs");

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let servers = arguments.next().unwrap_or_else(serve);
    let key = arguments.next().unwrap_or_else(|| "example".to_owned());
    let servers: Result<Vec<ServerName>, _> = servers.split(',').map(str::parse).collect();
    let client = AsyncClient::new(servers?);
    let request = LockRequest::new(key).timeout(Duration::from_secs(60));
    // This program has less patience than its request: dropping the future ends the wait.
    let Ok(outcome) = timeout(Duration::from_secs(10), client.lock(&request)).await else {
        println!("gave up");
        return Ok(());
    };
    let mut lock = match outcome? {
        Outcome::Locked(lock) => lock,
        other => {
            println!("no lock: {other:?}");
            return Ok(());
        }
    };
    println!("locked on {}", lock.server);
    tokio::select! {
        () = work() => lock.release().await?,
        why = lock.lost() => println!("lost: {why}; another client may have the lock"),
    }
    Ok(())
}

async fn work() {
    sleep(Duration::from_secs(1)).await;
}
