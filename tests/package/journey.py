"""The gate's scenario: one machine goes through the life of the package in one boot. Its
steps are parts of the other scenarios, which do more, each on its own machine."""

from drain import drains
from roots import expect
from scenarios import (becomes_next, becomes_ours, expect_running, expect_sandbox, expect_served, files_of, install_ours,
                       purge, reloads)


def journey(world, machine):
    """Install, purge; Debian's own, upgrade, reload, drain, upgrade within 2, purge."""
    before = files_of(machine)
    install_ours(machine)
    expect_running(machine)
    expect_served(machine)
    expect_sandbox(machine)
    purge(machine, before)
    expect(machine.status("getent passwd poolcounter") != 0, "the user is still there")

    becomes_ours(world, machine)
    reloads(machine)
    drains(machine)
    machine.run("systemctl start poolcounter")
    becomes_next(world, machine)
    expect_sandbox(machine)
    # A purge keeps what the administrator wrote.
    machine.run("rm -r /etc/default/poolcounter /etc/systemd/system/poolcounter.service.d")
    purge(machine, before)


ON_EVERY_SUITE = [journey]
