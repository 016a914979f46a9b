# a deployment becomes available
printf 'apiVersion: apps/v1\nkind: Deployment\nmetadata:\n  name: web\nspec:\n  replicas: 2\n  selector:\n    matchLabels: {app: web}\n  template:\n    metadata:\n      labels: {app: web}\n    spec:\n      containers:\n      - {name: c, image: "img:1"}\n' > web.yaml
kubectl apply -f web.yaml
kubectl rollout status deployment/web --timeout=20s | sed -n "\$p"
kubectl wait --for=condition=Available deployment/web --timeout=20s
kubectl get deployments
kubectl get replicasets
kubectl get pods -o wide --no-headers | awk '{print $2, $3, $4, $7}'
kubectl get nodes --no-headers | awk '{print $2}'
# a rollout
kubectl set image deployment/web c=img:2
kubectl rollout status deployment/web --timeout=20s | sed -n "\$p"
kubectl get pods -o jsonpath='{.items[*].spec.containers[*].image}'
# scaling
kubectl scale deployment web --replicas=3
kubectl wait --for=jsonpath='{.status.readyReplicas}'=3 deployment/web --timeout=20s
# children go with their owner
kubectl delete deployment web
@until No resources found
kubectl get pods,replicasets
# a namespace goes with its content
kubectl create namespace gone
kubectl create configmap a -n gone
kubectl delete namespace gone --timeout=20s
kubectl get namespace gone
