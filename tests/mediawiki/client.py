"""What MediaWiki's client does, seen by a server with scripted answers. Each function is
one fact of docs/reference/protocol.md ("MediaWiki's client"). The daemons' side of these
conversations is in tests/reference/transcripts/mediawiki.txt.
"""

import contextlib
import hashlib
import json
import shlex
import socket

from daemons import POOLCOUNTER, Daemon
from host import in_network_of
from roots import eventually, expect
from rounds import MAIN_PAGE, POOL
from scripted import END, Scripted
from wiki import PAGE, SCRIPT, next_second

LOG = "/srv/log/poolcounter"
GRANTS = {"ACQ4ME": ["LOCKED"], "ACQ4ANY": ["LOCKED"], "RELEASE": ["RELEASED"]}


def ask(wiki, answers, *steps, servers=None, messages=False, connect=None, **pool):
    """Has MediaWiki take these locks in one request; returns what the server saw."""
    return converse(wiki, answers, *steps, servers=servers, messages=messages, connect=connect, **pool).seen()


def converse(wiki, answers, *steps, servers=None, messages=False, connect=None, **pool):
    """The same; returns the server, which also has the times."""
    with Scripted(wiki, {**GRANTS, **answers}) as server:
        wiki.configure({"Test": {**POOL, **pool}, "Nowait": {**POOL, "timeout": 0}}, servers or [server.address],
                       messages=messages, connect=connect)
        wiki.write(LOG, "")
        wiki.run(f"STEPS={shlex.quote(json.dumps(steps))} SERVER={server.address}:7531 {SCRIPT} /srv/site/Ask.php")
        server.seen()
        return server


def run_poolcounter(wiki, key, servers):
    """Has `poolcounter run` take the lock that `ask` takes in the pool `Test`."""
    wiki.run(f"{POOLCOUNTER} -s {','.join(servers)} run --fallback --connect-timeout 0.1 -q 100 -t 300 {shlex.quote(key)} -- true")


def expect_about(measure, expected_s, what, more_s=0.3):
    """Fails if a measurement is less, except for the clock's resolution. A busy machine makes
    it more, so it is repeated until one is within the bound. Prints figures and bound."""
    seconds = []
    while not seconds or len(seconds) < 6 and min(seconds) >= expected_s + more_s:
        seconds.append(measure())
        expect(seconds[-1] > expected_s - 0.01, f"{what}: {seconds[-1]:.2f} s instead of {expected_s} s")
    print(f"         {what}: {', '.join(f'{each:.2f} s' for each in seconds)};"
          f" {expected_s:.2f} s expected, less than {expected_s + more_s:.2f} s allowed", flush=True)
    expect(min(seconds) < expected_s + more_s, f"{what}: at least {min(seconds):.2f} s instead of {expected_s} s")


def expect_seen(seen, expected):
    wanted = [line.strip() for line in expected.strip().splitlines()]
    expect(seen == wanted, "the conversation is:\n" + "\n".join(seen))


def expect_logged(wiki, words):
    expect(words in wiki.read(LOG), f"{words!r} is not in MediaWiki's log:\n{wiki.read(LOG)}")


def logged(wiki):
    """What MediaWiki has logged, without times and names."""
    return [line.split("my_wiki: ", 1)[1] for line in wiki.read(LOG).splitlines()]


def a_release_closes_the_connection(wiki):
    """No connection is reused: each released lock costs one."""
    expect_seen(ask(wiki, {}, {"key": "a"}, {"key": "b"}), """
        1> ACQ4ME a 1 100 300
        1< LOCKED
        works
        1> RELEASE
        1< RELEASED
        1 closed
        result: 'done by ourselves'
        2> ACQ4ME b 1 100 300
        2< LOCKED
        works
        2> RELEASE
        2< RELEASED
        2 closed
        result: 'done by ourselves'
        the request ends""")


