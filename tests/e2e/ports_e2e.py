"""Test processes that run at the same time get different ports."""

import pathlib
import socket
import subprocess
import sys
import unittest

from ports import free_ports

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
        # The process that finds these 40 ports ends, so the ports are free again. The other processes need 32 of them,
        # so other programs may take up to 8 in the meantime.
        found = subprocess.run([sys.executable, "-c", "from ports import free_ports; print(*free_ports(40))"],
                               cwd=here, capture_output=True, text=True, check=True)
        candidates = [int(port) for port in found.stdout.split()]
        processes = [subprocess.Popen([sys.executable, "-c", TAKE, repr(candidates)], text=True, cwd=here,
                                      stdin=subprocess.PIPE, stdout=subprocess.PIPE) for _ in range(8)]
        try:
            found = [int(port) for process in processes for port in process.stdout.readline().split()]
        finally:
            for process in processes:
                process.communicate()
        self.assertEqual(len(found), 32)
        self.assertEqual(len(set(found)), 32)
        self.assertLessEqual(set(found), set(candidates))

    def test_a_port_that_is_in_use_is_not_locked(self):
        here = pathlib.Path(__file__).parent
        # The process that finds the port ends, so no test process holds it. The system does not assign it to others.
        found = subprocess.run([sys.executable, "-c", "from ports import free_ports; print(*free_ports(1))"], cwd=here,
                               capture_output=True, text=True, check=True)
        used = int(found.stdout)
        with socket.socket() as listener:
            listener.bind(("0.0.0.0", used))
            with self.assertRaisesRegex(OSError, "found 0 free ports among 1, expected 1"):
                free_ports(1, [used])
        # The other process gets the port now, although this process has tried it and still runs.
        other = subprocess.run([sys.executable, "-c", f"from ports import free_ports; print(*free_ports(1, [{used}]))"],
                               cwd=here, capture_output=True, text=True)
        self.assertEqual(other.stdout, f"{used}\n", other.stderr)
        self.assertEqual(free_ports(1, [used]), [used])
        with self.assertRaisesRegex(OSError, "found 0 free ports among 1, expected 1"):
            free_ports(1, [used])


if __name__ == "__main__":
    unittest.main()
