"""Trains a model that is larger than the memory of the coordinator, saves its state and resumes it.

The coordinator's data (RLIMIT_DATA) is limited to 128 MB. The size of the state is XLAD_MODEL_MB (default 384). Prints
the peak of the coordinator's resident memory, which includes its program file.
"""

import contextlib
import json
import os
import pathlib
import resource
import struct
import subprocess
import time
import unittest

from harness import XLAD, Cluster, cluster, folder, xlad

MODEL_MB = int(os.environ.get("XLAD_MODEL_MB", "384"))
LIMIT_MB = 128
STACK_BYTES = 1 << 20  # The limit counts the full stack size of each thread, although little of it is used.
MOST_RESIDENT_MB = 200
CLIENT_MODEL_MB = 192
MOST_CLIENT_MB = 160  # Includes its program file.
TENSORS = 8
COLUMNS = 4096

MODULE = """HloModule large, frontend_attributes={{xla.sdy.meshes={{mesh = #sdy.mesh<["dp"=8]>}}}}

ENTRY %main ({signature}, s: s32[]) -> ({results}, f32[]) {{
  %s = s32[] parameter({count})
  %loss = f32[] convert(%s)
  %one = f32[] constant(1)
  %ones = {shape} broadcast(%one), dimensions={{}}
{lines}
  ROOT %out = ({results}, f32[]) tuple({values}, %loss)
}}
"""
SHARDING = 'frontend_attributes={xla.sdy.sharding="#sdy.sharding<@mesh, [{\\"dp\\"}, {}]>"}'


def write_job(where, rows):
    """Writes a job whose state is TENSORS matrices, to which each step adds 1."""
    shape = f"f32[{rows},{COLUMNS}]"
    names = [f"w{i}" for i in range(TENSORS)]
    lines = []
    for i, name in enumerate(names):
        lines.append(f"  %{name} = {shape} parameter({i}), {SHARDING}")
        lines.append(f"  %next{i} = {shape} add(%{name}, %ones)")
    program = MODULE.format(signature=", ".join(f"{name}: {shape}" for name in names),
                            results=", ".join([shape] * TENSORS), count=TENSORS, shape=shape, lines="\n".join(lines),
                            values=", ".join(f"%next{i}" for i in range(TENSORS)))
    state = [{"index": i, "name": name, "shape": shape, "kind": "state"} for i, name in enumerate(names)]
    manifest = {
        "name": "large", "steps": 1,
        "parameters": [*state, {"index": TENSORS, "name": "step", "shape": "s32[]", "kind": "step"}],
        "results": [*({**entry, "feeds": entry["index"]} for entry in state),
                    {"index": TENSORS, "name": "loss", "shape": "f32[]", "kind": "loss"}],
        "meshes": [{"name": "dp8", "axes": {"dp": 8}, "files": ["step.hlo"]}],
    }
    (where / "step.hlo").write_text(program)
    (where / "manifest.json").write_text(json.dumps(manifest))
    row_bytes = 4 * COLUMNS
    header = json.dumps({name: {"dtype": "F32", "shape": [rows, COLUMNS],
                                "data_offsets": [i * rows * row_bytes, (i + 1) * rows * row_bytes]}
                         for i, name in enumerate(names)}).encode()
    with open(where / "state.safetensors", "wb") as file:
        file.write(struct.pack("<Q", len(header)) + header)
        for i in range(TENSORS):
            for row in range(rows):
                file.write(row_of(i, row, 0))


