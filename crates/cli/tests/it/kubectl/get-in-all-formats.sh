# some objects
kubectl create configmap a --from-literal=k=v
kubectl create configmap b --from-literal=k=w
kubectl label configmap a color=red
# tables
kubectl get configmaps
kubectl get cm a -o wide
kubectl get cm --show-labels
kubectl get cm -L color
kubectl get cm -l color=red
kubectl get cm -l 'color in (red),!size' -o name
kubectl get cm --field-selector metadata.name=b
kubectl get cm --sort-by=.metadata.name --no-headers
kubectl get cm,secrets -A
kubectl get namespaces
kubectl get services
# documents
kubectl get cm a -o yaml
kubectl get cm a -o json
kubectl get cm -o jsonpath='{.items[*].metadata.name}'
kubectl get cm a -o go-template='{{.data.k}}'
kubectl get cm -o custom-columns=NAME:.metadata.name,K:.data.k
kubectl get --raw /healthz
kubectl get --raw /api/v1/namespaces/default/configmaps/a | cut -c 1-40
# pages
kubectl get cm --chunk-size=1 -o name
# watching
kubectl get cm -w --request-timeout=1s -o name
