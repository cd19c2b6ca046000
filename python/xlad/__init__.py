"""Client of the xlad training daemon.

    with xlad.local(devices=8) as cluster:
        run = cluster.train(step, state, data, steps=100, batch=32, mesh={"dp": 8}, in_shardings=(None, P("dp")))
        for step in run:
            print(step.step, step.loss)
        state = run.result()
"""

from xlad.cluster import Cluster, Worker, connect
from xlad.errors import Error
from xlad.export import export
from xlad.jitted import Jitted
from xlad.local import LocalCluster, local
from xlad.run import Run, Status, Step
from xlad.session import RemoteArray, fetch

__all__ = ["Cluster", "Error", "Jitted", "LocalCluster", "RemoteArray", "Run", "Status", "Step", "Worker", "connect",
           "export", "fetch", "local"]
