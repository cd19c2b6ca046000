"""How long tests wait for a condition."""

import time

# A test that passes waits much less. The limit allows for a machine on which several other programs run.
PATIENCE_S = 240


def wait_for(condition, what, timeout=PATIENCE_S):
    """Polls until the condition returns a true value, and returns that value."""
    deadline = time.monotonic() + timeout
    while True:
        is_last = time.monotonic() >= deadline
        value = condition()
        if value:
            return value
        if is_last:
            raise AssertionError(f"waited {timeout} s for {what}, which did not happen")
        time.sleep(0.05)
