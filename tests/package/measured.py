"""Scenarios that measure time. Each runs alone, because the figure of a busy machine means
nothing, and on its own machine, as in scenarios.py."""

from defaults import back_to_debian_in_use
from roots import expect
from scenarios import becomes_ours


def expect_at_most(bound_s, seconds, world):
    world.note(f"at most {bound_s} s allowed")
    expect(seconds <= bound_s, f"down for {seconds:.2f} s, more than {bound_s} s")


def downtime_from_debian(world, machine):
    """While Debian's own becomes ours, in use."""
    expect_at_most(2, becomes_ours(world, machine), world)


def downtime_back_to_debian(world, machine):
    """While ours becomes Debian's own, in use."""
    expect_at_most(5, back_to_debian_in_use(world, machine), world)


ON_EVERY_SUITE = [downtime_from_debian, downtime_back_to_debian]