def without_a_lock_the_connection_stays_open(wiki):
    """After DONE, TIMEOUT and QUEUE_FULL it is idle until the request ends, or used again."""
    steps = [{"key": key, "anyone": True} for key in "abc"]
    expect_seen(ask(wiki, {"ACQ4ANY": ["DONE", "TIMEOUT", "QUEUE_FULL"]}, *steps), """
        1> ACQ4ANY a 1 100 300
        1< DONE
        result: 'done by another'
        1> ACQ4ANY b 1 100 300
        1< TIMEOUT
        result: 'the stale copy'
        1> ACQ4ANY c 1 100 300
        1< QUEUE_FULL
        result: 'the stale copy'
        the request ends
        1 closed""")


def fast_stale_asks_with_timeout_0(wiki):
    expect_seen(ask(wiki, {"ACQ4ANY": ["TIMEOUT"]}, {"key": "a", "anyone": True}, fastStale=True), """
        1> ACQ4ANY a 1 100 0
        1< TIMEOUT
        result: 'the stale copy'
        the request ends
        1 closed""")


def without_an_old_copy_fast_stale_asks_again(wiki):
    step = {"key": "a", "anyone": True, "oldCopy": False}
    expect_seen(ask(wiki, {"ACQ4ANY": ["TIMEOUT", "DONE"]}, step, fastStale=True), """
        1> ACQ4ANY a 1 100 0
        1< TIMEOUT
        1> ACQ4ANY a 1 100 300
        1< DONE
        result: 'done by another'
        the request ends
        1 closed""")


def a_second_lock_is_refused_by_the_client(wiki):
    expect_seen(ask(wiki, {}, {"key": "a", "inside": [{"key": "b"}]}), """
        1> ACQ4ME a 1 100 300
        1< LOCKED
        works
        works
        result: 'done by ourselves'
        1> RELEASE
        1< RELEASED
        1 closed
        result: 'done by ourselves'
        the request ends""")
    expect_logged(wiki, "Pool key 'b' (Test): Usage error: You may only aquire a single non-nowait lock.")


def a_nowait_key_needs_timeout_0(wiki):
    seen = ask(wiki, {}, {"key": "a", "inside": [{"key": "nowait:b"}]})
    expect(not any("nowait:b" in event for event in seen), f"the server was asked: {seen}")
    expect_logged(wiki, "Pool key 'nowait:b' (Test): Usage error: Locks starting in nowait: must have 0 timeout.")


def a_nowait_key_with_timeout_0_is_asked_for(wiki):
    """But the client does not wait for the answer."""
    nested = {"key": "a", "inside": [{"key": "nowait:b", "type": "Nowait"}]}
    seen = ask(wiki, {"ACQ4ME": ["LOCKED", 0.2, "LOCKED"]}, nested)
    expect([event for event in seen if "> " in event] ==
           ["1> ACQ4ME a 1 100 300", "1> ACQ4ME nowait:b 1 100 0", "1> RELEASE"], seen)
    expect_logged(wiki, "Pool key 'nowait:b' (Nowait): ⧼poolcounter-read-error⧽")


def the_answer_for_a_nowait_key_is_taken_for_the_next_one(wiki):
    """Because it comes when the client no longer reads. Here it is taken for the answer to
    RELEASE, which the server leaves out: RELEASED ends the lock; after LOCKED, which a real
    daemon sends, the client continues as if it held the lock."""
    refused = "Pool key 'c' (Test): Usage error: You may only aquire a single non-nowait lock."
    for answer, is_over in [("RELEASED", True), ("LOCKED", False)]:
        nested = {"key": "a", "inside": [{"key": "nowait:b", "type": "Nowait", "pauseMs": 1000}]}
        seen = ask(wiki, {"ACQ4ME": ["LOCKED", 0.3, answer, "LOCKED"], "RELEASE": [None]}, nested, {"key": "c"}, timeout=2)
        expect(seen.index(f"1< {answer}", 3) < seen.index("1> RELEASE"), seen)
        expect(any(event.endswith("> ACQ4ME c 1 100 2") for event in seen) == is_over, seen)
        expect((refused in logged(wiki)) == (not is_over), wiki.read(LOG))


