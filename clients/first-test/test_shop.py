import json
import os
import subprocess

from kubernetes import client, config


def test_a_config_map_is_what_was_created():
    # Without the package, whose client reads kubewright's kubeconfigs alone; an API server without controllers, as envtest's.
    arguments = [os.environ["KUBEWRIGHT"], "cluster", "--controllers", "none", "--output", "json"]
    with subprocess.Popen(arguments, stdout=subprocess.PIPE) as cluster:
        kubeconfig = json.loads(cluster.stdout.readline())["kubeconfig"]
        core = client.CoreV1Api(config.new_client_from_config(kubeconfig))
        body = {"metadata": {"generateName": "prices-"}, "data": {"apple": "3"}}
        created = core.create_namespaced_config_map("default", body)
        assert core.read_namespaced_config_map(created.metadata.name, "default").data == {"apple": "3"}
        cluster.terminate()
