//! The whole daemon under callgrind, with requests over loopback: all that it does for a
//! request outside of system calls.
//!
//! Requests come slowly, so that the daemon watches each for `STATS TOP`, however fast the
//! machine is: at full rate it watches few, and a request takes 1,000 instructions less.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::{Result, profile_directory, total_in, valgrind};

/// What clients do again and again.
pub(crate) struct Exchange {
    pub(crate) name: &'static str,
    /// The instructions of one exchange are divided by this number.
    operations: u32,
    /// From the start of one exchange to that of the next.
    every_ms: u64,
    take_place: fn(&Clients) -> std::io::Result<()>,
}

const WAITERS: usize = 40;

pub(crate) const EXCHANGES: &[Exchange] = &[
    Exchange { name: "daemon-lock-release", operations: 1, every_ms: 2, take_place: pair },
    Exchange { name: "daemon-connect-lock-release", operations: 1, every_ms: 4, take_place: cycle },
    Exchange {
        name: "daemon-wait-and-wake",
        operations: WAITERS as u32,
        every_ms: 40,
        take_place: wake,
    },
];

pub(crate) struct Clients {
    address: SocketAddr,
    kept: Vec<TcpStream>,
}

const ASK: &[u8] = b"ACQ4ANY enwiki:pcache:idhash:000000012345-0!cano 1 100 15\n";

fn pair(clients: &Clients) -> std::io::Result<()> {
    lock_and_release(&clients.kept[0])
}

fn cycle(clients: &Clients) -> std::io::Result<()> {
    lock_and_release(&TcpStream::connect(clients.address)?)
}

fn wake(clients: &Clients) -> std::io::Result<()> {
    for mut client in &clients.kept {
        client.write_all(ASK)?;
    }
    let holder = &clients.kept[0];
    expect(holder, b"LOCKED\n")?;
    release(holder)?;
    clients.kept[1..].iter().try_for_each(|waiter| expect(waiter, b"DONE\n"))
}

fn lock_and_release(mut client: &TcpStream) -> std::io::Result<()> {
    client.write_all(ASK)?;
    expect(client, b"LOCKED\n")?;
    release(client)
}

fn release(mut client: &TcpStream) -> std::io::Result<()> {
    client.write_all(b"RELEASE\n")?;
    expect(client, b"RELEASED\n")
}

fn expect(mut client: &TcpStream, answer: &[u8]) -> std::io::Result<()> {
    let mut read = vec![0; answer.len()];
    client.read_exact(&mut read)?;
    assert_eq!(read, answer);
    Ok(())
}

impl Exchange {
    /// Instructions per operation: those of many exchanges minus those of few, so that the
    /// daemon's start and end don't count.
    pub(crate) fn count(&self) -> Result<f64> {
        const FEW: u32 = 100;
        const MANY: u32 = 400;
        let few = self.total(FEW)?;
        let many = self.total(MANY)?;
        Ok((many - few) as f64 / f64::from((MANY - FEW) * self.operations))
    }

    fn total(&self, exchanges: u32) -> Result<u64> {
        let profile = profile_directory().join(format!("{}.out", self.name));
        let why = |e: std::io::Error| format!("{}: {e}", self.name);
        let (daemon, address) = start(&profile)?;
        let mut daemon = Ended(daemon);
        let first = wait_until_it_listens(address, &mut daemon.0)?;
        let mut clients = Clients { address, kept: vec![first] };
        for _ in 0..WAITERS {
            clients.kept.push(TcpStream::connect(address).map_err(why)?);
        }
        let begin = Instant::now();
        for n in 0..exchanges {
            let due = begin + Duration::from_millis(self.every_ms) * n;
            std::thread::sleep(due.saturating_duration_since(Instant::now()));
            (self.take_place)(&clients).map_err(why)?;
        }
        daemon.end()?;
        total_in(&profile)
    }
}

fn start(profile: &Path) -> Result<(Child, SocketAddr)> {
    let address = free_address().map_err(|e| e.to_string())?;
    let mut option = std::ffi::OsString::from("--callgrind-out-file=");
    option.push(profile);
    let child = Command::new(valgrind())
        .args(["-q", "--tool=callgrind"])
        .arg(option)
        .arg(daemon_in_same_folder().map_err(|e| e.to_string())?)
        .args(["-l", &address.ip().to_string(), "-p", &address.port().to_string()])
        .env("RUST_LOG", "error")
        .spawn();
    Ok((child.map_err(|e| e.to_string())?, address))
}

fn free_address() -> std::io::Result<SocketAddr> {
    TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()
}

fn daemon_in_same_folder() -> std::io::Result<PathBuf> {
    Ok(std::env::current_exe()?.with_file_name("poolcounterd"))
}

fn wait_until_it_listens(address: SocketAddr, daemon: &mut Child) -> Result<TcpStream> {
    let end = Instant::now() + Duration::from_secs(60);
    while Instant::now() < end {
        if let Ok(client) = TcpStream::connect(address) {
            return Ok(client);
        }
        if let Ok(Some(status)) = daemon.try_wait() {
            return Err(format!("the daemon under callgrind has ended: {status}"));
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    Err("the daemon under callgrind does not listen".to_owned())
}

/// A daemon that is killed when this is dropped.
struct Ended(Child);

impl Ended {
    /// Ends it, so that callgrind writes its counts.
    fn end(&mut self) -> Result<()> {
        let pid = Pid::from_child(&self.0);
        kill_process(pid, Signal::TERM).map_err(|e| e.to_string())?;
        let status = self.0.wait().map_err(|e| e.to_string())?;
        if status.success() { Ok(()) } else { Err(format!("the daemon ended with {status}")) }
    }
}

impl Drop for Ended {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
