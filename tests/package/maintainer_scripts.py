"""The package's scripts with fakes of what they call: what they do to a service that runs or not, with a
policy that forbids it, a systemd that does not answer, in a chroot, and when dpkg calls off what it began."""

import shutil
import subprocess
from pathlib import Path

from roots import PATIENCE_S, expect

DEBIAN = Path(__file__).resolve().parents[2] / "debian"

# What runs or holds at the start, what dpkg calls, and what that does: calls of deb-systemd-invoke that the
# policy permits, of `systemctl start`, of `poolcounterd --free-port`, and the unit's copy that checks.
ROWS = [
    ("", ["postinst configure"], ["start service"]),
    ("chroot", ["postinst configure"], []),
    # From 1.x.
    ("service", ["postinst configure 1.2.0-1"], ["check", "free 42", "restart service"]),
    ("service refused", ["postinst configure 1.2.0-1"], ["check"]),
    # It is 1.x that still runs.
    ("service refused", ["postinst configure 1.2.0-1", "postinst configure 2.0.0-1"], ["check", "check"]),
    # Its end does not make the unit fail.
    ("service refused mild", ["postinst configure 1.2.0-1"], ["check"]),
    ("service refused spaced", ["postinst configure 1.2.0-1"], ["check"]),
    # A drop-in starts something else.
    ("service other", ["postinst configure 1.2.0-1"], ["free 42", "restart service"]),
    ("", ["postinst configure 1.2.0-1"], ["restart service"]),
    ("service forbidden", ["postinst configure 1.2.0-1"], []),
    ("service silent", ["postinst configure 1.2.0-1"], ["restart service"]),
    ("service chroot", ["postinst configure 1.2.0-1"], []),
    # From 2.x.
    ("service", ["postinst configure 2.0.0-1"], ["reload service"]),
    ("", ["postinst configure 2.0.0-1"], ["restart service"]),
    ("service forbidden", ["postinst configure 2.0.0-1"], []),
    # It may run, with locks.
    ("service silent", ["postinst configure 2.0.0-1"], ["reload service"]),
    # Back to 1.x, also if that is called off.
    ("service", ["prerm upgrade 1.2.0-1"], ["free 42", "stop socket", "stop service"]),
    ("service forbidden", ["prerm upgrade 1.2.0-1"], []),
    ("service silent", ["prerm upgrade 1.2.0-1"], []),
    ("service chroot", ["prerm upgrade 1.2.0-1"], []),
    ("", ["prerm upgrade 1.2.0-1"], []),
    ("service", ["prerm upgrade 1.2.0-1", "postrm abort-upgrade 2.0.0-1", "postinst abort-upgrade 1.2.0-1"],
     ["free 42", "stop socket", "stop service", "systemctl start service"]),
    ("", ["prerm upgrade 1.2.0-1", "postinst abort-upgrade 1.2.0-1"], []),
    # To the next 2.x.
    ("service", ["prerm upgrade 2.1.0-1"], []),
    ("service", ["prerm upgrade 2.1.0-1", "postinst abort-upgrade 2.1.0-1"], []),
    ("", ["prerm upgrade 2.1.0-1", "postinst abort-upgrade 2.1.0-1"], []),
    # Removed, also if that is called off.
    ("service", ["prerm remove", "postrm remove"], ["stop socket", "stop service"]),
    ("service chroot", ["prerm remove", "postrm remove"], []),
    ("service forbidden", ["prerm remove", "postinst abort-remove"], []),
    ("service silent", ["prerm remove", "postinst abort-remove"], ["stop socket", "stop service"]),
    ("service socket", ["prerm remove", "postinst abort-remove"],
     ["stop socket", "stop service", "systemctl start socket", "systemctl start service"]),
    ("socket", ["prerm remove", "postinst abort-remove"], ["stop socket", "stop service", "systemctl start socket"]),
    ("", ["prerm remove", "postinst abort-remove"], ["stop socket", "stop service"]),
    # What was stopped for a removal is not started by a later installation that is called off.
    ("service", ["prerm remove", "postrm remove", "postinst abort-upgrade 2.0.0-1"], ["stop socket", "stop service"]),
    ("service", ["prerm deconfigure", "postinst abort-deconfigure"], []),
]

