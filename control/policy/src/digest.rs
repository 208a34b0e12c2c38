//! A short name for the content of a policy directory.

use crate::Source;

/// FNV-1a, 64 bits, over the digests of the files, eight bytes each with the lowest first, in the order of the files'
/// names. That of a file is FNV-1a over the last part of its path, a zero byte, and its text without a byte order mark
/// and with `\n` as line end.
///
/// The same directory gives the same digest from wherever it is read. It tells changes, not forgery.
pub fn digest(sources: &[Source]) -> u64 {
    of_files(sources.iter().map(|source| (source, of_file(source))))
}

/// The digest of files whose own digests are known.
pub(crate) fn of_files<'a>(files: impl Iterator<Item = (&'a Source, u64)>) -> u64 {
    let key = |(source, digest): (&'a Source, u64)| (file_name(&source.name), &source.bytes[..], digest);
    let mut files: Vec<(&str, &[u8], u64)> = files.map(key).collect();
    files.sort_unstable();
    files.into_iter().fold(OFFSET_BASIS, |hash, (_, _, digest)| fnv(hash, digest.to_le_bytes()))
}

pub(crate) fn of_file(source: &Source) -> u64 {
    let hash = fnv(fnv(OFFSET_BASIS, file_name(&source.name).bytes()), [0]);
    fnv(hash, canonical(&source.bytes))
}

const OFFSET_BASIS: u64 = 0xcbf2_9ce4_8422_2325;
const PRIME: u64 = 0x0000_0100_0000_01b3;

fn fnv(hash: u64, bytes: impl IntoIterator<Item = u8>) -> u64 {
    bytes.into_iter().fold(hash, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(PRIME))
}

fn file_name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

fn canonical(bytes: &[u8]) -> impl Iterator<Item = u8> + '_ {
    let bytes = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes);
    let is_kept = |index: &usize| !(bytes[*index] == b'\r' && bytes.get(index + 1) == Some(&b'\n'));
    (0..bytes.len()).filter(is_kept).map(|index| if bytes[index] == b'\r' { b'\n' } else { bytes[index] })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(name: &str, text: &str) -> Source {
        Source { name: name.into(), bytes: text.into() }
    }

    #[test]
    fn fnv_gives_the_known_answers() {
        // From the tables of the FNV authors: "", "a", "foobar".
        assert_eq!(fnv(OFFSET_BASIS, *b""), 0xcbf2_9ce4_8422_2325);
        assert_eq!(fnv(OFFSET_BASIS, *b"a"), 0xaf63_dc4c_8601_ec8c);
        assert_eq!(fnv(OFFSET_BASIS, *b"foobar"), 0x8594_4171_f739_67e8);
    }

    #[test]
    fn digest_sees_content_and_names_but_not_order_folder_or_line_ends() {
        let one = [source("a.yaml", "x: 1\n"), source("b.yaml", "y: 2\n")];
        let same = [source("/etc/b.yaml", "\u{feff}y: 2\r\n"), source("/etc/a.yaml", "x: 1\r")];
        assert_eq!(digest(&one), digest(&same));
        assert_ne!(digest(&one), digest(&[source("a.yaml", "x: 1\n"), source("b.yaml", "y: 3\n")]));
        assert_ne!(digest(&one), digest(&[source("a.yaml", "x: 1\n"), source("c.yaml", "y: 2\n")]));
        assert_ne!(digest(&one), digest(&[source("a.yaml", "x: 1\ny: 2\n"), source("b.yaml", "")]));
    }
}
