"""The installed defaults, the messages about them, and the way back: each on a
machine of its own, as in scenarios.py."""

import hashlib
import re
from pathlib import Path

from machine import Watcher
from roots import DEBIANS_OWN, eventually, expect
from scenarios import INSTALL, OURS, OURS_NEXT, expect_running, expect_served, install_debians_own, install_ours, version

EXAMPLES = "/usr/share/doc/poolcounter/examples"
WARNING = "anyone who can connect can take every lock"


def warns_who_can_connect(world, machine):
    """The first install warns that the daemon listens on every address, and prints how to
    narrow that; an upgrade does not, nor an install with a chosen address."""
    output = machine.run(f"{INSTALL} {OURS}")
    expect(WARNING in output, "the first install does not warn")
    expect_served(machine, "127.0.0.2")
    machine.add_address("10.1.2.3")
    advice = re.search(r"put (ARGS=\S+ \S+) into (\S+) and run: (.*)", output)
    expect(advice, f"no advice in: {output}")
    machine.run(f"echo '{advice[1]}' > {advice[2]} && {advice[3]}")
    expect_served(machine, "10.1.2.3")
    expect(machine.refuses("127.0.0.2"), "the advice does not narrow it")
    expect(WARNING not in machine.run(f"{INSTALL} {OURS_NEXT}"), "an upgrade warns again")
    machine.run("apt-get purge -y poolcounter")
    expect(machine.run(f"cat {advice[2]}") == advice[1], "purge took the administrator's file")
    expect(WARNING not in machine.run(f"{INSTALL} {OURS}"), "it warns though an address was chosen")
    machine.run("apt-get purge -y poolcounter")
    machine.write(advice[2], 'ARGS="--log debug"\n')
    expect(WARNING in machine.run(f"{INSTALL} {OURS}"), "--log was taken for an address")


def example_of_arguments(world, machine):
    """A reload accepts each line of the example for /etc/default/poolcounter."""
    machine.add_address("10.1.2.3")
    install_ours(machine)
    example = f"{EXAMPLES}/poolcounter.default"
    text = machine.run(f"cat {example}")
    copy = re.search(r"^# +cp \S+ (\S+)$", text, re.M)
    expect(copy, "the example does not say how to copy it")
    machine.run(f"cp {example} {copy[1]} && systemctl reload poolcounter")
    expect_served(machine, "127.0.0.2")  # All of it is commented out.
    lines = re.findall(r'^#(ARGS=".*")$', text, re.M)
    expect(len(lines) > 3, f"only {len(lines)} examples")
    for line in lines:
        machine.write(copy[1], line + "\n")
        machine.run("systemctl reload poolcounter")
        expect_served(machine, "10.1.2.3")
        expect(machine.refuses("127.0.0.2"), f"ignored: {line}")


def check_for_monitoring(world, machine):
    """The command line in the example for Icinga and NRPE: 0 while the daemon
    serves, 2 (CRITICAL) when it does not. What Prometheus and Grafana need is there."""
    install_ours(machine)
    machine.copy_in(world.client_deb, "/root/client.deb")
    machine.run(f"{INSTALL} /root/client.deb")
    machine.run(f"cd {EXAMPLES} && test -s alerts.yml && test -s alerts.test.yml && test -s dashboard.json")
    text = machine.run(f"cat {EXAMPLES}/icinga2.conf")
    command = re.search(r"command\[check_poolcounter\]=(.*)", text)[1]
    expect(machine.status(command) == 0, "not OK while it serves")
    machine.run("systemctl stop poolcounter")
    expect(machine.status(command) == 2, "not critical when stopped")


def make_archive(machine, directory, package):
    """Makes an archive of one package apt's only source."""
    control = machine.run(f"dpkg-deb -f {directory}/{package}")
    file = Path(f"{machine.root}{directory}/{package}")
    packages = (f"{control}\nFilename: ./{package}\nSize: {file.stat().st_size}\n"
                f"SHA256: {hashlib.sha256(file.read_bytes()).hexdigest()}\n")
    machine.write(f"{directory}/Packages", packages)
    entry = f" {hashlib.sha256(packages.encode()).hexdigest()} {len(packages.encode())} Packages\n"
    machine.write(f"{directory}/Release",
                  "Origin: Debian\nSuite: stable\nDate: Sat, 21 Nov 2026 00:00:00 UTC\nSHA256:\n" + entry)
    machine.run("rm -rf /etc/apt/sources.list /etc/apt/sources.list.d/*"
                f" && echo 'deb [trusted=yes] file:{directory} ./' > /etc/apt/sources.list && apt-get update")