def with_timeout_0_an_answer_that_is_there_is_seen(wiki):
    """Here it comes together with the one before it."""
    nested = {"key": "a", "inside": [{"key": "nowait:b", "type": "Nowait"}]}
    ask(wiki, {"ACQ4ME": ["LOCKED\nLOCKED", None], "RELEASE": ["RELEASED"]}, nested)
    words = logged(wiki)
    asked = words.index("Sending pool counter command: ACQ4ME nowait:b 1 100 0")
    expect(words[asked + 1] == "Got pool counter response: LOCKED", words)


def a_late_answer_is_taken_for_the_next_one(wiki):
    """After 1.5 times the timeout the client stops reading, but keeps the connection."""
    expect_seen(ask(wiki, {"ACQ4ME": [2.5, "LOCKED", None]}, *[{"key": key} for key in "abc"], timeout=1), """
        1> ACQ4ME a 1 100 1
        works
        result: 'done by ourselves'
        1> ACQ4ME b 1 100 1
        1< LOCKED
        works
        1> RELEASE
        1< RELEASED
        result: 'done by ourselves'
        1> ACQ4ME c 1 100 1
        works
        result: 'done by ourselves'
        the request ends
        1 closed""")
    expect_logged(wiki, "Pool key 'a' (Test): ⧼poolcounter-read-error⧽")
    words = logged(wiki)
    expect(words[2:4] == ["Sending pool counter command: ACQ4ME b 1 100 1", "Got pool counter response: LOCKED"], words)


def it_waits_for_one_and_a_half_timeouts(wiki):
    for timeout in [1, 4]:
        def waits_s():
            return converse(wiki, {"ACQ4ME": [None]}, {"key": "a"}, timeout=timeout).seconds_until("works")

        expect_about(waits_s, 1.5 * timeout, f"it waited, with timeout {timeout}, for")


def a_silent_daemon_costs_a_reader_one_and_a_half_timeouts(wiki):
    """Then it renders the page, even with `fastStale`, which asks with timeout 0, and even
    with a stale copy."""
    for settings in [{}, {"fastStale": True}]:
        for old_copy in [False, True]:
            def takes_s():
                return seconds_of_visit(wiki, PAGE, {"ACQ4ANY": [None]}, 1, old_copy=old_copy, timeout=2, **settings)

            expect_about(takes_s, 1.5 * 2, f"with {settings}, stale copy {old_copy}", more_s=2.5)


def a_page_may_take_the_timeout_and_the_render(wiki):
    """A client gets the lock at the end of the timeout, because its holder has ended."""
    answers = {"ACQ4ANY": [2, "LOCKED"]}
    expect_about(lambda: seconds_of_visit(wiki, PAGE, answers, 2, timeout=2), 2, "the page took", more_s=2)
    expect_about(lambda: seconds_of_visit(wiki, PAGE, answers, 2, timeout=2, burn_s=1), 2 + 1, "the page took", more_s=2)


def a_thumbnail_may_take_the_timeout_twice(wiki):
    """Once until DONE, and once for its own lock."""
    def takes_s():
        return seconds_of_visit(wiki, wiki.new_thumbnail(), {"ACQ4ANY": [2, "DONE"], "ACQ4ME": [2, "LOCKED"]}, 3, timeout=2)

    expect_about(takes_s, 2 * 2, "the thumbnail took", more_s=3)


def a_thumbnail_that_waited_too_long_is_an_error(wiki):
    for answers in [{"ACQ4ANY": ["TIMEOUT"]}, {"ACQ4ANY": ["DONE"], "ACQ4ME": ["TIMEOUT"]}]:
        visit(wiki, wiki.new_thumbnail(), answers, status=500, text="Timeout waiting for the lock")


