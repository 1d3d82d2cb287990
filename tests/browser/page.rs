//! The page at `/`, in a browser.

use crate::browser::Browser;
use crate::support::http::{WithHttp, get};
use crate::support::operated::{Operated, Operator};
use crate::support::{Client, PATIENCE, Server, eventually};
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
const FIVE_MINUTES: &str = "((plots) => { plots.value = 300; plots.dispatchEvent(new Event('change')); })(document.getElementById('plotted'))";
const STATE: &str = "document.getElementById('state').textContent";

impl Browser {
    /// Opens the page and waits for its first figures.
    #[track_caller]
    fn open_page(&mut self, daemon: &WithHttp, size: (u32, u32), scheme: &str) {
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
fn the_page_shows_holders_and_waiters() {
    let mut daemon = WithHttp::start(&[]);
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
    // The selections change the list without another request.
    browser.value("const s = document.getElementById('subject'); s.value = 'clients'; s.dispatchEvent(new Event('change'))");
    assert_eq!(browser.column("hot", 1), ["127.0.0.1"]);
    holder.exchange("RELEASE", "RELEASED");
    waiter.expect("DONE");
    browser.wait_for(&format!("{} === '0'", tile("Locks held")));
    // The wait has ended: the plot of waits has a point and a label.
    let plot = "document.querySelectorAll('figure svg')[3]";
    browser.wait_for(&format!("{plot}.querySelectorAll('polyline').length > 0"));
    let label = browser.text(&format!("{plot}.getAttribute('aria-label')"));
    assert!(label.starts_with("Waits in the last hour: now median "), "{label}");
    daemon.server.signal(Signal::USR2);
    browser.wait_for("document.getElementById('state').textContent === 'draining'");
    daemon.server.signal(Signal::KILL);
    daemon.server.wait_for_exit();
    browser.wait_for(&format!("{STATE}.startsWith('no answer since ')"));
}

#[test]
fn rules_that_limit_keys_and_orders_are_shown() {
    let rules = "pages page:* workers=1\nbots bot:* deny\n";
    let operated = Operated::start_with_rules(rules, &["--http", "127.0.0.1:0"]);
    let control = operated.path();
    let daemon = WithHttp::of(operated.server);
    let order = |line: &str| {
        let answer = Operator::connect(&control).ask(line);
        assert!(answer.starts_with("OK"), "{answer}");
    };
    let Some(mut browser) = Browser::start("rules") else {
        return;
    };
    let names = ["page:1", "other"];
    let mut clients = names.map(|_| [daemon.server.connect(), daemon.server.connect()]);
    for (key, [holder, waiter]) in names.iter().zip(&mut clients) {
        holder.exchange(&format!("ACQ4ME {key} 1 9 0"), "LOCKED");
        waiter.send(&format!("ACQ4ME {key} 1 9 60"));
    }
    browser.open_page(&daemon, DESK, "light");
    let orders = "document.getElementById('orders').textContent";
    assert_eq!(browser.text(orders), "");
    let titles = "[...document.querySelectorAll('#groups th')].map(h => h.textContent).join()";
    assert!(browser.text(titles).contains(",refused,denied,timed out,"));
    // In the order of the groups.
    for table in ["keys", "holders"] {
        assert_eq!(browser.column(table, 1), ["other", "page:1"]);
        assert_eq!(browser.column(table, 2), ["other", "pages"]);
        assert_eq!(browser.column(table, 3), ["–", "pages"]);
    }
    order("RULE SET all * deny");
    order("RULE OFF bots");
    let cells = "[...document.querySelectorAll('#keys td:nth-child(3)')].map(c => c.textContent)";
    browser.wait_for(&format!("{cells}.join() === 'all (denied),all (denied)'"));
    let since = browser.text(orders);
    assert!(since.starts_with("rules set by orders: 2, since 2"), "{since}");
    order("RULE RESET all");
    order("RULE RESET bots");
    browser.wait_for(&format!("{orders} === '' && {cells}.join() === '–,pages'"));
    assert_eq!(browser.complaints(), Vec::<String>::new());
}

/// Whether the tiles and the lines of the plots have the colour of minor text.
const IS_GREY: &str = r#"(() => {
  const colour = (element, name) => getComputedStyle(element)[name];
  const soft = colour(document.getElementById("about"), "color");
  return [...document.querySelectorAll("dd, td")].every((cell) => colour(cell, "color") === soft)
    && [...document.querySelectorAll("polyline")].every((line) => colour(line, "stroke") === soft);
})()"#;

