//! ClassBench's rule sets and traces, and the examples of ClassBench-ng, in the corpus beside the checkout.

use std::fs;
use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};

use crate::scan::{Header, Wanted};

pub struct Set {
    pub name: String,
    pub rules: Vec<Wanted<u32>>,
}

/// The folder of the sets, or `None` with a printed reason to skip.
pub fn dir() -> Option<PathBuf> {
    let found = match std::env::var_os("FLOODWAY_CORPUS") {
        Some(path) => Some(PathBuf::from(path)),
        None => {
            let above = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors();
            above.map(|above| above.join("shared/corpus")).find(|path| path.is_dir())
        }
    };
    if found.is_none() {
        println!("skipped: no shared/corpus beside the checkout, and FLOODWAY_CORPUS is not set");
    }
    found.map(|dir| dir.join("rules/classbench"))
}

/// All sets in ClassBench's own format.
pub fn names(dir: &Path) -> Vec<String> {
    let entries = fs::read_dir(dir).expect("a corpus folder");
    let names = entries.map(|entry| entry.expect("a corpus file").file_name().to_string_lossy().into_owned());
    let is_set = |name: &String| name.ends_with("_1k") || name.ends_with("_10k");
    let mut names: Vec<String> = names.filter(is_set).collect();
    names.sort();
    names
}

/// `@src/len dst/len first : last first : last protocol/mask flags/mask`; the flags are not looked at, as in `rte_acl`.
pub fn set(dir: &Path, name: &str) -> Set {
    let text = fs::read_to_string(dir.join(name)).expect("a readable set");
    let rules = text.lines().map(|line| rule(line).unwrap_or_else(|| panic!("{name}: {line}"))).collect();
    Set { name: name.into(), rules }
}

fn rule(line: &str) -> Option<Wanted<u32>> {
    let words: Vec<&str> = line.strip_prefix('@')?.split_whitespace().filter(|word| *word != ":").collect();
    let number = |index: usize| words.get(index)?.parse::<u16>().ok();
    let (protocol, mask) = words.get(6)?.split_once('/')?;
    let hexadecimal = |text: &str| u8::from_str_radix(text.strip_prefix("0x")?, 16).ok();
    Some(Wanted {
        src: prefix(words.first()?)?,
        dst: prefix(words.get(1)?)?,
        src_ports: (number(2)?, number(3)?),
        values: (number(4)?.into(), number(5)?.into()),
        protocol: (hexadecimal(protocol)?, hexadecimal(mask)?),
    })
}

fn prefix(text: &str) -> Option<(u32, u8)> {
    let (address, len) = text.split_once('/').unwrap_or((text, "32"));
    Some((address.parse::<Ipv4Addr>().ok()?.into(), len.parse().ok()?))
}

/// `src dst sport dport protocol first ...`: the number of the first rule that matches.
pub fn trace(dir: &Path, name: &str) -> Vec<(Header<u32>, Option<u32>)> {
    let text = fs::read_to_string(dir.join(format!("{name}.trace"))).expect("a readable trace");
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    lines.map(|line| header(line).unwrap_or_else(|| panic!("{name}.trace: {line}"))).collect()
}

fn header(line: &str) -> Option<(Header<u32>, Option<u32>)> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let address = |index: usize| words.get(index)?.parse::<Ipv4Addr>().ok().map(u32::from);
    let header = Header {
        src: address(0)?,
        dst: address(1)?,
        src_port: words.get(2)?.parse().ok()?,
        value: words.get(3)?.parse().ok()?,
        protocol: words.get(4)?.parse().ok()?,
    };
    Some((header, words.get(5)?.parse().ok()))
}

const ANY: Wanted<u32> =
    Wanted { src: (0, 0), dst: (0, 0), src_ports: (0, u16::MAX), values: (0, u32::MAX), protocol: (0, 0) };

/// `nw_proto=6 ,nw_src=a/l ,nw_dst=a/l ,tp_dst=n`; in this set protocol 0 is any.
pub fn openflow(dir: &Path) -> Vec<Wanted<u32>> {
    let text = fs::read_to_string(dir.join("ng_openflow.set")).expect("a readable set");
    let rule = |line: &str| {
        let mut rule = ANY;
        for (name, value) in line.split([' ', ',']).filter_map(|word| word.split_once('=')) {
            match name {
                "nw_proto" if value == "0" => {}
                "nw_proto" => rule.protocol = (value.parse().unwrap(), 0xff),
                "nw_src" => rule.src = prefix(value).unwrap(),
                "nw_dst" => rule.dst = prefix(value).unwrap(),
                "tp_dst" => rule.values = (value.parse().unwrap(), value.parse().unwrap()),
                other => panic!("{other}"),
            }
        }
        rule
    };
    text.lines().map(rule).collect()
}

/// `iptables -A|-I INPUT -s a/l -p name --dport first:last -j X`: `-I` goes before all others.
pub fn iptables(dir: &Path) -> Vec<Wanted<u32>> {
    let text = fs::read_to_string(dir.join("ng_iptables.set")).expect("a readable set");
    let mut rules = Vec::new();
    for line in text.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        let after = |flag| words.iter().position(|word| *word == flag).map(|at| words[at + 1]);
        let rule = Wanted {
            src: prefix(after("-s").unwrap()).unwrap(),
            values: after("--dport").map_or(ANY.values, range),
            protocol: (protocol(after("-p").unwrap()), 0xff),
            ..ANY
        };
        let at = if after("-A").is_some() { rules.len() } else { 0 };
        rules.insert(at, rule);
    }
    assert_eq!(rules.len(), 5);
    rules
}

/// `rule n permit protocol [source p] [destination p] destination-port range`, the IPv4 rules and the IPv6 rules.
pub fn custom(dir: &Path) -> (Vec<Wanted<u32>>, Vec<Wanted<u128>>) {
    let text = fs::read_to_string(dir.join("ng_custom_with_ipv6.set")).expect("a readable set");
    let (mut four, mut six) = (Vec::new(), Vec::new());
    for line in text.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        let after = |flag| words.iter().position(|word| *word == flag).map(|at| words[at + 1]);
        let ends = [after("source"), after("destination")].map(|end| {
            end.map(|end| {
                let (address, len) = end.split_once('/').unwrap();
                (address.parse::<IpAddr>().unwrap(), len.parse::<u8>().unwrap())
            })
        });
        let values = after("destination-port").map_or(ANY.values, range);
        let protocol = (protocol(words[3]), 0xff);
        let is_six = ends.iter().flatten().any(|(address, _)| address.is_ipv6());
        let bits = |end: Option<(IpAddr, u8)>| match end {
            Some((IpAddr::V4(address), len)) => (u128::from(u32::from(address)), len),
            Some((IpAddr::V6(address), len)) => (u128::from(address), len),
            None => (0, 0),
        };
        let [src, dst] = ends.map(bits);
        if is_six {
            six.push(Wanted { src, dst, src_ports: ANY.src_ports, values, protocol });
        } else {
            let four_bits = |(bits, len): (u128, u8)| (bits as u32, len);
            four.push(Wanted { src: four_bits(src), dst: four_bits(dst), values, protocol, ..ANY });
        }
    }
    (four, six)
}

fn range(text: &str) -> (u32, u32) {
    let number = |text: &str| if text == "smtp" { 25 } else { text.parse().unwrap() };
    let (first, last) = text.split_once(':').unwrap_or((text, text));
    (number(first), number(last))
}

fn protocol(name: &str) -> u8 {
    match name {
        "tcp" => 6,
        "udp" => 17,
        other => panic!("{other}"),
    }
}
