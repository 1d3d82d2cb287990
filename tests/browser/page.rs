//! The page at `/`, in a browser.

use crate::browser::Browser;
use crate::support::http::Daemon;
use crate::support::{Client, PATIENCE};
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, connect, socket_with};
use rustix::process::Signal;
use serde_json::json;
use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

const DESK: (u32, u32) = (1280, 900);
const NARROW: (u32, u32) = (390, 844);

impl Browser {
    /// Opens the page and waits for its first figures.
    #[track_caller]
    fn open_page(&mut self, daemon: &Daemon, size: (u32, u32), scheme: &str) {
        self.set_screen(size, scheme);
        self.open(&format!("http://{}/", daemon.http));
        self.wait_for(r#"document.getElementById("state")?.textContent === "serving""#);
    }

    /// The texts of the cells of a column, the first being 1.
    fn column(&mut self, table: &str, column: u32) -> Vec<String> {
        let cells = format!("#{table} tbody td:nth-child({column})");
        let texts = format!("[...document.querySelectorAll('{cells}')].map(c => c.textContent)");
        let texts = self.value(&texts);
        let texts = texts.as_array().expect("an array").iter();
        texts.map(|text| text.as_str().expect("text").to_owned()).collect()
    }
}

#[test]
fn it_shows_who_holds_and_who_waits() {
    let mut daemon = Daemon::start(&[]);
    let Some(mut browser) = Browser::start("shows") else {
        return;
    };
    browser.open_page(&daemon, DESK, "light");
    let tile = |name: &str| {
        format!(
            "[...document.querySelectorAll('#glance div')].find(d => d.firstChild.textContent === '{name}').lastChild.textContent"
        )
    };
    assert_eq!(browser.text(&tile("Locks held")), "0");
    assert_eq!(browser.column("holders", 1), ["none"]);
    let mut holder: Client = daemon.server.connect();
    holder.exchange("ACQ4ME article:1 1 9 0", "LOCKED");
    let mut waiter = daemon.server.connect();
    waiter.send("ACQ4ANY article:1 1 9 60");
    browser.wait_for(&format!("{} === '1' && {} === '1'", tile("Locks held"), tile("Waiting")));
    assert_eq!(browser.column("keys", 1), ["article:1"]);
    assert_eq!(browser.column("keys", 3), ["1"]);
    assert_eq!(browser.column("holders", 1), ["article:1"]);
    assert!(browser.column("holders", 2)[0].starts_with("127.0.0.1:"));
    assert_eq!(browser.column("clients", 1), ["127.0.0.1"]);
    assert_eq!(browser.column("hot", 1), ["article:1"]);
    // The choices change what is listed, without another request.
    browser.value("const s = document.getElementById('subject'); s.value = 'clients'; s.dispatchEvent(new Event('change'))");
    assert_eq!(browser.column("hot", 1), ["127.0.0.1"]);
    holder.exchange("RELEASE", "RELEASED");
    waiter.expect("DONE");
    browser.wait_for(&format!("{} === '0'", tile("Locks held")));
    // The wait has ended: the plot of waits has a point, and says so.
    let plot = "document.querySelectorAll('figure svg')[3]";
    browser.wait_for(&format!("{plot}.querySelectorAll('polyline').length > 0"));
    let label = browser.text(&format!("{plot}.getAttribute('aria-label')"));
    assert!(label.starts_with("Waits in the last five minutes: now median "), "{label}");
    daemon.server.signal(Signal::USR2);
    browser.wait_for("document.getElementById('state').textContent === 'draining'");
    daemon.server.signal(Signal::KILL);
    daemon.server.wait_for_exit();
    browser.wait_for("document.getElementById('state').textContent.startsWith('no answer since ')");
}

#[test]
fn keys_full_of_markup_are_text() {
    let daemon = Daemon::start(&["--slow", "0.001"]);
    let Some(mut browser) = Browser::start("markup") else {
        return;
    };
    let keys = [
        "<svg/onload=document.title='owned'>",
        "\"><script>document.title='owned'</script>",
        "</td></table></section><h1>owned</h1>",
        "<img/src=x/onerror=document.title='owned'>",
        "&lt;b&gt;&amp;&#x41;",
        "${document.title='owned'}{{7*7}}'-alert(1)-'",
        "\u{202e}olleh\u{0}\u{1b}[31m",
    ];
    let mut clients = Vec::new();
    for key in keys {
        let mut holder: Client = daemon.server.connect();
        holder.exchange(&format!("ACQ4ME {key} 1 9 0"), "LOCKED");
        let mut waiter = daemon.server.connect();
        waiter.send(&format!("ACQ4ME {key} 1 9 60"));
        clients.push((holder, waiter));
    }
    // In the slow log, too.
    let mut slow = daemon.server.connect();
    slow.exchange("ACQ4ME <b>slow</b> 1 9 0", "LOCKED");
    daemon.server.settle();
    std::thread::sleep(Duration::from_millis(2));
    slow.exchange("RELEASE", "RELEASED");
    browser.open_page(&daemon, DESK, "dark");
    let shown = |key: &str| match key.starts_with('\u{202e}') {
        true => r"\xe2\x80\xaeolleh\x00\x1b[31m".to_owned(),
        false => key.to_owned(),
    };
    for table in ["keys", "holders", "hot"] {
        let cells = browser.column(table, 1);
        for key in keys {
            assert!(cells.contains(&shown(key)), "{table} lacks {key:?}: {cells:?}");
        }
    }
    assert_eq!(browser.column("slow", 1), ["<b>slow</b>"]);
    assert_eq!(browser.text("document.title"), "poolcounterd");
    assert_eq!(browser.value("document.querySelectorAll('img, b b, td *, h1 ~ h1').length"), 0);
    assert_eq!(browser.value("document.scripts.length"), 1);
    assert_eq!(browser.complaints(), Vec::<String>::new());
}

/// Of a thousand keys each request is counted; of more, some have taken the place of others.
#[test]
fn it_says_what_the_hot_keys_may_lack() {
    let daemon = Daemon::start(&[]);
    let Some(mut browser) = Browser::start("lacks") else {
        return;
    };
    let mut client: Client = daemon.server.connect();
    let mut lock = |keys: std::ops::Range<u32>| {
        for key in keys {
            client.exchange(&format!("ACQ4ME key{key} 1 9 0"), "LOCKED");
            client.exchange("RELEASE", "RELEASED");
        }
    };
    let note = "document.getElementById('hot-note').textContent";
    lock(0..999);
    browser.open_page(&daemon, DESK, "light");
    let exact = browser.text(note);
    assert!(exact.contains(" UTC") && !exact.contains("lack"), "{exact}");
    // So many are all counted, however fast they come (docs/protocol.md).
    lock(999..2_400);
    browser.wait_for(&format!("/ UTC.*, each row may lack [1-9]/.test({note})"));
}

/// Not by what the page asks for but by what arrives: nothing does, whatever is tried.
#[test]
fn nothing_else_is_asked_and_nothing_can_be_added() {
    let daemon = Daemon::start(&[]);
    let outside = TcpListener::bind("127.0.0.2:0").expect("a listener");
    outside.set_nonblocking(true).expect("nonblocking");
    let Some(mut browser) = Browser::start("outside") else {
        return;
    };
    browser.open_page(&daemon, DESK, "light");
    assert_eq!(browser.complaints(), Vec::<String>::new());
    let own = format!("http://{}/", daemon.http);
    for url in browser.requests() {
        assert!(url.starts_with(&own) || url.starts_with("data:"), "{url}");
    }
    let there = format!("http://{}/", outside.local_addr().expect("an address"));
    for attempt in [
        format!("fetch('{there}').then(() => 'done', () => 'refused')"),
        format!("new Promise(r => {{ const i = new Image(); i.onload = () => r('done'); i.onerror = () => r('refused'); i.src = '{there}'; }})"),
        "try { document.body.innerHTML = '<b>x</b>'; 'done' } catch { 'refused' }".to_owned(),
        "try { eval('1'); 'done' } catch { 'refused' }".to_owned(),
        "(() => { const s = document.createElement('style'); s.textContent = 'body { color: rgb(1, 2, 3) }'; document.head.append(s); return getComputedStyle(document.body).color === 'rgb(1, 2, 3)' ? 'done' : 'refused' })()".to_owned(),
    ] {
        assert_eq!(browser.text(&attempt), "refused", "{attempt}");
    }
    let came = outside.accept().map(|(_, from)| from);
    assert_eq!(came.map_err(|e| e.kind()), Err(std::io::ErrorKind::WouldBlock));
}

#[test]
fn a_keyboard_reaches_everything_and_a_screen_reader_hears_it() {
    let daemon = Daemon::start(&[]);
    let Some(mut browser) = Browser::start("access") else {
        return;
    };
    browser.open_page(&daemon, DESK, "light");
    browser.value("document.getElementById('pause').click()");
    let mut reached = Vec::new();
    for _ in 0..15 {
        browser.press_tab();
        let active = "((a) => a.id || a.getAttribute('aria-labelledby') || a.textContent)";
        reached.push(browser.text(&format!("{active}(document.activeElement)")));
        let outline = browser.text("getComputedStyle(document.activeElement).outlineStyle");
        assert_eq!(outline, "solid", "{reached:?}");
    }
    let expected = [
        "Skip to the figures",
        "pause",
        "subject",
        "span",
        "rank",
        "hot-name",
        "holders-name",
        "keys-name",
        "clients-name",
        "slow-name",
        "metrics",
        "prometheus",
        "stats.json",
        "healthy",
        "ready",
    ];
    assert_eq!(reached, expected);
    let tree = browser.call("Accessibility.getFullAXTree", json!({}));
    let nodes = tree["nodes"].as_array().expect("nodes");
    let named = |role: &str| -> Vec<String> {
        let of_role = nodes.iter().filter(|node| node["role"]["value"] == role);
        of_role.map(|node| node["name"]["value"].as_str().unwrap_or("").to_owned()).collect()
    };
    let tables = ["Hot", "Oldest holders", "Queues", "Clients", "Slow"];
    assert_eq!(named("table"), tables);
    assert_eq!(named("region").len(), 10, "{:?}", named("region"));
    assert_eq!(
        named("heading")[..],
        ["poolcounterd", "Hot", "Oldest holders", "Queues", "Clients", "Slow"]
    );
    assert_eq!(named("image").len(), 6);
    assert!(named("image").iter().all(|name| name.contains("in the last five minutes: now")));
    assert_eq!(named("combobox"), ["Of what", "Of which time", "Ranked by"]);
    assert_eq!(named("button"), ["Resume"]);
    assert_eq!(named("status").len(), 1);
}

/// WCAG asks for a contrast of 4.5 for text.
const CONTRASTS: &str = r#"(() => {
  const light = (c) => c.match(/\d+/g).slice(0, 3).map((v) => v / 255)
    .map((v) => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)
    .reduce((sum, v, n) => sum + v * [0.2126, 0.7152, 0.0722][n], 0);
  const probe = document.createElement("i");
  document.body.append(probe);
  const colour = (name) => { probe.style.color = `var(--${name})`; return light(getComputedStyle(probe).color); };
  const ratios = [];
  for (const back of ["back", "card"]) for (const name of ["text", "soft", "a", "b", "good", "warn", "bad"]) {
    const [x, y] = [colour(name), colour(back)].sort((p, q) => q - p);
    ratios.push([name + " on " + back, (x + 0.05) / (y + 0.05)]);
  }
  probe.remove();
  return ratios;
})()"#;

