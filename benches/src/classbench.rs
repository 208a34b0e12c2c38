//! ClassBench's rule sets and traces: `@src/len dst/len first : last first : last protocol/mask flags/mask`, and
//! `src dst sport dport protocol first-match ...`.

use std::net::Ipv4Addr;
use std::path::Path;

/// One rule. The flags are not looked at, as in `rte_acl`.
#[derive(Clone, Copy, Debug)]
pub struct FiveTuple {
    /// Source prefix and its length.
    pub src: (u32, u8),
    /// Destination prefix and its length.
    pub dst: (u32, u8),
    /// Source ports, both included.
    pub src_ports: (u16, u16),
    /// Destination ports, both included.
    pub dst_ports: (u16, u16),
    /// Protocol, and which of its bits count.
    pub protocol: (u8, u8),
}

/// One header of a trace.
#[derive(Clone, Copy, Debug)]
pub struct Header {
    /// Source address.
    pub src: u32,
    /// Destination address.
    pub dst: u32,
    /// Source port.
    pub src_port: u16,
    /// Destination port.
    pub dst_port: u16,
    /// Protocol.
    pub protocol: u8,
    /// The number of the first rule that matches.
    pub expected: Option<u32>,
}

/// Reads a set. Errors are sentences.
pub fn read_set(path: &Path) -> Result<Vec<FiveTuple>, String> {
    read(path, five_tuple)
}

/// Reads a trace. Errors are sentences.
pub fn read_trace(path: &Path) -> Result<Vec<Header>, String> {
    read(path, header)
}

fn read<T>(path: &Path, line: fn(&str) -> Option<T>) -> Result<Vec<T>, String> {
    let text = std::fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))?;
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    lines.map(|text| line(text).ok_or_else(|| format!("{}: cannot read {text}", path.display()))).collect()
}

fn five_tuple(line: &str) -> Option<FiveTuple> {
    let words: Vec<&str> = line.strip_prefix('@')?.split_whitespace().filter(|word| *word != ":").collect();
    let prefix = |index: usize| {
        let (address, len) = words.get(index)?.split_once('/')?;
        Some((address.parse::<Ipv4Addr>().ok()?.into(), len.parse().ok()?))
    };
    let ports = |index: usize| Some((words.get(index)?.parse().ok()?, words.get(index + 1)?.parse().ok()?));
    let (protocol, mask) = words.get(6)?.split_once('/')?;
    let hexadecimal = |text: &str| u8::from_str_radix(text.strip_prefix("0x")?, 16).ok();
    Some(FiveTuple {
        src: prefix(0)?,
        dst: prefix(1)?,
        src_ports: ports(2)?,
        dst_ports: ports(4)?,
        protocol: (hexadecimal(protocol)?, hexadecimal(mask)?),
    })
}

fn header(line: &str) -> Option<Header> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let address = |index: usize| words.get(index)?.parse::<Ipv4Addr>().ok().map(u32::from);
    Some(Header {
        src: address(0)?,
        dst: address(1)?,
        src_port: words.get(2)?.parse().ok()?,
        dst_port: words.get(3)?.parse().ok()?,
        protocol: words.get(4)?.parse().ok()?,
        expected: words.get(5)?.parse().ok(),
    })
}
