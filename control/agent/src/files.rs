//! Reads a policy directory: every `*.yaml`, `*.yml` and `*.json` in it, not those in its subdirectories.
//!
//! A directory is one transaction, so anything doubtful refuses it whole. Each file is opened once and judged by what
//! was opened; nothing is read beyond the bounds of [`policy::limit`].

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Read},
    os::unix::fs::{FileTypeExt, OpenOptionsExt},
    path::{Path, PathBuf},
};

use policy::{
    Source,
    limit::{FILE_BYTES_MAX, FILES_MAX, TOTAL_BYTES_MAX},
};

/// How often a directory is read again when it is switched meanwhile.
const ATTEMPTS: usize = 8;

/// Why a directory is refused. Each says it in a sentence that names the file.
#[derive(Debug, thiserror::Error)]
pub enum FilesError {
    /// The directory cannot be listed.
    #[error("cannot read the directory {}: {}", path.display(), sentence(error))]
    Directory {
        /// The directory.
        path: PathBuf,
        /// What the system says.
        error: io::Error,
    },
    /// It is a file, or something else.
    #[error("{} is not a directory; give the directory that holds the policy files", path.display())]
    NotADirectory {
        /// What was given.
        path: PathBuf,
    },
    /// No file has one of the endings.
    #[error("{} holds no policy file: nothing in it ends in .yaml, .yml or .json", path.display())]
    Empty {
        /// The directory.
        path: PathBuf,
    },
    /// More than [`FILES_MAX`].
    #[error("{} holds more than {FILES_MAX} policy files", path.display())]
    TooMany {
        /// The directory.
        path: PathBuf,
    },
    /// The name cannot be printed as it is.
    #[error("the name of {path:?} is not UTF-8 or has control characters; rename the file")]
    Name {
        /// The file.
        path: PathBuf,
    },
    /// The file cannot be read.
    #[error("cannot read {}: {}", path.display(), sentence(error))]
    File {
        /// The file.
        path: PathBuf,
        /// What the system says.
        error: io::Error,
    },
    /// A directory, FIFO, socket or device.
    #[error("{} is a {kind}, not a regular file", path.display())]
    NotAFile {
        /// The file.
        path: PathBuf,
        /// What it is.
        kind: &'static str,
    },
    /// Larger than [`FILE_BYTES_MAX`].
    #[error("{} is larger than {} MiB", path.display(), FILE_BYTES_MAX >> 20)]
    TooLarge {
        /// The file.
        path: PathBuf,
    },
    /// All files together are larger than [`TOTAL_BYTES_MAX`].
    #[error("the policy files up to {} are larger than {} MiB together", path.display(), TOTAL_BYTES_MAX >> 20)]
    TooLargeTogether {
        /// The first file, by name, that does not fit.
        path: PathBuf,
    },
    /// Its `..data` link was switched each time while the files were read.
    #[error("{} was switched to other files while it was read, {ATTEMPTS} times; try again", path.display())]
    Switching {
        /// The directory.
        path: PathBuf,
    },
}

/// Reads all policy files of `path`, sorted by name. Hidden files are skipped, links are followed.
///
/// Kubernetes mounts files as links through a link `..data`, which it switches at once for all of them. When that
/// happens in between, everything is read again: the files given out belong together.
///
/// # Errors
/// See [`FilesError`].
pub fn read_directory(path: &Path) -> Result<Vec<Source>, FilesError> {
    read_steadily(path, read_once)
}

/// Reads these files, whatever their names end in.
///
/// # Errors
/// See [`FilesError`].
pub fn read_files(paths: &[PathBuf]) -> Result<Vec<Source>, FilesError> {
    let mut room = TOTAL_BYTES_MAX;
    let mut sources = Vec::new();
    for path in paths {
        if !is_printable(path) {
            return Err(FilesError::Name { path: path.clone() });
        }
        let bytes = read_file(path, room)?;
        room -= bytes.len();
        sources.push(Source { name: path.display().to_string(), bytes });
    }
    Ok(sources)
}

fn read_steadily(
    path: &Path,
    mut read: impl FnMut(&Path) -> Result<Vec<Source>, FilesError>,
) -> Result<Vec<Source>, FilesError> {
    let link = path.join("..data");
    for _ in 0..ATTEMPTS {
        let before = fs::read_link(&link).ok();
        let sources = read(path);
        // An error counts only if the directory stayed: a file may be missed because it went with the old ones.
        if fs::read_link(&link).ok() == before {
            return sources;
        }
    }
    Err(FilesError::Switching { path: path.into() })
}

fn read_once(path: &Path) -> Result<Vec<Source>, FilesError> {
    let mut room = TOTAL_BYTES_MAX;
    let mut sources = Vec::new();
    for file in list(path)? {
        let bytes = read_file(&file, room)?;
        room -= bytes.len();
        // `list` refused every name that is not UTF-8.
        sources.push(Source { name: file.display().to_string(), bytes });
    }
    Ok(sources)
}

