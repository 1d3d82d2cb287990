"""What a user does with the package, each scenario on a machine of its own.

A scenario takes a `World` (what is under test, and where) and a machine just
booted; it raises `Failure` when something is not as it should be. It judges
outcomes: no verdict depends on how busy this machine is.

What the journey (journey.py) also does is a function of its own, which starts
where the service already runs.
"""

import re
import subprocess
from pathlib import Path

from machine import Load, Watcher
from roots import BUILD_PATIENCE_S, DEBIANS_OWN, PATIENCE_S, eventually, expect

OURS = "/root/poolcounter.deb"
OURS_NEXT = "/root/poolcounter-next.deb"

# As an unattended upgrade: it can't answer questions.
INSTALL = "apt-get install -y --no-install-recommends --allow-downgrades -o Dpkg::Use-Pty=0"


def install_ours(machine):
    machine.run(f"{INSTALL} {OURS}")


def install_debians_own(machine):
    machine.run(f"{INSTALL} {DEBIANS_OWN}")
    # Its unit is Type=simple: systemd does not know when it listens.
    eventually("Debian's own daemon listens", lambda: not machine.refuses())


def version(machine):
    return machine.run("dpkg-query -f '${Version}' -W poolcounter")


def expect_running(machine):
    expect(machine.show("ActiveState") == "active", "the service is not active")
    expect(machine.status("systemctl is-enabled poolcounter.service") == 0, "the service is not enabled")


def expect_served(machine, address="127.0.0.1"):
    """One client gets a lock, another only after the first has released it."""
    with machine.connect(address) as holder, machine.connect(address) as other:
        steps = [
            (holder, f"ACQ4ME key 1 5 {PATIENCE_S}", "LOCKED"),
            (other, "ACQ4ME key 1 5 0", "TIMEOUT"),
            (holder, "RELEASE", "RELEASED"),
            (other, "ACQ4ME key 1 5 0", "LOCKED"),
        ]
        for client, command, expected in steps:
            answer = client.ask(command)
            expect(answer == expected, f"{command}: {answer!r}, not {expected!r}")


def expect_sandbox(machine):
    pid = machine.daemon()
    facts = dict(re.findall(r"^(\w+):\s+(.*)$", machine.run(f"cat /proc/{pid}/status"), re.M))
    expect("0" not in facts["Uid"].split(), f"it runs as root: {facts['Uid']}")
    expect(machine.show("User") == "poolcounter", "its user is not poolcounter")
    expect(facts["NoNewPrivs"] == "1", "it may gain privileges")
    expect(facts["Seccomp"] == "2", "its system calls are not filtered")
    expect(int(facts["CapBnd"], 16) == 0 and int(facts["CapEff"], 16) == 0, "it has capabilities")
    inside = f"nsenter -t {pid} -m --"
    expect(machine.status(f"{inside} touch /usr/x /etc/x /var/x") != 0, "it can write to the file system")
    expect(machine.run(f"{inside} findmnt -no OPTIONS / | tail -n 1").startswith("ro"), "its / can be written to")
    hidden = machine.run(f"{inside} stat -c %a /root")
    expect(hidden == "0", f"it sees /root, mode {hidden}")


def fresh_install(world, machine):
    """Installed: running, listening, sandboxed; still so after a reboot."""
    install_ours(machine)
    expect_running(machine)
    # Type=notify and active: systemd has seen READY.
    expect(machine.show("Type") == "notify", "systemd does not wait for READY")
    status = machine.show("StatusText")
    expect(re.search(r"\d+ connections.* locks", status), f"the status is {status!r}")
    with machine.connect() as client:
        stats = client.stats_full()
    expect(len(stats) == 21 and stats["uptime"].startswith("0 days"), f"STATS FULL has {stats}")
    expect_served(machine)
    expect_served(machine, "127.0.0.2")  # -l 0.0.0.0
    expect_sandbox(machine)
    expect(machine.run("poolcounterd --check").startswith("uptime: "), "--check does not answer")
    machine.reboot()
    expect_running(machine)
    expect_served(machine)


