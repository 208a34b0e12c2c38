//! The state directory: policy texts on disk, each file whole and checked or not believed.
//!
//! A file is one line `floodway-state 1 <crc32, 8 hex digits> <bytes>`, then as many bytes with that CRC-32 (IEEE 802.3):
//! one line of JSON that lists the texts and their lengths, and the texts one after the other. It is written beside its
//! place, synced and renamed, so that a crash leaves the old file or the new one.

use std::{
    fs::{self, DirBuilder, File, OpenOptions},
    io::{self, Read, Write},
    os::unix::fs::{DirBuilderExt, OpenOptionsExt},
    path::{Path, PathBuf},
};

use policy::{
    Source,
    limit::{FILES_MAX, TOTAL_BYTES_MAX},
};
use serde::{Deserialize, Serialize};

use crate::{api::HistoryEntry, files::sentence};

/// What is started with when the policy directory is broken.
const LAST_GOOD: &str = "last-good";
/// Name of a file that is being written. There is one writer, hence one name; a crash may leave it.
const UNFINISHED: &str = ".unfinished";
/// Followed by the number.
const GENERATION: &str = "generation-";
const MAGIC: &str = "floodway-state 1";
/// Of the first line.
const HEAD_BYTES_MAX: usize = 64;
/// Most bytes that a file may have: the texts, and the list of their names.
const FILE_BYTES_MAX: usize = TOTAL_BYTES_MAX + FILES_MAX * 4096 + HEAD_BYTES_MAX;

/// Why something cannot be kept, or is not believed.
#[derive(Debug, thiserror::Error)]
pub enum StateError {
    /// Another daemon has it.
    #[error("another floodwayd keeps its state in {}; stop it or choose another --state", path.display())]
    InUse {
        /// The directory.
        path: PathBuf,
    },
    /// The system refuses.
    #[error("cannot keep state in {}: {}", path.display(), sentence(error))]
    System {
        /// The file or directory.
        path: PathBuf,
        /// What the system says.
        error: io::Error,
    },
    /// The file was cut or changed, or somebody else wrote it.
    #[error("{} is damaged ({reason}) and is not used", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// Why, as a clause.
        reason: String,
    },
}

/// The texts of one program, and which it was.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Saved {
    /// Which.
    pub(crate) entry: HistoryEntry,
    /// All of its files.
    pub(crate) sources: Vec<Source>,
}

/// The second line of a file.
#[derive(Serialize, Deserialize)]
struct Index {
    entry: HistoryEntry,
    sources: Vec<IndexedSource>,
}

#[derive(Serialize, Deserialize)]
struct IndexedSource {
    name: String,
    bytes: usize,
}

/// A state directory, taken by this process until it is dropped.
#[derive(Debug)]
pub(crate) struct StateDirectory {
    path: PathBuf,
    /// Locked, and what is synced after a rename.
    directory: File,
}

impl StateDirectory {
    /// Takes the directory; makes it with mode 0700 when there is none.
    pub(crate) fn open(path: &Path) -> Result<Self, StateError> {
        let failed = |error| StateError::System { path: path.into(), error };
        DirBuilder::new().recursive(true).mode(0o700).create(path).map_err(failed)?;
        let directory = File::open(path).map_err(failed)?;
        match directory.try_lock() {
            Ok(()) => {}
            Err(fs::TryLockError::WouldBlock) => return Err(StateError::InUse { path: path.into() }),
            Err(fs::TryLockError::Error(error)) => return Err(failed(error)),
        }
        match fs::remove_file(path.join(UNFINISHED)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(failed(error)),
            _ => Ok(Self { path: path.into(), directory }),
        }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// `None` when there never was one.
    pub(crate) fn last_good(&self) -> Result<Option<Saved>, StateError> {
        let path = self.path.join(LAST_GOOD);
        match path.try_exists() {
            Ok(false) => Ok(None),
            _ => read(&path).map(Some),
        }
    }

    pub(crate) fn save_last_good(&self, saved: &Saved) -> Result<(), StateError> {
        self.write(LAST_GOOD, saved)
    }

    pub(crate) fn generation(&self, number: u32) -> Result<Saved, StateError> {
        read(&self.path.join(generation_name(number)))
    }

    pub(crate) fn save_generation(&self, saved: &Saved) -> Result<(), StateError> {
        self.write(&generation_name(saved.entry.generation), saved)
    }

    pub(crate) fn remove_generation(&self, number: u32) -> Result<(), StateError> {
        let path = self.path.join(generation_name(number));
        match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(StateError::System { path, error }),
            _ => Ok(()),
        }
    }

