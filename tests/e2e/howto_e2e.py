"""Follows the pages of docs/howto: runs their shell commands as they are written, with the built command in PATH, each
page in its own folder. NOT_RUN lists the commands that cannot run in a test, with the reasons."""

import collections
import json
import os
import pathlib
import re
import shutil
import subprocess
import textwrap
import unittest

from harness import ALL_CASES, OWN_EXAMPLES, REPO, XLAD, cluster, folder, wait_for
from hosts_e2e import Hosts, cannot_make_hosts
from transports_e2e import has_plugin, launchers, mpi_environment

PAGES = REPO / "docs/howto"
LIMIT_S = 120  # For each command.
# The first words of commands. Other indented blocks are outputs.
PROGRAMS = {"xlad", "mpirun", "srun", "sbatch", "sed", "kubectl", "install", "systemctl", "pip", "make", "(cd"}
# By page, the beginnings of commands that are not run. An empty beginning stands for all commands of the page.
NOT_RUN = {
    "measure-collectives.md": {"srun": "it needs Slurm",
                               "mpirun -np 4 --host": "it needs two hosts that share a folder"},
    "run-on-several-hosts.md": {
        "mpirun": "they need hosts on which mpirun starts programs; hosts_e2e starts the ranks"},
    "run-on-kubernetes.md": {"": "they need a cluster of Kubernetes; deploy_e2e checks the manifests"},
    "run-under-slurm.md": {"": "they need a cluster of Slurm; slurm_e2e makes one and submits the same script"},
    "run-under-systemd.md": {"": "they change the services of this machine; deploy_e2e checks the units"},
    "train-a-jax-step.md": {"": "they install and build xlad; python/tests/test_docs.py runs the page's examples"},
}
LONG = "-e 256M"  # Commands with these words take half a minute, and only run with XLAD_ALL_CASES.

# A command, and the lines of output that the page shows after it.
Command = collections.namedtuple("Command", "text output")


def blocks(page):
    """Yields the lines of the blocks that are indented by four or more spaces more than their paragraph, or are fenced
    without a language."""
    fence, block, after_blank = None, [], True
    for line in [*page.splitlines(), "end"]:
        mark = re.fullmatch(r" *```(\w*)", line)
        if mark and fence is None:
            fence = mark[1] or "shell"
        elif mark:
            fence = None
        elif fence == "shell" or (fence is None and line.startswith("    ") and (block or after_blank)):
            block.append(line)
            continue
        if block:
            yield textwrap.dedent("\n".join(block)).splitlines()
            block = []
        after_blank = not line.strip()


def is_command(line):
    words = [word for word in line.split() if not re.match(r"[A-Z_]+=", word)]
    return bool(words) and words[0] in PROGRAMS


def commands(page):
    found = []
    for block in blocks(page):
        with_prompts = any(line.startswith("$ ") for line in block)
        if not with_prompts and not is_command(block[0]):
            continue
        goes_on = False
        for line in block:
            if goes_on:
                found[-1] = found[-1]._replace(text=f"{found[-1].text}\n{line}")
            elif line.startswith("$ ") or not with_prompts:
                found.append(Command(line.removeprefix("$ "), []))
            else:
                found[-1].output.append(line)
                continue
            goes_on = line.endswith(("\\", "|"))
    return found


def to_run(name):
    """Returns the commands of a page that are run."""
    return [command for command in commands((PAGES / name).read_text())
            if not command.text.startswith(tuple(NOT_RUN.get(name, ()))) and (ALL_CASES or LONG not in command.text)]


