//! `floodway apply`: reads the directory here, so that it works for whoever reaches the socket.

use std::path::Path;

use agent::{
    api::{Applied, ApplyRequest, SourceText},
    client::Client,
};
use policy::Source;

use crate::{arguments::Output, check::summary, outcome::Outcome};

/// What the options say.
#[derive(Clone, Copy)]
pub(crate) struct How {
    pub(crate) expect_generation: Option<u32>,
    pub(crate) confirm_s: Option<u32>,
    pub(crate) unproven: bool,
}

pub(crate) fn run(client: &Client, directory: &Path, how: How, output: Output) -> Outcome {
    let How { expect_generation, confirm_s, unproven } = how;
    let sources = match agent::files::read_directory(directory) {
        Ok(sources) => sources,
        Err(error) => return Outcome::files(output, &error),
    };
    let Some(texts) = texts(&sources) else {
        return match agent::compile_sources(&sources, None) {
            Err(diagnostics) => Outcome::policy(output, diagnostics, &sources),
            Ok(_) => unreachable!("the parser takes UTF-8 only"),
        };
    };
    match client.apply(&ApplyRequest { sources: texts, expect_generation, confirm_s, unproven }) {
        Ok(applied) => {
            let note = confirm_s.filter(|_| applied.changed).map(|seconds| {
                format!("floodway: rolls back in {seconds} s unless `floodway confirm` comes before\n")
            });
            Outcome::answer(output, &applied, sentence)
                .with_note(output, &applied.warnings.render(&sources))
                .with_note(output, &note.unwrap_or_default())
        }
        Err(error) => Outcome::daemon(output, error, &sources),
    }
}

/// `None` when one is not UTF-8, which JSON cannot carry.
pub(crate) fn texts(sources: &[Source]) -> Option<Vec<SourceText>> {
    let text = |source: &Source| {
        let text = str::from_utf8(&source.bytes).ok()?.to_owned();
        Some(SourceText { name: source.name.clone(), text })
    };
    sources.iter().map(text).collect()
}

pub(crate) fn sentence(applied: &Applied) -> String {
    let Applied { generation, took_us, counts, .. } = applied;
    let counts = summary(*counts);
    match applied.changed {
        true => format!(
            "applied: generation {generation} with {counts}; every worker runs it after {took_us} us\n"
        ),
        false => format!("unchanged: generation {generation} with {counts} runs already\n"),
    }
}
