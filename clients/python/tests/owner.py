"""The other side of test_the_cluster_ends_with_its_owner: starts a cluster, says where it is, and ends in some way."""

import os
import signal
import sys

from kubewright import Cluster

# A shell that is not interactive starts its background commands with SIGINT ignored, and children inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)

cluster = Cluster().start()
print(cluster.kubeconfig, flush=True)
sys.stdin.readline()
if sys.argv[1] == "exit":
    os._exit(3)
raise RuntimeError("as a script may")
