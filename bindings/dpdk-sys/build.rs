//! Finds the installed DPDK with pkg-config, compiles the shim of its static inlines and generates bindings for it.
//!
//! Bindings depend on the target (cache line size, core count) and on DPDK's version, so they are made in every build and
//! never checked in.
use std::{env, path::PathBuf, process::Command};

/// The DPDK releases whose API the shim is written for: (year, month), both included.
const OLDEST: (u32, u32) = (22, 11);
const NEWEST: (u32, u32) = (25, 11);

/// Releases that changed something users of this crate may have to know.
const CFGS: [(u32, u32); 4] = [(23, 7), (23, 11), (24, 11), (25, 11)];

/// What the shim and the bindings call, as far as the release has it (`rte_log` left `rte_eal` in 23.11). EAL loads the
/// drivers itself.
const LIBRARIES: [&str; 6] = ["rte_ethdev", "rte_mbuf", "rte_mempool", "rte_ring", "rte_eal", "rte_log"];

const FUNCTIONS: &str = "shim_.*|rte_eal_(init|cleanup|hotplug_remove)|rte_dev_probe|rte_strerror|rte_openlog_stream\
    |rte_thread_(register|unregister)|rte_get_tsc_hz|rte_pktmbuf_(pool_create|free_bulk|copy)|rte_mempool_(free|avail_count)\
    |rte_eth_dev_(get_port_by_name|get_name_by_port|info_get|configure|adjust_nb_rx_tx_desc|socket_id|start|stop|close\
    |set_mtu|get_mtu)|rte_eth_(rx|tx)_queue_setup|rte_eth_macaddr_get|rte_eth_promiscuous_enable|rte_eth_stats_get";
/// With the feature `acl`, these besides.
const ACL_LIBRARY: &str = "rte_acl";
const ACL_FUNCTIONS: &str = "rte_acl_(create|free|add_rules|build|classify)";
const ACL_TYPES: &str = "rte_acl_(rule_data|field|config|param)";
const ACL_VALUES: &str = "RTE_ACL_(FIELD_TYPE_.*|MAX_PRIORITY)";
const TYPES: &str = "rte_mbuf|rte_mempool|rte_eth_conf|rte_eth_dev_info|rte_eth_stats|rte_eth_rx_mq_mode";
const VALUES: &str = "SHIM_.*|RTE_ETH_NAME_MAX_LEN|RTE_MAX_ETHPORTS|RTE_MAX_LCORE|RTE_MEMPOOL_CACHE_MAX_SIZE|RTE_PKTMBUF_HEADROOM";

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    for variable in ["PKG_CONFIG", "PKG_CONFIG_PATH", "PKG_CONFIG_LIBDIR", "PKG_CONFIG_SYSROOT_DIR"] {
        println!("cargo::rerun-if-env-changed={variable}");
    }
    for (year, month) in CFGS {
        println!("cargo::rustc-check-cfg=cfg(dpdk_ge_{year}_{month:02})");
    }
    if let Err(sentence) = find().and_then(|dpdk| build(&dpdk)) {
        println!("cargo::error={sentence}");
    }
}

/// What pkg-config says of libdpdk.
struct Libdpdk {
    version: String,
    release: (u32, u32),
    cflags: Vec<String>,
    library_dirs: Vec<String>,
    libraries: Vec<String>,
}

fn find() -> Result<Libdpdk, String> {
    if env::var("HOST") != env::var("TARGET") && env::var_os("PKG_CONFIG_LIBDIR").is_none() {
        return Err(format!(
            "cross-building for {}: set PKG_CONFIG_LIBDIR and PKG_CONFIG_SYSROOT_DIR to a sysroot of that target that holds libdpdk-dev (deploy/aarch64.sh does)",
            env::var("TARGET").unwrap_or_default()
        ));
    }
    let version = pkg_config("--modversion")?.concat();
    let release = parse_release(&version).ok_or(format!(
        "pkg-config gives libdpdk the version \"{version}\", which is not of the form YY.MM"
    ))?;
    if release < OLDEST || release > NEWEST {
        return Err(format!(
            "libdpdk {version} is installed, but floodway needs {}.{:02} to {}.{:02}: install libdpdk-dev of such a release (Debian 12 and later, Ubuntu 24.04), or point PKG_CONFIG_PATH at one",
            OLDEST.0, OLDEST.1, NEWEST.0, NEWEST.1
        ));
    }
    let strip = |flags: Vec<String>, prefix: &str| {
        flags.iter().filter_map(|f| f.strip_prefix(prefix)).map(String::from).collect()
    };
    Ok(Libdpdk {
        release,
        version,
        // The pkg-config crate would drop `-include rte_config.h -march=...`, without which the headers mean something else.
        cflags: pkg_config("--cflags")?,
        library_dirs: strip(pkg_config("--libs-only-L")?, "-L"),
        libraries: strip(pkg_config("--libs-only-l")?, "-l"),
    })
}

