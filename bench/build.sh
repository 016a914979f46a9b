#!/bin/bash
# What a user waits for: the clean debug build of a scaffolded operator, and a build after an edit of its reconciler,
# beside a controller with kube-rs alone (peers/bare-kube) that does the same. Both have the same versions of what they
# depend on (this workspace's Cargo.lock) and the same profile. Sources are fetched before. CPU is that of cargo and
# everything that it starts; quote ratios of one run.
#
#     cargo build --release -p kubewright-cli
#     bench/build.sh target/release/kubewright
#
# BENCH_RUNS: how many clean builds of each, in turns (1). BENCH_FOLDER: where they are built (a temporary folder,
# deleted at the end); it takes 3 GB.
# TIMINGS=1: cargo says where the time goes, in that folder's target/cargo-timings.
set -euo pipefail
kubewright=$(realpath "${1:?usage: bench/build.sh KUBEWRIGHT}")
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
checkout=$(dirname "$here")
runs=${BENCH_RUNS:-1}
folder=${BENCH_FOLDER:-}
if [ -z "$folder" ]; then
	folder=$(mktemp -d)
	trap 'rm -rf "$folder"' EXIT
fi
unset CARGO_TARGET_DIR
export CARGO_INCREMENTAL=1
timings=()
if [ -n "${TIMINGS:-}" ]; then timings=(--timings); fi

mkdir -p "$folder"
rm -rf "$folder/scaffold" "$folder/bare-kube"
"$kubewright" init "$folder/scaffold" --domain example.com --kubewright "$checkout" >"$folder/scaffold.log"
(cd "$folder/scaffold" &&
	"$kubewright" create api --group webapp --version v1 --kind Guestbook --resource --controller) >>"$folder/scaffold.log"
cp -r "$here/peers/bare-kube" "$folder/bare-kube"
for project in scaffold bare-kube; do
	cp "$checkout/Cargo.lock" "$folder/$project/Cargo.lock"
	(cd "$folder/$project" && cargo fetch --quiet)
done

# Prints seconds on the clock and seconds on processors of a build.
build() {
	local TIMEFORMAT='%R %U %S'
	{ time cargo build --offline --bins "${timings[@]}" 2>"$folder/build.log" >&2; } 2>&1 |
		awk '{ printf "%6.1f s, %6.1f s of CPU\n", $1, $2 + $3 }'
	if grep -q '^error' "$folder/build.log"; then
		cat "$folder/build.log" >&2
		exit 1
	fi
}

edited_file() {
	case $1 in
	scaffold) echo src/controller/guestbook_controller.rs ;;
	bare-kube) echo src/main.rs ;;
	esac
}

for ((run = 1; run <= runs; run++)); do
	for project in scaffold bare-kube; do
		cd "$folder/$project"
		rm -rf target
		crates=$(cargo tree --offline -e normal,build --prefix none | sort -u | wc -l)
		printf '%-10s clean:         %s, %s crates\n' "$project" "$(build)" "$crates"
		for edit in 1 2 3 4 5; do
			sed -i "s/as asked for[0-9]*/as asked for$run$edit/" "$(edited_file "$project")"
			printf '%-10s after an edit: %s\n' "$project" "$(build)"
		done
	done
done