    /// Numbers of the generations that have a file, whatever is in it, sorted.
    pub(crate) fn generations(&self) -> Result<Vec<u32>, StateError> {
        let failed = |error| StateError::System { path: self.path.clone(), error };
        let mut numbers = Vec::new();
        for file in fs::read_dir(&self.path).map_err(failed)? {
            let name = file.map_err(failed)?.file_name();
            let number = name.to_str().and_then(|name| name.strip_prefix(GENERATION)?.parse().ok());
            // Only names as they are made here: what else lies here is somebody else's.
            numbers.extend(number.filter(|number| *name == *generation_name(*number)));
        }
        numbers.sort_unstable();
        Ok(numbers)
    }

    fn write(&self, name: &str, saved: &Saved) -> Result<(), StateError> {
        let unfinished = self.path.join(UNFINISHED);
        let place = self.path.join(name);
        let bytes = encode(saved);
        let written = write_synced(&unfinished, &bytes)
            .and_then(|()| fs::rename(&unfinished, &place))
            .and_then(|()| self.directory.sync_all());
        written.map_err(|error| StateError::System { path: place, error })
    }
}

fn generation_name(number: u32) -> String {
    format!("{GENERATION}{number}")
}

fn write_synced(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(path)?;
    file.write_all(bytes)?;
    file.sync_all()
}

fn read(path: &Path) -> Result<Saved, StateError> {
    let failed = |error| StateError::System { path: path.into(), error };
    let mut bytes = Vec::new();
    let file = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(path).map_err(failed)?;
    file.take(FILE_BYTES_MAX as u64 + 1).read_to_end(&mut bytes).map_err(failed)?;
    decode(&bytes).map_err(|reason| StateError::Damaged { path: path.into(), reason: reason.into() })
}

fn encode(saved: &Saved) -> Vec<u8> {
    let source = |source: &Source| IndexedSource { name: source.name.clone(), bytes: source.bytes.len() };
    let index = Index { entry: saved.entry.clone(), sources: saved.sources.iter().map(source).collect() };
    // Only maps with keys that are no text can fail, and there is none.
    let mut body = serde_json::to_vec(&index).unwrap_or_default();
    body.push(b'\n');
    saved.sources.iter().for_each(|source| body.extend_from_slice(&source.bytes));
    let head = format!("{MAGIC} {:08x} {}\n", crc32fast::hash(&body), body.len());
    [head.into_bytes(), body].concat()
}

/// The file, or what is wrong with it.
fn decode(bytes: &[u8]) -> Result<Saved, &'static str> {
    if bytes.len() > FILE_BYTES_MAX {
        return Err("it is too large");
    }
    let (head, body) = split_line(bytes, HEAD_BYTES_MAX).ok_or("it has no first line")?;
    let head = str::from_utf8(head).ok().and_then(|head| head.strip_prefix(MAGIC)?.strip_prefix(' '));
    let (crc, len) = head.and_then(|head| head.split_once(' ')).ok_or("it is no state file of version 1")?;
    if len.parse() != Ok(body.len()) {
        return Err("its length is wrong");
    }
    if crc.len() != 8 || u32::from_str_radix(crc, 16) != Ok(crc32fast::hash(body)) {
        return Err("its checksum is wrong");
    }
    let saved = decode_body(body).ok_or("its index is wrong")?;
    if policy::digest(&saved.sources) != digest_of(&saved.entry)? {
        return Err("its texts are not those of its digest");
    }
    Ok(saved)
}

fn decode_body(body: &[u8]) -> Option<Saved> {
    let (index, mut texts) = split_line(body, body.len())?;
    let Index { entry, sources } = serde_json::from_slice(index).ok()?;
    let mut whole = Vec::new();
    for IndexedSource { name, bytes } in sources {
        let (text, rest) = texts.split_at_checked(bytes)?;
        whole.push(Source { name, bytes: text.into() });
        texts = rest;
    }
    texts.is_empty().then_some(Saved { entry, sources: whole })
}

fn digest_of(entry: &HistoryEntry) -> Result<u64, &'static str> {
    u64::from_str_radix(&entry.digest, 16).map_err(|_| "its digest is no number")
}