#[test]
fn it_can_be_read_in_dark_light_and_narrow() {
    let daemon = Daemon::start(&[]);
    let Some(mut browser) = Browser::start("readable") else {
        return;
    };
    let mut holder: Client = daemon.server.connect();
    let long = "x".repeat(2_000);
    holder.exchange(&format!("ACQ4ME {long} 1 9 0"), "LOCKED");
    let mut backs = Vec::new();
    for (size, scheme) in [(DESK, "light"), (DESK, "dark"), (NARROW, "light")] {
        browser.open_page(&daemon, size, scheme);
        let overflow = "document.documentElement.scrollWidth - innerWidth";
        assert_eq!(browser.value(overflow), 0, "{size:?}: the page scrolls sideways");
        for pair in browser.value(CONTRASTS).as_array().expect("pairs") {
            assert!(pair[1].as_f64().is_some_and(|ratio| ratio >= 4.5), "{scheme}: {pair}");
        }
        backs.push(browser.text("getComputedStyle(document.body).backgroundColor"));
    }
    assert!(backs[0] != backs[1] && backs[0] == backs[2], "{backs:?}");
}

/// A client on a loopback address of its own choice.
fn connect_from(from: [u8; 4], to: SocketAddr) -> BufReader<TcpStream> {
    let socket = socket_with(AddressFamily::INET, SocketType::STREAM, SocketFlags::CLOEXEC, None)
        .expect("a socket");
    bind(&socket, &SocketAddr::from((from, 0))).expect("bind");
    connect(&socket, &to).expect("connect");
    let stream = TcpStream::from(socket);
    stream.set_read_timeout(Some(PATIENCE)).expect("timeout");
    BufReader::new(stream)
}

