"""The fixtures, with the wheel and pytest and nothing else."""


def test_a_cluster_and_a_namespace(cluster, namespace):
    assert cluster.kubeconfig.exists() and namespace.startswith("test-a-cluster")


def test_a_cluster_of_its_own(cluster, own_cluster):
    assert cluster.address != own_cluster.address