def unit_is_clean(world, machine):
    """systemd-analyze reports nothing; exposure at most 1.2."""
    install_ours(machine)
    units = "poolcounter.service poolcounter.socket"
    output = machine.run(f"systemd-analyze verify {units}")
    expect(output == "", f"systemd-analyze verify: {output}")
    exposure(machine, at_most=1.2)
    examples = "/usr/share/doc/poolcounter/examples"
    for example, at_most in [("allow-list.conf", 1.2), ("socket-activated.conf", 0.5)]:
        drop_in = "/etc/systemd/system/poolcounter.service.d"
        machine.run(f"rm -rf {drop_in} && install -D -m 644 {examples}/{example} {drop_in}/{example}")
        output = machine.run(f"systemd-analyze verify {units}")
        expect(output == "", f"systemd-analyze verify with {example}: {output}")
        exposure(machine, at_most)
    output = machine.run("man --warnings poolcounterd 2>&1 >/dev/null")
    expect(output == "", f"the man page: {output}")


def exposure(machine, at_most):
    output = machine.run("systemd-analyze security --offline=true --no-pager poolcounter.service | tail -n 1")
    found = re.search(r"poolcounter.service: ([0-9.]+)", output)
    expect(found and float(found[1]) <= at_most, f"more exposed than {at_most}: {output}")


def upgrade_from_debian(world, machine):
    """Debian's own, configured and in use, becomes ours: no question, all kept, also after
    a reboot."""
    becomes_ours(world, machine)
    machine.reboot()
    expect_running(machine)
    expect_served(machine)


def becomes_ours(world, machine):
    """Returns for how many seconds the service was down."""
    arguments = '# by hand\nARGS="-l 127.0.0.1"\n'
    machine.write("/etc/default/poolcounter", arguments)
    machine.write("/etc/systemd/system/poolcounter.service.d/override.conf", "[Service]\nNice=5\n")
    install_debians_own(machine)
    expect_running(machine)
    user_before = machine.run("getent passwd poolcounter || true")
    old_clients = [machine.connect() for _ in range(20)]
    with Watcher(machine) as watcher:
        install_ours(machine)
    world.note(f"down for {watcher.longest_gap_s:.2f} s")
    expect(version(machine) == world.version, f"it is now {version(machine)}")
    for client in old_clients:
        client.close()
    expect_running(machine)
    expect_served(machine)
    expect(machine.refuses("127.0.0.2"), "ARGS=-l 127.0.0.1 is ignored")
    expect(machine.run("cat /etc/default/poolcounter") == arguments.strip(), "/etc/default/poolcounter has changed")
    expect(machine.show("Nice") == "5", "the drop-in is ignored")
    expect_sandbox(machine)
    if "/bin/false" in user_before:  # bookworm's, static: the user stays the same
        uid = machine.run(f"stat -c %u /proc/{machine.daemon()}")
        expect(uid == user_before.split(":")[2], f"it runs as {uid}, not as {user_before}")
    return watcher.longest_gap_s


def upgrade_from_debian_with_a_stray_word(world, machine):
    """1.x ignores words that ours refuses: it keeps its locks through the upgrade and the new unit's watchdog, and
    apt says that the next start fails."""
    # systemd expands no variable there.
    machine.write("/etc/default/poolcounter", 'ARGS="$ARGS -l 127.0.0.1"\n')
    install_debians_own(machine)
    old = machine.daemon()
    with machine.connect() as holder:
        expect(holder.ask(f"ACQ4ME key 1 5 {PATIENCE_S}") == "LOCKED", "no lock")
        output = machine.run(f"{INSTALL} {OURS}")
        expect('"$ARGS" is not an option' in output and "THE NEXT START FAILS" in output, f"apt printed {output}")
        expect(version(machine) == world.version, f"it is now {version(machine)}")
        expect_stays(machine, old, seconds=WATCHDOG_S + 5)
        again = machine.run("dpkg-reconfigure poolcounter 2>&1")
        expect("THE NEXT START FAILS" in again, f"it is still 1.x that runs, but: {again}")
        expect(holder.ask("RELEASE") == "RELEASED", "the lock was lost")
    expect(machine.status("systemctl cat poolcounter-check.service") != 0, "what checked is still there")
    machine.reboot()
    eventually("the start has failed", lambda: machine.show("ActiveState") == "failed")
    expect(machine.show("ExecMainStatus") == "1", f"it ended with {machine.show('ExecMainStatus')}")
    machine.write("/etc/default/poolcounter", 'ARGS="-l 127.0.0.1"\n')
    machine.run(re.search(r"mended; then run: (.*)", output)[1])
    expect_running(machine)
    expect_served(machine)


