//! What lines and names alone tell.

use super::Source;

const LONGEST_LINES: usize = 1000;
const LONG_LINES: usize = 600;
/// One long file is allowed for so many files.
const FILES_PER_LONG: usize = 10;

/// Names that say nothing; a part of a name between `_` or `-` counts too.
const EMPTY_NAMES: [&str; 8] =
    ["util", "utils", "common", "commons", "helper", "helpers", "manager", "managers"];

/// Folders that exist on one machine only; written apart, so that this file passes its own check.
const MACHINE_FOLDERS: [&str; 3] = [concat!("/", "work/"), concat!("/", "root/"), concat!("/", "home/")];

/// No file over 1000 lines, and at most one in ten over 600.
pub fn sizes<'a>(sources: impl Iterator<Item = &'a Source>) -> Vec<String> {
    let (mut violations, mut long, mut files) = (Vec::new(), Vec::new(), 0);
    for Source { path, text } in sources {
        let lines = text.lines().count();
        files += 1;
        if lines > LONGEST_LINES {
            violations.push(format!("{path}: {lines} lines, more than {LONGEST_LINES}: split it"));
        }
        if lines > LONG_LINES {
            long.push(format!("{path} ({lines})"));
        }
    }
    if long.len() * FILES_PER_LONG > files {
        let (count, list) = (long.len(), long.join(", "));
        violations.push(format!(
            "{count} of {files} files have more than {LONG_LINES} lines, over one in {FILES_PER_LONG}: {list}"
        ));
    }
    violations
}

/// Header, white space and names of one Rust file.
pub fn check(Source { path, text }: &Source) -> Vec<String> {
    let mut violations = Vec::new();
    if !text.trim_start().starts_with("//!") {
        violations.push(format!("{path}:1: begin with a `//!` comment that says what the module is for"));
    }
    for (line, number) in text.lines().zip(1..) {
        if line.contains('\t') {
            violations.push(format!("{path}:{number}: a tab"));
        }
        if line.ends_with(|last: char| last.is_whitespace()) {
            violations.push(format!("{path}:{number}: the line ends in white space"));
        }
        if let Some(name) = module_name(line).filter(|name| is_empty_name(name)) {
            violations.push(format!("{path}:{number}: module `{name}`: name it after what it holds"));
        }
    }
    for part in path.split('/').map(|part| part.trim_end_matches(".rs")).filter(|part| is_empty_name(part)) {
        violations.push(format!("{path}: `{part}`: name it after what it holds"));
    }
    violations
}

/// Paths of one machine in any file.
pub fn machine_paths(Source { path, text }: &Source) -> Vec<String> {
    let mut violations = Vec::new();
    for (line, number) in text.lines().zip(1..) {
        for folder in MACHINE_FOLDERS.iter().filter(|folder| names(line, folder)) {
            violations.push(format!("{path}:{number}: {folder} is a folder of one machine"));
        }
    }
    violations
}

/// True when `folder` stands in `line` as an absolute path, not as the end of a longer one.
fn names(line: &str, folder: &str) -> bool {
    line.match_indices(folder).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        !before.is_some_and(|c| c.is_alphanumeric() || "._-*})/".contains(c))
    })
}

/// `name` of a line that declares `mod name`.
fn module_name(line: &str) -> Option<&str> {
    let declaration = line.trim_start();
    let unqualified = match declaration.strip_prefix("pub") {
        Some(rest) => rest.trim_start_matches(|c| c != 'm').trim_start(),
        None => declaration,
    };
    let name = unqualified.strip_prefix("mod ")?;
    Some(name.trim_end_matches([';', '{', '}', ' ']))
}

fn is_empty_name(name: &str) -> bool {
    name.split(['_', '-']).any(|part| EMPTY_NAMES.contains(&part))
}

#[cfg(test)]
mod tests {
    use super::super::tests::source;
    use super::*;

    fn lines(path: &str, count: usize) -> Source {
        source(path, &"//! x\n".repeat(count))
    }

    #[test]
    fn long_files_are_counted() {
        let nine: Vec<_> = (0..9).map(|i| lines(&format!("{i}.rs"), 600)).collect();
        let mut sources = nine;
        sources.push(lines("long.rs", 1000));
        assert_eq!(sizes(sources.iter()), [] as [String; 0]);
        sources[0] = lines("0.rs", 601);
        assert!(sizes(sources.iter())[0].starts_with("2 of 10 files have more than 600 lines"));
        sources[0] = lines("0.rs", 1001);
        assert!(sizes(sources.iter())[0].starts_with("0.rs: 1001 lines"));
    }

    #[test]
    fn headers_and_white_space() {
        let found = |text| check(&source("a.rs", text));
        assert_eq!(found("//! A.\n"), [] as [String; 0]);
        assert!(found("// A.\n")[0].contains("a.rs:1: begin with"));
        assert!(found("")[0].contains("begin with"));
        assert!(found("//! A.\n\tlet x;\n")[0].contains("a.rs:2: a tab"));
        assert!(found("//! A.\n\n// x \n")[0].contains("a.rs:3: the line ends in white space"));
    }

    #[test]
    fn empty_names() {
        let found = |path, text: &str| check(&source(path, &format!("//! A.\n{text}\n"))).len();
        for path in ["a/src/util.rs", "helpers/src/lib.rs", "a/src/flow_manager.rs", "a/common/mod.rs"] {
            assert_eq!(found(path, ""), 1, "{path}");
        }
        for text in ["mod util;", "pub mod helper {", "pub(crate) mod net_utils;", "    mod common {}"] {
            assert_eq!(found("a.rs", text), 1, "{text}");
        }
        for text in ["mod utility;", "// mod util;", "let util = 1;", "mod commonly {"] {
            assert_eq!(found("a.rs", text), 0, "{text}");
        }
    }

    #[test]
    fn folders_of_one_machine() {
        for folder in MACHINE_FOLDERS {
            let found = |line: String| machine_paths(&source("a.md", &line)).len();
            assert_eq!(found(format!("cd {folder}x")), 1);
            assert_eq!(found(format!("{folder}x")), 1);
            assert_eq!(found(format!("\"{folder}x\"")), 1);
            assert_eq!(found(format!("https://example.org{folder}x or a{folder}x")), 0);
        }
    }
}
