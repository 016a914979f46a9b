# what is served
kubectl api-resources
kubectl api-versions
kubectl api-resources --api-group=apps -o name
kubectl version -o json | grep -c gitVersion
kubectl cluster-info | sed -n 1,1p
# what fields mean
kubectl explain deployment.spec.replicas
kubectl explain configmap | sed -n 1,12p
kubectl explain pod.spec.containers.ports --recursive | sed -n 1,20p
kubectl explain deployment.spec.nothing
