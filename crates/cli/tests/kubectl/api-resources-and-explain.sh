# what is served
kubectl api-resources
kubectl api-versions
kubectl api-resources --api-group=apps -o name
kubectl version -o json | grep -c gitVersion
kubectl cluster-info | head -n 1
# what fields mean
kubectl explain deployment.spec.replicas
kubectl explain configmap | head -n 12
kubectl explain pod.spec.containers.ports --recursive | head -n 20
kubectl explain deployment.spec.nothing