def upgrade_while_disabled(world, machine):
    """A disabled service stays disabled through the upgrade."""
    install_debians_own(machine)
    machine.run("systemctl disable --now poolcounter.service")
    install_ours(machine)
    expect(machine.run("systemctl is-enabled poolcounter.service || true") == "disabled", "it was enabled")
    expect(machine.show("ActiveState") == "inactive", "it was started")
    machine.run("systemctl enable --now poolcounter.service")
    expect_running(machine)
    expect_served(machine)


def crashes_and_hangs(world, machine):
    """systemd restarts it after kill -9 and a watchdog timeout, every time."""
    install_ours(machine)
    # More often than systemd's default start limit allows: five in ten seconds.
    for _ in range(7):
        killed = machine.daemon()
        machine.run(f"kill -9 {killed}")
        eventually("it is back", lambda: machine.show("MainPID") not in ("0", str(killed))
                   and machine.show("ActiveState") == "active")
    expect_served(machine)
    # The watchdog of the unit as it is: with a shorter time, systemd would kill a healthy
    # daemon that a busy machine does not run for a second.
    before = machine.daemon()
    # It notifies the watchdog, otherwise it is killed here.
    expect_stays(machine, before, seconds=WATCHDOG_S + 5)
    machine.run(f"kill -STOP {before}")
    eventually("the watchdog has restarted it",
               lambda: machine.show("MainPID") not in ("0", str(before)) and machine.show("ActiveState") == "active")
    expect("atchdog timeout" in machine.run("journalctl --no-pager -u poolcounter"), "the log has no watchdog timeout")
    expect_served(machine)


# WatchdogSec= of the unit.
WATCHDOG_S = 30


def expect_stays(machine, pid, seconds):
    machine.run(f"timeout {seconds} tail --pid={pid} -f /dev/null || true")
    expect(machine.daemon() == pid, f"it did not live for {seconds} s")


def stop_and_start(world, machine):
    """stop, start, restart, with a client connected."""
    install_ours(machine)
    with machine.connect() as client:
        expect(client.ask(f"ACQ4ME key 1 5 {PATIENCE_S}") == "LOCKED", "no lock")
        machine.run("systemctl stop poolcounter")
        expect(machine.show("Result") == "success", "stopped, and systemd calls it a failure")
        expect(machine.refuses(), "stopped, but the port is open")
        expect(client.ended(), "stopped, and the connection lives")
    machine.run("systemctl start poolcounter")
    expect_served(machine)
    machine.run("systemctl restart poolcounter")
    expect_served(machine)


class HeldLock:
    """A held lock and a waiter, during something that must not lose them:
    `with HeldLock(machine): ...`"""

    def __init__(self, machine):
        self.machine = machine
        self.holder, self.waiter = machine.connect(), machine.connect()

    def __enter__(self):
        self.pid = self.machine.daemon()
        answer = self.holder.ask("ACQ4ME held 1 5 60")
        expect(answer == "LOCKED", f"no lock but {answer!r}")
        # It waits longer than any installation takes.
        self.waiter.send("ACQ4ME held 1 5 3600")

    def __exit__(self, kind, *_):
        if kind is None:
            expect(self.machine.daemon() == self.pid, "another process serves now")
            with self.machine.connect() as other:
                answer = other.ask("ACQ4ME held 1 5 0")
                expect(answer == "TIMEOUT", f"the lock was lost: {answer!r}")
            answer = self.holder.ask("RELEASE")
            expect(answer == "RELEASED", f"the holder was forgotten: {answer!r}")
            answer = self.waiter.receive()
            expect(answer == "LOCKED", f"the waiter was forgotten: {answer!r}")
        self.holder.close()
        self.waiter.close()