fn pkg_config(what: &str) -> Result<Vec<String>, String> {
    let program = env::var("PKG_CONFIG").unwrap_or_else(|_| "pkg-config".into());
    let output = Command::new(&program).args([what, "libdpdk"]).output().map_err(|error| {
        format!("cannot run {program} to find DPDK ({error}): install the package pkg-config")
    })?;
    if !output.status.success() {
        let why = String::from_utf8_lossy(&output.stderr).split_whitespace().collect::<Vec<_>>().join(" ");
        return Err(format!(
            "pkg-config finds no libdpdk: install the package libdpdk-dev (DPDK 22.11 to 25.11), or point PKG_CONFIG_PATH at its libdpdk.pc; it said: {why}"
        ));
    }
    Ok(String::from_utf8_lossy(&output.stdout).split_whitespace().map(String::from).collect())
}

/// `22.11.11` and `25.11.0-rc1` are of the releases (22, 11) and (25, 11).
fn parse_release(version: &str) -> Option<(u32, u32)> {
    let mut parts = version.split(['.', '-']);
    Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
}

fn build(dpdk: &Libdpdk) -> Result<(), String> {
    for (year, month) in CFGS.into_iter().filter(|cfg| *cfg <= dpdk.release) {
        println!("cargo::rustc-cfg=dpdk_ge_{year}_{month:02}");
    }
    println!("cargo::rustc-env=DPDK_VERSION={}", dpdk.version);
    println!("cargo::metadata=version={}", dpdk.version);
    compile_shim(&dpdk.cflags)?;
    for dir in &dpdk.library_dirs {
        println!("cargo::rustc-link-search=native={dir}");
    }
    for library in LIBRARIES.iter().filter(|name| dpdk.libraries.iter().any(|l| l == *name)) {
        println!("cargo::rustc-link-lib=dylib={library}");
    }
    if has_acl() {
        println!("cargo::rustc-link-lib=dylib={ACL_LIBRARY}");
    }
    generate(&dpdk.cflags)
}

fn has_acl() -> bool {
    env::var_os("CARGO_FEATURE_ACL").is_some()
}

fn compile_shim(cflags: &[String]) -> Result<(), String> {
    println!("cargo::rerun-if-changed=c/shim.h");
    println!("cargo::rerun-if-changed=c/shim.c");
    let mut shim = cc::Build::new();
    // The shim is the hot path: it is optimised in debug builds too.
    shim.file("c/shim.c").include("c").opt_level(3).warnings(true).flag("-Wno-deprecated-declarations");
    for flag in cflags {
        shim.flag(flag);
    }
    shim.try_compile("floodway_dpdk_shim")
        .map_err(|error| one_line("cannot compile the DPDK shim; install gcc", &error.to_string()))
}

fn generate(cflags: &[String]) -> Result<(), String> {
    let mut builder = bindgen::Builder::default();
    if has_acl() {
        builder = builder
            .clang_arg("-DFLOODWAY_ACL")
            .allowlist_function(ACL_FUNCTIONS)
            .allowlist_type(ACL_TYPES)
            .allowlist_var(ACL_VALUES);
    }
    let bindings = builder
        .header("c/shim.h")
        .clang_args(cflags)
        .use_core()
        .allowlist_function(FUNCTIONS)
        .allowlist_type(TYPES)
        .allowlist_var(VALUES)
        // Their bodies are never looked into, and FILE would pull in libc's.
        .blocklist_type("FILE|_IO_FILE")
        .raw_line("#[doc = \"C's `FILE`, opaque here.\"] pub type FILE = core::ffi::c_void;")
        // Read and written through offsets that the C compiler gives: its anonymous unions differ between releases. The rule
        // of rte_acl has an array of no length.
        .opaque_type("rte_mbuf|rte_mempool|rte_acl_rule")
        .default_enum_style(bindgen::EnumVariation::Consts)
        .prepend_enum_name(false)
        .generate_comments(false)
        .derive_default(true)
        // Packed bit fields cannot be printed by reference.
        .derive_debug(false)
        .generate()
        .map_err(|error| {
            one_line("cannot generate bindings for DPDK; install clang and libclang-dev", &error.to_string())
        })?;
    let out = PathBuf::from(env::var("OUT_DIR").map_err(|e| e.to_string())?).join("bindings.rs");
    bindings.write_to_file(&out).map_err(|error| format!("cannot write {}: {error}", out.display()))
}

fn one_line(sentence: &str, detail: &str) -> String {
    format!("{sentence}: {}", detail.split_whitespace().collect::<Vec<_>>().join(" "))
}
