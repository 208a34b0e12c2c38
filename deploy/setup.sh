#!/bin/sh
# Installs what building, testing and showing floodway needs and this machine lacks: packages on Debian or Ubuntu, as root,
# and Rust by rustup. It changes nothing else: hugepages and namespaces are made, and undone, by whoever uses them.
#
# What cannot be installed is said in a sentence. It fails only without Rust or a linker: all else has a way around.
set -u

cd "$(dirname "$0")/.." || exit 1
PATH=$PATH:${HOME:-/root}/.cargo/bin

# The linker, the DPDK libraries with the tools that make bindings to them, and the demo's hosts.
build="gcc libc6-dev pkg-config"
# Counts the instructions of the hot path.
counts="valgrind"
dpdk="libdpdk-dev clang libclang-dev"
hosts="iproute2 ethtool iputils-ping iperf3 procps"

missing() {
	for package in "$@"; do
		dpkg-query -W -f '${Status}' "$package" 2>/dev/null | grep -q ' installed$' || printf '%s ' "$package"
	done
}

install_packages() {
	if ! command -v apt-get >/dev/null || ! command -v dpkg-query >/dev/null; then
		return 0
	fi
	# shellcheck disable=SC2086 # lists of words
	wanted=$(missing $build $dpdk $hosts $counts)
	command -v cargo >/dev/null || wanted="$wanted$(missing curl ca-certificates)"
	[ -n "$wanted" ] || return 0
	if [ "$(id -u)" != 0 ]; then
		echo "setup: not root, so these packages stay missing: $wanted"
		return 0
	fi
	echo "setup: installing $wanted"
	export DEBIAN_FRONTEND=noninteractive
	log=$(mktemp)
	# Lists may be absent or too old to name files that the mirror still has.
	# shellcheck disable=SC2086 # a list of words
	if ! apt-get install -y --no-install-recommends $wanted >"$log" 2>&1; then
		apt-get update >"$log" 2>&1
		if ! apt-get install -y --no-install-recommends $wanted >"$log" 2>&1; then
			echo "setup: apt-get could not install all of them: $(tail -n 1 "$log")"
		fi
	fi
	rm -f "$log"
}

install_rust() {
	command -v cargo >/dev/null && return 0
	echo "setup: installing Rust by rustup into ${HOME:-/root}/.cargo"
	curl --proto '=https' --tlsv1.2 -sSf https://sh.rustup.rs |
		sh -s -- -y -q --profile minimal --component rustfmt,clippy --no-modify-path
	command -v cargo >/dev/null && return 0
	echo "setup: no cargo: install Rust from https://rustup.rs" >&2
	exit 1
}

install_packages
install_rust
if ! command -v cc >/dev/null; then
	echo "setup: no linker: install gcc" >&2
	exit 1
fi
