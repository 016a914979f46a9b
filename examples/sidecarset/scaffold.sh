#!/bin/sh
# The commands that began this project, as they were typed. Run it in an empty folder to see what the command wrote; everything since is in
# the history of this folder. In this repository the project is a part of one workspace, so its Cargo.toml names no versions.
set -eu
kubewright init --domain kruise.io --project-name sidecarset
kubewright create api --group apps --version v1alpha1 --kind SidecarSet --namespaced=false --resource --controller
kubewright create webhook --group apps --version v1alpha1 --kind SidecarSet --defaulting --programmatic-validation \
    --defaulting-path /mutate-apps-kruise-io-sidecarset --validation-path /validate-apps-kruise-io-sidecarset
kubewright create webhook --group core --version v1 --kind Pod --defaulting --defaulting-path /mutate-pod
