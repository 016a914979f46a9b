module kubectl

go 1.26

require k8s.io/kubectl v0.36.3
