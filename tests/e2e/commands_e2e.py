"""Every command: outputs, exit codes, and errors for invalid input."""

import contextlib
import json
import os
import random
import re
import shutil
import socket
import unittest
from unittest import mock
from xml.etree import ElementTree

from harness import OWN_EXAMPLES, REPO, Cluster, Process, folder, job_directories, mesh_text, wait_for, xlad

JOB = OWN_EXAMPLES / "spiral_mlp"
PROGRAM = JOB / "step.dp4_tp2.hlo"
SVG = "{http://www.w3.org/2000/svg}"


class Commands(unittest.TestCase):
    def fails(self, *args, words=(), code=(1,), stdin=None):
        found, out, err = xlad(*args, stdin=stdin)
        self.assertIn(found, code, err)
        lines = [line for line in err.splitlines() if line.startswith("xlad: error: ")]
        self.assertEqual(len(lines), 1, err)
        for word in words:
            self.assertIn(word, lines[0])
        return err

    def test_help_version_and_typos(self):
        code, out, _ = xlad("--help")
        self.assertEqual(code, 0)
        for command in ("up coordinator worker run submit ps logs cancel partition explain verify compile opt eval "
                        "bench simulate version").split():
            self.assertIn(command, out)
        self.assertEqual(xlad("version")[0], 0)
        self.assertEqual(xlad("--version"), xlad("version"))
        self.fails("partiton", PROGRAM, words=["did you mean partition?"], code=(2,))
        self.fails("run", JOB, "--step", "3", words=["--step", "did you mean --steps?"], code=(2,))
        self.fails("run", JOB, "--steps", "-3", words=["found -3, expected a whole number of 0 or more"], code=(2,))
        self.fails("run", JOB, "--curve", "/no/where/c.json", words=["/no/where is not a folder"], code=(2,))
        self.fails("run", JOB, "--checkpoint-every", "5x", words=["a time such as 500ms, 30s or 5m"], code=(2,))
        self.fails("run", JOB, "--checkpoint-every", "0", words=["steps of 1 or more"], code=(2,))
        self.assertIn("Usage: xlad run ", xlad("run", "--help")[1])
        self.assertEqual(xlad("explain", JOB, "--json")[1], xlad("explain", JOB, "--format", "json")[1])
        self.fails("run", code=(2,))
        self.assertEqual(xlad()[0], 2)
        for arguments, words in ((("explian",), "explian, did you mean explain?"),
                                 (("comm", "chek"), "chek of xlad comm, expected why, check"),
                                 (("ckpt", "show"), "show of xlad ckpt, expected ls, verify, export")):
            for line in ((*arguments, "--help"), ("help", *arguments)):
                self.fails(*line, words=["found unknown command " + words], code=(2,))

    def test_help_ends_with_examples_of_the_command(self):
        def check(command):
            code, out, _ = xlad(*command, "--help")
            self.assertEqual(code, 0, command)
            self.assertEqual((code, out, ""), xlad("help", *command), command)
            inner = re.findall(r"^  ([a-z]+) ", out.partition("\nSubcommands:\n")[2].partition("\n\n")[0], re.M)
            examples = re.search(r"\nExamples?:\n((?:  .*\n)+)", out)
            self.assertTrue(examples, out)
            name = " ".join(["xlad", *command])
            self.assertRegex(examples[1], rf"\b{name}\b", out)
            for other in inner if command else []:
                self.assertIn(f" {name} {other}", examples[1])
            for other in inner:
                check((*command, other))
            return len(inner)

        self.assertGreater(check(()), 30)

    def test_partition_and_explain(self):
        with folder() as where:
            for directory, manifest in job_directories():
                for mesh in manifest["meshes"]:
                    flags = ["--mesh", mesh_text(mesh["axes"])] if mesh["axes"] else []
                    code, out, err = xlad("explain", directory, *flags, "--format", "json")
                    self.assertEqual(code, 0, err)
                    explained = json.loads(out)
                    for collective in explained["collectives"]:
                        self.assertTrue(collective["because"], collective)
                        self.assertLessEqual(collective["bytes"], collective["wire_bytes"])
                    if "sent_bytes_xla" in mesh:
                        self.assertLessEqual(explained["bytes_per_device"], mesh["sent_bytes_xla"], directory.name)
                    text, proto = where / "p.hlo", where / "p.hlo.pb"
                    self.assertEqual(xlad("partition", directory, *flags, "-o", text)[0], 0)
                    self.assertEqual(xlad("partition", directory, *flags, "-o", proto)[0], 0)
                    self.assertEqual(xlad("opt", text)[1], xlad("opt", proto)[1])
                    self.assertEqual(xlad("verify", directory, *flags)[0], 0)

    def test_simulate(self):
        run = lambda *args: xlad("simulate", PROGRAM, "--format", "json", *args)
        code, out, err = run("--topology", "v5e-2x4")
        self.assertEqual(code, 0, err)
        found = json.loads(out)
        self.assertLess({"chips", "step_us", "mfu", "peak_bytes", "hbm_traffic_bytes", "units", "collectives", "links"},
                        set(found))
        self.assertEqual(found["chips"], 8)
        self.assertEqual(set(found["units"]), {"mxu", "vpu", "hbm", "ici"})
        self.assertGreater(found["step_us"], 0)
        self.assertEqual(json.loads(run("--topology", "v5e-2x4", "--assign", found["assign"])[1]), found)
        self.assertEqual(xlad("simulate", JOB, "--topology", "v5p-2x2x2", "--mesh", "dp=4,tp=2")[0], 0)
        out = xlad("simulate", PROGRAM, "--topology", "v5e-2x4")[1]
        self.assertRegex(out, r"memory [1-9][0-9.]* [kM]B of 16 GB, HBM traffic [1-9][0-9.]* [kM]B\n")
        both = json.loads(run("--topology", "v5e-2x4", "--mesh", "dp=4,tp=2", "--compare", "dp=2,tp=4")[1])["runs"]
        self.assertEqual([one["mesh"] for one in both], ["dp=4,tp=2", "dp=2,tp=4"])
        swept = json.loads(run("--topology", "v5e-2x4", "--topology", "v6e-2x4", "--mesh", "dp=1,tp=1", "--sweep")[1])
        self.assertEqual(len(swept["runs"]), 8)
        err = run("--topology", "v5e-16x32", "--mesh", "dp=32,tp=16", "--compare", "dp=16,tp=32")[2]
        self.assertEqual(err.count("found a slice of 512 chips, expected at most 256"), 1)
        slices = json.loads(run("--topology", "2xv5e-2x2")[1])
        self.assertEqual(slices["chips"], 8)
        self.assertIn("dcn", slices["units"])
        self.assertEqual([(link["dimension"], link["network"], link["chips"]) for link in slices["links"]],
                         [("x", "ici", 2), ("y", "ici", 2), ("s", "dcn", 2)])
        self.assertEqual(json.loads(run("--topology", "2xv5e-2x2", "--assign", slices["assign"])[1]), slices)
        other = JOB / "step.dp8.hlo"
        both = json.loads(run("--topology", "v5e-2x4", "--compare", other)[1])["runs"]
        self.assertEqual([one["program"] for one in both], [str(PROGRAM), str(other)])
        with folder() as where:
            trace, chip = where / "trace.json", where / "mine.toml"
            self.assertEqual(run("--topology", "v5e-2x4", "--trace", trace)[0], 0)
            self.assertTrue(json.loads(trace.read_text())["traceEvents"])
            v5e = (REPO / "deploy" / "chips" / "v5e.toml").read_text()
            chip.write_text(v5e.replace("819 GB/s", "81.9 GB/s").replace('"v5e"', '"mine"'))
            both = run("--topology", "2x4", "--chip", REPO / "deploy/chips/v5e.toml", "--chip", chip)[1]
            fast, slow = (one["units"]["hbm"] for one in json.loads(both)["runs"])
            self.assertAlmostEqual(slow / fast, 10, 6)
            self.assertIn("v5e-2x4 mine ", xlad("simulate", PROGRAM, "--topology", "v5e-2x4", "--topology", "2x4",
                                                "--chip", chip)[1])
            chip.write_text(v5e.replace("819 GB/s", "1638 GB/s"))
            table = xlad("simulate", PROGRAM, "--topology", "2x4", "--chip", REPO / "deploy/chips/v5e.toml", "--chip",
                         chip)[1]
            self.assertIn(f"2x4 v5e ({chip}) ", table)
            rows = table.splitlines()[1:3]  # Their columns are below each other, however long the paths are.
            self.assertEqual(rows[0].index("%"), rows[1].index("%"), table)
            self.assertNotIn("does not fit", table)
            chip.write_text("name = \"mine\"\n[hbm]\nrate = \"819 GB\"\n")
            self.fails("simulate", PROGRAM, "--topology", "2x4", "--chip", chip,
                       words=["mine.toml:3: hbm.rate: found \"819 GB\", expected"])
        self.fails("simulate", PROGRAM, "--topology", "v5e-4x4", words=["of 8 devices, expected as many as v5e-4x4"])
        self.fails("simulate", PROGRAM, "--topology", "v9-2x4", words=["found chip \"v9\", expected one of 7x, v2"],
                   code=(2,))
        self.fails("simulate", PROGRAM, "--topology", "v5e-2x4", "--assign", "dp=z",
                   words=["expected axes of the mesh"], code=(2,))
        self.fails("simulate", PROGRAM, "--topology", "v5e-2x4", "--sweep", words=["--mesh"], code=(2,))
        self.fails("simulate", "/no/program", "--topology", "v5e-2x4", "--mesh", "dp=1,tp=1", "--sweep",
                   words=["/no/program"])
        self.fails("simulate", PROGRAM, "--topology", "2xv2-2x2", words=["2 slices", "chip v2 has no table [dcn]"],
                   code=(2,))
        self.fails("simulate", PROGRAM, "--topology", "0xv5e-2x2", words=["several slices, such as 2xv5e-16x16"],
                   code=(2,))


    def test_simulate_with_broken_links(self):
        slice_flags = ("--topology", "v5e-4x4", "--mesh", "dp=8,tp=2")

        def simulate(*links):
            code, out, err = xlad("simulate", JOB, *slice_flags, "--format", "json",
                                  *(word for link in links for word in ("--broken-link", link)))
            self.assertEqual(code, 0, err)
            return json.loads(out)

        whole, broken = simulate(), simulate("0-1")
        self.assertGreater(broken["step_us"], 1.05 * whole["step_us"])
        self.assertGreater(broken["units"]["ici"], 1.05 * whole["units"]["ici"])
        self.assertEqual(broken["units"]["mxu"], whole["units"]["mxu"])
        carried = lambda run: sum(link["bytes"] for link in run["links"])
        self.assertGreater(carried(broken), carried(whole), "bytes take a longer route")
        self.assertEqual(simulate("1-0"), broken)
        self.fails("simulate", JOB, *slice_flags, "--broken-link", "0-1", "--broken-link", "0-4",
                   words=["broken links separate its chips", "found no route from rank 0 to rank 1"], code=(3,))
        self.fails("simulate", JOB, *slice_flags, "--broken-link", "0-5", words=["0-5", "neighboring chips"], code=(2,))
        self.fails("simulate", JOB, *slice_flags, "--broken-link", "north",
                   words=["\"north\", expected two chips such as"], code=(2,))

    def test_simulate_with_broken_chips(self):
        code, out, err = xlad("simulate", JOB, "--topology", "v5e-3x3", "--mesh", "dp=3,tp=2", "--broken-chip", 8,
                              "--broken-chip", 6, "--format", "json")
        self.assertEqual(code, 0, err)
        found = json.loads(out)
        self.assertEqual((found["topology"], found["chips"]), ("v5e-3x2 of v5e-3x3", 6))
        flags = ("--topology", "v5e-3x3", "--mesh", "dp=9")
        self.fails("simulate", JOB, *flags, "--broken-chip", 0,
                   words=["of 9 devices, expected as many as v5e-2x3 of v5e-3x3 has chips: 6"])
        self.fails("simulate", JOB, *flags, "--broken-chip", 9,
                   words=["--broken-chip on v5e-3x3: found broken chip \"9\", expected a number from 0 to 8"],
                   code=(2,))

    def test_comm_simulate_with_broken_links(self):
        def simulate(*flags):
            code, out, err = xlad("comm", "simulate", "all_reduce", "--topology", "v5e-4x4", "--bytes", "1M",
                                  "--format", "json", *flags)
            self.assertEqual(code, 0, err)
            return json.loads(out)

        whole, broken = simulate(), simulate("--broken-link", "0-1")
        self.assertEqual([(link["from"], link["to"], link["use"]) for link in broken["links"] if link["broken"]],
                         [(0, 1, 0), (1, 0, 0)])
        self.assertFalse([link for link in whole["links"] if link["broken"]])
        self.assertGreater(broken["time_us"], 1.2 * whole["time_us"])

    def test_opt_prints_every_stage_and_compile_every_form(self):
        with folder() as where:
            for directory, flags in ((JOB, []), (JOB, ["--mesh", "dp=4,tp=2"])):
                for stage in ("hlo", "propagated", "partitioned", "optimized"):
                    code, out, err = xlad("opt", directory, "--stage", stage, *flags)
                    self.assertEqual((code, out.startswith("HloModule")), (0, True), err)
                    (where / stage).write_text(out)
                self.assertEqual("all-reduce" in out, bool(flags))
                self.assertIn("fusion(", out)
                code, optimized, err = xlad("compile", directory, "--emit", "optimized", *flags)
                self.assertEqual((code, optimized), (0, out), err)
                for emit, word in (("kernels", "# xk"), ("schedules", "# xk"), ("llvm", "define"), ("asm", ".text"),
                                   ("steps", "kernel"), ("buffers", "total ")):
                    code, out, err = xlad("compile", directory, "--emit", emit, *flags)
                    self.assertEqual((code, word in out), (0, True), err)
                self.assertEqual(xlad("opt", directory, "--stage", "optimized", "--verify-only", *flags)[1], "")
            self.fails("compile", where / "partitioned", words=["already partitioned"])
            self.fails("opt", where / "partitioned", "--stage", "optimized", words=["already partitioned"])
        self.fails("opt", PROGRAM, "--stage", "propagated", "--emit", "dot", words=["--emit dot"], code=(2,))
        self.fails("opt", PROGRAM, "--stage", "optimised", words=["optimised", "optimized"], code=(2,))
        self.fails("opt", PROGRAM, "--mesh", "dp=4,tp=2", words=["--mesh requires --stage"], code=(2,))
        self.fails("opt", PROGRAM, "--stage", "hlo", "--passes", "cse", words=["--passes"], code=(2,))
        self.fails("opt", PROGRAM, "--passes", "inline-call", words=["did you mean inline-calls?"], code=(2,))
        self.fails("compile", PROGRAM, "--emit", "assembly", words=["assembly", "asm"], code=(2,))
        err = self.fails("compile", PROGRAM, "--cpu", "pentium9", words=["pentium9"])
        self.assertEqual(len(err.splitlines()), 1, err)

    def test_bad_programs(self):
        text = PROGRAM.read_text()
        cases = {
            "unknown opcode": (text.replace(" negate(", " negatee(", 1), ["negatee"]),
            "shape mismatch": (text.replace("f32[192,192]{1,0} add(", "f32[192,191]{1,0} add(", 1), ["f32[192,19"]),
            "missing computation": (re.sub(r"to_apply=%?[\w.]+", "to_apply=nosuch", text, count=1), ["nosuch"]),
            "huge shape": ("ENTRY e {\n  ROOT p = f32[8589934592,8589934592] parameter(0)\n}\n", ["8589934592"]),
            "reshape": ("ENTRY e {\n  p = f32[6] parameter(0)\n  ROOT r = f32[7] reshape(p)\n}\n", ["f32[7]"]),
            "empty": ("", []),
            "no program": ("hello\n", []),
        }
        for name, (program, words) in cases.items():
            with self.subTest(name):
                self.assertNotEqual(program, text)
                self.fails("partition", "-", words=words, stdin=program.encode())
        for name in ("unknown opcode", "missing computation", "reshape", "huge shape"):
            err = self.fails("partition", "-", stdin=cases[name][0].encode())
            self.assertRegex(err, r"\b\d+:\d+: ", name)
        self.fails("partition", PROGRAM, "--mesh", "dp=4", words=["dp", "tp"])
        self.fails("partition", PROGRAM, "--mesh", "dp=0,tp=2", words=["dp=0"], code=(2,))
        self.fails("partition", JOB / "no.hlo", words=["no.hlo"])
        self.fails("partition", PROGRAM, "-o", "/no/such/folder/x", words=["/no/such/folder"], code=(2,))

    def test_bad_job_directories(self):
        self.fails("run", "/etc", words=["/etc has no manifest.json, expected a job directory"])
        def broken(where, change):
            copy = where / "job"
            shutil.rmtree(copy, ignore_errors=True)
            shutil.copytree(JOB, copy)
            change(copy)
            return copy

        def edit(name, old, new):
            def change(copy):
                text = (copy / name).read_text()
                assert old in text, old
                (copy / name).write_text(text.replace(old, new))
            return change

        cases = [
            (edit("manifest.json", '"f32[8,192]"', '"f32[8,193]"'), ["f32[8,193]", "f32[8,192]"]),
            (edit("manifest.json", '"feeds": 3', '"feeds": 4'), ["feeds"]),
            (edit("manifest.json", '"batch": 192', '"batch": 191'), ["191"]),
            (edit("manifest.json", '"momentum.b0"', '"momentum.b9"'), ["momentum.b9"]),
            (edit("manifest.json", "{", "", ), ["manifest.json"]),
            (lambda copy: (copy / "manifest.json").write_text("[]"), ["manifest.json: found JSON of type array"]),
            (edit("step.single.hlo", "ENTRY", "ENTRY ENTRY"), []),
            (lambda copy: (copy / "state.safetensors").unlink(), ["state.safetensors"]),
            (lambda copy: (copy / "manifest.json").unlink(), ["manifest.json"]),
            (lambda copy: (copy / "state.safetensors").write_bytes(b"x" * 100), ["state.safetensors"]),
            (lambda copy: (copy / "data.safetensors").write_bytes((copy / "data.safetensors").read_bytes()[:-5]),
             ["data.safetensors"]),
            (lambda copy: (copy / "state.safetensors").write_bytes(
                (copy / "state.safetensors").read_bytes().replace(b'"F32"', b'"I32"', 1)), ["s32", "f32"]),
        ]
        with folder() as where:
            for i, (change, words) in enumerate(cases):
                with self.subTest(case=i):
                    self.fails("run", broken(where, change), "--steps", "2", words=words)
                    self.fails("verify", where / "job", words=words)

    def test_verify_names_the_first_difference(self):
        # Eight devices sum in a different order than one device, so some value differs in its last bits.
        code, out, _ = xlad("verify", JOB, "--mesh", "dp=8", "--tolerance", "0")
        self.assertEqual(code, 1)
        found = re.search(r"first difference: \S+ \([a-z-]+\) at train.py:\d+ .*expected (\S+), found (\S+)\n", out)
        self.assertTrue(found, out)
        self.assertNotEqual(found[1], found[2])
        for tolerance in ("nan", "inf", "-1", "small"):
            self.fails("verify", JOB, "--tolerance", tolerance, words=["--tolerance", f"found {tolerance}"], code=(2,))

    def test_missing_ports_files_and_coordinators(self):
        with socket.socket() as taken, folder() as where:
            taken.bind(("127.0.0.1", 0))
            taken.listen()
            address = f"127.0.0.1:{taken.getsockname()[1]}"
            self.fails("coordinator", "--listen", address, "--data", where / "d", words=[address], code=(3,))
        # An error of a local file is not a coordinator that cannot be reached, even if it may end.
        self.fails("opt", "/proc/self/mem", words=["cannot read /proc/self/mem: Input/output error"])
        with socket.socket() as silent:  # Bound, so that no other program listens on the port.
            silent.bind(("127.0.0.1", 0))
            unused = f"127.0.0.1:{silent.getsockname()[1]}"
            err = self.fails("ps", "--coordinator", unused, words=[unused, "xlad up starts one"], code=(3,))
            self.assertNotIn("--join", err)
            self.fails("ps", "--coordinator", "nowhere", words=["nowhere"], code=(2,))
            self.fails("worker", "--advertise", "a b", words=['found host "a b"'], code=(2,))
            # No name server is asked for a name with an empty label.
            self.fails("worker", "--coordinator", unused, "--listen", "no..such.host", words=["no..such.host"])
        with folder() as where:
            self.fails("ps", "--join", where / "none", words=["none"], code=(2,))
            self.fails("token", "--data", where / "d", "--role", "reader",
                       words=["listens on an address other than loopback"])
            self.fails("token", "--data", where / "d", "--list", words=["found no folder", "d, expected"])
            self.fails("token", "--data", where / "d", "--role", "root", words=["root", "operator"], code=(2,))
            for given in (("--list", "--revoke", "a"), ("--list", "--role", "reader"), ("--revoke", "a", "--days", 3),
                          ("--revoke", "a", "--format", "json"), ("--role", "reader", "--format", "table"),
                          ("--role", "reader", "--json")):
                self.fails("token", "--data", where / "d", *given, words=["cannot be used together"], code=(2,))
            self.fails("token", "--data", where / "d", "--revoke", "", words=["--revoke", "xlad token --list"],
                       code=(2,))
        self.fails("run", JOB, "--mesh", "pp=2", words=["pp=2", "dp=8"])

    def test_names_of_jobs_are_escaped_in_plots(self):
        with folder() as where:
            job = where / "job"
            shutil.copytree(JOB, job)
            manifest = json.loads((job / "manifest.json").read_text())
            manifest["name"] = 'a<b>&"c"'
            (job / "manifest.json").write_text(json.dumps(manifest))
            code, _, err = xlad("run", job, "--steps", 2, "--data", where / "data", "--plot", where / "loss.svg")
            self.assertEqual(code, 0, err)
            texts = [text.text for text in ElementTree.parse(where / "loss.svg").getroot().iter(f"{SVG}text")]
            self.assertEqual(texts[0], 'a<b>&"c": loss by step')

    def test_damaged_tokens_do_not_hide_the_others(self):
        with folder() as where:
            tokens = where / "security/tokens"
            tokens.mkdir(parents=True)
            sha = "0" * 64
            good = f"role reader\nuser ann\ncreated 1\nexpires 2\nsha256 {sha}\n"
            (tokens / "0123456789ab.token").write_text("role reader\n")
            (tokens / "abcdef012345.token").write_text(good)
            code, out, err = xlad("token", "--data", where, "--list", "--format", "json")
            self.assertEqual(code, 1, err)
            self.assertEqual([token["id"] for token in json.loads(out)], ["abcdef012345"])
            self.assertIn("0123456789ab.token is damaged", err)
            self.assertEqual(xlad("token", "--data", where, "--revoke", "0123456789ab")[0], 0)
            self.assertEqual(xlad("token", "--data", where, "--list")[0], 0)

    def test_a_coordinator_serves_without_a_home_folder(self):
        with folder() as where, mock.patch.dict(os.environ, {"HOME": os.devnull}):
            os.environ.pop("XDG_CONFIG_HOME", None)
            started = Process(where / "log", "coordinator", "--listen", "0.0.0.0:0", "--advertise", "localhost",
                              "--data", where / "data")
            self.addCleanup(started.close)
            wait_for(lambda: "the join file of this user cannot be written" in started.log(), "the warning")
            reader = where / "reader.join"
            code, _, err = xlad("token", "--data", where / "data", "--role", "reader", "--user", "rita", "-o", reader,
                                "--days", 1)
            self.assertEqual(code, 0, err)
            self.assertRegex(err, "^token [0-9a-f]{12}: role reader, user rita, valid for 1 day\n$")
            code, _, err = xlad("ps", "--join", reader)
            self.assertEqual(code, 0, err)
            listed = json.loads(xlad("token", "--data", where / "data", "--list", "--format", "json")[1])
            self.assertEqual([token["user"] for token in listed], ["rita"], "the operator's token must not exist")
            self.assertEqual(started.terminate(), 0, started.log())

    def test_connections_without_tls_to_a_coordinator_with_tls(self):
        with folder() as where, mock.patch.dict(os.environ, {"XDG_CONFIG_HOME": str(where / "config")}):
            coordinator = Process(where / "log", "coordinator", "--listen", "0.0.0.0:0", "--advertise", "localhost",
                                  "--data", where / "data")
            self.addCleanup(coordinator.close)
            join = where / "config/xlad/join"
            wait_for(join.exists, "the coordinator to write the join file of its user")
            port = join.read_text().splitlines()[1].rpartition(":")[2]
            address = f"127.0.0.1:{port}"  # The join file of the user is for localhost.
            err = self.fails("ps", "--coordinator", address, words=["expects --join FILE"], code=(3,))
            self.assertNotIn("xlad up", err)
            worker = Process(where / "worker.log", "worker", "--coordinator", address)
            self.addCleanup(worker.close)
            wait_for(lambda: "expects --join FILE" in worker.log(), "the worker to say what may be missing")
            worker.close()
            self.assertEqual(coordinator.terminate(), 0, coordinator.log())

    def test_outputs_that_cannot_be_written_are_refused_before_the_training(self):
        with folder() as where:
            for flag in ("--save-state", "--curve", "--plot", "--trace"):
                code, _, err = xlad("run", JOB, flag, where)
                self.assertEqual(code, 2, err)
                self.assertIn(f"{flag}: cannot write {where}: it is a folder", err)
            (where / "file").write_text("")
            code, _, err = xlad("run", JOB, "--data", where / "file")
            self.assertEqual(code, 1, err)
            self.assertIn(f"cannot make folder {where}/file: Not a directory", err)
            with mock.patch.dict(os.environ, TMPDIR=str(where / "file")):
                self.fails("run", JOB, words=[f'TMPDIR: found "{where}/file", which is not a folder'])
            for flag, value in (("--cache", where / "file/cache"), ("--checkpoint-to", f"file:{where}/file/kept")):
                code, _, err = xlad("run", JOB, flag, value)
                self.assertEqual(code, 1, err)
                self.assertIn(f"{flag}: cannot make folder {where}/file", err)

    def test_an_output_that_cannot_be_written_does_not_prevent_the_others(self):
        with folder() as where:
            run = ("run", JOB, "--steps", 1, "--data", where / "data")
            code, _, err = xlad(*run, "--curve", "/dev/full", "--plot", "/dev/full", "--trace", where / "trace.json",
                                "--save-state", where / "state")
            self.assertEqual(code, 1, err)
            for flag in ("--curve", "--plot"):
                self.assertIn(f"xlad: error: {flag}: cannot write /dev/full: No space left on device", err)
            self.assertTrue(json.loads((where / "trace.json").read_text())["traceEvents"])
            state = (where / "state").read_bytes()
            code, _, err = xlad(*run, "--curve", where / "curve.json", "--save-state", "/dev/full")
            self.assertEqual(code, 1, err)
            self.assertEqual(len(json.loads((where / "curve.json").read_text())["loss"]), 1)
            found = re.search("--save-state: cannot write to /dev/full: No space left on device; the coordinator has "
                              f"the state: xlad coordinator --data {where}/data, then xlad ckpt export "
                              "(job-[0-9a-f]+) ", err)
            self.assertTrue(found, err)
            with contextlib.closing(Cluster(where, 0, 1)) as made:
                code, _, err = xlad("ckpt", "export", found[1], "--to", where / "kept", "--coordinator", made.address)
                self.assertEqual(code, 0, err)
            self.assertEqual((where / "kept").read_bytes(), state)

    def test_values_of_flags_are_refused_with_what_is_expected(self):
        size = "expected a number of bytes, or a size such as 500MB or 2GB"
        for arguments, words in (
                (("run", JOB, "--memory-limit", "-5"), f"--memory-limit: found -5, {size}"),
                (("run", JOB, "--memory-limit", "foo"), f"--memory-limit: found foo, {size}"),
                (("run", JOB, "--memory-limit", ""), f"--memory-limit: found nothing, {size}"),
                (("run", JOB, "--workers", "two"), "--workers: found two, expected a whole number from 1 to 1024"),
                (("run", JOB, "--steps", "1.5"), "--steps: found 1.5, expected a whole number of 0 or more"),
                (("run", JOB, "--mode", "exact"), "--mode: found exact, expected run-to-run, canonical or fast"),
                (("run", JOB, "--schedules", "/none"), "--schedules: there is no file /none"),
                (("run", JOB, "--device"), "--device: found no value, expected KIND"),
                (("run", JOB, "--profile", "--workers", 2), "--workers and --profile cannot be used together"),
                (("run", JOB, "--checkpoint-to", "/tmp/x"),
                 '--checkpoint-to: found "/tmp/x", expected "xlad:", or file: and the'),
                (("tune", JOB, "--budget", "5"), "--budget: found 5, expected a time such as 500ms, 60s or 5min"),
                (("tune", JOB, "--budget", "-5s"), "--budget: found -5s, expected a time"),
                (("tune", JOB, "-o", "-"), "found -, expected the name of a file"),
                (("chaos", JOB, "--seed", "x"), "--seed: found x, expected a number"),
                (("chaos", JOB, "--minutes", "0"), "--minutes: found 0, expected a number above 0"),
                (("eval", PROGRAM, "--atol", "-1"), "--atol: found -1, expected a number of 0 or more"),
                (("run", JOB, "--resume", ""), "--resume: found nothing, expected a value"),
                (("run", JOB, "--save-state", ""), "--save-state: found nothing, expected the name of a file"),
                (("run", JOB, "--steps", "1", "--steps", "2"), "--steps: found 2 values, expected one"),
                (("run", JOB, "--curve", "x", "--save-state", "./x"),
                 "--save-state: found ./x, expected an output other than that of --curve"),
                (("run", JOB, "--profile", "--checkpoint-to", "file:/x"), "cannot be used together"),
                (("submit", JOB, "--key", ""), "--key: found nothing, expected a value"),
                (("backup", ""), "DIR: found nothing, expected a value"),
                (("restore", "x", "--data", ""), "--data: found nothing, expected a value"),
                (("coordinator", "--listen", "nowhere"), '--listen: found address "nowhere", expected HOST:PORT'),
                (("up", "--http", "127.0.0.1:99999"), '--http: found address "127.0.0.1:99999", expected HOST:PORT'),
                (("ckpt",), "found no command after xlad ckpt, expected ls, verify, export"),
                (("ckpt", "show"), "found unknown command show of xlad ckpt, expected ls, verify, export"),
                (("ckpt", "ls", "a", "b"), "found extra argument b\nTry: xlad ckpt ls --help"),
                (("explain", JOB, "--mesh", "dp"), '--mesh: found mesh "dp", expected AXIS=SIZE'),
                (("simulate", PROGRAM, "--topology", "v5e-2x4", "--compare", "dp"),
                 '--compare: found "dp", expected a file that exists, or a mesh'),
                (("run", JOB, "--transport", "udp"), "--transport: found udp, expected "),
                (("run", JOB, "--transport", "in-process", "--workers", 2), "found 2 workers, expected 1"),
                (("run", JOB, "--workers", 3, "--devices", 2),
                 "--workers: found 3, expected at most 2, because each worker needs one of the devices in --device"),
                (("run", JOB, "--mesh", "dp=2", "--workers", 4, "--device", "cpu:2,opaque:1"),
                 "--workers: found 4, expected at most 3"),
                (("compile", PROGRAM, "--target", "tpu"), '--target: found "tpu", expected one of nvptx-sm_80'),
                (("compile", PROGRAM, "--emit", "ptx"), "--emit ptx: found no --target, expected one of the GPUs"),
                (("compile", PROGRAM, "-o", "/none/x"), "-o: cannot write /none/x: /none is not a folder"),
                (("comm", "check", "all_reduc", "--ranks", 2), 'found collective "all_reduc"'),
                (("comm", "check", "all_reduce", "--ranks", 2, "--op", "mean"), "mean"),
                (("comm", "schedule", "all_reduce", "--ranks", 2, "--algorithm", "rng"), "rng"),
                (("comm", "schedule", "all_reduce", "--ranks", 2, "--rank", 2), "--rank: found 2, expected 0 to 1"),
                (("comm", "simulate", "all_reduce", "--topology", "v5e"), "v5e"),
                (("comm", "simulate", "all_reduce", "--topology", "v5e-2x2", "--broken-link", "a"),
                 "--broken-link: found a, expected two chips such as"),
                (("resize", "job"), "found neither --mesh nor --devices, expected --mesh"),
                (("token",), "found no --role, expected reader, submitter, worker or operator"),
                (("config", "--of", "traain"), "--of: found command traain"),
                (("up", "--workers", 2, "--devices", "1,2,3"), "--devices: found 3 numbers, expected one"),
                (("coordinator", "--lost-ms", 200, "--suspect-ms", 3000),
                 "found --lost-ms 200 below --suspect-ms 3000"),
                (("up", "--lost-ms", 200, "--suspect-ms", 3000), "found --lost-ms 200 below --suspect-ms 3000"),
                (("bench", "--device", "cpu:999"), "--device: found 999 devices, expected "),
                (("bench", "--mode", "exact"), '--mode: found "exact", expected one of fast'),
                (("top", "--format", "json"), "--format: found json without --once"),
                (("eval",), "found no program, expected PROGRAM or --corpus DIR"),
                (("run", JOB, "--check-numerics"), "--check-numerics: found --executor compiled, expected op-by-op"),
                (("submit", JOB, "--check-numerics"), "--check-numerics: found --executor compiled"),
                (("run", JOB, "--mesh", "dp=8", "--devices", 2), "--device: found cpu:2, expected 8 or more devices"),
                (("run", JOB, "--mesh", "dp=8", "--mode", "canonical", "--devices", 3), "or a number that divides 8"),
                (("run", JOB, "--profile", "--device", "cpu:1,opaque:1"), "expected one kind of device"),
                (("coordinator", "--tls-cert", "x"), "found only one of --tls-cert and --tls-key"),
                (("coordinator", "--listen", "0.0.0.0:0", "--tls-cert", "x", "--tls-key", "y"),
                 "found --tls-cert without --token-file"),
                (("token", "--role", "reader", "--user", "Alice"), "--user: found Alice, expected 1 to 32 characters"),
                (("coordinator", "--lost-ms", 2**62), "--lost-ms: found 4611686018427387904, expected a whole number"),
                (("worker", "--grace-ms", 2**62), "--grace-ms: found 4611686018427387904, expected a whole number"),
                (("tune", JOB, "--budget", "9000000000000000ms"), "--budget: found 9000000000000000ms, expected a t"),
                (("ps", "--config"), "found --config without a file"),
                (("ps", "--config="), "found --config without a file"),
                (("comm", "check", "--rank", "4"), "found unknown flag --rank, did you mean --ranks?")):
            with self.subTest(arguments=arguments):
                code, _, err = xlad(*arguments)
                self.assertEqual(code, 2, err)
                self.assertIn(words, err)

    # Flags whose value may be any name or path. What it names is looked up when the command runs.
    ANY_VALUE = {"join", "tls-ca", "token-file", "tls-cert", "tls-key", "data", "cache", "id", "key", "resume",
                 "shrink-axes", "cpu", "dump", "inputs", "expected", "expected-failures", "corpus", "revoke"}
    # Flags whose value depends on other arguments, which are given here.
    WITH_ARGUMENTS = {
        "compile": {"target": (PROGRAM,)},
        "opt": {"passes": (PROGRAM,)},
        "bench": {key: ("all_reduce",) for key in ("datatype", "op", "algorithm", "mode")},
        "comm.check": {key: ("all_reduce", "--ranks", 2) for key in ("op", "algorithm")},
        "comm.schedule": {key: ("all_reduce", "--ranks", 2) for key in ("op", "algorithm")},
        "comm.simulate": {"topology": ("all_reduce",)} | {
            key: ("all_reduce", "--topology", "v5e-2x2") for key in ("op", "algorithm", "broken-link")},
        "simulate": {"topology": (PROGRAM,)} | {
            key: (PROGRAM, "--topology", "v5e-2x4") for key in ("assign", "broken-chip", "broken-link", "compare")},
        "config": {"of": ()},
    }

    def test_every_flag_refuses_a_wrong_value(self):
        wrong = "/none/?:x"
        checked = 0
        for setting in json.loads(xlad("config", "--format", "json")[1]):
            section, key = setting["section"], setting["key"]
            arguments = self.WITH_ARGUMENTS.get(section, {}).get(key)
            if arguments is None and (key in self.ANY_VALUE or (section, key) == ("comm.check", "schedules")):
                continue
            # The flags are checked before the help is printed, so that no daemon starts.
            line = [*section.split("."), *(("--help",) if arguments is None else arguments), f"--{key}={wrong}"]
            with self.subTest(line=line):
                code, out, err = xlad(*line, timeout=60)
                self.assertEqual(code, 2, out + err)
                self.assertTrue(wrong in err or f"--{key}" in err, err)
            checked += 1
        self.assertGreater(checked, 200)

    def test_contradictions_with_a_launcher_are_wrong_usage(self):
        ranks = {"PMI_RANK": "1", "PMI_SIZE": "2", "MPI_LOCALRANKID": "1", "MPI_LOCALNRANKS": "2"}
        for launcher, arguments, words in (
                ("MPICH", ("run", JOB, "--transport", "mpi"), "--transport mpi: found a launch by MPICH"),
                ("MPICH", ("run", JOB, "--devices", 1), "found 2 ranks of MPICH for 1 device"),
                ("MPICH", ("bench", "--device", "cpu:1", "--transport", "in-process"),
                 "--transport in-process: MPICH has started processes"),
                ("MPICH", ("bench", "--device", "cpu:1", "--transport", "shm", "--meet", "."), "--meet: found")):
            with self.subTest(arguments=arguments), mock.patch.dict(os.environ, ranks):
                code, _, err = xlad(*arguments, timeout=60)
                self.assertEqual(code, 2, err)
                self.assertIn(words, err)

    def test_bytes_of_files_are_not_printed(self):
        with folder() as where:
            (where / "binary").write_bytes(bytes(range(7)) + b"\x1b[2J" + bytes(1000))
            for arguments in (("comm", "check", "--schedules", where / "binary"),
                              ("run", JOB, "--schedules", where / "binary")):
                code, _, err = xlad(*arguments)
                self.assertEqual(code, 1, err)
                self.assertIn('found "\\x00\\x01', err)
                self.assertLess(len(err), 400)
                self.assertFalse([c for c in err if ord(c) < 32 and c != "\n"], err)

    def test_mutants_give_one_error_or_a_program(self):
        seed = random.Random(1)
        text = PROGRAM.read_bytes()
        proto = (JOB / "step.dp4_tp2.hlo.pb").read_bytes()
        for i in range(60):
            mutant = bytearray(seed.choice((text, proto)))
            for _ in range(seed.choice((1, 1, 3, 20))):
                mutant[seed.randrange(len(mutant))] = seed.randrange(256)
            if i % 3 == 0:
                del mutant[seed.randrange(len(mutant)):]
            code, _, err = xlad("partition", "-", stdin=bytes(mutant))
            self.assertIn(code, (0, 1), f"mutant {i}: {err}")
            if code == 1:
                self.assertEqual(sum(line.startswith("xlad: error: ") for line in err.splitlines()), 1, err)


if __name__ == "__main__":
    unittest.main()