def only_thumb_php_asks_for_a_thumbnail(wiki):
    """A page with an image that has no thumbnail yet: it is made while the page is
    rendered, without a request to the daemon."""
    wiki.run(f"echo '[[File:Big.png|{wiki.new_width()}px]]' | {SCRIPT} edit Illustrated"
             " && rm -rf /var/lib/mediawiki/images/thumb")
    before = wiki.thumbnails()
    lines = visit(wiki, "/mediawiki/index.php?title=Illustrated", {})
    expect(wiki.thumbnails() > before, "no thumbnail was made")
    expect(len(lines) == 2 and ":pcache:" in lines[0], lines)


def timeout_0_leaves_no_time_for_the_answer(wiki):
    """The client reads at once and misses a later answer, so the lock is held for nothing."""
    expect_seen(ask(wiki, {"ACQ4ME": [0.2, "LOCKED"]}, {"key": "a"}, timeout=0), """
        1> ACQ4ME a 1 100 0
        works
        result: 'done by ourselves'
        the request ends
        1 closed""")
    expect_logged(wiki, "Pool key 'a' (Test): ⧼poolcounter-read-error⧽")


def the_first_word_of_an_answer_counts(wiki):
    seen = ask(wiki, {"ACQ4ME": ["LOCKED and more"], "RELEASE": ["RELEASED too"]}, {"key": "a"})
    expect_seen(seen, """
        1> ACQ4ME a 1 100 300
        1< LOCKED and more
        works
        1> RELEASE
        1< RELEASED too
        1 closed
        result: 'done by ourselves'
        the request ends""")


def lock_held_is_taken_for_locked(wiki):
    seen = ask(wiki, {"ACQ4ME": ["LOCK_HELD"]}, {"key": "a"})
    expect(seen[2:4] == ["works", "1> RELEASE"], seen)


def an_error_makes_it_work_unprotected(wiki):
    expect_seen(ask(wiki, {"ACQ4ME": ["ERROR CODE some text"]}, {"key": "a"}), """
        1> ACQ4ME a 1 100 300
        1< ERROR CODE some text
        works
        result: 'done by ourselves'
        the request ends
        1 closed""")
    expect_logged(wiki, "Pool key 'a' (Test): ⧼poolcounter-remote-error⧽")


def the_text_of_an_error_is_logged(wiki):
    """Not its code, and only if MediaWiki's own message has a text."""
    ask(wiki, {"ACQ4ME": ["ERROR CODE some text"]}, {"key": "a"}, messages=True)
    expect_logged(wiki, "Pool key 'a' (Test): lock daemon 127.0.0.3 answers: some text\n")
    ask(wiki, {"ACQ4ME": ["ERROR CODE"]}, {"key": "a"}, messages=True)
    expect_logged(wiki, "Pool key 'a' (Test): lock daemon 127.0.0.3 answers: (no message given)\n")


def a_daemon_that_is_down_is_logged(wiki):
    """By a message that has no text, unless one is configured."""
    down = {"servers": ["127.0.0.8"]}
    expect_seen(ask(wiki, {}, {"key": "a"}, **down), "works\nresult: 'done by ourselves'\nthe request ends")
    expect_logged(wiki, "Pool key 'a' (Test): ⧼poolcounter-connection-error⧽\n")
    ask(wiki, {}, {"key": "a"}, messages=True, **down)
    expect_logged(wiki, "Pool key 'a' (Test): can't connect to lock daemon 127.0.0.8: Connection refused\n")


def a_connection_that_ends_is_logged(wiki):
    """Like a silent one: a daemon that stops, or that does not admit the address."""
    expect_seen(ask(wiki, {"ACQ4ME": [END]}, {"key": "a"}), """
        1> ACQ4ME a 1 100 300
        1 closed
        works
        result: 'done by ourselves'
        the request ends""")
    expect_logged(wiki, "Pool key 'a' (Test): ⧼poolcounter-read-error⧽\n")