#[test]
fn data_of_a_hung_daemon_is_grey_and_the_title_names_the_host() {
    let daemon = WithHttp::start(&[]);
    let Some(mut browser) = Browser::start("hung") else {
        return;
    };
    browser.open_page(&daemon, DESK, "light");
    browser.value(FIVE_MINUTES);
    browser.wait_for("document.querySelectorAll('polyline').length > 4");
    assert_eq!(browser.text("document.title"), format!("{}: serving", daemon.http));
    assert_eq!(browser.value(IS_GREY), false);
    let end = "Math.max(...[...document.querySelectorAll('polyline')].flatMap(l => [...l.points].map(p => p.x)))";
    assert_eq!(browser.value(&format!("{end} >= 300")), true);
    daemon.server.signal(Signal::STOP);
    browser.wait_for(&format!("document.title === '{}: unreachable'", daemon.http));
    assert!(browser.text(STATE).starts_with("no answer since "));
    assert_eq!(browser.value(IS_GREY), true);
    // The axis ends at the current time, the lines before it.
    assert_eq!(browser.value(&format!("{end} < 299")), true);
    assert!(browser.text("document.querySelector('figcaption').innerText").contains("all –"));
    daemon.server.signal(Signal::CONT);
    browser.wait_for(&format!("document.title === '{}: serving'", daemon.http));
    assert_eq!(browser.value(IS_GREY), false);
}

#[test]
fn restarts_are_marked_and_the_pointer_reads_the_plots() {
    let mut daemon = WithHttp::start(&[]);
    let Some(mut browser) = Browser::start("marks") else {
        return;
    };
    browser.open_page(&daemon, DESK, "light");
    let marks = |name: &str| format!("document.querySelectorAll('figure svg .{name}').length");
    let labels = "[...document.querySelectorAll('#marks span')].map(s => s.textContent.replace(/[0-9:]{8}/, 'T')).join()";
    // The daemon's start is a mark, too.
    browser.wait_for(&format!("{} === 6", marks("start")));
    daemon.server.signal(Signal::USR1);
    browser.wait_for(&format!("{} === 6 && {} === 6", marks("hot"), marks("start")));
    let version = env!("CARGO_PKG_VERSION");
    let shown = browser.text(labels);
    let expected = format!(
        "T UTC start: poolcounterd {version},T UTC hot restart: poolcounterd {version}, a pause of "
    );
    assert!(shown.starts_with(&expected), "{shown}");
    let http = daemon.http.to_string();
    daemon.server.signal(Signal::KILL);
    daemon.server.wait_for_exit();
    let _next = WithHttp::of(Server::start_with(&["--http", &http]));
    browser.wait_for(&format!("{} === 6 && {} === 12", marks("hot"), marks("start")));
    let look = |name: &str| {
        format!("getComputedStyle(document.querySelector('svg .{name}')).strokeDasharray")
    };
    assert_ne!(browser.text(&look("hot")), browser.text(&look("start")));

    let place = "(({ x, y, width }) => [x + width / 2, y + 9])(document.querySelector('.plot').getBoundingClientRect())";
    let place = browser.value(place);
    let to = json!({ "type": "mouseMoved", "x": place[0], "y": place[1] });
    browser.call("Input.dispatchMouseEvent", to);
    let under = "[...document.querySelectorAll('figure')].filter(f => f.innerText.includes('30 min 0 s ago')).length";
    browser.wait_for(&format!("{under} === 6 && {} === 6", marks("pointer")));
    // The page was not open at that time.
    assert!(browser.text("document.querySelector('figcaption').innerText").contains("all –"));
    browser.call("Input.dispatchMouseEvent", json!({ "type": "mouseMoved", "x": 1, "y": 1 }));
    browser.wait_for(&format!("{under} === 0 && {} === 0", marks("pointer")));
    browser.wait_for("!document.querySelector('figcaption').innerText.includes('all –')");
}

