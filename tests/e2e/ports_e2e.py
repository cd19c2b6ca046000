"""Test processes that run beside each other get different ports."""

import pathlib
import subprocess
import sys
import unittest

# Takes ports one after the other, prints them, and keeps them until its standard input ends.
TAKE = """
import sys
from ports import free_ports
print(*[port for _ in range(4) for port in free_ports(1, eval(sys.argv[1]))], flush=True)
sys.stdin.read()
"""


class Ports(unittest.TestCase):
    def test_processes_get_different_ports(self):
        here = pathlib.Path(__file__).parent
        # The process that finds these ports ends, so that they can be taken again: as many as the others need together.
        found = subprocess.run([sys.executable, "-c", "from ports import free_ports; print(*free_ports(32))"],
                               cwd=here, capture_output=True, text=True, check=True)
        candidates = [int(port) for port in found.stdout.split()]
        processes = [subprocess.Popen([sys.executable, "-c", TAKE, repr(candidates)], text=True, cwd=here,
                                      stdin=subprocess.PIPE, stdout=subprocess.PIPE) for _ in range(8)]
        try:
            found = [int(port) for process in processes for port in process.stdout.readline().split()]
        finally:
            for process in processes:
                process.communicate()
        self.assertEqual(sorted(found), sorted(candidates))


if __name__ == "__main__":
    unittest.main()