def a_daemon_that_does_not_admit_it_is_logged(wiki):
    """By the same message; the daemon's own log has the reason."""
    with Daemon(wiki, "ours", ["--allow", "10.1.2.0/24"]) as daemon:
        for messages, words in [(False, "⧼poolcounter-read-error⧽"), (True, f"no answer from lock daemon {daemon.address}")]:
            seen = ask(wiki, {}, {"key": "a"}, servers=[daemon.address], messages=messages)
            expect(seen == ["works", "result: 'done by ourselves'", "the request ends"], seen)
            lines = logged(wiki)
            expect(lines == ["Sending pool counter command: ACQ4ME a 1 100 300", f"Pool key 'a' (Test): {words}"], lines)
        eventually("the daemon logs why", lambda: "127.0.0.1 is not in --allow: closed its connection" in daemon.log())


def at_level_info_commands_and_answers_are_not_logged(wiki):
    lines = visit(wiki, PAGE, {"ACQ4ANY": ["TIMEOUT"]}, log_level="info")
    expect(logged(wiki) == [f"Pool key '{lines[0].split()[2]}' (ArticleView): Timeout waiting for the lock"], logged(wiki))


def a_fractional_timeout_is_sent_as_it_is(wiki):
    seen = ask(wiki, {}, {"key": "a"}, timeout=0.5)
    expect(seen[0] == "1> ACQ4ME a 1 100 0.5", seen)


def slots_replace_the_key(wiki):
    """As docs/guide/several-daemons.md says."""
    keys = [("a", 7), ("my_wiki:pcache:idhash:2-0!canonical:revid:2", 10), ("two words", 100), ("two%20words", 100),
            ("Größe", 1000), ("x:y", 65_536), ("x", 100_000), ("", 50), ("a", 1)]
    lines = []
    for key, slots in keys:
        theirs = ask(wiki, {}, {"key": key}, slots=slots)
        expected = f"1> ACQ4ME {slot_of(key, slots)} 1 100 300"
        expect(theirs[0] == expected, f"key {key!r}, {slots} slots: MediaWiki sends {theirs[0]}, expected {expected}")
        lines.append(theirs[0])
    expect(lines[0] == "1> ACQ4ME Test:6 1 100 300" and lines[-1] == "1> ACQ4ME Test:0 1 100 300", lines)


def slot_of(key, slots):
    return f"Test:{int(hashlib.sha1(key.encode()).hexdigest()[:4], 16) % slots}"


def a_newline_in_a_key_makes_two_commands(wiki):
    seen = ask(wiki, {}, {"key": "two words\nRELEASE"})
    expect([event for event in seen if event.startswith("1>")] ==
           ["1> ACQ4ME two%20words", "1> RELEASE 1 100 300", "1> RELEASE"], seen)


def servers_are_sorted_by_md5(wiki):
    """The first by `md5(host . key)` is asked, and the next when it does not listen;
    `poolcounter` chooses the same. The host is as written in the settings, and a key's
    spaces are hashed as they are."""
    servers_are_sorted(wiki, ["127.0.0.4", "127.0.0.5", "127.0.0.8"])
    servers_are_sorted(wiki, ["127.0.0.4:7531", "127.0.0.5", "127.0.0.8"])


def ipv6_servers_are_reached(wiki):
    """`poolcounter` reaches them by the same names."""
    for name in ["[::1]:7531", "[::1]", "::1"]:
        with Scripted(wiki, GRANTS, "::1") as server:
            ask(wiki, {}, {"key": "a"}, servers=[name])
            theirs = server.seen()
            expect(theirs, f"MediaWiki does not reach {name}")
            run_poolcounter(wiki, "a", [name])
            expect(len(server.seen()) > len(theirs), f"poolcounter does not reach {name}")


