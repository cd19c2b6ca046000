"""How long tests wait for a condition."""

import time

# A test that passes waits much less. The limit allows for a machine on which several other programs run.
PATIENCE_S = 240
# The pauses between polls grow from the first to the longest: a pause is about a fifth of the time waited, and at most
# a second. A condition often starts a process, which takes processor time from the processes for which the test waits:
# `xlad ps` takes 50 ms.
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.05, 1.0


def wait_for(condition, what, timeout=PATIENCE_S):
    """Polls until the condition returns a true value, and returns that value."""
    deadline = time.monotonic() + timeout
    pause_s = FIRST_PAUSE_S
    while True:
        is_last = time.monotonic() >= deadline
        value = condition()
        if value:
            return value
        if is_last:
            raise AssertionError(f"waited {timeout} s for {what}, which did not happen")
        time.sleep(pause_s)
        pause_s = min(1.2 * pause_s, LONGEST_PAUSE_S)