/// In an outage nobody has had the page open.
#[test]
fn what_was_before_the_page_opened_is_there() {
    let daemon = WithHttp::start(&[]);
    let mut client: Client = daemon.server.connect();
    for _ in 0..100 {
        client.exchange("ACQ4ME article:1 1 9 0", "LOCKED");
        client.exchange("RELEASE", "RELEASED");
    }
    let has_points = |count: usize| {
        let (_, body) = get(daemon.http, "/history.json");
        let history: serde_json::Value = serde_json::from_str(&body).expect("JSON");
        history["points"].as_array().is_some_and(|points| points.len() >= count)
    };
    // The daemon sleeps meanwhile: each question wakes it.
    assert!(eventually(|| has_points(2)));
    let Some(mut browser) = Browser::start("history") else {
        return;
    };
    browser.open_page(&daemon, DESK, "light");
    // 100 locks, however long they took: each point is a rate per second of ten seconds.
    let locks = "plots[0].drawn[1].past.reduce((sum, [, rate]) => sum + 10 * rate, 0)";
    browser.wait_for(&format!("Math.round({locks}) === 100"));
    // As if the page had not looked for a while: the history fills the gap.
    let gap = "(() => { const line = plots[0].drawn[1]; line.live = [[line.past[0][0] - 30, 7], [performance.now() / 1000, 8]]; line.past = [[line.past[0][0] - 10, 5]]; return pointsOf(line, performance.now() / 1000).map(([, value]) => value).join(); })()";
    assert_eq!(browser.text(gap), "7,5,8");
    browser.wait_for("document.querySelectorAll('figure svg .start').length === 6");
    assert_eq!(browser.complaints(), Vec::<String>::new());
}

/// Such as behind a proxy that knows the older paths only.
#[test]
fn without_its_history_the_page_works() {
    let daemon = WithHttp::start(&[]);
    let Some(mut browser) = Browser::start("no-history") else {
        return;
    };
    browser.open_page(&daemon, DESK, "light");
    browser.value("(() => { const all = ask; window.refused = 0; ask = (page) => page === 'history.json' ? (window.refused += 1, Promise.reject(new Error('404'))) : all(page); historyAt = -Infinity; })()");
    browser.wait_for("window.refused === 1");
    browser.value("plots.forEach((plot) => plot.drawn.forEach((line) => { line.live = []; }))");
    // Two more answers make a rate.
    browser.wait_for("plots[0].drawn[0].live.filter(([, value]) => value !== null).length >= 2");
    assert_eq!(browser.value("missed === 0 && window.refused >= 1"), true);
    assert_eq!(browser.text(STATE), "serving");
}