def servers_are_sorted(wiki, names):
    keys = [f"key{number}" for number in range(12)] + [f"my key {number}" for number in range(12)]
    expected = {name: [] for name in names[:2]}
    for key in keys:
        order = sorted(names, key=lambda name: hashlib.md5((name + key).encode()).hexdigest())
        expected[next(name for name in order if name in expected)].append(key.replace(" ", "%20"))
    expect(all(expected.values()), "the keys are chosen badly: one server is never asked")

    def run_poolcounter_with_each():
        for key in keys:
            run_poolcounter(wiki, key, names)

    asked = keys_by_server(wiki, expected, lambda: ask(wiki, {}, *[{"key": key} for key in keys], servers=names))
    expect(asked == expected, f"MediaWiki asked {asked}, expected {expected}")
    asked = keys_by_server(wiki, expected, run_poolcounter_with_each)
    expect(asked == expected, f"poolcounter asked {asked}, expected {expected}")


def with_slots_servers_are_sorted_by_the_slot(wiki):
    """`poolcounter which --hash-slots` names the same server."""
    names = ["127.0.0.4", "127.0.0.5"]
    keys = [f"key{number}" for number in range(12)]

    def server_of(key):
        return wiki.run(f"{POOLCOUNTER} -s {','.join(names)} which --hash-slots 7 Test:{key}").split()[0]

    asked = keys_by_server(wiki, names, lambda: ask(wiki, {}, *[{"key": key} for key in keys], servers=names, slots=7))
    expect(all(asked.values()), f"one server was never asked: {asked}")
    ours = {name: [slot_of(key, 7) for key in keys if server_of(key) == name] for name in names}
    expect(ours == asked, f"poolcounter names {ours}, MediaWiki asked {asked}")


def keys_by_server(wiki, names, action):
    """The keys that each server is asked for during the action, in order."""
    with contextlib.ExitStack() as stack:
        servers = {name: stack.enter_context(Scripted(wiki, GRANTS, name.partition(":")[0])) for name in names}
        action()
        return {name: [event.split()[2] for event in server.seen() if " ACQ4ME " in event]
                for name, server in servers.items()}


@contextlib.contextmanager
def silent_host(wiki, address="127.0.0.7", port=7531):
    """It answers no connect: a listener's backlog is full, and the kernel drops what comes
    then, like a network that loses packets."""
    def fill():
        kept = [socket.socket()]
        kept[0].setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        kept[0].bind((address, port))
        kept[0].listen(0)

        def is_full():
            kept.append(socket.socket())
            kept[-1].settimeout(0.3)
            try:
                kept[-1].connect((address, port))
            except TimeoutError:
                return True
            return False

        eventually("the backlog is full", is_full)
        return kept

    sockets = in_network_of(wiki.pid, fill)
    try:
        yield address
    finally:
        for each in sockets:
            each.close()


def a_silent_host_costs_the_time_to_connect(wiki):
    with silent_host(wiki) as address:
        for settings, seconds in [({"timeout": 0.5}, 0.5), ({}, 0.1), ({"connect_timeout": 0.5}, 2 * 0.5)]:
            expect_about(lambda: connect_s(wiki, address, settings), seconds, f"with {settings} connecting took")


def a_refused_connection_costs_no_time(wiki):
    expect_about(lambda: connect_s(wiki, "127.0.0.8", {"connect_timeout": 5}), 0, "a refused connection took")


def connect_s(wiki, address, settings):
    """How long a failed connect takes."""
    steps = [{"key": "a", "type": "Unlimited"}, {"key": "b"}]
    server = converse(wiki, {}, *steps, servers=[address], connect=settings)
    expect(server.seen() == [*["works", "result: 'done by ourselves'"] * 2, "the request ends"], server.seen())
    return server.seconds_until("works", 2)