/// Paths of the policy files, sorted.
fn list(path: &Path) -> Result<Vec<PathBuf>, FilesError> {
    let failed = |error: io::Error| match error.kind() {
        io::ErrorKind::NotADirectory => FilesError::NotADirectory { path: path.into() },
        _ => FilesError::Directory { path: path.into(), error },
    };
    let mut files = Vec::new();
    for entry in fs::read_dir(path).map_err(failed)? {
        let name = entry.map_err(failed)?.file_name();
        if !is_policy_file(Path::new(&name)) {
            continue;
        }
        let file = path.join(name);
        if !is_printable(&file) {
            return Err(FilesError::Name { path: file });
        }
        if files.len() == FILES_MAX {
            return Err(FilesError::TooMany { path: path.into() });
        }
        files.push(file);
    }
    if files.is_empty() {
        return Err(FilesError::Empty { path: path.into() });
    }
    files.sort_unstable();
    Ok(files)
}

fn is_policy_file(name: &Path) -> bool {
    let is_hidden = name.as_os_str().as_encoded_bytes().starts_with(b".");
    !is_hidden && name.extension().is_some_and(|ending| ["yaml", "yml", "json"].iter().any(|e| ending == *e))
}

fn is_printable(path: &Path) -> bool {
    path.to_str().is_some_and(|text| !text.contains(char::is_control))
}

fn read_file(path: &Path, room: usize) -> Result<Vec<u8>, FilesError> {
    let failed = |error| FilesError::File { path: path.into(), error };
    // Looked at before it is opened, since opening a device may already do something.
    refuse_unless_regular(path, &fs::metadata(path).map_err(failed)?)?;
    // Not to wait for a writer, should it be a FIFO by now.
    let file = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(path).map_err(failed)?;
    let metadata = file.metadata().map_err(failed)?;
    refuse_unless_regular(path, &metadata)?;
    refuse_too_large(path, metadata.len(), room)?;
    let bytes = read_bounded(file).map_err(failed)?;
    // Again, since it may have grown.
    refuse_too_large(path, bytes.len() as u64, room)?;
    Ok(bytes)
}

/// Reads to the end, or one byte more than a file may have.
fn read_bounded(file: File) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    file.take(FILE_BYTES_MAX as u64 + 1).read_to_end(&mut bytes)?;
    Ok(bytes)
}

fn refuse_unless_regular(path: &Path, metadata: &fs::Metadata) -> Result<(), FilesError> {
    let kind = metadata.file_type();
    let kind = match () {
        () if kind.is_file() => return Ok(()),
        () if kind.is_dir() => "directory",
        () if kind.is_fifo() => "FIFO",
        () if kind.is_socket() => "socket",
        () => "device",
    };
    Err(FilesError::NotAFile { path: path.into(), kind })
}

fn refuse_too_large(path: &Path, len: u64, room: usize) -> Result<(), FilesError> {
    if len > FILE_BYTES_MAX as u64 {
        return Err(FilesError::TooLarge { path: path.into() });
    }
    if len > room as u64 {
        return Err(FilesError::TooLargeTogether { path: path.into() });
    }
    Ok(())
}

/// What the system says, without the number that `io::Error` appends.
pub(crate) fn sentence(error: &io::Error) -> String {
    let text = error.to_string();
    text.split(" (os error").next().unwrap_or(&text).to_lowercase()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    /// A mount as the kubelet makes it: `x.yaml -> ..data/x.yaml`, `..data -> <version>`.
    fn mount() -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        for version in ["..1", "..2"] {
            fs::create_dir(dir.path().join(version)).unwrap();
            fs::write(dir.path().join(version).join("x.yaml"), version).unwrap();
        }
        symlink("..1", dir.path().join("..data")).unwrap();
        symlink("..data/x.yaml", dir.path().join("x.yaml")).unwrap();
        dir
    }

    fn switch(dir: &Path, version: &str) {
        symlink(version, dir.join("..new")).unwrap();
        fs::rename(dir.join("..new"), dir.join("..data")).unwrap();
    }

    #[test]
    fn a_mount_that_is_switched_meanwhile_is_read_again() {
        let dir = mount();
        let mut reads = 0;
        let sources = read_steadily(dir.path(), |path| {
            reads += 1;
            let sources = read_once(path);
            if reads == 1 {
                switch(path, "..2");
            }
            sources
        });
        assert_eq!(reads, 2);
        assert_eq!(sources.unwrap()[0].bytes, b"..2");
    }

    #[test]
    fn an_error_from_the_middle_of_a_switch_is_not_believed() {
        let dir = mount();
        let mut reads = 0;
        let sources = read_steadily(dir.path(), |path| {
            reads += 1;
            if reads > 1 {
                return read_once(path);
            }
            fs::remove_dir_all(path.join("..1")).unwrap();
            let error = read_once(path);
            switch(path, "..2");
            error
        });
        assert_eq!(sources.unwrap()[0].bytes, b"..2");
    }

    #[test]
    fn a_mount_that_never_rests_is_refused() {
        let dir = mount();
        let mut reads = 0;
        let error = read_steadily(dir.path(), |path| {
            reads += 1;
            switch(path, ["..1", "..2"][reads % 2]);
            read_once(path)
        });
        assert!(matches!(error, Err(FilesError::Switching { .. })), "{error:?}");
        assert_eq!(reads, ATTEMPTS);
    }
}