#[test]
fn keys_are_text_and_link_to_their_holders() {
    let daemon = WithHttp::start(&[]);
    let Some(mut browser) = Browser::start("keys") else {
        return;
    };
    let long = "x".repeat(200);
    let keys: [(&[u8], &str); 7] = [
        ("caf\u{e9}_\u{30da}\u{30fc}\u{1f600}".as_bytes(), "caf\u{e9}_\u{30da}\u{30fc}\u{1f600}"),
        ("\u{5d3}\u{5e3}:1".as_bytes(), "\u{5d3}\u{5e3}:1"),
        (b"latin:caf\xe9\xc3\xa9\xc3", "latin:caf\\xe9\u{e9}\\xc3"),
        // An overlong encoding, a surrogate, a no-break space, a character that reverses
        // text, an invisible one.
        (
            b"\xc0\xaf\xed\xa0\x80\xc2\xa0\xe2\x80\xae\xe2\x80\x8b",
            r"\xc0\xaf\xed\xa0\x80\xc2\xa0\xe2\x80\xae\xe2\x80\x8b",
        ),
        (br"back\xc3\xa9", r"back\x5cxc3\x5cxa9"),
        (b"50%25?a=b&c#d+e/..", "50%25?a=b&c#d+e/.."),
        (long.as_bytes(), ""),
    ];
    let mut holder: Vec<Client> = Vec::new();
    for (key, _) in keys {
        let mut client = daemon.server.connect();
        client.send_bytes(&[b"ACQ4ME ", key, b" 1 9 0\n"].concat());
        client.expect("LOCKED");
        holder.push(client);
    }
    browser.open_page(&daemon, DESK, "light");
    let cells = browser.column("holders", 1);
    let links = "[...document.querySelectorAll('#holders a')].map(a => [a.textContent, a.href])";
    let links = browser.value(links);
    let links = links.as_array().expect("an array").clone();
    // A truncated key has no link.
    assert_eq!((cells.len(), links.len()), (7, 6));
    assert!(cells[6].ends_with(r"xxx\..."));
    for ((key, shown), link) in keys.iter().zip(&links) {
        assert_eq!(link[0], *shown);
        browser.open(link[1].as_str().expect("a link"));
        browser.wait_for("document.body.innerText.includes('holders: ')");
        let text = browser.text("document.body.innerText");
        assert!(text.contains("\nholders: 1\n") && text.contains("127.0.0.1:"), "{key:?}: {text}");
    }
    assert_eq!(browser.complaints(), Vec::<String>::new());
}

/// The page refreshes its tables every two seconds.
#[test]
fn a_link_keeps_the_focus_when_its_table_is_redrawn() {
    let daemon = WithHttp::start(&[]);
    let Some(mut browser) = Browser::start("focus") else {
        return;
    };
    let mut holder: Client = daemon.server.connect();
    holder.exchange("ACQ4ME article:1 1 9 0", "LOCKED");
    browser.open_page(&daemon, DESK, "light");
    browser.value("window.before = document.querySelector('#holders a'); before.focus()");
    browser.wait_for("!before.isConnected");
    assert_eq!(browser.text("document.activeElement.textContent"), "article:1");
}

#[test]
fn lists_show_how_many_rows_exist() {
    let daemon = WithHttp::start(&[]);
    let Some(mut browser) = Browser::start("cut") else {
        return;
    };
    let mut clients = Vec::new();
    for n in 0..1_002 {
        let mut holder: Client = daemon.server.connect();
        holder.exchange(&format!("ACQ4ME key{n} 1 9 0"), "LOCKED");
        clients.push(holder);
    }
    for n in 0..12 {
        let mut waiter: Client = daemon.server.connect();
        waiter.send(&format!("ACQ4ME key{n} 1 9 60"));
        clients.push(waiter);
    }
    daemon.server.settle();
    browser.open_page(&daemon, DESK, "light");
    let note = |list: &str| format!("document.getElementById('{list}-note').textContent");
    browser.wait_for(&format!("{} === '10 of 12'", note("keys")));
    assert_eq!(browser.text(&note("holders")), "10 of 1,002");
    assert_eq!(browser.text(&note("clients")), "");
    let over = "document.getElementById('slow-over').textContent";
    assert_eq!(browser.text(over), "--slow is off");
    let watched = WithHttp::start(&["--slow", "0.5"]);
    browser.open_page(&watched, DESK, "light");
    assert_eq!(browser.text(over), "last holds and waits over 500 ms (--slow)");
}

