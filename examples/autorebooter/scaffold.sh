#!/bin/sh
# The commands that began this project, as they were typed. Run it in an empty folder to see what the command wrote; everything since is in
# the history of this folder. In this repository the project is a part of one workspace, so its Cargo.toml names no versions.
set -eu
kubewright init --domain my.domain --project-name autorebooter
kubewright create api --group autoreboot --version v1alpha1 --kind RebootPolicy --resource --controller
kubewright create webhook --group autoreboot --version v1alpha1 --kind RebootPolicy --programmatic-validation