def the_class_itself_is_a_name_too(wiki):
    """Not before 1.40, so docs/guide/mediawiki.md recommends the other name."""
    seen = ask(wiki, {}, {"key": "a"}, **{"class": "MediaWiki\\PoolCounter\\PoolCounterClient"})
    expect(seen[0] == "1> ACQ4ME a 1 100 300", seen)


def an_unknown_class_is_an_error_for_the_reader(wiki):
    visit(wiki, PAGE, {}, status=500, **{"class": "PoolCounterClient"})


def without_an_old_copy_the_reason_is_logged(wiki):
    for answer, words in [("QUEUE_FULL", "Pool queue is full"), ("TIMEOUT", "Timeout waiting for the lock")]:
        lines = visit(wiki, PAGE, {"ACQ4ANY": [answer]})
        key = lines[0].split()[2]
        expect_logged(wiki, f"Pool key '{key}' (ArticleView): {words}\n")


def an_old_copy_is_served_without_logging(wiki):
    """Except at the level `debug`: each command and each answer."""
    for answer in ["QUEUE_FULL", "TIMEOUT"]:
        lines = visit(wiki, PAGE, {"ACQ4ANY": [answer]}, old_copy=True)
        expect(len(lines) == 1, lines)
        expected = ["Sending pool counter command: " + lines[0][3:], f"Got pool counter response: {answer}"]
        expect(logged(wiki) == expected, logged(wiki))


def a_link_to_purge_renders_nothing(wiki):
    """It asks "Clear the cache of this page?". A POST of that question's button purges."""
    wiki.configure(burn_s=0)
    wiki.serve(1)
    expect(wiki.get(PAGE).status == 200, "the wiki does not work")
    for purge, renders in [(lambda: wiki.get(f"{PAGE}&action=purge").body, 0),
                           (lambda: wiki.request("POST", f"{PAGE}&action=purge", ""), 1)]:
        before = len(wiki.renders())
        next_second()
        purge()
        next_second()
        wiki.get(PAGE)
        expect(len(wiki.renders()) == before + renders, f"{len(wiki.renders()) - before} renders instead of {renders}")


def a_page_missing_after_done_is_asked_for_again(wiki):
    lines = visit(wiki, PAGE, {"ACQ4ANY": ["DONE"]})
    key = lines[0].split()[2]
    expect(lines == [f"1> ACQ4ANY {key} 1 100 300", f"1> ACQ4ME {key} 1 100 300", "1> RELEASE"], lines)


def key_of_a_page(wiki):
    for old_copy, options in [(False, "dateformat=default"), (True, "canonical")]:
        lines = visit(wiki, PAGE, {}, old_copy)
        expect(lines == [f"1> ACQ4ANY my_wiki:pcache:idhash:2-0!{options}:revid:2 1 100 300", "1> RELEASE"], lines)


def a_thumbnail_is_asked_for_again_after_done(wiki):
    """Its key is made of the file's name only: all widths and all wikis share it."""
    key = hashlib.sha1(b"Big.png").hexdigest()
    for _ in range(2):
        lines = visit(wiki, wiki.new_thumbnail(), {"ACQ4ANY": ["DONE"]})
        expect(lines == [f"1> ACQ4ANY {key} 1 100 300", f"1> ACQ4ME {key} 1 100 300", "1> RELEASE"], lines)


def a_thumbnail_that_failed_four_times_is_refused(wiki):
    """The daemon is not asked then, nor once the thumbnail is stored."""
    path = wiki.new_thumbnail()
    failing = {"answers": {"ACQ4ANY": ["QUEUE_FULL"]}, "status": 500, "failure_epoch": "1"}
    for number in range(4):
        lines = visit(wiki, path, empty_caches=number == 0, **failing)
        expect(len(lines) == 1, lines)
    text = "There have been too many recent failed attempts (4 or more) to render this thumbnail"
    expect(not visit(wiki, path, empty_caches=False, text=text, **failing), "the server was asked")
    expect(visit(wiki, path, {}, failure_epoch="2"), "the server was not asked after a change of the epoch")
    expect(not visit(wiki, path, {}), "the server was asked for a thumbnail that is stored")


