"""A cluster with the wheel alone: no client, no pytest, and no folder of commands on the PATH."""

import os
import sys

from kubewright import Cluster
from kubewright._process import find_program

assert find_program(None).startswith(sys.prefix + os.sep), find_program(None)
with Cluster() as cluster, cluster.namespace("shop") as namespace:
    assert namespace.startswith("shop-") and cluster.events(namespace) == []