#[test]
fn keys_full_of_markup_are_text() {
    let daemon = WithHttp::start(&["--slow", "0.001"]);
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
    // In the slow log too.
    let mut slow = daemon.server.connect();
    slow.exchange("ACQ4ME <b>slow</b> 1 9 0", "LOCKED");
    daemon.server.settle();
    std::thread::sleep(Duration::from_millis(2));
    slow.exchange("RELEASE", "RELEASED");
    browser.open_page(&daemon, DESK, "dark");
    let shown = |key: &str| {
        if key.starts_with('\u{202e}') {
            r"\xe2\x80\xaeolleh\x00\x1b[31m".to_owned()
        } else {
            key.to_owned()
        }
    };
    for table in ["keys", "holders", "hot"] {
        let cells = browser.column(table, 1);
        for key in keys {
            assert!(cells.contains(&shown(key)), "{table} lacks {key:?}: {cells:?}");
        }
    }
    assert_eq!(browser.column("slow", 1), ["<b>slow</b>"]);
    assert_eq!(browser.text("document.title"), format!("{}: serving", daemon.http));
    let strange = "document.querySelectorAll('img, b b, td :not(a), h1 ~ h1').length";
    assert_eq!(browser.value(strange), 0);
    let own = format!("http://{}/key?", daemon.http);
    let links = browser.value("[...document.querySelectorAll('td a')].map(a => a.href)");
    let links = links.as_array().expect("an array").iter();
    assert!(links.clone().all(|link| link.as_str().is_some_and(|link| link.starts_with(&own))));
    assert!(links.count() > 2 * keys.len());
    assert_eq!(browser.value("document.scripts.length"), 1);
    assert_eq!(browser.complaints(), Vec::<String>::new());
}

/// More requests arrive per second than are all recorded (docs/reference/reports.md).
#[test]
fn the_page_shows_whether_hot_keys_are_sampled() {
    let daemon = WithHttp::start(&[]);
    let Some(mut browser) = Browser::start("sampled") else {
        return;
    };
    let mut client: Client = daemon.server.connect();
    client.exchange("ACQ4ME k 1 9 0", "LOCKED");
    client.exchange("RELEASE", "RELEASED");
    let note = "document.getElementById('hot-note').textContent";
    browser.open_page(&daemon, DESK, "light");
    let exact = browser.text(note);
    assert!(exact.contains(" UTC, ") && !exact.contains("sampled"), "{exact}");
    let is_met = eventually(|| {
        client.send_bytes("ACQ4ME k 1 9 0\nRELEASE\n".repeat(2_000).as_bytes());
        for _ in 0..2_000 {
            client.expect("LOCKED");
            client.expect("RELEASED");
        }
        browser.text(note).ends_with("s, 1 request in 64 sampled")
    });
    assert!(is_met, "{}", browser.text(note));
}

