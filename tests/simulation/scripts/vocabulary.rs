//! The input of clients and operators, options and addresses, of which scripts are made.

use super::steps::{ACTIVATED, Start, UNIX};

pub(super) const COMMAND_LINES: &[&str] = &[
    "-l 10.0.0.1 --control /run/control.sock --listen-unix /run/pool.sock --keepalive 10",
    "-l 10.0.0.1 --control /run/control.sock --max-hold k1=2",
    "-l 10.0.0.1 --listen-unix /run/pool.sock",
    "-l 10.0.0.1,10.0.0.2 --control /run/control.sock --listen-unix /run/pool.sock --max-connections 4",
    "-l :: --control /run/control.sock --max-connections-per-ip 2",
    "-l 0.0.0.0 --control /run/control.sock --allow 10.9.0.0/16 --listen-unix /run/pool.sock",
    "-l 10.0.0.1 -p 0 --control /run/control.sock --control-group operators --listen-unix /run/pool.sock",
    "-l 10.0.0.1 --keepalive 0 --control /run/control.sock --control-group 7 ignored",
    "-l 10.0.0.1 --control /run/control.sock --http 10.0.0.1:9531 --http-keys 3 --slow 0.5",
    "-l 10.0.0.1 --control /run/control.sock --http 10.0.0.1:9531 --http 0.0.0.0:9531 --private --http-keys 9 --slow 0",
    "-l 10.0.0.1 --control /run/control.sock --http 10.0.0.1:9531 --http-allow 10.9.0.0/16 --slow 1",
    "-l 0.0.0.0 --control /run/control.sock --http 0.0.0.0:9531 --http-allow 10.9.0.0/16 --allow 10.8.0.0/16",
    "-l :: --control /run/control.sock --allow 10.9.0.0/16 --max-connections-per-ip 1 --listen-unix /run/pool.sock --listen-unix-mode 600",
    "-l :: --control /run/control.sock --allow 10.9.0.0/16 --allow fd00:9::/32 --max-connections-per-ip 3 --max-connections 5",
];

/// Requests to the control socket. Those with options change where it listens, whom it
/// admits, and how long locks are held.
pub(super) const REQUESTS: &[&str] = &[
    "RESTART",
    "RESTART",
    "DRAIN",
    "DRAINED",
    "UNDRAIN",
    "UNDRAIN",
    "MAX-HOLD k1=1",
    "MAX-HOLD k1=2",
    "MAX-HOLD none",
    "MAX-HOLD k1=1\r",
    "MAX-HOLD",
    "HELP",
    "NONSENSE",
    "LOG",
    "LOG poolcounterd=loud",
    "RESTART [\"--listen-unix\",\"/run/control.sock\",\"--control\",\"/run/control.sock\"]",
    "RESTART [\"--listen-unix\",\"/run/./control.sock\",\"--control\",\"/run/control.sock\"]",
    "RESTART [\"--control\",\"/run/control.sock\",\"--control-group\",\"nobody\"]",
    "RESTART [\"--nonsense\"]",
    "RESTART [\"-l\",\"10.0.0.2\",\"--control\",\"/run/control.sock\",\"--keepalive\",\"0\"]",
    "RESTART [\"-l\",\"0.0.0.0\",\"--control\",\"/run/control.sock\",\"--keepalive\",\"1\"]",
    "RESTART [\"-l\",\"10.0.0.1\",\"-p\",\"7532\",\"--control\",\"/run/control.sock\"]",
    "RESTART [\"-l\",\"0.0.0.0\",\"-p\",\"7532\",\"--control\",\"/run/control.sock\"]",
    "RESTART [\"-l\",\"::\",\"--control\",\"/run/control.sock\",\"--max-hold\",\"k1=3\"]",
    "RESTART [\"--listen-unix\",\"/run/other.sock\",\"--control\",\"/run/control.sock\"]",
    "RESTART [\"--listen-unix\",\"/run/control.sock\",\"--control\",\"/run/pool.sock\"]",
    "RESTART [\"-l\",\"10.0.0.1\",\"--control\",\"/run/control.sock\",\"--allow\",\"10.9.0.0/16\"]",
    "RESTART [\"-l\",\"10.0.0.1\",\"--control\",\"/run/control.sock\",\"--max-connections\",\"3\"]",
    "RESTART [\"-l\",\"10.0.0.1\",\"--control\",\"/run/control.sock\",\"--http\",\"10.0.0.1:9531\"]",
    "RESTART [\"-l\",\"10.0.0.1\",\"--control\",\"/run/control.sock\",\"--http\",\"0.0.0.0:9531\",\"--http\",\"10.0.0.1:9531\"]",
    "RESTART [\"-l\",\"0.0.0.0\",\"--control\",\"/run/control.sock\",\"--http\",\"10.0.0.1:7531\"]",
    "RESTART [\"-l\",\"10.0.0.1\",\"--control\",\"/run/control.sock\",\"--http\",\"10.0.0.1:9531\",\"--private\",\"--slow\",\"2\"]",
    "RESTART [\"-l\",\"10.0.0.1\",\"--control\",\"/run/control.sock\",\"--http\",\"10.0.0.1:9531\",\"--allow\",\"10.8.0.0/16\"]",
    "FREE KEY k1 99",
    "FREE KEY k1 99",
    "FREE --dry-run KEY k1",
    "FREE #3",
    "STATS",
    "STATS KEYS",
    "STATS KEY k1",
    "STATS CLIENTS",
    "STATS TOP hour clients",
    "STATS SLOW",
    "STATS JSON",
    "STATS NONSENSE",
    "RESTART [\"-l\",\"::\",\"--control\",\"/run/control.sock\",\"--max-connections-per-ip\",\"1\"]",
    "RESTART [\"-l\",\"10.0.0.1\",\"--control\",\"/run/control.sock\",\"--control-group\",\"operators\",\"--listen-unix\",\"/run/pool.sock\",\"--listen-unix-mode\",\"606\"]",
];

