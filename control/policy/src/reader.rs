//! Reads a directory again and again: files that are as they were are not parsed again, and rules whose files are as
//! they were are not checked again.

use std::{mem, sync::Arc};

use foldhash::fast::FixedState;
use hashbrown::HashMap;

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
    /// There are few enough of them for a hash that is the same each time.
    files: HashMap<Key, File, FixedState>,
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

/// Files that are parsed before it is looked at what was wrong with them.
const BATCH: usize = 64;

type Given<'a> = [(&'a Source, Scope)];

impl Reader {
    /// As [`crate::parse`].
    ///
    /// # Errors
    /// As [`crate::parse`].
    pub fn parse(&mut self, sources: &[Source]) -> Result<Parsed, Diagnostics> {
        self.parse_by(sources, &[], |_| {})
    }

    /// As [`crate::parse_with_statements`], for who has more than one thread: `run` is given files by the batch and may
    /// run each of them on any thread. Those that it leaves are run after it.
    ///
    /// # Errors
    /// As [`crate::parse`].
    pub fn parse_by(
        &mut self,
        sources: &[Source],
        statements: &[Source],
        run: impl FnMut(&mut [&mut Task<'_>]),
    ) -> Result<Parsed, Diagnostics> {
        let files = given(sources, statements)?;
        self.parse_again(&files, run).unwrap_or_else(|| {
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
    fn parse_again(
        &mut self,
        files: &Given,
        mut run: impl FnMut(&mut [&mut Task<'_>]),
    ) -> Option<Result<Parsed, Diagnostics>> {
        let keys = keys(files);
        let numbers = self.number(&keys);
        let mut before = mem::take(&mut self.files);
        let mut documents = Documents::default();
        let mut diagnostics = Diagnostics::default();
        let mut digests = Vec::new();
        self.parsed_files = 0;
        let tasks: Vec<Task> = keys
            .iter()
            .zip(numbers)
            .zip(files)
            .map(|((key, number), &(source, scope))| {
                let file =
                    before.remove(key).filter(|file| file.scope == scope && file.bytes == source.bytes);
                Task { names: &self.names, key, number, source, scope, file }
            })
            .collect();
        let mut tasks = tasks.into_iter().peekable();
        while tasks.peek().is_some() {
            // A batch is what can be wrong in memory at once.
            let mut batch: Vec<Task> = tasks.by_ref().take(BATCH).collect();
            let mut new: Vec<&mut Task> = batch.iter_mut().filter(|task| task.file.is_none()).collect();
            self.parsed_files += new.len();
            run(&mut new);
            for mut task in batch {
                task.run();
                let Task { key, source, scope, file: Some(file), .. } = task else { continue };
                file.diagnostics.list.iter().cloned().for_each(|diagnostic| diagnostics.push(diagnostic));
                if diagnostics.is_full() {
                    return None;
                }
                documents.extend(&file.documents);
                if scope == Scope::All {
                    digests.push((source, file.digest));
                }
                self.files.insert(key.clone(), file);
            }
        }
        let digest = digest::of_files(digests.into_iter());
        let diagnostics = self.check(&documents, diagnostics);
        (!diagnostics.is_full()).then(|| finish(documents, diagnostics, files, &self.names, digest))
    }

    fn check(&mut self, documents: &Documents, diagnostics: Diagnostics) -> Diagnostics {
        let mut report = Report::new(&self.names);
        report.diagnostics = diagnostics;
        check::all(documents, Some(&mut self.checked), &mut report);
        check_statements(documents, &mut report);
        report.diagnostics
    }

    /// The number of each file: the one that it had, or one that no file has any more, or a new one.
    fn number(&mut self, keys: &[Key]) -> Vec<u32> {
        let old: Vec<Option<u32>> =
            keys.iter().map(|key| self.files.get(key).map(|file| file.number)).collect();
        let mut is_free = vec![true; self.names.len()];
        old.iter().flatten().for_each(|number| is_free[*number as usize] = false);
        let mut free = (0..).zip(is_free).filter(|(_, is_free)| *is_free).map(|(number, _)| number);
        let numbers = keys.iter().zip(old).map(|(key, old)| {
            let number = old.or_else(|| free.next()).unwrap_or_else(|| {
                self.names.push(key.0.clone());
                // There are fewer files than FILES_MAX.
                self.names.len() as u32 - 1
            });
            self.names[number as usize] = key.0.clone();
            number
        });
        numbers.collect()
    }
}

/// A file that is to be parsed, if it is not known.
#[derive(Debug)]
pub struct Task<'a> {
    names: &'a [Arc<str>],
    key: &'a Key,
    number: u32,
    source: &'a Source,
    scope: Scope,
    file: Option<File>,
}

impl Task<'_> {
    /// Parses the file, unless that is done.
    pub fn run(&mut self) {
        if self.file.is_some() {
            return;
        }
        let mut report = Report::new(self.names);
        let mut documents = Documents::default();
        documents.read_file(self.number, &self.source.bytes, self.scope, &mut report);
        self.file = Some(File {
            number: self.number,
            scope: self.scope,
            bytes: self.source.bytes.clone(),
            digest: digest::of_file(self.source),
            documents,
            diagnostics: report.diagnostics,
        });
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