def asked(machine, key):
    with machine.connect() as client:
        return client.ask(f"ACQ4ME {key} 1 5 0")


def reload(world, machine):
    """A reload applies new options and binaries, and loses nothing."""
    install_ours(machine)
    reloads(machine)
    if int(machine.run("systemctl --version | sed -n '1s/systemd \\([0-9]*\\).*/\\1/p'")) >= 253:
        reloads_by_signal(machine)
    expect_sandbox(machine)


def reloads(machine):
    with HeldLock(machine):
        machine.run("systemctl reload poolcounter")
    with HeldLock(machine):
        machine.write("/etc/default/poolcounter", 'ARGS="-l 127.0.0.1"\n')
        machine.run("systemctl reload poolcounter")
        expect(machine.refuses("127.0.0.2"), "the new ARGS are ignored")
    with HeldLock(machine):
        machine.run("kill -USR1 $(systemctl show -P MainPID poolcounter)")
        eventually("it has continued a third time", lambda: machine.run(
            "journalctl --no-pager -u poolcounter | grep -c 'continued after' || true") == "3")
    reloads_of_rules(machine)
    impossible_reloads(machine)
    expect_running(machine)
    expect_served(machine)


def reloads_by_signal(machine):
    """`Type=notify-reload`: systemd sends SIGHUP, and waits until the daemon reports the end, also of a restart that
    it refuses."""
    drop_in = "/etc/systemd/system/poolcounter.service.d/reload.conf"
    machine.run(f"mkdir -p {drop_in.rpartition('/')[0]}")
    machine.write(drop_in, "[Service]\nType=notify-reload\nExecReload=\n")
    machine.run("systemctl daemon-reload && systemctl restart poolcounter")
    with HeldLock(machine):
        for _ in range(2):
            machine.run("timeout 20 systemctl reload poolcounter")
            expect_running(machine)
        machine.run("mv /usr/bin/poolcounterd /root/kept && cp /bin/false /usr/bin/poolcounterd")
        machine.run("timeout 20 systemctl reload poolcounter")
        expect_running(machine)
        machine.run("mv /root/kept /usr/bin/poolcounterd")
    machine.run(f"rm {drop_in} && systemctl daemon-reload && systemctl restart poolcounter")


def reloads_of_rules(machine):
    """The sandbox lets the daemon read its rules, and each reload reads them."""
    machine.run("mkdir -p /etc/poolcounter")
    machine.write("/etc/poolcounter/rules", "bots bot:* deny\n")
    machine.write("/etc/default/poolcounter", 'ARGS="-l 127.0.0.1 --rules /etc/poolcounter/rules"\n')
    with HeldLock(machine):
        machine.run("systemctl reload poolcounter")
        expect(asked(machine, "bot:1") == "QUEUE_FULL", "the rules are ignored")
        machine.write("/etc/poolcounter/rules", "bots bot:* nonsense\n")
        expect(machine.status("systemctl reload poolcounter") != 0, "reloaded with wrong rules")
        expect(asked(machine, "bot:1") == "QUEUE_FULL", "the old rules are lost")
    machine.write("/etc/default/poolcounter", 'ARGS="-l 127.0.0.1"\n')
    machine.run("systemctl reload poolcounter && rm -r /etc/poolcounter")


def impossible_reloads(machine):
    """Each is an error, and does no harm."""
    with HeldLock(machine):
        machine.run("mv /usr/bin/poolcounterd /root/kept && cp /bin/false /usr/bin/poolcounterd")
        expect(machine.status("systemctl reload poolcounter") != 0, "reloaded /bin/false")
        machine.run("mv /root/kept /usr/bin/poolcounterd && systemctl reload poolcounter")
    with HeldLock(machine):
        machine.write("/etc/default/poolcounter", 'ARGS="-l nowhere"\n')
        expect(machine.status("systemctl reload poolcounter") != 0, "reloaded with an invalid address")
        machine.write("/etc/default/poolcounter", 'ARGS="-l 127.0.0.1"\n')
        machine.run("systemctl reload poolcounter")


