"""Clients with one address, which keepalived gives to one of two hosts."""

import contextlib
import signal
import time

from clients import Crowd, Load
from network import PORT, Daemon
from one_address import CONNECT_S, OneAddressRow, file_with
from roots import PATIENCE_S, eventually, expect
from rows import LONG_HOLDS, Scene, drain

ADDRESS = "192.0.2.100"
CONFIGURATION = "/etc/keepalived/keepalived.conf"
CHECK = "--check /run/poolcounter/control.sock"
# How long new clients may be refused after the drain, and after a kill. The address moves
# when two checks have failed, and bookworm's keepalived has no interval below a second.
MOVES_AFTER_DRAIN_S = {"trixie": 1, "bookworm": 3}
MOVES_AFTER_KILL_S = {"trixie": 2, "bookworm": 3}


@contextlib.contextmanager
def scene(cluster, load=Load(), changes=()):
    with contextlib.ExitStack() as stack:
        daemons = [start_daemon(cluster, host, stack) for host in cluster.hosts_with_keepalived()]
        for daemon in daemons:
            stack.enter_context(running(cluster, daemon.host, changes))
        eventually("one host has the address", lambda: sum(has_address(daemon) for daemon in daemons) == 1)
        daemons.sort(key=has_address, reverse=True)
        with Crowd(cluster.clients, [[ADDRESS] for _ in cluster.clients], load, CONNECT_S) as crowd:
            crowd.wait_for_calls()
            yield Scene(cluster, crowd, daemons)


def start_daemon(cluster, host, stack):
    daemon = Daemon(host, cluster.program_in_roots, cluster.log, control="/run/poolcounter/control.sock")
    stack.callback(daemon.kill)
    start(daemon)
    return daemon


def start(daemon):
    daemon.start(listen="0.0.0.0")


@contextlib.contextmanager
def running(cluster, host, changes):
    host.path(CONFIGURATION).write_text(file_with("keepalived.conf", {ADDRESS: ADDRESS}, changes))
    process = host.start(["keepalived", "--dont-fork", "--log-console", "-f", CONFIGURATION], cluster.log)
    try:
        yield
    finally:
        # keepalived then removes the address and ends its children.
        process.send_signal(signal.SIGTERM)
        process.wait(PATIENCE_S)


def has_address(daemon):
    return f" {ADDRESS}/" in daemon.host.ip("-4 addr show dev eth0")


def wait_until_it_moves(it):
    eventually("the address moves", lambda: has_address(it.daemons[1]) and not has_address(it.daemon))


def row_of(title, scene):
    return OneAddressRow(title, scene.crowd.calls, scene.ended, scene.notes)


def keepalived_hot_restarts(cluster):
    with scene(cluster) as it:
        for _ in range(5):
            it.daemon.hot_restart()
            it.crowd.wait_for_calls()
        it.mark_end()
    row = row_of("keepalived: hot restart of the active one, five times", it)
    row.demand(not row.failed and not row.refused and not row.overlaps, "0 failed, 0 refused, 0 overlaps")
    yield row


def keepalived_drain(cluster):
    """The drained daemon returns, and does not get the address back."""
    with scene(cluster, LONG_HOLDS) as it:
        drain(it)
        wait_until_it_moves(it)
        it.crowd.wait_for_calls()
        start(it.daemon)
        it.crowd.wait_for_calls()
        expect(has_address(it.daemons[1]), "the address went back to the host whose daemon returned")
    row = row_of("keepalived: drain of the active one, and its return", it)
    row.demand(not row.failed and not row.overlaps, "0 failed, 0 overlaps")
    demand_refused_until(row, MOVES_AFTER_DRAIN_S[cluster.release])
    yield row


def keepalived_kill(cluster):
    with scene(cluster) as it:
        it.daemon.kill()
        it.mark_end()
        wait_until_it_moves(it)
        it.crowd.wait_for_calls()
    row = row_of("keepalived: kill -9 of the active one", it)
    demand_refused_until(row, MOVES_AFTER_KILL_S[cluster.release])
    yield row


def demand_refused_until(row, seconds):
    last_s = max((call.began - row.ended for call in row.refused), default=0)
    row.notes.append(f"the last refused client comes {last_s:.1f} s after its end")
    row.demand(last_s <= seconds, f"no client refused later than {seconds} s after its end;"
               f" the last came {last_s:.1f} s after it")


def keepalived_asks_the_port(cluster):
    """Reported, not checked: the address moves during the drain."""
    with scene(cluster, LONG_HOLDS, [(CHECK, f"--check 127.0.0.1:{PORT}")]) as it:
        it.daemon.drain()
        wait_until_it_moves(it)
        it.mark_end()
        it.note(f"the drain {'continues' if it.daemon.process.poll() is None else 'was over'} when the address has moved")
        it.crowd.wait_for_calls()
    yield row_of(f"keepalived, `--check 127.0.0.1:{PORT}`: drain of the active one", it)


def keepalived_with_a_weight(cluster):
    """Reported, not checked: with `nopreempt` the address stays where no daemon is."""
    pause_s = 2 * MOVES_AFTER_KILL_S[cluster.release]
    with scene(cluster, changes=[("    rise 2\n", "    rise 2\n    weight -50\n")]) as it:
        it.daemon.kill()
        it.mark_end()
        time.sleep(pause_s)
        it.note(f"the address {'stays' if has_address(it.daemon) else 'has moved'}")
    yield row_of(f"keepalived, `weight -50`: kill -9 of the active one, for {pause_s} s", it)


ROWS = [keepalived_hot_restarts, keepalived_drain, keepalived_kill, keepalived_asks_the_port, keepalived_with_a_weight]