/// Checked at the receiver too: whatever a script tries, no connection arrives.
#[test]
fn no_other_host_is_contacted_and_no_content_can_be_injected() {
    let daemon = WithHttp::start(&[]);
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
fn keyboard_and_screen_reader_reach_everything() {
    let daemon = WithHttp::start(&[]);
    let Some(mut browser) = Browser::start("access") else {
        return;
    };
    browser.open_page(&daemon, DESK, "light");
    browser.value("document.getElementById('pause').click()");
    let mut reached = Vec::new();
    for _ in 0..17 {
        browser.press_tab();
        let active = "((a) => a.id || a.getAttribute('aria-labelledby') || a.textContent)";
        reached.push(browser.text(&format!("{active}(document.activeElement)")));
        let outline = browser.text("getComputedStyle(document.activeElement).outlineStyle");
        assert_eq!(outline, "solid", "{reached:?}");
    }
    let expected = [
        "Skip to the figures",
        "plotted",
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
        "history.json",
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
    assert!(named("image").iter().all(|name| name.contains("in the last hour: now")));
    assert_eq!(named("combobox"), ["Plots", "Keys or addresses", "Period", "Ranked by"]);
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
    let daemon = WithHttp::start(&["--slow", "0.001"]);
    let Some(mut browser) = Browser::start("readable") else {
        return;
    };
    let mut holder: Client = daemon.server.connect();
    let long = "x".repeat(2_000);
    holder.exchange(&format!("ACQ4ME {long} 1 9 0"), "LOCKED");
    // In the slow list and the list of requests too.
    for key in
        ["enwiki:pcache:idhash:7360-0!canonical:revid:7", "CirrusSearch-Search:_elasticsearch"]
    {
        let mut waiter: Client = daemon.server.connect();
        waiter.exchange(&format!("ACQ4ME {key} 1 9 0"), "LOCKED");
        daemon.server.settle();
        std::thread::sleep(Duration::from_millis(2));
        waiter.exchange("RELEASE", "RELEASED");
    }
    let mut waiter: Client = daemon.server.connect();
    waiter.send(&format!("ACQ4ANY {long} 1 9 600"));
    daemon.server.settle();
    let mut backs = Vec::new();
    for (size, scheme) in
        [(DESK, "light"), (DESK, "dark"), (NARROW, "light"), ((420, 844), "light")]
    {
        browser.open_page(&daemon, size, scheme);
        let overflow = "document.documentElement.scrollWidth - innerWidth";
        assert_eq!(browser.value(overflow), 0, "{size:?}: the page scrolls sideways");
        let cut = "[...document.querySelectorAll('.scroll')].filter(s => s.scrollWidth > s.clientWidth).map(s => s.firstChild.id).join()";
        assert_eq!(browser.text(cut), "", "{size:?}: columns are cut");
        for pair in browser.value(CONTRASTS).as_array().expect("pairs") {
            assert!(pair[1].as_f64().is_some_and(|ratio| ratio >= 4.5), "{scheme}: {pair}");
        }
        backs.push(browser.text("getComputedStyle(document.body).backgroundColor"));
    }
    assert!(backs[0] != backs[1] && backs[0] == backs[2], "{backs:?}");
    assert_eq!(browser.complaints(), Vec::<String>::new());
}

/// A client on a chosen loopback address.
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
        let key = format!("enwiki:pcache:idhash:{}-0!canonical:revid:7", 7_360 + 61 * page);
        if ask(&mut client, &format!("ACQ4ANY {key} 1 5 2")) == "LOCKED" {
            let render_ms = 20 + next(150) * next(100) / 30;
            std::thread::sleep(Duration::from_millis(render_ms));
            ask(&mut client, "RELEASE");
        }
        std::thread::sleep(Duration::from_millis(next(60)));
    }
}

/// Takes the screenshots of docs/guide/page: with `SCREENSHOTS=1` into docs, after some minutes
/// of load, so that the plots show data; without it after a few seconds.
#[test]
fn screenshots() {
    let daemon = WithHttp::start(&["--slow", "0.45"]);
    let Some(mut browser) = Browser::start("screenshots") else {
        return;
    };
    let is_for_docs = std::env::var_os("SCREENSHOTS").is_some();
    let is_over = Arc::new(AtomicBool::new(false));
    let to = daemon.server.address();
    let mut stuck = connect_from([127, 0, 3, 7], to);
    ask(&mut stuck, "ACQ4ME Пример_документа_\"<b>1</b>\".pdf 1 9 0");
    let workers: Vec<_> = (0..24)
        .map(|n| {
            let is_over = Arc::clone(&is_over);
            std::thread::spawn(move || worker(n, to, &is_over))
        })
        .collect();
    browser.open_page(&daemon, DESK, "light");
    browser.value(FIVE_MINUTES);
    let points = if is_for_docs { 80 } else { 2 };
    let drawn = "document.querySelector('polyline.a')?.points.length ?? 0";
    let deadline = Instant::now() + Duration::from_secs(300);
    while browser.value(drawn).as_u64().is_none_or(|len| len < points) {
        assert!(Instant::now() < deadline, "no plot is drawn");
        std::thread::sleep(Duration::from_millis(200));
    }
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR"));
    let temporary = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let folder = if is_for_docs { manifest.join("docs/guide/page") } else { temporary.to_owned() };
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
