//! `floodway import`: access lists of other systems to native files.

use std::{
    fs,
    path::{Path, PathBuf},
};

use policy::{Diagnostics, Format, IMPORTED_MARK, Imported, ImportedFile};
use serde::Serialize;

use crate::{arguments::Output, check::plural, outcome::Outcome};

/// The answer for programs.
#[derive(Serialize)]
struct View {
    files: Vec<FileView>,
    /// What has no equivalent, and what was done instead.
    warnings: Diagnostics,
}

#[derive(Serialize)]
struct FileView {
    /// Without `--out` the name that it would have there.
    path: String,
    policies: usize,
    rules: usize,
    /// The document itself, when it was not written to a file.
    #[serde(skip_serializing_if = "Option::is_none")]
    text: Option<String>,
}

pub(crate) fn run(
    format: Format,
    files: &[PathBuf],
    tenant: Option<&str>,
    out: Option<&Path>,
    output: Output,
) -> Outcome {
    let sources = match agent::files::read_files(files) {
        Ok(sources) => sources,
        Err(error) => return Outcome::files(output, &error),
    };
    let Imported { files, warnings } = match policy::import(format, &sources, tenant) {
        Ok(imported) => imported,
        Err(diagnostics) => return Outcome::not_imported(output, diagnostics, &sources),
    };
    if let Some(error) = out.and_then(|out| write(out, &files).err()) {
        return Outcome::unwritable_file(output, error);
    }
    let is_whole = warnings.is_empty();
    let files = files.into_iter().map(|file| view(file, out)).collect();
    let outcome = Outcome::answer(output, &View { files, warnings: warnings.clone() }, text)
        .with_note(output, &warnings.render(&sources));
    if is_whole { outcome } else { outcome.partial() }
}

/// Writes what is not there, and what an earlier import wrote; anything else is somebody's work.
fn write(out: &Path, files: &[ImportedFile]) -> Result<(), String> {
    let failed = |path: &Path, error: &std::io::Error| format!("cannot write {}: {error}", path.display());
    fs::create_dir_all(out).map_err(|error| failed(out, &error))?;
    let paths: Vec<PathBuf> = files.iter().map(|file| out.join(&file.name)).collect();
    for path in &paths {
        let is_ours = fs::read(path).map(|bytes| bytes.starts_with(IMPORTED_MARK.as_bytes()));
        if !is_ours.unwrap_or(!path.exists()) {
            return Err(format!("{} is there and was not imported; remove it first", path.display()));
        }
    }
    let mut each = paths.iter().zip(files);
    each.try_for_each(|(path, file)| fs::write(path, &file.text).map_err(|error| failed(path, &error)))
}

fn view(file: ImportedFile, out: Option<&Path>) -> FileView {
    let ImportedFile { name, text, policies, rules } = file;
    match out {
        Some(out) => FileView { path: out.join(name).display().to_string(), policies, rules, text: None },
        None => FileView { path: name, policies, rules, text: Some(text) },
    }
}

/// The documents; of files that were written, a line for each.
fn text(view: &View) -> String {
    let line = |file: &FileView| {
        format!("{}: {}, {}\n", file.path, plural_policies(file.policies), plural(file.rules, "rule"))
    };
    view.files.iter().map(|file| file.text.clone().unwrap_or_else(|| line(file))).collect()
}

fn plural_policies(count: usize) -> String {
    format!("{count} {}", if count == 1 { "policy" } else { "policies" })
}
