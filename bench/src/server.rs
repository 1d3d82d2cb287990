//! The measured servers: started on an address and a core of their own, queried over
//! a plain connection, and killed when this program ends in any way.

use std::io::{BufRead, BufReader, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::Result;
use crate::process;

/// The reference supports only this port, so all servers use it.
pub const PORT: u16 = 7531;

/// A program that speaks the protocol, or the floor's part of it.
#[derive(Debug, Clone)]
pub struct Program {
    /// Its name in the tables: `floor`, `reference`, `ours`, or another build's name.
    pub name: String,
    /// The command; it takes `-l ADDRESS` and listens on [`PORT`].
    pub path: PathBuf,
}

impl Program {
    /// The floor has no locks, queues or statistics.
    pub fn is_floor(&self) -> bool {
        self.name == "floor"
    }
}

/// A running server. It is killed when this is dropped.
pub struct Server {
    child: Child,
    /// Where it listens.
    pub addr: SocketAddr,
}

impl Server {
    /// Starts `program` on `core` and waits until it answers.
    pub fn start(program: &Program, core: usize) -> Result<Self> {
        let addr = SocketAddr::new(IpAddr::V4(fresh_address()), PORT);
        // Runs this program, which sets its core, its limits and the signal at its
        // parent's death, and then executes the server.
        let child = Command::new(std::env::current_exe()?)
            .args(["confine", "--core", &core.to_string(), "--"])
            .arg(&program.path)
            .args(["-l", &addr.ip().to_string()])
            .env("RUST_LOG", "")
            // The library of the reference, on a machine that lacks it.
            .env("LD_LIBRARY_PATH", "target/reference/libraries")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()?;
        let mut server = Self { child, addr };
        server.wait_ready(program)?;
        Ok(server)
    }

    fn wait_ready(&mut self, program: &Program) -> Result<()> {
        let end = Instant::now() + Duration::from_secs(5);
        while Instant::now() < end {
            if let Some(status) = self.child.try_wait()? {
                let path = program.path.display();
                return Err(format!("{path} -l {} ended at once: {status}", self.addr.ip()).into());
            }
            if let Ok(mut control) = Control::connect(self.addr) {
                control.ask("ACQ4ME bench:ready 1 1 0")?;
                control.ask("RELEASE")?;
                return Ok(());
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        Err(format!("{} did not listen within 5 s", program.path.display()).into())
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// CPU time so far, once it sleeps.
    pub fn cpu(&self) -> Result<process::Cpu> {
        process::settled_cpu(self.pid())
    }

    /// Its private memory in bytes, once it sleeps.
    pub fn own_bytes(&self) -> Result<f64> {
        process::settled_for(self.pid(), Duration::from_millis(50))?;
        Ok(process::memory(self.pid())?.private_dirty_bytes as f64)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A loopback address that no server of this run had before: no TIME_WAIT of an
/// earlier server is in the way (the reference does not set SO_REUSEADDR), and each
/// server has all ephemeral ports to itself.
fn fresh_address() -> Ipv4Addr {
    static USED: AtomicU32 = AtomicU32::new(0);
    let n = USED.fetch_add(1, Ordering::Relaxed);
    let run = 64 + std::process::id() % 128;
    Ipv4Addr::new(127, run as u8, (n / 250) as u8, (n % 250) as u8 + 1)
}

/// One blocking connection, to hold a lock or to ask for a counter.
pub struct Control {
    stream: BufReader<TcpStream>,
}

impl Control {
    /// Connects. Waits at most 10 s for each answer.
    pub fn connect(addr: SocketAddr) -> Result<Self> {
        let stream = TcpStream::connect_timeout(&addr, Duration::from_secs(5))?;
        stream.set_read_timeout(Some(Duration::from_secs(10)))?;
        stream.set_nodelay(true)?;
        Ok(Self { stream: BufReader::new(stream) })
    }

    /// Sends one line.
    pub fn send(&mut self, line: &str) -> Result<()> {
        Ok(self.stream.get_mut().write_all(format!("{line}\n").as_bytes())?)
    }

    /// Sends one line and returns the one line of the answer.
    pub fn ask(&mut self, line: &str) -> Result<String> {
        self.send(line)?;
        let mut answer = String::new();
        self.stream.read_line(&mut answer)?;
        Ok(answer.trim_end().to_owned())
    }

    /// Takes the lock, or fails with the reason.
    pub fn lock(&mut self, line: &str) -> Result<()> {
        match self.ask(line)?.as_str() {
            "LOCKED" => Ok(()),
            other => Err(format!("`{line}` was answered `{other}`").into()),
        }
    }

    /// Waits until the counter `name` is `wanted`.
    pub fn wait_for(&mut self, name: &str, wanted: usize) -> Result<()> {
        let end = Instant::now() + Duration::from_secs(15);
        let line = format!("{name}: {wanted}");
        let mut last = String::new();
        while Instant::now() < end {
            last = self.ask(&format!("STATS {name}"))?;
            if last == line {
                return Ok(());
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        Err(format!("waited 15 s for `{line}`, it is `{last}`").into())
    }
}

/// Executes `command` on `core`, with all descriptors allowed, to be killed when the
/// parent dies. Returns only on failure.
pub fn confine(core: usize, command: &[String]) -> Result<()> {
    use rustix::process::set_parent_process_death_signal;
    process::pin_to(core)?;
    set_parent_process_death_signal(Some(Signal::KILL))?;
    crate::fleet::raise_descriptor_limit()?;
    let (path, args) = command.split_first().ok_or("no command to become")?;
    Err(format!("{path}: {}", Command::new(path).args(args).exec()).into())
}