/// The line without its end, and what follows.
fn split_line(bytes: &[u8], line_bytes_max: usize) -> Option<(&[u8], &[u8])> {
    let end = bytes.iter().take(line_bytes_max).position(|&byte| byte == b'\n')?;
    Some((&bytes[..end], &bytes[end + 1..]))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;
    use crate::api::{By, Outcome};

    fn saved(generation: u32, text: &str) -> Saved {
        let source = |name: &str, text: &str| Source { name: name.into(), bytes: text.into() };
        let sources =
            vec![source("p/a.yaml", text), source("p/ß.yaml", ""), source("p/c.yaml", "x: \"1\"\n")];
        let digest = format!("{:016x}", policy::digest(&sources));
        let (by, outcome) = (By::Watch, Outcome::Stuck);
        Saved { entry: HistoryEntry { generation, digest, at_unix_s: 1_796_169_600, by, outcome }, sources }
    }

    #[test]
    fn what_is_written_is_read_again() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a/state");
        let state = StateDirectory::open(&path).unwrap();
        assert!(state.last_good().unwrap().is_none());
        state.save_last_good(&saved(1, "one")).unwrap();
        state.save_last_good(&saved(2, "two\nlines\n")).unwrap();
        state.save_generation(&saved(9, "nine")).unwrap();
        state.save_generation(&saved(10, "ten")).unwrap();
        drop(state);
        let state = StateDirectory::open(&path).unwrap();
        assert_eq!(state.last_good().unwrap(), Some(saved(2, "two\nlines\n")));
        assert_eq!(state.generations().unwrap(), [9, 10]);
        assert_eq!(state.generation(10).unwrap(), saved(10, "ten"));
        state.remove_generation(9).unwrap();
        state.remove_generation(9).unwrap();
        assert_eq!(state.generations().unwrap(), [10]);
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(&path), mode(&path.join(LAST_GOOD))), (0o700, 0o600));
    }

    #[test]
    fn a_file_that_is_cut_anywhere_is_not_believed() {
        let whole = encode(&saved(7, "some: text\n"));
        assert_eq!(decode(&whole), Ok(saved(7, "some: text\n")));
        for len in 0..whole.len() {
            assert!(decode(&whole[..len]).is_err(), "{len}");
        }
        let longer = [&whole[..], b"\n"].concat();
        assert!(decode(&longer).is_err());
    }

    #[test]
    fn a_file_with_any_bit_flipped_is_not_believed() {
        let whole = encode(&saved(7, "some: text\n"));
        for bit in 0..whole.len() * 8 {
            let mut changed = whole.clone();
            changed[bit / 8] ^= 1 << (bit % 8);
            // Hexadecimal digits mean the same in capitals: nothing else may pass.
            let passes = decode(&changed);
            assert!(passes.is_err() || passes == Ok(saved(7, "some: text\n")), "{bit}");
        }
    }

    /// With a checksum that is right: what somebody may have written by hand.
    #[test]
    fn an_index_that_does_not_fit_is_not_believed() {
        let whole = encode(&saved(7, "some: text\n"));
        let body = &whole[whole.iter().position(|&byte| byte == b'\n').unwrap() + 1..];
        let body = str::from_utf8(body).unwrap();
        for (from, to) in [
            ("\"bytes\":11", "\"bytes\":12"),
            ("\"bytes\":11", "\"bytes\":99999999999999999999"),
            ("\"bytes\":11", "\"bytes\":18446744073709551615"),
            ("p/a.yaml", "p/b.yaml"),
            ("some", "none"),
            ("\"watch\"", "\"nobody\""),
        ] {
            let body = body.replacen(from, to, 1);
            let head = format!("{MAGIC} {:08x} {}\n", crc32fast::hash(body.as_bytes()), body.len());
            assert!(decode((head + &body).as_bytes()).is_err(), "{from} {to}");
        }
    }

    /// The daemon was killed while it wrote, at any byte: before the rename the old file is whole.
    #[test]
    fn a_write_that_was_cut_leaves_the_file_before() {
        let directory = tempfile::tempdir().unwrap();
        let old = saved(1, "old");
        StateDirectory::open(directory.path()).unwrap().save_last_good(&old).unwrap();
        let new = encode(&saved(2, "new"));
        for len in 0..=new.len() {
            fs::write(directory.path().join(UNFINISHED), &new[..len]).unwrap();
            let state = StateDirectory::open(directory.path()).unwrap();
            assert!(!directory.path().join(UNFINISHED).exists());
            assert_eq!(state.last_good().unwrap().as_ref(), Some(&old));
        }
    }

    #[test]
    fn a_damaged_file_is_named_with_its_reason() {
        let directory = tempfile::tempdir().unwrap();
        let state = StateDirectory::open(directory.path()).unwrap();
        state.save_last_good(&saved(1, "old")).unwrap();
        let path = directory.path().join(LAST_GOOD);
        fs::OpenOptions::new().append(true).open(&path).unwrap().write_all(b"x").unwrap();
        let error = state.last_good().unwrap_err().to_string();
        assert_eq!(error, format!("{} is damaged (its length is wrong) and is not used", path.display()));
    }

    #[test]
    fn a_directory_has_one_daemon() {
        let directory = tempfile::tempdir().unwrap();
        let first = StateDirectory::open(directory.path()).unwrap();
        assert!(matches!(StateDirectory::open(directory.path()), Err(StateError::InUse { .. })));
        drop(first);
        StateDirectory::open(directory.path()).unwrap();
        let file = directory.path().join("file");
        fs::write(&file, "").unwrap();
        assert!(matches!(StateDirectory::open(&file), Err(StateError::System { .. })));
    }
}
