#!/bin/sh
# The commands that began this project, as they were typed. Run it in an empty folder to see what the command wrote; everything since is in
# the history of this folder. In this repository the project is a part of one workspace, so its Cargo.toml names no versions.
set -eu
kubewright init --domain example.com --project-name database
kubewright create api --group db --version v1alpha1 --kind Database --resource --controller
kubewright create webhook --group db --version v1alpha1 --kind Database --defaulting --programmatic-validation
