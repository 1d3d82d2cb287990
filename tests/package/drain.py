"""What systemd does with a drained daemon: without the socket unit, with it active, and
with it stopped first; and how a stop drains."""

import time

from roots import eventually, expect
from scenarios import INSTALL, OURS, OURS_NEXT, expect_served, install_ours


def toggle_drain(machine):
    machine.run("kill -USR2 $(systemctl show -P MainPID poolcounter)")


def wait_for_log(machine, text, count=1):
    command = f"journalctl --no-pager -u poolcounter | grep -cF '{text}' || true"
    eventually(f"{text!r} is in the log", lambda: int(machine.run(command)) >= count)


def begin_to_drain(machine, count=1):
    toggle_drain(machine)
    wait_for_log(machine, "draining: no new clients", count)


def expect_drained(machine):
    """The service is down and not started again after RestartSec=250ms."""
    eventually("the service has ended", lambda: machine.show("ActiveState") == "inactive")
    machine.run("sleep 2")
    expect(machine.show("ActiveState") == "inactive", "Restart= started the drained service")
    expect(machine.show("ExecMainStatus") == "75", f"it ended with {machine.show('ExecMainStatus')}")
    expect(machine.show("Result") == "success", f"its Result is {machine.show('Result')}")
    expect(machine.refuses(), "drained, but the port is open")


def drain(world, machine):
    """Without the socket unit: refused, back again, then down until started."""
    install_ours(machine)
    drains(machine)
    machine.run("systemctl start poolcounter")
    expect_served(machine)
    # Without clients: ends at once.
    toggle_drain(machine)
    expect_drained(machine)


def drains(machine):
    with machine.connect() as client:
        expect(client.ask("ACQ4ME mine 1 5 5") == "LOCKED", "no lock")
        begin_to_drain(machine)
        expect(machine.refuses(), "draining, but a new client is served")
        toggle_drain(machine)
        wait_for_log(machine, "no longer draining")
        expect_served(machine)
        begin_to_drain(machine, 2)
        expect(machine.refuses(), "draining, but a new client is served")
        expect(client.ask("RELEASE") == "RELEASED", "the client was forgotten")
    expect_drained(machine)


def upgrade_after_drain(world, machine):
    """An upgrade starts a drained service that is enabled, as Debian's packages do, and so
    does a reboot; `systemctl disable` keeps it down through both."""
    install_ours(machine)
    toggle_drain(machine)
    expect_drained(machine)
    machine.run(f"{INSTALL} {OURS_NEXT}")
    expect_served(machine)
    toggle_drain(machine)
    expect_drained(machine)
    machine.run("systemctl disable poolcounter")
    for change in (lambda: machine.run(f"{INSTALL} {OURS}"), machine.reboot):
        change()
        machine.run("sleep 2")
        expect(machine.show("ActiveState") == "inactive", "a disabled service was started")
        expect(machine.refuses(), "disabled, but the port is open")
    machine.run("systemctl enable poolcounter")
    machine.reboot()
    expect_served(machine)


def activate_by_socket(machine):
    install_ours(machine)
    machine.run("systemctl stop poolcounter.service && systemctl enable --now poolcounter.socket")
    expect_served(machine)