def operators(world, machine):
    """The control socket is root's; the example opens it to a group."""
    install_ours(machine)
    machine.run("groupadd locks && useradd -G locks one && useradd other")
    ask = "poolcounterd --reload"
    expect(machine.status(f"runuser -u one -- {ask}") != 0, "anybody may reload")
    machine.run("sed s/GROUP/locks/ /usr/share/doc/poolcounter/examples/control-group.conf > /root/x"
                " && install -D -m 644 /root/x /etc/systemd/system/poolcounter.service.d/control-group.conf")
    machine.run("echo 'ARGS=\"--control-group locks\"' > /etc/default/poolcounter")
    machine.run("systemctl daemon-reload && systemctl restart poolcounter")
    with HeldLock(machine):
        expect(machine.status(f"runuser -u one -- {ask}") == 0, "a member of the group may not reload")
        expect(machine.status(f"runuser -u other -- {ask}") != 0, "anybody may reload")


def files_of(machine):
    """Every file that a package could leave behind, except those of apt and dpkg,
    logs and systemd's own state."""
    skip = ("/var/cache", "/var/log", "/var/lib/apt", "/var/lib/dpkg", "/var/lib/systemd", "/var/tmp/systemd-private",
            "/tmp/systemd-private", "/root/")
    listing = machine.run("find / -xdev -not -path '/proc/*' ; find /run -path '*poolcounter*'")
    return {path for path in listing.splitlines() if not path.startswith(skip)}


def purge(machine, files_before):
    machine.run("apt-get purge -y poolcounter")
    left = {path for path in files_of(machine) - files_before if path != "/var/lib/private"}
    expect(not left, f"left behind: {sorted(left)}")
    expect(machine.status("systemctl cat poolcounter.service") != 0, "systemd still has the service")
    expect(machine.refuses(), "the port is still open")


def purge_and_back(world, machine):
    """Purge leaves nothing; ours, Debian's own and ours again, in turn."""
    # Files from the first start of other services must not count as the package's.
    before = files_of(machine)
    install_ours(machine)
    expect_served(machine)
    machine.run("systemctl start poolcounter.socket || true")
    purge(machine, before)
    expect(machine.status("getent passwd poolcounter") != 0, "the user is still there")

    install_ours(machine)
    expect_running(machine)
    expect_served(machine)
    # Removed, not purged, and back.
    machine.run("apt-get remove -y poolcounter")
    expect(machine.refuses(), "removed, but the port is open")
    install_ours(machine)
    expect_running(machine)
    expect_served(machine)

    install_debians_own(machine)
    expect(version(machine).startswith("1."), f"it is still {version(machine)}")
    expect_running(machine)
    install_ours(machine)
    expect(version(machine) == world.version, f"it is still {version(machine)}")
    expect_running(machine)
    expect_served(machine)
    expect_sandbox(machine)


def upgrade_within_2(world, machine):
    """From this version to the next under load: no lock and no client is lost."""
    machine.write("/etc/default/poolcounter", 'ARGS="-l 127.0.0.1"\n')
    install_ours(machine)
    becomes_next(world, machine)


def becomes_next(world, machine):
    with HeldLock(machine), Load(machine) as load, Watcher(machine) as watcher:
        machine.run(f"{INSTALL} {OURS_NEXT}")
        # Not the deleted file of the old version.
        running = machine.run(f"readlink /proc/{machine.daemon()}/exe")
        expect(running == "/usr/bin/poolcounterd", f"what runs is {running}")
    expect(version(machine) == world.next_version, f"it is {version(machine)}")
    expect(watcher.refused == watcher.failed == 0, f"{watcher.refused} connects refused, {watcher.failed} failed")
    world.note(f"{load.cycles} locks, {watcher.served} connects, longest wait {1000 * watcher.longest_gap_s:.0f} ms")
    expect_running(machine)
    expect(machine.refuses("127.0.0.2"), "ARGS=-l 127.0.0.1 is ignored")