def row_of(tensor, row, steps):
    """Returns the bytes of a row after `steps` steps."""
    first = float(tensor + row % 1000 + steps)
    return struct.pack("<4f", first, first + 1, first + 2, first + 3) * (COLUMNS // 4)


def check_state(test, path, rows, steps):
    with open(path, "rb") as file:
        size = struct.unpack("<Q", file.read(8))[0]
        header = json.loads(file.read(size))
        for i in range(TENSORS):
            begin, end = header[f"w{i}"]["data_offsets"]
            test.assertEqual(end - begin, rows * 4 * COLUMNS)
            for row in range(rows):
                file.seek(8 + size + begin + row * 4 * COLUMNS)
                if file.read(4 * COLUMNS) != row_of(i, row, steps):
                    test.fail(f"w{i}, row {row}: found other values, expected those after {steps} steps")


def memory_mb(pid, field):
    line = next(line for line in pathlib.Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith(field))
    return int(line.split()[1]) / 1024


class LimitedCluster(Cluster):
    def start_coordinator(self):
        stack = resource.getrlimit(resource.RLIMIT_STACK)
        resource.setrlimit(resource.RLIMIT_STACK, (STACK_BYTES, stack[1]))
        try:
            super().start_coordinator()
        finally:
            resource.setrlimit(resource.RLIMIT_STACK, stack)
        limit = LIMIT_MB << 20
        resource.prlimit(self.coordinator.pid, resource.RLIMIT_DATA, (limit, limit))


class Memory(unittest.TestCase):
    def test_a_model_larger_than_the_coordinator(self):
        rows = MODEL_MB * (1 << 20) // (TENSORS * 4 * COLUMNS)
        with folder() as data, folder() as where, contextlib.closing(LimitedCluster(data, 4, 2)) as made:
            idle = memory_mb(made.coordinator.pid, "VmHWM")
            write_job(where, rows)
            start = time.monotonic()
            saved = where / "saved.safetensors"
            job_id = self.train(made, where, "--steps", "4", "--checkpoint-every", "2", "--save-state", saved)
            trained = time.monotonic() - start
            resumed = self.train(made, where, "--steps", "7", "--resume", job_id, "--save-state", saved)
            code, _, err = xlad("ckpt", "verify", resumed, "--coordinator", made.address)
            self.assertEqual(code, 0, err)
            check_state(self, saved, rows, 7)
            peak = memory_mb(made.coordinator.pid, "VmHWM")
            print(f"model {MODEL_MB} MB, limit of the coordinator's data {LIMIT_MB} MB: trained and saved in "
                  f"{trained:.1f} s, resumed, saved and verified in {time.monotonic() - start - trained:.1f} s; "
                  f"coordinator {idle:.0f} MB before, {peak:.0f} MB at its peak", flush=True)
            self.assertLess(peak, MOST_RESIDENT_MB)

    def test_a_client_does_not_read_the_state_into_memory(self):
        """The state is uploaded in parts, or a folder of files that the workers read themselves."""
        rows = CLIENT_MODEL_MB * (1 << 20) // (TENSORS * 4 * COLUMNS)
        with folder() as where, cluster(workers=2, devices=4) as made:
            write_job(where, rows)
            shards = where / "shards"
            shards.mkdir()
            (where / "state.safetensors").rename(shards / "0.safetensors")
            by_uri = self.submit_mb(made, where, "--state-uri", f"file:{shards}", "--save-state", where / "by_uri")
            (shards / "0.safetensors").rename(where / "state.safetensors")
            uploaded = self.submit_mb(made, where, "--save-state", where / "uploaded")
            print(f"clients: {by_uri:.0f} MB with a URI, {uploaded:.0f} MB with an upload", flush=True)
            self.assertLess(max(uploaded, by_uri), MOST_CLIENT_MB)
            for name in ("by_uri", "uploaded"):
                check_state(self, where / name, rows, 1)

    def submit_mb(self, made, where, *args):
        """Submits a job, waits for its end, and returns the largest resident memory of the client."""
        client = subprocess.Popen([XLAD, "submit", where, "--mesh", "dp=8", "--wait", "--coordinator", made.address,
                                   *args], stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        with client:
            said = client.stdout.read().decode()
            _, status, usage = os.wait4(client.pid, 0)
            client.returncode = os.waitstatus_to_exitcode(status)
        self.assertEqual(client.returncode, 0, said)
        return usage.ru_maxrss / 1024

    def train(self, made, where, *args):
        """Trains the job to its end and returns its id."""
        code, out, err = xlad("submit", where, "--mesh", "dp=8", "--wait", "--coordinator", made.address, *args)
        self.assertEqual(code, 0, err + made.coordinator.log()[-2000:])
        job = made.job(out.split()[0])
        self.assertEqual((job["state"], job["attempt"]), ("SUCCEEDED", 1), job)
        return job["id"]


if __name__ == "__main__":
    unittest.main()
