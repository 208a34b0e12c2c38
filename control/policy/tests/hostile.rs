//! Whatever is done to a document, reading it ends with a policy or with errors at places that exist.
#![allow(clippy::unwrap_used)] // what a test sets up may fail it

use std::{fs, path::Path};

use policy::{Diagnostics, Parsed, Source, parse};
use proptest::{collection::vec, prelude::*, sample::Index};

/// What breaks readers of YAML.
const FRAGMENTS: &[&str] = &[
    "\n",
    "\t",
    " ",
    ":",
    ": ",
    "- ",
    "-",
    "---\n",
    "\n---\n",
    "...\n",
    "%YAML 1.2\n",
    "&a ",
    "*a",
    "!!str ",
    "!",
    "|\n",
    ">-\n",
    "\"",
    "'",
    "{",
    "}",
    "[",
    "]",
    ",",
    "#",
    "? ",
    "~",
    "null",
    "\0",
    "\u{feff}",
    "\r",
    "\r\n",
    "\u{85}",
    "\u{2028}",
    "é",
    "\\x",
    "<<: ",
    "1e3",
    "0x1",
    "-1",
    "99999999999999999999",
    "true",
    "10.0.0.0/8",
    "::/0",
    "spec: ",
    "name: ",
    "@",
    "`",
    "\\",
];

#[derive(Clone, Debug)]
enum Edit {
    Insert(Index, Index),
    Remove(Index, usize),
    Flip(Index, u8),
    Truncate(Index),
    CopyLine(Index, Index),
    RemoveLine(Index),
    Indent(Index, usize),
}

fn edit() -> impl Strategy<Value = Edit> {
    let index = any::<Index>;
    prop_oneof![
        4 => (index(), index()).prop_map(|(at, what)| Edit::Insert(at, what)),
        2 => (index(), 1..20usize).prop_map(|(at, count)| Edit::Remove(at, count)),
        2 => (index(), any::<u8>()).prop_map(|(at, bits)| Edit::Flip(at, bits)),
        1 => index().prop_map(Edit::Truncate),
        2 => (index(), index()).prop_map(|(from, to)| Edit::CopyLine(from, to)),
        2 => index().prop_map(Edit::RemoveLine),
        1 => (index(), 0..6usize).prop_map(|(line, spaces)| Edit::Indent(line, spaces)),
    ]
}

fn apply(bytes: &mut Vec<u8>, edit: &Edit) {
    let place = |index: &Index, len: usize| index.index(len + 1);
    let len = bytes.len();
    let mut lines: Vec<Vec<u8>> = bytes.split_inclusive(|byte| *byte == b'\n').map(<[u8]>::to_vec).collect();
    match edit {
        Edit::Insert(at, what) => {
            let at = place(at, len);
            bytes.splice(at..at, what.get(FRAGMENTS).bytes());
        }
        Edit::Remove(at, count) => {
            let at = place(at, len);
            bytes.drain(at..(at + count).min(len));
        }
        Edit::Flip(at, bits) if len > 0 => bytes[at.index(len)] ^= bits,
        Edit::Truncate(at) => bytes.truncate(place(at, len)),
        Edit::CopyLine(from, to) if !lines.is_empty() => {
            let line = from.get(&lines).clone();
            lines.insert(place(to, lines.len()), line);
            *bytes = lines.concat();
        }
        Edit::RemoveLine(line) if !lines.is_empty() => {
            lines.remove(line.index(lines.len()));
            *bytes = lines.concat();
        }
        Edit::Indent(line, spaces) if !lines.is_empty() => {
            let index = line.index(lines.len());
            let text: Vec<u8> = lines[index].iter().copied().skip_while(|byte| *byte == b' ').collect();
            lines[index] = [b" ".repeat(*spaces), text].concat();
            *bytes = lines.concat();
        }
        _ => {}
    }
}

/// Every file of every example and of every refused directory.
fn seeds() -> Vec<Vec<Source>> {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut seeds = Vec::new();
    for root in [here.join("../../deploy/policies"), here.join("tests/bad")] {
        for entry in
            fs::read_dir(root).unwrap().map(|entry| entry.unwrap().path()).filter(|path| path.is_dir())
        {
            let mut files: Vec<_> = fs::read_dir(entry).unwrap().map(|file| file.unwrap().path()).collect();
            files.sort();
            let source = |path: &std::path::PathBuf| Source {
                name: path.file_name().unwrap().to_str().unwrap().into(),
                bytes: fs::read(path).unwrap(),
            };
            seeds.push(files.iter().map(source).collect());
        }
    }
    seeds
}

fn check(sources: &[Source]) -> Result<(), TestCaseError> {
    let result = parse(sources);
    let diagnostics = match &result {
        Ok(Parsed { warnings, .. }) => {
            prop_assert!(!warnings.has_errors());
            warnings
        }
        Err(diagnostics) => {
            prop_assert!(diagnostics.has_errors());
            diagnostics
        }
    };
    places_exist(diagnostics, sources)?;
    let sorted = diagnostics.list.windows(2).all(|pair| {
        (&pair[0].source, pair[0].line, pair[0].column) <= (&pair[1].source, pair[1].line, pair[1].column)
    });
    prop_assert!(sorted, "{}", diagnostics);
    diagnostics.render(sources);
    Ok(())
}

fn places_exist(diagnostics: &Diagnostics, sources: &[Source]) -> Result<(), TestCaseError> {
    let related = diagnostics.list.iter().filter_map(|one| one.related.as_ref());
    let places = diagnostics.list.iter().map(|one| (&one.source, one.line, one.column));
    for (name, line, column) in places.chain(related.map(|one| (&one.source, one.line, one.column))) {
        if name.is_empty() {
            prop_assert_eq!((line, column), (0, 0));
            continue;
        }
        let source = sources.iter().find(|source| source.name == *name).unwrap();
        let text = String::from_utf8_lossy(&source.bytes).replace("\r\n", "\n").replace('\r', "\n");
        let text = text.strip_prefix('\u{feff}').unwrap_or(&text);
        let lines: Vec<&str> = text.split('\n').collect();
        prop_assert!((1..=lines.len()).contains(&(line as usize)), "{name}:{line}:{column}\n{diagnostics}");
        let columns = lines[line as usize - 1].chars().count() + 1;
        prop_assert!((1..=columns).contains(&(column as usize)), "{name}:{line}:{column}\n{diagnostics}");
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn edited_files_never_panic(seed: Index, edits in vec((any::<Index>(), edit()), 1..12)) {
        let mut sources = seed.get(&seeds()).clone();
        for (file, edit) in &edits {
            let file = file.index(sources.len());
            apply(&mut sources[file].bytes, edit);
        }
        check(&sources)?;
    }

    #[test]
    fn any_fragments_never_panic(parts in vec(any::<Index>(), 0..60)) {
        let text: String = parts.iter().map(|part| *part.get(FRAGMENTS)).collect();
        check(&[Source { name: "a.yaml".into(), bytes: text.into() }])?;
    }

    #[test]
    fn any_bytes_never_panic(bytes in vec(any::<u8>(), 0..200)) {
        check(&[Source { name: "a.yaml".into(), bytes }])?;
    }
}