def visit(wiki, path, answers, old_copy=False, empty_caches=True, status=200, text="", log_level="debug",
          failure_epoch=None, burn_s=0, seconds=None, **pool):
    """The lines that a server gets when a reader requests the path, who must get this status
    and text. The reader's time is appended to the list `seconds`."""
    if empty_caches:
        wiki.configure(burn_s=0)
        wiki.serve(1)
    if seconds is not None:
        wiki.get(MAIN_PAGE)  # Only the page itself takes time then.
    if old_copy:
        expect(wiki.get(path).status == 200, "the wiki does not work")
        wiki.expire()
    wiki.run(f"rm -f {LOG}")  # It may be root's, and Apache could not write to it.
    with Scripted(wiki, {**GRANTS, **answers}) as server:
        wiki.configure({name: {**POOL, **pool} for name in ["ArticleView", "FileRender"]}, [server.address], burn_s=burn_s,
                       log_level=log_level, failure_epoch=failure_epoch)
        reader = wiki.get(path)
        if seconds is not None:
            seconds.append(reader.seconds)
        expect(reader.status == status and text.encode() in reader.body, reader.received)
        return [event for event in server.seen() if "> " in event]


def seconds_of_visit(wiki, path, answers, lines, **settings):
    """How long a visit takes; the client must send this many lines."""
    seconds = []
    sent = visit(wiki, path, answers, seconds=seconds, **settings)
    expect(len(sent) == lines, sent)
    return seconds[0]


# These also use our daemon or our command.
ASK_OURS = [
    a_daemon_that_does_not_admit_it_is_logged, slots_replace_the_key, with_slots_servers_are_sorted_by_the_slot,
    servers_are_sorted_by_md5, ipv6_servers_are_reached,
]
FACTS = [
    a_release_closes_the_connection, without_a_lock_the_connection_stays_open, fast_stale_asks_with_timeout_0,
    without_an_old_copy_fast_stale_asks_again, a_second_lock_is_refused_by_the_client, a_nowait_key_needs_timeout_0,
    a_nowait_key_with_timeout_0_is_asked_for, the_answer_for_a_nowait_key_is_taken_for_the_next_one,
    with_timeout_0_an_answer_that_is_there_is_seen, a_late_answer_is_taken_for_the_next_one,
    it_waits_for_one_and_a_half_timeouts, a_silent_daemon_costs_a_reader_one_and_a_half_timeouts,
    a_page_may_take_the_timeout_and_the_render, a_silent_host_costs_the_time_to_connect, a_refused_connection_costs_no_time,
    timeout_0_leaves_no_time_for_the_answer, the_first_word_of_an_answer_counts, lock_held_is_taken_for_locked,
    an_error_makes_it_work_unprotected, a_connection_that_ends_is_logged, the_text_of_an_error_is_logged,
    a_daemon_that_is_down_is_logged, a_daemon_that_does_not_admit_it_is_logged,
    at_level_info_commands_and_answers_are_not_logged, a_fractional_timeout_is_sent_as_it_is, slots_replace_the_key,
    with_slots_servers_are_sorted_by_the_slot, a_newline_in_a_key_makes_two_commands, servers_are_sorted_by_md5,
    the_class_itself_is_a_name_too, an_unknown_class_is_an_error_for_the_reader, without_an_old_copy_the_reason_is_logged,
    an_old_copy_is_served_without_logging, a_page_missing_after_done_is_asked_for_again, key_of_a_page,
    a_link_to_purge_renders_nothing, a_thumbnail_is_asked_for_again_after_done, a_thumbnail_may_take_the_timeout_twice,
    a_thumbnail_that_waited_too_long_is_an_error, a_thumbnail_that_failed_four_times_is_refused,
    only_thumb_php_asks_for_a_thumbnail, ipv6_servers_are_reached,
]