def drain_with_socket_active(world, machine):
    """systemd holds the socket: new clients wait for the next service."""
    activate_by_socket(machine)
    before = machine.daemon()
    with machine.connect() as client, machine.connect() as old_client:
        expect(client.ask("ACQ4ME mine 1 5 5") == "LOCKED", "no lock")
        expect(old_client.ask("STATS UPTIME").startswith("uptime: "), "not served")
        begin_to_drain(machine)
        wait_for_log(machine, "still holds it, new clients wait there until this daemon ends")
        with machine.connect() as new_client:
            new_client.send("ACQ4ME mine 1 5 5")
            # It keeps draining and logs why.
            toggle_drain(machine)
            wait_for_log(machine, "still draining: ")
            expect(machine.daemon() == before, "another service")
            expect(client.ask("RELEASE") == "RELEASED", "the client was forgotten")
            client.socket.shutdown(2)
            old_client.socket.shutdown(2)
            expect(new_client.receive() == "LOCKED", "the new client was not served")
            expect(machine.daemon() != before, "no new service")
    expect_served(machine)
    expect(machine.show("ActiveState", "poolcounter.socket") == "active", "the socket unit has failed")
    # Repeatedly.
    for count in (2, 3):
        with machine.connect() as client:
            expect(client.ask("STATS UPTIME").startswith("uptime: "), "not served")
            begin_to_drain(machine, count)
        eventually("it has ended", lambda: machine.show("ActiveState") == "inactive")
        expect(machine.show("ExecMainStatus") == "75", f"it ended with {machine.show('ExecMainStatus')}")
        expect_served(machine)


def drain_with_socket_stopped(world, machine):
    """With the socket unit stopped first, new clients are refused, and it stays down."""
    activate_by_socket(machine)
    with machine.connect() as client:
        expect(client.ask("ACQ4ME mine 1 5 5") == "LOCKED", "no lock")
        machine.run("systemctl stop poolcounter.socket")
        expect_served(machine)
        begin_to_drain(machine)
        wait_for_log(machine, "no longer listening on ")
        expect(machine.refuses(), "draining, but a new client is served")
        expect(client.ask("RELEASE") == "RELEASED", "the client was forgotten")
    expect_drained(machine)
    machine.run("systemctl start poolcounter.socket")
    expect_served(machine)


def stops_drain(world, machine):
    """With the example drop-in, stop, restart and poweroff wait for the holder of a lock."""
    install_ours(machine)
    machine.run("install -D -m 644 /usr/share/doc/poolcounter/examples/drain-on-stop.conf"
                " /etc/systemd/system/poolcounter.service.d/drain-on-stop.conf")
    machine.run("systemctl daemon-reload")
    holds_through(machine, "stop", 1)
    expect_drained(machine)
    machine.run("systemctl start poolcounter")
    before = machine.daemon()
    holds_through(machine, "restart", 2)
    eventually("another daemon has started", lambda: machine.show("MainPID") not in ("0", str(before)))
    eventually("it listens", lambda: not machine.refuses())
    expect_served(machine)
    # A stop during a drain continues it, and ends with it.
    with machine.connect() as client:
        expect(client.ask("ACQ4ME mine 1 5 5") == "LOCKED", "no lock")
        begin_to_drain(machine, 3)
        machine.run("systemctl --no-block stop poolcounter")
        machine.run("sleep 3")
        expect(machine.refuses(), "draining, but a new client is served")
        expect(client.ask("RELEASE") == "RELEASED", "the client was cut off")
    expect_drained(machine)
    machine.run("systemctl start poolcounter")
    with machine.connect() as client:
        expect(client.ask("ACQ4ME mine 1 5 5") == "LOCKED", "no lock")
        machine.run("systemctl --no-block poweroff", check=False)
        eventually("new clients are refused", machine.refuses)
        time.sleep(3)
        expect(client.ask("RELEASE") == "RELEASED", "the client was cut off")
    machine.reboot()
    expect_served(machine)


def holds_through(machine, command, count):
    """A client keeps its lock for three more seconds; new connections are refused meanwhile."""
    with machine.connect() as client:
        expect(client.ask("ACQ4ME mine 1 5 5") == "LOCKED", "no lock")
        machine.run(f"systemctl --no-block {command} poolcounter")
        wait_for_log(machine, "draining: no new clients", count)
        machine.run("sleep 3")
        expect(machine.refuses(), "draining, but a new client is served")
        expect(client.ask("RELEASE") == "RELEASED", "the client was cut off")


ON_EVERY_SUITE = [drain, upgrade_after_drain, drain_with_socket_active, drain_with_socket_stopped, stops_drain]
