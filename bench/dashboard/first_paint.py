"""Measures the time until the dashboard is painted in headless Chromium, without a job and while 8 workers train.

    python3 bench/dashboard/first_paint.py --rounds 15

Each round opens a new page. `paint` is the time of the browser's first contentful paint, and `rows` is the time at
which the page shows the workers. Both are measured from the beginning of the navigation. Needs Debian's package
chromium.
"""

import argparse
import contextlib
import json
import os
import pathlib
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

REPO = pathlib.Path(__file__).resolve().parents[2]
WORKERS = 8

# Resolves once the page has painted and lists all workers.
TIMES = """new Promise(resolve => {
  const look = () => {
    const paint = performance.getEntriesByName("first-contentful-paint")[0];
    const shown = document.querySelectorAll("#workers tr").length > %d;
    if (!paint || !shown) return setTimeout(look, 1);
    const bytes = performance.getEntriesByType("navigation")[0].transferSize;
    resolve({paint: paint.startTime, rows: performance.now(), bytes});
  };
  look();
})"""


class Browser:
    """Chromium, controlled by the DevTools protocol over a pair of pipes: JSON messages that end with a zero byte."""

    def __init__(self, folder):
        to_read, self.to = os.pipe()
        self.back, back_write = os.pipe()
        command = ["chromium", "--headless", "--no-sandbox", "--disable-gpu", "--remote-debugging-pipe",
                   f"--user-data-dir={folder}", "about:blank"]

        def use_descriptors():  # The browser reads descriptor 3 and writes descriptor 4.
            low, high = os.dup(to_read), os.dup(back_write)
            os.dup2(low, 3)
            os.dup2(high, 4)

        self.process = subprocess.Popen(command, preexec_fn=use_descriptors, close_fds=False, stdout=subprocess.DEVNULL,
                                        stderr=subprocess.DEVNULL)
        os.close(to_read)
        os.close(back_write)
        self.unread, self.calls = b"", 0

    def call(self, method, session=None, **parameters):
        self.calls += 1
        message = {"id": self.calls, "method": method, "params": parameters}
        if session:
            message["sessionId"] = session
        os.write(self.to, json.dumps(message).encode() + b"\0")
        while True:
            answer = self.receive()
            if answer.get("id") != self.calls:
                continue
            if "error" in answer:
                raise RuntimeError(f"{method}: {answer['error']['message']}")
            return answer["result"]

    def receive(self):
        while b"\0" not in self.unread:
            part = os.read(self.back, 1 << 16)
            if not part:
                raise RuntimeError("chromium ended")
            self.unread += part
        message, self.unread = self.unread.split(b"\0", 1)
        return json.loads(message)

    def open_page(self, url):
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        self.call("Page.navigate", session, url=url)
        deadline = time.monotonic() + 20
        while time.monotonic() < deadline:
            answer = self.call("Runtime.evaluate", session, expression=TIMES % WORKERS, awaitPromise=True,
                               returnByValue=True)
            if "value" in answer["result"]:  # There is no value if the page changed while the promise was pending.
                self.call("Target.closeTarget", targetId=target)
                return answer["result"]["value"]
        raise RuntimeError(f"{url} did not list {WORKERS} workers within 20 s")

    def close(self):
        self.process.kill()
        self.process.wait()


@contextlib.contextmanager
def cluster(xlad, folder):
    """Yields the addresses of the coordinator and of the dashboard."""
    log = folder / "up.log"
    with open(log, "wb") as out:
        up = subprocess.Popen([xlad, "up", "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0", "--data",
                               folder / "data", "--workers", str(WORKERS), "--devices", "1"], stdout=out, stderr=out)
    try:
        deadline = time.monotonic() + 60
        while not (found := re.search(r"is up at (\S+) .*\n.*http://(\S+)/", log.read_text(errors="replace"))):
            if up.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"xlad up did not start:\n{log.read_text(errors='replace')}")
            time.sleep(0.05)
        yield found[1], found[2]
    finally:
        up.terminate()
        up.wait()


def report(name, pages):
    def spread(key):
        values = sorted(page[key] for page in pages)
        return f"{key} {statistics.median(values):6.0f} ms (longest {values[-1]:.0f})"

    print(f"{name:14} {spread('paint')}   {spread('rows')}   {max(page['bytes'] for page in pages)} bytes")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--xlad", type=pathlib.Path, default=REPO / "build/release/bin/xlad")
    parser.add_argument("--job", type=pathlib.Path, default=REPO / "examples/spiral_mlp", help="job of the workers")
    parser.add_argument("--mesh", default="dp=8")
    parser.add_argument("--rounds", type=int, default=15)
    args = parser.parse_args()
    if shutil.which("chromium") is None:
        sys.exit("first_paint: chromium is not installed; install Debian's package chromium")
    with tempfile.TemporaryDirectory(prefix="xlad-paint-", ignore_cleanup_errors=True) as name:
        folder = pathlib.Path(name)
        browser = Browser(folder / "browser")
        try:
            with cluster(args.xlad, folder) as (address, http):
                # The first page is not measured, because the browser starts its processes for it.
                browser.open_page(f"http://{http}/")
                report("idle", [browser.open_page(f"http://{http}/") for _ in range(args.rounds)])
                subprocess.run([args.xlad, "submit", args.job, "--mesh", args.mesh, "--steps", "1000000",
                                "--coordinator", address], check=True, stdout=subprocess.DEVNULL)
                report("while training", [browser.open_page(f"http://{http}/") for _ in range(args.rounds)])
        finally:
            browser.close()


if __name__ == "__main__":
    main()
