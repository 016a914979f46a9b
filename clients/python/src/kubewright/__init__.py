"""A Kubernetes cluster for tests: the process that `kubewright cluster` is, started in milliseconds, with nothing to
download.

`Cluster` is the context manager; the pytest plugin that comes with the package has the fixtures `cluster`, `namespace`
    and `own_cluster`.

Nothing but the standard library is needed. Not here: anything that the cluster itself does.
"""

from kubewright._cluster import Cluster
from kubewright._errors import ApiError, ClusterError

__all__ = ["ApiError", "Cluster", "ClusterError"]
__version__ = "0.1.0"
