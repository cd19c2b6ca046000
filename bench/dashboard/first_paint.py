"""Measures the time until the dashboard is painted in headless Chromium, without a job and while 8 workers train.

    python3 bench/dashboard/first_paint.py --rounds 15
    python3 bench/dashboard/first_paint.py --mesh dp=4,tp=2 --picture dashboard.png

Each round opens a new page. `paint` is the time of the browser's first contentful paint, and `rows` is the time at
which the page shows the workers. Both are measured from the beginning of the navigation. `/livez` is the time of the
first contentful paint of that page, which consists of two letters: the share of the browser and of the machine. Then
the table of workers and the mesh of the job, which has a cell for each device, are scrolled from the first to the last
line in 2 seconds each, while the page continues to poll: `frame` is the time between two frames.

Needs Debian's package chromium.
"""

import argparse
import base64
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
SCROLL_MS = 2000
PLACES = r"is up at (\S+) .*\n.*http://(\S+)/"  # The addresses in the output of xlad up.

# Resolves once the page has painted and lists all workers.
TIMES = """new Promise(resolve => {
  const least = %d, look = () => {
    const paint = performance.getEntriesByName("first-contentful-paint")[0];
    const shown = document.querySelectorAll("#workers tr").length > least;
    if (!paint || !shown) return setTimeout(look, 1);
    const bytes = performance.getEntriesByType("navigation")[0].transferSize;
    resolve({paint: paint.startTime, rows: performance.now(), bytes});
  };
  look();
})"""

# Resolves to the time of the first contentful paint.
PAINT = """new Promise(resolve => {
  const look = () => {
    const paint = performance.getEntriesByName("first-contentful-paint")[0];
    return paint ? resolve(paint.startTime) : setTimeout(look, 1);
  };
  look();
})"""

# Resolves once the page shows the cells of a mesh with as many devices as there are workers.
CELLS = """new Promise(resolve => {
  const look = () => document.querySelectorAll("#grid span").length >= %d ? resolve(true) : setTimeout(look, 20);
  look();
})"""

# Scrolls an element from its first to its last line, and resolves to the times between frames.
SCROLL = """new Promise(resolve => {
  const inner = document.querySelector("%s"), box = inner.closest(".scroll") || inner, start = performance.now();
  const frames = [], next = now => {
    frames.push(now);
    const part = Math.min(1, (performance.now() - start) / %d);
    box.scrollTop = part * (box.scrollHeight - box.clientHeight);
    if (part < 1) return requestAnimationFrame(next);
    resolve({end: box.scrollTop, most: box.scrollHeight - box.clientHeight,
             ms: frames.slice(1).map((at, i) => at - frames[i])});
  };
  requestAnimationFrame(next);
})"""


class Browser:
    """Chromium, controlled by the DevTools protocol over a pair of pipes: JSON messages that end with a zero byte."""

    def __init__(self, folder):
        to_read, self.to = os.pipe()
        self.back, back_write = os.pipe()
        command = ["chromium", "--headless", "--no-sandbox", "--disable-gpu", "--window-size=1500,1050",
                   "--remote-debugging-pipe", f"--user-data-dir={folder}", "about:blank"]

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

    @contextlib.contextmanager
    def page(self, url):
        """Yields a function that returns the value of a JavaScript promise on a new page."""
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        self.call("Page.navigate", session, url=url)

        def value(promise):
            deadline = time.monotonic() + 60
            while time.monotonic() < deadline:
                answer = self.call("Runtime.evaluate", session, expression=promise, awaitPromise=True,
                                   returnByValue=True)
                if "exceptionDetails" in answer and "value" not in answer["result"]:
                    text = json.dumps(answer["exceptionDetails"])
                    if "Promise was collected" not in text and "context" not in text:
                        raise RuntimeError(text)
                if "value" in answer["result"]:  # There is no value if the page changed while it was pending.
                    return answer["result"]["value"]
            raise RuntimeError(f"{url} gave no value within 60 s")

        try:
            yield value, session
        finally:
            self.call("Target.closeTarget", targetId=target)

    def times(self, url, workers):
        with self.page(url) as (value, _):
            return value(TIMES % workers)

    def scroll(self, url, workers, picture):
        """Returns the times between frames while the workers and the mesh are scrolled."""
        with self.page(url) as (value, session):
            value(CELLS % workers)
            frames = []
            for box in ("#workers", "#grid"):
                found = value(SCROLL % (box, SCROLL_MS))
                if found["end"] < found["most"] - 1:
                    raise RuntimeError(f"{box} was scrolled to {found['end']} of {found['most']} pixels")
                frames += found["ms"]
            if picture:
                shot = self.call("Page.captureScreenshot", session, format="png")
                picture.write_bytes(base64.b64decode(shot["data"]))
            return frames

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
        while not (found := re.search(PLACES, log.read_text(errors="replace"))):
            if up.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"xlad up did not start:\n{log.read_text(errors='replace')}")
            time.sleep(0.05)
        yield found[1], found[2]
    finally:
        up.terminate()
        up.wait()


def report(name, browser, url, rounds):
    """Opens the dashboard and the page of two letters alternately, and prints their times."""
    pages = []
    for _ in range(rounds):
        page = browser.times(url, WORKERS)
        with browser.page(url + "livez") as (value, _):
            pages.append({**page, "/livez": value(PAINT)})

    def spread(key):
        values = sorted(page[key] for page in pages)
        return f"{key} {statistics.median(values):6.0f} ms (longest {values[-1]:.0f})"

    print(f"{name:14} {spread('paint')}   {spread('rows')}   {spread('/livez')}   "
          f"{max(page['bytes'] for page in pages)} bytes", flush=True)


def measure(args, browser, address, url):
    count = WORKERS
    # The first page is not measured, because the browser starts its processes for it.
    browser.times(url, count)
    report("idle", browser, url, args.rounds)
    subprocess.run([args.xlad, "submit", args.job, "--mesh", args.mesh, "--steps", "1000000", "--coordinator", address],
                   check=True, stdout=subprocess.DEVNULL)
    browser.scroll(url, count, None)  # Waits for the job.
    report("while training", browser, url, args.rounds)
    frames = sorted(browser.scroll(url, count, args.picture))
    print(f"scrolling {count} workers and {count} cells: frame {statistics.median(frames):.0f} ms (99th percentile "
          f"{frames[len(frames) * 99 // 100]:.0f}, longest {frames[-1]:.0f}), {len(frames)} frames")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--xlad", type=pathlib.Path, default=REPO / "build/release/bin/xlad")
    parser.add_argument("--job", type=pathlib.Path, default=REPO / "examples/spiral_mlp", help="job of the workers")
    parser.add_argument("--mesh", default="dp=8")
    parser.add_argument("--picture", type=pathlib.Path, help="where to write a picture of the page, as a PNG file")
    parser.add_argument("--rounds", type=int, default=15)
    args = parser.parse_args()
    if shutil.which("chromium") is None:
        sys.exit("first_paint: chromium is not installed; install Debian's package chromium")
    with tempfile.TemporaryDirectory(prefix="xlad-paint-", ignore_cleanup_errors=True) as name:
        folder = pathlib.Path(name)
        browser = Browser(folder / "browser")
        try:
            with cluster(args.xlad, folder) as (address, http):
                measure(args, browser, address, f"http://{http}/")
        finally:
            browser.close()


if __name__ == "__main__":
    main()
