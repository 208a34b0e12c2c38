//! A machine as its /proc and /sys have it.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

/// Where the machine's files are, and what its commands say.
#[derive(Clone, Debug)]
pub struct Machine {
    root: PathBuf,
    run: fn(&str, &[&str]) -> Option<String>,
}

/// One of the kernel's network devices.
pub(crate) struct Netdev {
    pub(crate) name: String,
    /// The PCI address of its card, if it has one.
    pub(crate) pci: Option<String>,
    /// `p0` or `pf0vf1`, of what a switch made.
    pub(crate) port_name: Option<String>,
    /// Of which switch it is a port.
    pub(crate) switch_id: Option<String>,
    pub(crate) mtu: Option<u32>,
}

impl Machine {
    /// This one.
    pub fn here() -> Self {
        Self { root: "/".into(), run: output }
    }

    /// The one of which these are the files; its commands are not there.
    pub fn at(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into(), run: |_, _| None }
    }

    /// The same, whose commands say what `run` says.
    pub fn with_commands(self, run: fn(&str, &[&str]) -> Option<String>) -> Self {
        Self { run, ..self }
    }

    pub(crate) fn path(&self, path: &str) -> PathBuf {
        self.root.join(path.trim_start_matches('/'))
    }

    /// A file's text without blanks around it. `None` when it is not there, not to be read, or empty: sysfs has many
    /// attributes that a driver refuses.
    pub(crate) fn read(&self, path: &str) -> Option<String> {
        let text = fs::read(self.path(path)).ok()?;
        let text = String::from_utf8_lossy(&text).trim().to_owned();
        (!text.is_empty()).then_some(text)
    }

    pub(crate) fn number<N: std::str::FromStr>(&self, path: &str) -> Option<N> {
        self.read(path)?.parse().ok()
    }

    pub(crate) fn exists(&self, path: &str) -> bool {
        self.path(path).exists()
    }

    /// Names in a folder, sorted; none when it is not there.
    pub(crate) fn list(&self, path: &str) -> Vec<String> {
        let entries = fs::read_dir(self.path(path)).into_iter().flatten().flatten();
        let mut names: Vec<_> =
            entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
        names.sort();
        names
    }

    /// The last name of what a link points to.
    pub(crate) fn link(&self, path: &str) -> Option<String> {
        let target = fs::read_link(self.path(path)).ok()?;
        Some(target.file_name()?.to_string_lossy().into_owned())
    }

    /// What a command writes, when there is such a command and it ends well.
    pub(crate) fn command(&self, name: &str, arguments: &[&str]) -> Option<String> {
        (self.run)(name, arguments)
    }

    pub(crate) fn netdevs(&self) -> Vec<Netdev> {
        let netdev = |name: String| {
            let at = |attribute: &str| format!("/sys/class/net/{name}/{attribute}");
            Netdev {
                pci: self.link(&at("device")).filter(|device| pci_address(device).is_some()),
                port_name: self.read(&at("phys_port_name")),
                switch_id: self.read(&at("phys_switch_id")),
                mtu: self.number(&at("mtu")),
                name,
            }
        };
        self.list("/sys/class/net").into_iter().map(netdev).collect()
    }

    /// An attribute of a PCI device.
    pub(crate) fn pci(&self, address: &str, attribute: &str) -> Option<String> {
        self.read(&pci_path(address, attribute))
    }

    /// The driver that a PCI device is bound to.
    pub(crate) fn driver(&self, address: &str) -> Option<String> {
        self.link(&pci_path(address, "driver"))
    }

    /// The NUMA node of a PCI device; `None` where the firmware does not say.
    pub(crate) fn node(&self, address: &str) -> Option<u32> {
        // -1 is no number of this type.
        self.pci(address, "numa_node")?.parse().ok()
    }

    /// True for a card of NVIDIA's network branch.
    pub(crate) fn is_mellanox(&self, address: &str) -> bool {
        self.pci(address, "vendor").is_some_and(|vendor| vendor == MELLANOX)
    }
}

/// The PCI vendor of ConnectX and BlueField.
const MELLANOX: &str = "0x15b3";

pub(crate) fn pci_path(address: &str, attribute: &str) -> String {
    format!("/sys/bus/pci/devices/{address}/{attribute}")
}

/// The PCI address that device arguments begin with, with the domain: of `03:00.0,dv_flow_en=2` it is `0000:03:00.0`.
pub(crate) fn pci_address(arguments: &str) -> Option<String> {
    let name = arguments.split(',').next().unwrap_or_default();
    let (rest, function) = name.rsplit_once('.')?;
    let parts: Vec<&str> = rest.split(':').collect();
    let is_hex = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_hexdigit());
    let is_address =
        (2..=3).contains(&parts.len()) && parts.iter().all(|part| is_hex(part)) && is_hex(function);
    let domain = if parts.len() == 2 { "0000:" } else { "" };
    is_address.then(|| format!("{domain}{name}").to_lowercase())
}

/// CPUs of a list such as `0-3,8`.
pub(crate) fn cpus(list: &str) -> Vec<usize> {
    let range = |part: &str| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        Some(first.trim().parse::<usize>().ok()?..=last.trim().parse::<usize>().ok()?)
    };
    list.split(',').filter_map(range).flatten().collect()
}

fn output(name: &str, arguments: &[&str]) -> Option<String> {
    let output = Command::new(find(name)?).args(arguments).output().ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Administrators' commands are not in everybody's PATH.
fn find(name: &str) -> Option<PathBuf> {
    ["/usr/sbin", "/sbin", "/usr/bin", "/bin", "/opt/mellanox/iproute2/sbin"]
        .iter()
        .map(|folder| Path::new(folder).join(name))
        .find(|path| path.exists())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_and_lists() {
        assert_eq!(pci_address("03:00.0,dv_flow_en=2").as_deref(), Some("0000:03:00.0"));
        assert_eq!(pci_address("0001:C1:00.1").as_deref(), Some("0001:c1:00.1"));
        for other in ["net_tap0,iface=a:b.0", "auxiliary:mlx5_core.sf.4", "mlx5_core.sf.4", "", "1.2"] {
            assert_eq!(pci_address(other), None, "{other}");
        }
        assert_eq!(cpus("0-2,8"), [0, 1, 2, 8]);
        assert_eq!(cpus(""), [0; 0]);
    }
}
