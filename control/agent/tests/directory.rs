//! Reading a policy directory, and every way to be refused.
#![allow(missing_docs, clippy::unwrap_used)]

use std::{
    fs::{self, File},
    os::unix::{ffi::OsStrExt, fs::symlink, net::UnixListener},
    path::Path,
    process::Command,
};

use agent::files::{FilesError, read_directory};
use policy::limit::{FILE_BYTES_MAX, FILES_MAX, TOTAL_BYTES_MAX};

fn directory(files: &[&str]) -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    for file in files {
        fs::write(directory.path().join(file), format!("text of {file}")).unwrap();
    }
    directory
}

/// A file of that size without a block on the disk.
fn sparse(path: &Path, bytes: usize) {
    File::create(path).unwrap().set_len(bytes as u64).unwrap();
}

fn refusal(directory: &Path) -> (FilesError, String) {
    let error = read_directory(directory).unwrap_err();
    let text = error.to_string();
    assert!(!text.contains("os error") && !text.contains('\n'), "{text}");
    (error, text)
}

#[test]
fn policy_files_are_read_in_the_order_of_their_names() {
    let dir = directory(&[
        "b.yml",
        "c.json",
        "a.yaml",
        ".hidden.yaml",
        "notes.txt",
        "a.yaml~",
        "yaml",
        "a.yaml.bak",
    ]);
    fs::create_dir(dir.path().join("sub")).unwrap();
    fs::write(dir.path().join("sub/d.yaml"), "").unwrap();
    let sources = read_directory(dir.path()).unwrap();
    let names: Vec<_> = sources.iter().map(|source| source.name.clone()).collect();
    let given = |name: &str| dir.path().join(name).display().to_string();
    assert_eq!(names, [given("a.yaml"), given("b.yml"), given("c.json")]);
    assert_eq!(sources[1].bytes, b"text of b.yml");
}

/// The kubelet's layout: `x.yaml -> ..data/x.yaml`, `..data -> ..2026_01_01`.
#[test]
fn a_kubernetes_mount_is_read_through_its_links() {
    let dir = directory(&[]);
    fs::create_dir(dir.path().join("..2026_01_01")).unwrap();
    fs::write(dir.path().join("..2026_01_01/x.yaml"), "x").unwrap();
    symlink("..2026_01_01", dir.path().join("..data")).unwrap();
    symlink("..data/x.yaml", dir.path().join("x.yaml")).unwrap();
    let sources = read_directory(dir.path()).unwrap();
    assert_eq!(sources.len(), 1);
    assert_eq!(sources[0].name, dir.path().join("x.yaml").display().to_string());
    assert_eq!(sources[0].bytes, b"x");
}

#[test]
fn bytes_that_are_no_utf8_are_left_to_the_parser() {
    let dir = directory(&[]);
    fs::write(dir.path().join("a.yaml"), b"\xff\x00").unwrap();
    assert_eq!(read_directory(dir.path()).unwrap()[0].bytes, b"\xff\x00");
}

#[test]
fn an_absent_an_empty_and_a_false_directory_are_refused() {
    let dir = directory(&["notes.txt"]);
    let (_, text) = refusal(&dir.path().join("none"));
    assert!(text.ends_with("none: no such file or directory"), "{text}");
    let (error, text) = refusal(dir.path());
    assert!(matches!(error, FilesError::Empty { .. }), "{text}");
    let (error, text) = refusal(&dir.path().join("notes.txt"));
    assert!(matches!(error, FilesError::NotADirectory { .. }), "{text}");
}

#[test]
fn what_is_not_a_regular_file_is_refused_and_not_waited_for() {
    type Make = fn(&Path);
    let fifo: Make = |path| assert!(Command::new("mkfifo").arg(path).status().unwrap().success());
    let subdirectory: Make = |path| fs::create_dir(path).unwrap();
    let socket: Make = |path| drop(UnixListener::bind(path).unwrap());
    let endless: Make = |path| symlink("/dev/zero", path).unwrap();
    for (kind, make) in [("FIFO", fifo), ("directory", subdirectory), ("socket", socket), ("device", endless)]
    {
        let dir = directory(&["a.yaml"]);
        make(&dir.path().join("b.yaml"));
        let (error, text) = refusal(dir.path());
        assert!(matches!(error, FilesError::NotAFile { .. }), "{text}");
        assert!(text.ends_with(&format!("b.yaml is a {kind}, not a regular file")), "{text}");
    }
}

