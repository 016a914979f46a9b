"""The other side of test_the_cluster_ends_with_its_owner: starts a cluster, says where it is, and ends in some way."""

import os
import sys

from kubewright import Cluster

cluster = Cluster().start()
print(cluster.kubeconfig, flush=True)
sys.stdin.readline()
if sys.argv[1] == "exit":
    os._exit(3)
raise RuntimeError("as a script may")
