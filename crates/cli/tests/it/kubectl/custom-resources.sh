# a definition
printf 'apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\nmetadata: {name: books.example.com}\nspec:\n  group: example.com\n  scope: Namespaced\n  names: {plural: books, singular: book, kind: Book, shortNames: [bk]}\n  versions:\n  - name: v1\n    served: true\n    storage: true\n    subresources:\n      status: {}\n      scale: {specReplicasPath: .spec.copies, statusReplicasPath: .status.copies}\n    additionalPrinterColumns:\n    - {name: Title, type: string, jsonPath: .spec.title}\n    - {name: Copies, type: integer, jsonPath: .spec.copies}\n    schema:\n      openAPIV3Schema:\n        type: object\n        description: A book.\n        properties:\n          spec:\n            type: object\n            required: [title]\n            properties:\n              title: {type: string, maxLength: 20, description: What is on the cover.}\n              copies: {type: integer, minimum: 0, default: 1}\n          status:\n            type: object\n            properties:\n              copies: {type: integer}\n' > crd.yaml
kubectl apply -f crd.yaml
kubectl wait --for=condition=Established crd/books.example.com
kubectl get crd
kubectl api-resources --api-group=example.com
kubectl explain book.spec.title
# objects
printf 'apiVersion: example.com/v1\nkind: Book\nmetadata: {name: one}\nspec: {title: One}\n' | kubectl apply -f -
kubectl get books
kubectl get bk one -o yaml
kubectl scale book one --replicas=4
kubectl get book one
kubectl patch book one --type=merge -p '{"spec":{"title":"A title that is much too long for a cover"}}'
printf 'apiVersion: example.com/v1\nkind: Book\nmetadata: {name: two}\nspec: {titel: Two}\n' | kubectl apply -f -
kubectl patch book one --subresource=status --type=merge -p '{"status":{"copies":3}}'
kubectl get book one -o jsonpath='{.status.copies} {.metadata.generation}'
kubectl delete book one
kubectl delete crd books.example.com
kubectl get books