#[test]
fn links_that_lead_nowhere_are_refused() {
    let dir = directory(&["a.yaml"]);
    symlink("loop.yaml", dir.path().join("loop.yaml")).unwrap();
    let (_, text) = refusal(dir.path());
    assert!(text.ends_with("loop.yaml: too many levels of symbolic links"), "{text}");
    fs::remove_file(dir.path().join("loop.yaml")).unwrap();
    symlink("gone", dir.path().join("gone.yaml")).unwrap();
    let (_, text) = refusal(dir.path());
    assert!(text.ends_with("gone.yaml: no such file or directory"), "{text}");
}

#[test]
fn large_files_are_refused_by_name_before_they_are_read() {
    let dir = directory(&["a.yaml"]);
    sparse(&dir.path().join("big.yaml"), 100 << 20);
    let (error, text) = refusal(dir.path());
    assert!(matches!(error, FilesError::TooLarge { .. }), "{text}");
    assert!(text.ends_with("big.yaml is larger than 8 MiB"), "{text}");
    sparse(&dir.path().join("big.yaml"), FILE_BYTES_MAX + 1);
    assert!(matches!(refusal(dir.path()).0, FilesError::TooLarge { .. }));
    sparse(&dir.path().join("big.yaml"), FILE_BYTES_MAX);
    assert_eq!(read_directory(dir.path()).unwrap()[1].bytes.len(), FILE_BYTES_MAX);
}

#[test]
fn many_files_that_are_too_large_together_are_refused() {
    let dir = directory(&[]);
    for number in 0..TOTAL_BYTES_MAX / FILE_BYTES_MAX {
        sparse(&dir.path().join(format!("{number}.yaml")), FILE_BYTES_MAX);
    }
    assert_eq!(read_directory(dir.path()).unwrap().len(), TOTAL_BYTES_MAX / FILE_BYTES_MAX);
    fs::write(dir.path().join("last.yaml"), "x").unwrap();
    let (error, text) = refusal(dir.path());
    assert!(matches!(error, FilesError::TooLargeTogether { .. }), "{text}");
    assert!(text.contains("last.yaml are larger than 64 MiB together"), "{text}");
}

#[test]
fn too_many_files_are_refused() {
    let dir = directory(&[]);
    for number in 0..FILES_MAX {
        File::create(dir.path().join(format!("{number}.yaml"))).unwrap();
    }
    assert_eq!(read_directory(dir.path()).unwrap().len(), FILES_MAX);
    File::create(dir.path().join("last.yaml")).unwrap();
    let (error, text) = refusal(dir.path());
    assert!(matches!(error, FilesError::TooMany { .. }), "{text}");
}

#[test]
fn names_that_cannot_be_printed_are_refused() {
    for name in [&b"\xff.yaml"[..], b"a\nb.yaml", b"a\x1b[31m.yaml"] {
        let dir = directory(&[]);
        File::create(dir.path().join(std::ffi::OsStr::from_bytes(name))).unwrap();
        let (error, text) = refusal(dir.path());
        assert!(matches!(error, FilesError::Name { .. }), "{text}");
        assert!(!text.contains('\x1b'), "{text}");
    }
}

/// Root may read everything, so here it is a file that no one can read.
#[test]
fn a_file_that_cannot_be_read_is_named() {
    let dir = directory(&[]);
    symlink("/proc/self/mem", dir.path().join("mem.yaml")).unwrap();
    let (error, text) = refusal(dir.path());
    assert!(matches!(error, FilesError::File { .. }), "{text}");
    assert!(text.contains("mem.yaml: "), "{text}");
}
