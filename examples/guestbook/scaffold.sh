#!/bin/sh
# The commands that began this project, as they were typed. Run it in an empty folder to see what the command wrote; everything since is in
# the history of this folder. In this repository the project is a part of one workspace, so its Cargo.toml names no versions.
set -eu
kubewright init --domain my.domain --project-name guestbook
kubewright create api --group webapp --version v1 --kind Guestbook --resource --controller