fn ask(client: &mut BufReader<TcpStream>, line: &str) -> String {
    client.get_mut().write_all(format!("{line}\n").as_bytes()).expect("send");
    let mut answer = String::new();
    client.read_line(&mut answer).expect("an answer");
    answer.trim().to_owned()
}

/// A web server's worker: renders pages, popular ones more often, and waits for others.
fn worker(n: u64, to: SocketAddr, is_over: &AtomicBool) {
    let mut client = connect_from([127, 0, 3, 1 + (n % 6) as u8], to);
    let mut random = 88_172_645_463_325_252 ^ (n << 32);
    let mut next = |below: u64| {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        random % below
    };
    while !is_over.load(Ordering::Relaxed) {
        let page = 1 + next(30) * next(30) / 30;
        let key = format!("enwiki:pcache:idhash:{}-0!canonical", 7_360 + 61 * page);
        if ask(&mut client, &format!("ACQ4ANY {key} 1 5 2")) == "LOCKED" {
            let render_ms = 20 + next(150) * next(100) / 30;
            std::thread::sleep(Duration::from_millis(render_ms));
            ask(&mut client, "RELEASE");
        }
        std::thread::sleep(Duration::from_millis(next(60)));
    }
}

/// Takes the pictures of docs/page: with `SCREENSHOTS=1` into docs, after some minutes of
/// load, so that the plots have something to show; without it after a few seconds.
#[test]
fn screenshots() {
    let daemon = Daemon::start(&["--slow", "0.45"]);
    let Some(mut browser) = Browser::start("screenshots") else {
        return;
    };
    let is_for_docs = std::env::var_os("SCREENSHOTS").is_some();
    let is_over = Arc::new(AtomicBool::new(false));
    let to = daemon.server.address();
    let mut stuck = connect_from([127, 0, 3, 7], to);
    ask(&mut stuck, "ACQ4ME commonswiki:FileRender:Panorama_<b>_100_MP.tif 1 9 0");
    let workers: Vec<_> = (0..24)
        .map(|n| {
            let is_over = Arc::clone(&is_over);
            std::thread::spawn(move || worker(n, to, &is_over))
        })
        .collect();
    browser.open_page(&daemon, DESK, "light");
    let points = if is_for_docs { 80 } else { 2 };
    let drawn = "document.querySelector('polyline')?.points.length ?? 0";
    let deadline = Instant::now() + Duration::from_secs(300);
    while browser.value(drawn).as_u64().is_none_or(|len| len < points) {
        assert!(Instant::now() < deadline, "nothing is drawn");
        std::thread::sleep(Duration::from_millis(200));
    }
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR"));
    let temporary = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let folder = if is_for_docs { manifest.join("docs/page") } else { temporary.to_owned() };
    std::fs::create_dir_all(&folder).expect("a folder");
    for (name, size, scheme) in
        [("light", DESK, "light"), ("dark", DESK, "dark"), ("narrow", NARROW, "light")]
    {
        browser.set_screen(size, scheme);
        let picture = browser.screenshot(1_240);
        assert!(picture.starts_with(b"\x89PNG") && picture.len() > 10_000, "{name}");
        std::fs::write(folder.join(format!("{name}.png")), &picture).expect("write");
    }
    is_over.store(true, Ordering::Relaxed);
    for worker in workers {
        let _ = worker.join();
    }
    assert_eq!(browser.complaints(), Vec::<String>::new());
}
