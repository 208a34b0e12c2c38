//! Reads a directory again and again: files that are as they were are not parsed again, and rules whose files are as
//! they were are not checked again.

use std::{collections::BTreeMap, mem, sync::Arc};

use crate::{
    Diagnostic, Diagnostics, Parsed, Place, Severity, Source, check, digest,
    documents::{Documents, Scope},
    kinds::check_statements,
    limit::{FILES_MAX, TOTAL_BYTES_MAX},
    read::Report,
};

/// What was read last. It changes how long reading takes and nothing else.
///
/// It keeps the bytes and documents of the files that it was given last, and nothing of those before, so what it holds
/// is bounded by what [`crate::limit`] lets in.
#[derive(Default, Debug)]
pub struct Reader {
    /// By [`crate::Position::source`].
    names: Vec<Arc<str>>,
    files: BTreeMap<Key, File>,
    checked: check::Checked,
    parsed_files: usize,
}

/// The name of a file, and how many before it have the same name.
type Key = (Arc<str>, usize);

/// A file as it was read.
#[derive(Debug)]
struct File {
    /// Its index among the names.
    number: u32,
    scope: Scope,
    bytes: Vec<u8>,
    digest: u64,
    documents: Documents,
    diagnostics: Diagnostics,
}

type Given<'a> = [(&'a Source, Scope)];

impl Reader {
    /// As [`crate::parse`].
    ///
    /// # Errors
    /// As [`crate::parse`].
    pub fn parse(&mut self, sources: &[Source]) -> Result<Parsed, Diagnostics> {
        self.parse_with_statements(sources, &[])
    }

    /// As [`crate::parse_with_statements`].
    ///
    /// # Errors
    /// As [`crate::parse`].
    pub fn parse_with_statements(
        &mut self,
        sources: &[Source],
        statements: &[Source],
    ) -> Result<Parsed, Diagnostics> {
        let files = given(sources, statements)?;
        self.parse_again(&files).unwrap_or_else(|| {
            *self = Self { parsed_files: files.len(), ..Self::default() };
            parse_all(&files)
        })
    }

    /// Files that the last call had to parse: the others were as they were.
    pub fn parsed_files(&self) -> usize {
        self.parsed_files
    }

    /// `None` when there is more to say than is kept: which of it is told hangs on what was found before, so all has to
    /// be looked at in one go.
    fn parse_again(&mut self, files: &Given) -> Option<Result<Parsed, Diagnostics>> {
        self.parsed_files = 0;
        let mut before = mem::take(&mut self.files);
        let mut free = self.free_numbers(files, &before);
        let mut documents = Documents::default();
        let mut diagnostics = Diagnostics::default();
        let mut digests = Vec::new();
        for (key, (source, scope)) in keys(files).into_iter().zip(files) {
            let file = match before.remove(&key) {
                Some(file) if file.scope == *scope && file.bytes == source.bytes => file,
                old => self.read(&key, old.map(|old| old.number), source, *scope, &mut free),
            };
            file.diagnostics.list.iter().cloned().for_each(|diagnostic| diagnostics.push(diagnostic));
            if diagnostics.is_full() {
                return None;
            }
            documents.extend(&file.documents);
            if *scope == Scope::All {
                digests.push((*source, file.digest));
            }
            self.files.insert(key, file);
        }
        let mut report = Report::new(&self.names);
        report.diagnostics = diagnostics;
        check::all(&documents, Some(&mut self.checked), &mut report);
        check_statements(&documents, &mut report);
        let diagnostics = report.diagnostics;
        (!diagnostics.is_full()).then(|| {
            finish(documents, diagnostics, files, &self.names, digest::of_files(digests.into_iter()))
        })
    }

    /// Numbers of files that are not given any more.
    fn free_numbers(&self, files: &Given, before: &BTreeMap<Key, File>) -> Vec<u32> {
        let mut is_free = vec![true; self.names.len()];
        for key in keys(files) {
            if let Some(file) = before.get(&key) {
                is_free[file.number as usize] = false;
            }
        }
        (0..).zip(is_free).filter(|(_, is_free)| *is_free).map(|(number, _)| number).collect()
    }