def upgrade_hidden_by_a_tarball(world, machine):
    """systemd prefers the unit of a tarball below /usr/local: apt names it, and how to run the package's program."""
    output = machine.run(f"{INSTALL} {OURS}")
    expect("hides" not in output, f"apt names what is not there: {output}")
    unit = "/usr/local/lib/systemd/system/poolcounter.service"
    machine.run(f"mkdir -p {unit.rpartition('/')[0]} && cp /usr/bin/poolcounterd /usr/local/bin/"
                f" && sed s,/usr/bin/,/usr/local/bin/, /usr/lib/systemd/system/poolcounter.service > {unit}"
                " && systemctl daemon-reload && systemctl restart poolcounter")
    running = "readlink /proc/$(systemctl show -P MainPID poolcounter)/exe"
    with HeldLock(machine):
        output = machine.run(f"{INSTALL} {OURS_NEXT}")
        expect(machine.run(running) == "/usr/local/bin/poolcounterd", "the test is broken: the unit hides nothing")
    advice = re.search(rf"^poolcounter: {unit} hides .*\n.* remove (\S+), then run: (.*)$", output, re.M)
    expect(advice, f"apt does not name the unit: {output}")
    machine.run(f"rm {advice[1]} && {advice[2]}")
    expect(machine.run(running) == "/usr/bin/poolcounterd", "the advice does not run the package's program")
    expect_served(machine)


def upgrade_refused(world, machine):
    """A new version that can't take over the old one's state: apt succeeds and
    prints that, and the old daemon keeps serving with all its locks."""
    install_ours(machine)
    machine.run(f"dpkg-deb -R {OURS_NEXT} /root/broken && cp /bin/false /root/broken/usr/bin/poolcounterd"
                " && dpkg-deb -b /root/broken /root/broken.deb")
    with HeldLock(machine), Load(machine):
        output = machine.run(f"{INSTALL} /root/broken.deb")
    expect("the old daemon keeps serving" in output, "apt did not print that the old daemon keeps serving")


def socket_activation(world, machine):
    """systemd listens: no connect is refused, regardless of the service's state."""
    install_ours(machine)
    machine.run("systemctl stop poolcounter.service && systemctl enable --now poolcounter.socket")
    expect(machine.show("ActiveState") == "inactive", "the service runs before any client came")
    expect_served(machine)
    expect(machine.show("ActiveState") == "active", "the service was not started")
    with Watcher(machine) as watcher:
        machine.run("systemctl stop poolcounter.service")
        machine.run("systemctl restart poolcounter.service")
        machine.run(f"{INSTALL} {OURS_NEXT}")
    expect(version(machine) == world.next_version, f"it is {version(machine)}")
    expect(watcher.refused == 0, f"{watcher.refused} connects were refused")
    world.note(f"{watcher.served} connects, none refused")
    with HeldLock(machine), Load(machine):
        machine.run("systemctl reload poolcounter.service")
    expect(machine.status("systemctl is-active poolcounter.socket") == 0, "the upgrade stopped the socket")
    expect_served(machine)

    # With the example, the daemon has no network except the socket it was given.
    machine.run("install -D -m 644 /usr/share/doc/poolcounter/examples/socket-activated.conf"
                " /etc/systemd/system/poolcounter.service.d/socket-activated.conf")
    machine.run("systemctl daemon-reload && systemctl restart poolcounter.service")
    expect_served(machine)
    expect(machine.run(f"readlink /proc/{machine.daemon()}/ns/net") != machine.run("readlink /proc/1/ns/net"),
           "the daemon shares the machine's network")
    machine.reboot()
    expect_served(machine)
    machine.run("apt-get purge -y poolcounter")
    expect(machine.refuses(), "purged, and systemd still listens")


def allow_list(world, machine):
    """The example drop-in: clients that are not on the list can't connect. It needs no restart,
    which would lose the locks."""
    machine.run("systemctl --version | head -n 1")
    install_ours(machine)
    machine.add_address("192.0.2.1")
    expect_served(machine, "192.0.2.1")
    machine.run("install -D -m 644 /usr/share/doc/poolcounter/examples/allow-list.conf"
                " /etc/systemd/system/poolcounter.service.d/allow-list.conf")
    apply = machine.run("grep -o 'systemctl set-property .*' /usr/share/doc/poolcounter/examples/allow-list.conf")
    with HeldLock(machine):
        machine.run(f"systemctl daemon-reload && {apply}")
    expect_served(machine)
    try:
        # The filter drops the packets: the connect times out.
        machine.connect("192.0.2.1", seconds=1).close()
    except TimeoutError:
        return
    expect(False, "192.0.2.1 is not on the list, but can connect")


