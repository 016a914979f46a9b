# apply
printf 'apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: a\ndata:\n  one: "1"\n  two: "2"\n' > cm.yaml
kubectl apply -f cm.yaml
kubectl apply -f cm.yaml
sed -i 's/two: "2"/three: "3"/' cm.yaml
kubectl diff -f cm.yaml | grep '^[-+] '
kubectl apply -f cm.yaml
kubectl get cm a -o jsonpath='{.data}'
printf 'apiVersion: apps/v1\nkind: Deployment\nmetadata:\n  name: web\nspec:\n  replicas: 2\n  selector:\n    matchLabels: {app: web}\n  template:\n    metadata:\n      labels: {app: web}\n    spec:\n      containers:\n      - {name: c, image: "img:1"}\n      - {name: d, image: "img:1"}\n' > web.yaml
kubectl apply -f web.yaml
sed -i 's/replicas: 2/replicas: 3/; s/name: c, image: "img:1"/name: c, image: "img:2"/' web.yaml
kubectl apply -f web.yaml
kubectl get deployment web -o jsonpath='{.spec.replicas} {.spec.template.spec.containers[*].image}'
kubectl set image deployment/web d=img:9
kubectl get deployment web -o jsonpath='{.spec.template.spec.containers[*].image}'
# a list of objects in one file
printf 'apiVersion: v1\nkind: List\nitems:\n- {apiVersion: v1, kind: ConfigMap, metadata: {name: first}}\n- {apiVersion: v1, kind: ConfigMap, metadata: {name: second}, dat: {}}\n' > list.yaml
kubectl apply -f list.yaml
sed -i 's/, dat: {}//' list.yaml
kubectl apply -f list.yaml
kubectl delete -f list.yaml
# server-side apply
printf 'apiVersion: v1\nkind: ConfigMap\nmetadata: {name: owned}\ndata: {one: "1", two: "2"}\n' > owned.yaml
kubectl apply --server-side -f owned.yaml
kubectl apply --server-side -f owned.yaml
sed 's/"1"/"uno"/' owned.yaml > other.yaml
kubectl apply --server-side --field-manager=other -f other.yaml
kubectl apply --server-side --field-manager=other --force-conflicts -f other.yaml
kubectl get cm owned -o jsonpath='{.data} {.metadata.managedFields[*].manager}'
# create
kubectl create namespace other
kubectl create secret generic s --from-literal=password=x -n other
kubectl create serviceaccount robot
kubectl create -f cm.yaml
printf 'apiVersion: v1\nkind: ConfigMap\nmetadata: {generateName: gen-}\n' | kubectl create -f -
kubectl create configmap dry --from-literal=a=b --dry-run=server -o name
kubectl get cm dry
# edit
EDITOR='sed -i s/three:/four:/' kubectl edit cm a
EDITOR=true kubectl edit cm a
kubectl get cm a -o jsonpath='{.data}'
# patch
kubectl patch cm a --type=merge -p '{"data":{"four":null,"five":"5"}}'
kubectl patch cm a --type=json -p '[{"op":"replace","path":"/data/one","value":"uno"}]'
kubectl patch deployment web -p '{"spec":{"template":{"spec":{"containers":[{"name":"c","image":"img:3"}]}}}}'
kubectl get deployment web -o jsonpath='{.spec.template.spec.containers[*].image}'
# label and annotate
kubectl label cm a color=red
kubectl label cm a color=blue
kubectl label cm a color=blue --overwrite
kubectl annotate cm a note='some words'
kubectl label cm a color-
kubectl get cm a -o jsonpath='{.metadata.labels}{.metadata.annotations.note}'
# scale
kubectl scale deployment web --replicas=5
kubectl scale deployment web --current-replicas=4 --replicas=1
kubectl get deployment web
# replace and delete
kubectl replace -f cm.yaml
kubectl delete -f cm.yaml
kubectl delete deployment web --wait=false
kubectl delete cm --all
kubectl delete cm nothing --ignore-not-found
kubectl get cm
