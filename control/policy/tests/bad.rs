//! Each directory in `tests/bad` is a policy that is refused; beside it stands everything that is said of it. To accept
//! a change, read it and run with `INSTA_UPDATE=always`.
#![allow(clippy::unwrap_used)] // what a test sets up may fail it

use std::{fs, path::Path};

use policy::{Source, parse};

fn sources(folder: &Path) -> Vec<Source> {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let source = |path: std::path::PathBuf| Source {
        name: path.file_name().unwrap().to_str().unwrap().into(),
        bytes: fs::read(&path).unwrap(),
    };
    entries.map(source).collect()
}

fn check(name: &str) {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/bad");
    let sources = sources(&root.join(name));
    let diagnostics = parse(&sources).unwrap_err();
    assert!(diagnostics.has_errors());
    let mut settings = insta::Settings::new();
    settings.set_snapshot_path(root);
    settings.set_prepend_module_to_snapshot(false);
    settings.set_omit_expression(true);
    settings.bind(|| insta::assert_snapshot!(name, diagnostics.render(&sources)));
}

macro_rules! cases {
    ($($name:ident,)+) => {
        $(#[test] fn $name() { check(stringify!($name)); })+

        #[test]
        fn every_directory_is_a_case() {
            let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/bad");
            let mut found: Vec<String> = fs::read_dir(root).unwrap().map(|entry| entry.unwrap())
                .filter(|entry| entry.file_type().unwrap().is_dir())
                .map(|entry| entry.file_name().into_string().unwrap()).collect();
            found.sort();
            assert_eq!(found, [$(stringify!($name)),+]);
        }
    };
}

cases! { documents, fields, hops, kubernetes, ownership, references, rules, scalars, statements, syntax, uplink, }
