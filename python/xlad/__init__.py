"""Client of the xlad training daemon.

    with xlad.local(devices=8) as cluster:
        run = cluster.train(step, state, data, steps=100, batch=32, mesh={"dp": 8}, in_shardings=(None, P("dp")))
        for step in run:
            print(step.step, step.loss)
        state = run.result()
"""

from xlad.cluster import Cluster, Worker, connect
from xlad.commands import explain, verify
from xlad.errors import Error
from xlad.export import export
from xlad.jitted import Jitted
from xlad.local import LocalCluster, local
from xlad.lowered import Compiled, Lowered
from xlad.remote_array import RemoteArray, RemoteDevice, fetch
from xlad.run import Checkpoint, Evaluation, Run, Status, Step

__version__ = "0.1.0"

__all__ = ["Checkpoint", "Cluster", "Compiled", "Error", "Evaluation", "Jitted", "LocalCluster", "Lowered",
           "RemoteArray", "RemoteDevice", "Run", "Status", "Step", "Worker", "connect", "explain", "export", "fetch",
           "local", "verify"]