class Howto(unittest.TestCase):
    def setUp(self):
        made = folder()
        self.where = made.__enter__()
        self.addCleanup(made.__exit__, None, None, None)
        for name in ("examples", "deploy"):
            (self.where / name).symlink_to(REPO / name)
        self.env = {**mpi_environment(), "PATH": f"{pathlib.Path(XLAD).parent}:{os.environ['PATH']}",
                    "HOME": str(self.where), "XDG_CONFIG_HOME": str(self.where / "config"),
                    "XLAD_COMM_DIR": str(self.where / "comm"),
                    "OMPI_MCA_rmaps_base_oversubscribe": "1"}  # This machine may have fewer cores than ranks.
        (self.where / "comm").mkdir(mode=0o700)

    def run_command(self, text, prefix=()):
        """Returns all that a terminal would show."""
        done = subprocess.run([*prefix, "bash", "-euo", "pipefail", "-c", text], cwd=self.where, env=self.env,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=LIMIT_S, check=False)
        self.assertEqual(done.returncode, 0, f"{text}\n{done.stdout[-4000:]}")
        return done.stdout

    def test_parser(self):
        page = ("# Page\n\nText:\n\n    xlad a \\\n      b\n    xlad c   # comment\n\nMore:\n\n    rank 3 waits\n\n"
                "1. Step:\n\n       A=1 sbatch d |\n         sed e\n\n   continued\n   here\n\n```python\nxlad = 1\n"
                "```\n\n```\nmake f\n```\n\n    $ xlad g\n    shown\n    $ xlad h\n")
        self.assertEqual([tuple(c) for c in commands(page)],
                         [("xlad a \\\n  b", []), ("xlad c   # comment", []), ("A=1 sbatch d |\n  sed e", []),
                          ("make f", []), ("xlad g", ["shown"]), ("xlad h", [])])

    def test_all_pages_are_followed(self):
        """Each page with commands has a test or reasons, and each reason applies to a command."""
        tested = {name.removeprefix("test_page_").replace("_", "-") + ".md" for name in dir(self)
                  if name.startswith("test_page_")}
        for page in sorted(PAGES.glob("*.md")):
            found = commands(page.read_text())
            for beginning, reason in NOT_RUN.get(page.name, {}).items():
                self.assertTrue(any(c.text.startswith(beginning) for c in found), f"{page.name}: {beginning}")
                print(f"{page.name}: {beginning or 'all commands'}: not run, because {reason}", flush=True)
            self.assertEqual(bool(found) and "" not in NOT_RUN.get(page.name, {}), page.name in tested, page.name)
        self.assertLessEqual(tested | set(NOT_RUN), {page.name for page in PAGES.glob("*.md")})

    def test_page_measure_collectives(self):
        run = 0
        for text, _ in to_run("measure-collectives.md"):
            needed = re.search(r"--transport (ucx|mpi)\b", text)
            if needed and needed[1] == "ucx" and not has_plugin("ucx"):
                continue
            if "mpirun" in text and (not launchers() or shutil.which("mpirun") is None):
                continue
            with self.subTest(text):
                self.assertIn("Out of bounds values : 0 OK", self.run_command(text))
                run += 1
        self.assertGreater(run, 0)

    def test_page_simulate(self):
        """The page's step.hlo is a program of the reader. Here it is that of an example, and its axes have the names of
        the command's mesh."""
        example = OWN_EXAMPLES / "spiral_mlp"
        program = (example / "step.dp4_tp2.hlo").read_text()
        for name in ("good.hlo", "bad.hlo"):
            (self.where / name).write_text(program)
        found = to_run("simulate.md")
        self.assertGreater(len(found), 5)
        for text, _ in found:
            if axis := re.search(r"--mesh dp=\d+,(\w+)=", text):
                (self.where / "step.hlo").write_text(re.sub(r'(\\?")tp(\\?")', rf"\1{axis[1]}\2", program))
            with self.subTest(text):
                out = self.run_command(text)
                if text.startswith("xlad"):
                    self.assertIn("step", out)

    def test_page_trace(self):
        found = to_run("trace.md")
        self.assertEqual(len(found), 2)
        with cluster(2, 4) as made:
            made.wait_for_workers(2)
            self.env["XLAD_COORDINATOR"] = made.address
            *_, job = self.run_command(found[0].text).splitlines()  # The key of the job comes first.
            written, = found[0].output
            self.assertRegex(written, "^job-[0-9a-f]{8}$")
            self.assertRegex(job, "^job-[0-9a-f]{8}$")
            out = self.run_command(found[1].text.replace(written, job))
            self.assertEqual(out.splitlines(), found[1].output)
            self.assertTrue(json.loads((self.where / "trace.json").read_text())["traceEvents"])

    @unittest.skipIf(cannot_make_hosts(), f"no hosts: {cannot_make_hosts()}")
    def test_page_run_on_several_hosts(self):
        """Runs the worker on host 10.0.0.2, and the rest on 10.0.0.1. Both hosts use the folder `var` as /var/lib,
        instead of that of this machine."""
        var = self.where / "var"
        var.mkdir()
        net = PageHosts()
        self.addCleanup(net.close)
        net.add(2)
        own_var = f"mount --bind {var} /var/lib && "
        seen = []
        for text, _ in to_run("run-on-several-hosts.md"):
            seen.append(text.split()[1])
            prefix = net.argv(2 if seen[-1] == "worker" else 1, [])[:-1]
            if seen[-1] not in ("coordinator", "worker", "top"):
                out = self.run_command(own_var + text, prefix)
                self.assertIn({"submit": "SUCCEEDED", "nodes": "alive", "token": ""}[seen[-1]], out)
                continue
            log = self.where / f"{seen[-1]}.log"  # These commands run until they are stopped.
            with open(log, "wb") as to:
                net.processes.append(subprocess.Popen([*prefix, "bash", "-c", own_var + text], cwd=self.where,
                                                      env=self.env, stdout=to, stderr=to))
            ready = {"coordinator": lambda: (self.where / "config/xlad/join").exists(),
                     "worker": lambda: "worker started" in log.read_text(),
                     "top": lambda: "1 SUCCEEDED" in log.read_text()}[seen[-1]]
            try:
                wait_for(ready, f"xlad {seen[-1]}", LIMIT_S)
            except AssertionError as error:
                self.fail(f"{error}: {log.read_text()[-2000:]}")
        self.assertEqual(seen, ["coordinator", "token", "worker", "submit", "nodes", "top"])


class PageHosts(Hosts):
    def address(self, host):
        return f"10.0.0.{host}"


if __name__ == "__main__":
    unittest.main()