pub(super) const STARTS: &[Start] = &[
    Start::Shell,
    Start::Shell,
    Start::Directory,
    Start::Manager,
    Start::Manager,
    Start::Watchdog,
    Start::Socket,
    Start::UnixSocket,
    Start::Stdin,
];

pub(super) const ADDRESSES: &[&str] = &[
    "10.0.0.1:7531",
    "10.0.0.1:7531",
    "10.0.0.1:7531",
    "10.0.0.2:7531",
    "[fd00::1]:7531",
    "10.0.0.1:7532",
    UNIX,
    ACTIVATED,
];

/// A drain often ends the run, the last one always.
pub(super) const SIGNALS: &[i32] = &[
    libc::SIGUSR1,
    libc::SIGUSR1,
    libc::SIGUSR1,
    libc::SIGHUP,
    libc::SIGHUP,
    libc::SIGUSR2,
    libc::SIGQUIT,
    libc::SIGTERM,
];

pub(super) const JUNK: &[&[u8]] = &[
    b"\n",
    b"\r\n",
    b"HELLO\n",
    b"acq4me k1 1 1 1\n",
    b"ACQ4ME\n",
    b"ACQ4ME k1 1 1\n",
    b"ACQ4ME k1 x y z\n",
    b"ACQ4ANY  1 1 1\n",
    b"ACQ4ME k1 1 2 1 and more\n",
    b"STATS NONSENSE\n",
    b"\xff\0\x80\n",
    b"ACQ4ME half a li",
    b"RELEASE\r\n",
];

pub(super) const STATISTICS: &[&str] = &[
    "FULL",
    "FULL",
    "UPTIME",
    "total_acquired",
    "KEYS",
    "keys 1",
    "KEY k1",
    "KEY k2",
    "CLIENTS",
    "TOP",
    "TOP HOUR CLIENTS",
    "SLOW",
    "SLOW 200",
    "JSON",
];

pub(super) const FLOODS: &[&str] =
    &["RELEASE\n", "STATS FULL\n", "ACQ4ME k1 1 9 0\n", "\n", "ACQ4ME k2 9 9 1\nRELEASE\n"];
