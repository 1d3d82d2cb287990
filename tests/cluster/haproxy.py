"""Clients with one address, and haproxy on their hosts, which chooses a server."""

import contextlib

from clients import TIMEOUT_S, Crowd
from network import PORT
from one_address import CONNECT_S, OneAddressRow, file_with
from roots import eventually, expect
from rows import LONG_HOLDS, SHORT_HOLDS, Remark, Scene, drain

BY_ROLE, BY_KEY = "127.0.0.1", "127.0.0.2"
VANISHED_S = 4


@contextlib.contextmanager
def running(cluster, host, changes=(), address=BY_ROLE):
    """On that host. `address` is where it listens, instead of 127.0.0.1."""
    addresses = {f"192.0.2.{number}:{PORT}": f"{daemon.address}:{PORT}"
                 for number, daemon in enumerate(cluster.daemons, 1)}
    addresses |= {BY_ROLE: address}
    host.path("/etc/haproxy/haproxy.cfg").write_text(file_with("haproxy.cfg", addresses, changes))
    process = host.start(["haproxy", "-db", "-f", "/etc/haproxy/haproxy.cfg"], cluster.log)
    try:
        for each in [address, BY_KEY]:
            eventually("haproxy passes requests on", lambda: passes_on(cluster, process, host, each))
        yield
    finally:
        process.kill()
        process.wait()


def passes_on(cluster, process, host, address):
    expect(process.poll() is None, f"haproxy ended: {cluster.log.name}")
    with contextlib.suppress(OSError), host.client(address) as client:
        return client.ask("STATS UPTIME").startswith("uptime: ")


@contextlib.contextmanager
def scene(cluster, address, load, changes=()):
    with contextlib.ExitStack() as stack:
        for daemon in cluster.daemons:
            stack.callback(daemon.kill)
            daemon.start()
        hosts = cluster.hosts_with_haproxy()
        for host in hosts:
            stack.enter_context(running(cluster, host, changes))
        with Crowd(hosts, [[address] for _ in hosts], load, CONNECT_S) as crowd:
            crowd.wait_for_calls()
            yield Scene(cluster, crowd, cluster.daemons)


def row_of(title, scene):
    return OneAddressRow(title, scene.crowd.calls, scene.ended, scene.notes)


def haproxy_by_role(cluster):
    with scene(cluster, BY_ROLE, LONG_HOLDS) as it:
        drain(it)
        it.crowd.wait_for_calls()
    row = row_of("haproxy, active and backup: drain of the active one", it)
    row.demand(not row.failed and not row.refused, "0 failed, 0 refused")
    row.demand_no_overlap_after(0)
    yield row


def haproxy_by_key(cluster):
    with scene(cluster, BY_KEY, SHORT_HOLDS) as it:
        it.crowd.wait_for_calls(500)
        it.mark_end()
        expect_all_work(it)
    row = row_of("haproxy, hash of the key", it)
    row.demand(not row.failed and not row.refused and not row.overlaps, "0 failed, 0 refused, 0 overlaps")
    yield row
    with scene(cluster, BY_KEY, LONG_HOLDS) as it:
        drain(it)
        it.crowd.wait_for_calls()
    row = row_of("haproxy, hash of the key: drain of one of three", it)
    row.demand(not row.failed and not row.refused, "0 failed, 0 refused")
    row.demand_no_overlap_after(0)
    yield row


def expect_all_work(it):
    """The hash must spread the keys, or the row proves nothing."""
    idle = [daemon.address for daemon in it.daemons if not daemon.count("total_acquired")]
    expect(not idle, f"these servers had nothing to do: {idle}")


def haproxy_mistakes(cluster):
    """Reported, not checked."""
    roundrobin = [("balance hash var(txn.key)", "balance roundrobin"), ("    hash-type consistent\n", "")]
    no_variable = [("balance hash var(txn.key)", "balance hash req.payload(0,0),word(2,' ')")]
    for title, changes in [("`balance roundrobin`", roundrobin), ("hash of the key without a variable", no_variable)]:
        with scene(cluster, BY_KEY, SHORT_HOLDS, changes) as it:
            it.crowd.wait_for_calls(500)
            it.mark_end()
        yield row_of(f"haproxy, {title}", it)
    impatient = [("timeout client 1h", "timeout client 300ms"), ("timeout server 1h", "timeout server 300ms")]
    with scene(cluster, BY_ROLE, LONG_HOLDS, impatient) as it:
        it.crowd.wait_for_calls()
        it.mark_end()
    yield row_of("haproxy, `timeout client` and `server` of 0.3 s, holds of 0.6 to 1 s", it)


def haproxy_vanished_client(cluster):
    """Its lock is free soon, although the daemon sees only haproxy."""
    near, far = cluster.hosts_with_haproxy()
    daemon = cluster.daemons[0]
    with contextlib.ExitStack() as stack:
        stack.callback(daemon.kill)
        daemon.start("--keepalive", "2")
        stack.enter_context(running(cluster, near, address=near.address))
        client = stack.enter_context(far.client(near.address))
        expect(client.ask(f"ACQ4ME k 1 9 {TIMEOUT_S}") == "LOCKED", "the client got no lock")
        with cluster.network.cut(far):
            free_s = daemon.seconds_until_free()
    expect(free_s <= VANISHED_S, f"the lock of a client that vanished behind haproxy was free after {free_s:.1f} s")
    yield Remark("haproxy on another host than the client, which vanishes", [f"its lock is free after {free_s:.1f} s"])


ROWS = [haproxy_by_role, haproxy_by_key, haproxy_mistakes, haproxy_vanished_client]