def apt_pin(world, machine):
    """The example pin: a newer Debian version does not replace ours."""
    install_ours(machine)
    archive = "/root/archive"
    machine.run(f"mkdir {archive} && cd {archive} && dpkg-deb -R {DEBIANS_OWN} p"
                " && sed -i 's/^Version: .*/Version: 9.0-1/' p/DEBIAN/control && dpkg-deb -b p poolcounter_9.0-1.deb")
    make_archive(machine, archive, "poolcounter_9.0-1.deb")
    upgrade = "apt-get -s dist-upgrade"
    expect("Inst poolcounter" in machine.run(upgrade), "the test is broken: nothing to hold back")
    machine.run(f"install -m 644 {EXAMPLES}/apt-preferences /etc/apt/preferences.d/poolcounter")
    expect("Inst poolcounter" not in machine.run(upgrade), "Debian's would replace ours")
    machine.run(f"{INSTALL} {OURS_NEXT}")
    expect(version(machine) == world.next_version, "our own next version is held back")


def wrong_arguments(world, machine):
    """A mistake in ARGS is a failure at once; an address that is missing is tried again
    until it appears."""
    settings = "/etc/default/poolcounter"
    install_ours(machine)
    for wrong in ("--nonsense", "-l nowhere", "--http 127.0.0.1:7531", "--rules /nonexistent/rules"):
        machine.write(settings, f'ARGS="{wrong}"\n')
        expect(machine.status("systemctl restart poolcounter") != 0, f"it starts with {wrong}")
        machine.run("sleep 2")
        expect(machine.show("ActiveState") == "failed", f"with {wrong} it is {machine.show('ActiveState')}")
        expect(machine.show("ExecMainStatus") == "1", f"it ended with {machine.show('ExecMainStatus')}")
        expect(machine.show("NRestarts") == "0", f"it was started again with {wrong}")
    machine.write(settings, 'ARGS="-l 192.0.2.7"\n')
    machine.run("systemctl --no-block restart poolcounter")
    eventually("it is tried again", lambda: int(machine.show("NRestarts")) > 5)
    eventually("it ends with 69", lambda: machine.show("ExecMainStatus") == "69")
    machine.add_address("192.0.2.7")
    eventually("it listens", lambda: not machine.refuses("192.0.2.7"))
    expect_served(machine, "192.0.2.7")


def back_to_debian(world, machine):
    """The last line of README.Debian leads back to Debian's version, also past the
    example pin, and the service continues with its settings."""
    machine.run(f"mkdir /root/archive && cp {DEBIANS_OWN} /root/archive/")
    make_archive(machine, "/root/archive", Path(DEBIANS_OWN).name)
    install_ours(machine)
    machine.run(f"install -m 644 {EXAMPLES}/apt-preferences /etc/apt/preferences.d/poolcounter")
    machine.write("/etc/default/poolcounter", 'ARGS="-l 127.0.0.1"\n')
    command = machine.run("tail -n 1 /usr/share/doc/poolcounter/README.Debian")
    expect(command.startswith("apt install "), f"the last line is {command!r}")
    machine.run(command.replace("apt install", "apt-get install -y"))
    expect(version(machine).startswith("1."), f"it is {version(machine)}")
    expect_running(machine)
    install_ours(machine)
    expect_running(machine)
    expect_served(machine)


def back_to_debian_in_use(world, machine):
    """Debian's daemon can't bind a port that old connections keep. Neither those open when
    it replaces ours, nor those that ours closed shortly before, keep it down. Returns for
    how many seconds the service was down."""
    settings = "/etc/default/poolcounter"
    machine.write(settings, 'ARGS="-l 127.0.0.1 --max-connections 22"\n')
    install_ours(machine)
    # Debian's has no other option.
    machine.write(settings, 'ARGS="-l 127.0.0.1"\n')
    clients = [machine.connect() for _ in range(20)]
    expect(clients[0].ask("ACQ4ME key 1 5 60") == "LOCKED", "no lock")
    spare = [machine.connect() for _ in range(2)]
    with machine.connect() as turned_away:
        expect(turned_away.ended(), "one more than --max-connections is served")
    for client in spare:
        client.close()
    with Watcher(machine) as watcher:
        install_debians_own(machine)
    expect(version(machine).startswith("1."), f"it is {version(machine)}")
    expect(all(client.ended() for client in clients), "a client is still connected")
    expect_running(machine)
    expect_served(machine)
    expect(machine.show("NRestarts") == "0", f"it took {machine.show('NRestarts')} more attempts")
    world.note(f"down for {watcher.longest_gap_s:.1f} s")
    return watcher.longest_gap_s


ON_EVERY_SUITE = [
    warns_who_can_connect,
    example_of_arguments,
    wrong_arguments,
    check_for_monitoring,
    apt_pin,
    back_to_debian,
    back_to_debian_in_use,
]
