# names, kinds, files
kubectl get nothing
kubectl get cm nothing
kubectl create configmap Bad_Name
kubectl create configmap a -n nowhere
printf 'apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata: {n: 1}\n' | kubectl create -f -
printf 'apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndat: {}\n' | kubectl create -f -
printf 'apiVersion: v1\nkind: Nothing\nmetadata: {name: a}\n' | kubectl create -f -
printf '{"apiVersion": "v1", ' | kubectl create -f -
printf 'apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: web}\nspec:\n  selector: {matchLabels: {a: b}}\n  template:\n    metadata: {labels: {a: c}}\n    spec: {containers: [{name: c, image: i}]}\n' | kubectl create -f -
# conflicts
kubectl create configmap a
kubectl create configmap a
kubectl patch cm a --type=merge -p '{"metadata":{"resourceVersion":"1"},"data":{"a":"b"}}'
kubectl patch cm a --type=json -p '[{"op":"remove","path":"/data/none"}]'
kubectl delete namespace default
# what is not there says so
kubectl logs nothing
kubectl get --raw /apis/nothing/v1
