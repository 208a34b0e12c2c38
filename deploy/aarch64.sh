#!/bin/sh
# Cross-builds floodwayd with DPDK for aarch64-unknown-linux-gnu, as a card's Arm cores want it, and checks what it made.
#
# The target's libraries are downloaded by apt into target/aarch64-sysroot; nothing of this machine's packages changes, but
# for the cross compiler, which root installs if it is missing. Where the packages cannot be had, it says so and succeeds.
#
# Usage: deploy/aarch64.sh [cargo arguments instead of "build --release -p floodwayd --features dpdk"]
set -eu

cd "$(dirname "$0")/.."
target=aarch64-unknown-linux-gnu
triplet=aarch64-linux-gnu
build=${CARGO_TARGET_DIR:-$PWD/target}
sysroot=$build/aarch64-sysroot
apt=$build/aarch64-apt
log=$build/aarch64.log
packages="libdpdk-dev libc6-dev ibverbs-providers"

skip() {
	echo "skipped: $*"
	exit 0
}

# Runs a command quietly; skips with its last line of output if it fails.
try() {
	why=$1
	shift
	"$@" >"$log" 2>&1 || skip "$why ($(tail -n 1 "$log"))"
}

# apt for arm64, with its own lists and an empty status, so that it fetches all dependencies. It takes the distribution's
# mirrors from this machine's own sources.
prepare_apt() {
	mkdir -p "$apt/lists/partial" "$apt/cache/archives/partial" "$apt/etc"
	: >"$apt/status"
	for origin in Debian Ubuntu; do
		keys=/usr/share/keyrings/$(echo $origin | tr DU du)-archive-keyring.gpg
		apt-get indextargets --format "deb [signed-by=$keys] \$(REPO_URI) \$(RELEASE) \$(COMPONENT)" \
			"Created-By: Packages" "Origin: $origin"
	done | sort -u >"$apt/etc/sources.list"
	[ -s "$apt/etc/sources.list" ] || skip "apt knows no Debian mirror: run apt-get update"
	cat >"$apt/apt.conf" <<-CONF
		APT::Architecture "arm64";
		APT::Architectures { "arm64"; };
		APT::Install-Recommends "false";
		APT::Sandbox::User "root";
		Dir::State "$apt";
		Dir::State::status "$apt/status";
		Dir::State::Lists "$apt/lists";
		Dir::Cache "$apt/cache";
		Dir::Etc::SourceList "$apt/etc/sources.list";
		Dir::Etc::SourceParts "/dev/null";
	CONF
}

fill_sysroot() {
	[ -e "$sysroot/complete" ] && return
	command -v apt-get >/dev/null && command -v dpkg-deb >/dev/null || skip "this machine has no apt"
	prepare_apt
	echo "fetching arm64 packages: $packages and what they need"
	try "no arm64 package lists" env APT_CONFIG="$apt/apt.conf" apt-get update
	# shellcheck disable=SC2086 # a list of words
	try "no arm64 packages" env APT_CONFIG="$apt/apt.conf" apt-get install -y --download-only $packages
	rm -rf "$sysroot"
	mkdir -p "$sysroot"
	for deb in "$apt"/cache/archives/*.deb; do
		dpkg-deb --extract "$deb" "$sysroot"
	done
	rm -rf "$apt"
	touch "$sysroot/complete"
}

find_tools() {
	if ! command -v $triplet-gcc >/dev/null; then
		[ "$(id -u)" = 0 ] || skip "no $triplet-gcc here: install gcc-$triplet"
		try "no cross compiler" apt-get install -y --no-install-recommends gcc-$triplet
	fi
	command -v rustup >/dev/null || skip "no rustup to add the target $target with"
	try "rustup has no $target" rustup target add $target
}

cross_cargo() {
	env PKG_CONFIG_ALLOW_CROSS=1 \
		PKG_CONFIG_SYSROOT_DIR="$sysroot" \
		PKG_CONFIG_LIBDIR="$sysroot/usr/lib/$triplet/pkgconfig:$sysroot/usr/share/pkgconfig" \
		BINDGEN_EXTRA_CLANG_ARGS="--sysroot=$sysroot" \
		CC_aarch64_unknown_linux_gnu=$triplet-gcc \
		CFLAGS_aarch64_unknown_linux_gnu="--sysroot=$sysroot" \
		CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER=$triplet-gcc \
		CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUSTFLAGS="-C link-arg=--sysroot=$sysroot" \
		cargo "$@" --target $target
}

# The ELF header's machine (byte 18) is 183 for AArch64; `file` tells the same where it is installed.
check() {
	machine=$(od -An -tu2 -j18 -N2 "$1" | tr -d ' ')
	[ "$machine" = 183 ] || { echo "error: $1 is not for AArch64 (ELF machine $machine)" >&2; exit 1; }
	if command -v file >/dev/null; then file -b "$1" | cut -d, -f1-2; fi
	echo "built: $1"
}

fill_sysroot
find_tools
if [ $# -gt 0 ]; then
	cross_cargo "$@"
else
	cross_cargo build --release -p floodwayd --features dpdk
	check "$build/$target/release/floodwayd"
fi