# Each runs in the folder of the fakes. A file there stands for a unit that runs, or for another word of ROWS.
FAKES = {
    "systemctl": r"""
        [ ! -e silent ] || { echo 'Failed to connect to bus' >&2; exit 1; }
        case "$1 $2" in
            cat\ *)
                echo '[Service]'
                equals=$([ -e spaced ] && echo ' = -"' || echo '=')
                echo "ExecStart$equals/bin/$([ -e other ] || echo poolcounterd)$([ ! -e spaced ] || echo '"') -l ::1" ;;
            show\ *)
                case "$3 $4" in
                    "MainPID poolcounter.service") if [ -e service ]; then echo 42; else echo 0; fi ;;
                    "ExecStart poolcounter-check.service") cat "$4" ;;
                    "ExecMainStatus poolcounter-check.service") if [ -e refused ]; then echo 1; else echo 0; fi ;;
                    "ExecMainStartTimestampMonotonic poolcounter.service") echo 7 ;;
                esac ;;
            is-active\ *) if [ -e "${2#poolcounter.}" ]; then echo active; else echo inactive; exit 3; fi ;;
            start\ poolcounter-check.service) echo check >>calls; [ ! -e refused ] || [ -e mild ] ;;
            start\ *) echo "systemctl start ${2#poolcounter.}" >>calls; touch "${2#poolcounter.}" ;;
        esac""",
    # As the real one does.
    "deb-systemd-invoke": """
        status=0; ./policy-rc.d "$2" "$1" || status=$?; [ $status != 101 ] || exit 0
        echo "$1 ${2#poolcounter.}" >>calls
        [ ! -e silent ] || exit 1
        [ "$1" != stop ] || rm -f "${2#poolcounter.}" """,
    "policy-rc.d": """
        [ $# = 2 ] && [ "${1%.*}" = poolcounter ] || exit 103
        [ ! -e forbidden ] || exit 101""",
    "poolcounterd": """echo "free ${2}" >>calls; exit 1""",
    "ischroot": "[ -e chroot ]",
}


def maintainer_scripts_do_as_permitted(world):
    """Each row of ROWS; and no script fails."""
    wrong = []
    for state, steps, expected in ROWS:
        failures, did = outcome(world, state.split(), [step.split() for step in steps])
        if failures or did != expected:
            wrong.append(f"{state or 'nothing'}: {steps}: {did}, failed: {failures}")
    expect(not wrong, "\n       ".join(wrong))


def outcome(world, state, steps):
    """Which steps failed, and what all of them did."""
    folder = world.directory / "fakes"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    for name, body in FAKES.items():
        (folder / name).write_text(f"#!/bin/sh\ncd {folder}\n{body}\n")
        (folder / name).chmod(0o755)
    for word in [*state, "calls"]:
        (folder / word).touch()
    failures = []
    for script, *arguments in steps:
        environment = {"PATH": f"{folder}:/usr/sbin:/usr/bin:/sbin:/bin"}
        done = subprocess.run(["sh", "-s", *arguments], input=with_fakes(script, folder), env=environment, text=True,
                              stdout=world.log, stderr=world.log, timeout=PATIENCE_S)
        failures += [script] if done.returncode else []
    return failures, (folder / "calls").read_text().splitlines()


def with_fakes(script, folder):
    """The text of the script, with files of `folder` for those that it has in /usr and /run."""
    text = (DEBIAN / f"poolcounter.{script}").read_text()
    for real, fake in [("/usr/sbin/policy-rc.d", folder / "policy-rc.d"), ("/run/systemd/system", folder),
                       ("/run/poolcounter.stopped", folder / "stopped"), ("/run/poolcounter.refusal", folder / "refusal"),
                       ("/run/poolcounter.kept", folder / "kept"),
                       ("/usr/local", folder / "local")]:
        text = text.replace(real, str(fake))
    for line in text.splitlines():
        expect(line.startswith("#") or not any(f"{top}/" in line.replace(str(folder), "") for top in ["/run", "/usr"]),
               f"{script} has a path without a fake: {line}")
    return text