    fn read(
        &mut self,
        key: &Key,
        number: Option<u32>,
        source: &Source,
        scope: Scope,
        free: &mut Vec<u32>,
    ) -> File {
        self.parsed_files += 1;
        let number = number.or_else(|| free.pop()).unwrap_or_else(|| {
            self.names.push(key.0.clone());
            // There are fewer files than FILES_MAX.
            self.names.len() as u32 - 1
        });
        self.names[number as usize] = key.0.clone();
        let mut report = Report::new(&self.names);
        let mut documents = Documents::default();
        documents.read_file(number, &source.bytes, scope, &mut report);
        File {
            number,
            scope,
            bytes: source.bytes.clone(),
            digest: digest::of_file(source),
            documents,
            diagnostics: report.diagnostics,
        }
    }
}

/// Reads and checks all files, and keeps nothing.
pub(crate) fn parse(sources: &[Source], statements: &[Source]) -> Result<Parsed, Diagnostics> {
    parse_all(&given(sources, statements)?)
}

/// All files in their order, unless they are too much.
fn given<'a>(
    sources: &'a [Source],
    statements: &'a [Source],
) -> Result<Vec<(&'a Source, Scope)>, Diagnostics> {
    let mut files: Vec<(&Source, Scope)> = sources.iter().map(|file| (file, Scope::All)).collect();
    files.extend(statements.iter().map(|file| (file, Scope::Statements)));
    refuse_too_much(&files)?;
    files.sort_by(|(a, _), (b, _)| (&a.name, &a.bytes).cmp(&(&b.name, &b.bytes)));
    Ok(files)
}

fn parse_all(files: &Given) -> Result<Parsed, Diagnostics> {
    let names: Vec<Arc<str>> = files.iter().map(|(file, _)| file.name.as_str().into()).collect();
    let mut report = Report::new(&names);
    let mut documents = Documents::default();
    for (number, (file, scope)) in (0..).zip(files) {
        documents.read_file(number, &file.bytes, *scope, &mut report);
    }
    check::all(&documents, None, &mut report);
    check_statements(&documents, &mut report);
    let own = files.iter().filter(|(_, scope)| *scope == Scope::All);
    let digest = digest::of_files(own.map(|(file, _)| (*file, digest::of_file(file))));
    let diagnostics = report.diagnostics;
    finish(documents, diagnostics, files, &names, digest)
}

fn finish(
    documents: Documents,
    diagnostics: Diagnostics,
    files: &Given,
    names: &[Arc<str>],
    digest: u64,
) -> Result<Parsed, Diagnostics> {
    let diagnostics = diagnostics.sorted();
    if diagnostics.has_errors() {
        return Err(diagnostics);
    }
    let files = files.iter().map(|(file, _)| file.name.as_str().into()).collect();
    match documents.into_policy(files, names.to_vec(), digest) {
        Some(policy) => Ok(Parsed { policy, warnings: diagnostics }),
        None => Err(diagnostics),
    }
}

/// Names need not be unique.
fn keys(files: &Given) -> Vec<Key> {
    let mut keys: Vec<Key> = Vec::with_capacity(files.len());
    for (file, _) in files {
        let key = match keys.last() {
            Some((name, count)) if **name == *file.name => (name.clone(), count + 1),
            _ => (file.name.as_str().into(), 0),
        };
        keys.push(key);
    }
    keys
}

fn refuse_too_much(files: &Given) -> Result<(), Diagnostics> {
    let bytes: usize = files.iter().map(|(file, _)| file.bytes.len()).sum();
    let message = if files.len() > FILES_MAX {
        format!("there are {} files; at most {FILES_MAX} are read", files.len())
    } else if bytes > TOTAL_BYTES_MAX {
        format!("the files have {bytes} bytes together; at most {TOTAL_BYTES_MAX} are read")
    } else {
        return Ok(());
    };
    let diagnostic = Diagnostic::new(Severity::Error, Place::NOWHERE, message);
    Err(Diagnostics { list: vec![diagnostic], omitted: 0 })
}