def instances(world, machine):
    """The example unit: a second daemon next to the first one, reloaded separately."""
    install_ours(machine)
    machine.run("cp '/usr/share/doc/poolcounter/examples/poolcounter@.service' /etc/systemd/system/ && systemctl daemon-reload")
    expect(machine.status("systemctl start poolcounter@b") != 0, "started without a file of settings")
    machine.write("/etc/default/poolcounter-b", 'ARGS="-l 127.0.0.1 -p 7532"\n')
    machine.run("systemctl start poolcounter@b")
    first, second = machine.daemon(), machine.run("systemctl show -P MainPID poolcounter@b")
    with HeldLock(machine):
        machine.run("systemctl reload poolcounter@b && systemctl reload poolcounter")
    uptime = "/usr/bin/poolcounterd --check 127.0.0.1:7532 && /usr/bin/poolcounterd --check /run/poolcounter-b/control.sock"
    machine.run(uptime)
    expect((machine.daemon(), machine.run("systemctl show -P MainPID poolcounter@b")) == (first, second), "restarted instead of reloaded")
    machine.run("systemctl stop poolcounter@b")
    expect_running(machine)


def needrestart(world, machine):
    """As installed, needrestart leaves the daemon, and a second one, alone after a library upgrade."""
    install_ours(machine)
    start_second(machine)
    machine.run("dpkg -i /root/needrestart/*.deb")
    # Replaces the file, as an upgrade of libc does.
    library = machine.run(f"sed -n 's,.* \\(/.*/libc.so.6\\)$,\\1,p' /proc/{machine.daemon()}/maps | head -n 1")
    machine.run(f"cp -a {library} {library}.new && mv {library}.new {library}")
    automatic = "needrestart -r a -l -m a 2>&1"
    before = daemons(machine)
    machine.run(automatic)
    expect(daemons(machine) == before, "needrestart restarted one")
    machine.run("rm /etc/needrestart/conf.d/poolcounter.conf")
    machine.run(automatic)
    expect(not set(daemons(machine)) & set(before), "the test is broken: nothing to restart")


def start_second(machine):
    """The example unit for another daemon."""
    machine.run("cp '/usr/share/doc/poolcounter/examples/poolcounter@.service' /etc/systemd/system/ && systemctl daemon-reload")
    machine.write("/etc/default/poolcounter-b", 'ARGS="-l 127.0.0.1 -p 7532"\n')
    machine.run("systemctl start poolcounter@b")


def daemons(machine):
    return [machine.show("MainPID"), machine.run("systemctl show -P MainPID poolcounter@b")]


def autopkgtest(world, machine):
    """debian/tests, run by autopkgtest on a booted machine."""
    server = Path(__file__).parent / "autopkgtest-virt-booted"
    output = machine.directory / "autopkgtest"
    command = ["autopkgtest", "--output-dir", output, world.deb, world.client_deb, world.source_tree, "--", server, str(machine.leader)]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=machine.log, stderr=machine.log, timeout=BUILD_PATIENCE_S)
    summary = (output / "summary").read_text() if (output / "summary").exists() else ""
    expect(done.returncode == 0, f"autopkgtest ended with status {done.returncode}: {summary}")
    expect(len(re.findall(r"^\w+ +PASS$", summary, re.M)) == 3, f"not all passed: {summary}")


# In the order of a user's experience, for all suites. Longest first would be faster,
# but harder to read.
ON_EVERY_SUITE = [
    fresh_install,
    unit_is_clean,
    upgrade_from_debian,
    upgrade_from_debian_with_a_stray_word,
    upgrade_while_disabled,
    crashes_and_hangs,
    stop_and_start,
    reload,
    instances,
    operators,
    purge_and_back,
    upgrade_within_2,
    upgrade_hidden_by_a_tarball,
    upgrade_refused,
    socket_activation,
    allow_list,
    needrestart,
    autopkgtest,
]
