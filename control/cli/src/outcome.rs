//! How a command ended: what goes to stdout and stderr, and the exit code.

use std::{
    io::{self, Write},
    process::ExitCode,
};

use agent::{api::Refused, client::ClientError};
use policy::{Diagnostics, Source};
use serde::Serialize;

use crate::arguments::Output;

/// Stable: scripts rest on them. 2 is clap's as well.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
enum Code {
    Done = 0,
    Refused = 1,
    Usage = 2,
    Daemon = 3,
    Stuck = 4,
    Unwritable = 5,
    Changes = 6,
    /// A statement is false, or the isolation of tenants is not proven.
    Unproven = 7,
    /// Something of an import has no equivalent.
    Partial = 8,
    /// The doctor has found something that could be better.
    Unwell = 9,
    /// The doctor has found something wrong.
    Ill = 10,
}

/// What a command has to say.
#[derive(Debug)]
pub(crate) struct Outcome {
    stdout: String,
    stderr: String,
    code: Code,
}

impl Outcome {
    /// All is well.
    pub(crate) fn good(stdout: impl Into<String>) -> Self {
        Self { stdout: stdout.into(), stderr: String::new(), code: Code::Done }
    }

    /// All is well; `value` for programs, `text` for people.
    pub(crate) fn answer<T: Serialize>(output: Output, value: &T, text: impl FnOnce(&T) -> String) -> Self {
        Self::good(match output {
            Output::Json => json(value),
            Output::Table => text(value),
        })
    }

    /// Something beside the answer, for people.
    pub(crate) fn with_note(mut self, output: Output, note: &str) -> Self {
        if output == Output::Table {
            self.stderr += note;
        }
        self
    }

    /// All is well, and there are changes.
    pub(crate) fn with_changes(mut self) -> Self {
        self.code = Code::Changes;
        self
    }

    /// What is asked cannot be asked, which only the files or the program could tell.
    pub(crate) fn usage(output: Output, error: String) -> Self {
        Self::bad(output, Code::Usage, &Refused { error, ..Refused::default() }, &[])
    }

    /// The answer is that something is not proven.
    pub(crate) fn unproven(self) -> Self {
        Self { code: Code::Unproven, ..self }
    }

    /// What was imported is less than what there was.
    pub(crate) fn partial(self) -> Self {
        Self { code: Code::Partial, ..self }
    }

    /// The answer is that something could be better.
    pub(crate) fn unwell(self) -> Self {
        Self { code: Code::Unwell, ..self }
    }

    /// The answer is that something is wrong.
    pub(crate) fn ill(self) -> Self {
        Self { code: Code::Ill, ..self }
    }

    /// Foreign files are refused for what is in them.
    pub(crate) fn not_imported(output: Output, diagnostics: Diagnostics, sources: &[Source]) -> Self {
        let refused = Refused { error: "nothing is imported".into(), diagnostics, ..Refused::default() };
        Self::bad(output, Code::Refused, &refused, sources)
    }

    /// A file that the command was to write cannot be written.
    pub(crate) fn unwritable_file(output: Output, error: String) -> Self {
        Self::bad(output, Code::Unwritable, &Refused { error, ..Refused::default() }, &[])
    }

    /// The policy files are refused as a whole, before anybody looked at their content.
    pub(crate) fn files(output: Output, error: &agent::files::FilesError) -> Self {
        let refused = Refused { error: error.to_string(), ..Refused::default() };
        Self::bad(output, Code::Refused, &refused, &[])
    }

    /// The policy files are refused for what is in them.
    pub(crate) fn policy(output: Output, diagnostics: Diagnostics, sources: &[Source]) -> Self {
        let refused =
            Refused { error: "the policy files are refused".into(), diagnostics, ..Refused::default() };
        Self::bad(output, Code::Refused, &refused, sources)
    }

    /// The daemon did not do what it was asked for.
    pub(crate) fn daemon(output: Output, error: ClientError, sources: &[Source]) -> Self {
        let mut refused = Refused { error: error.to_string(), ..Refused::default() };
        let code = match error {
            ClientError::Policy { diagnostics, .. } => {
                refused.diagnostics = diagnostics;
                Code::Refused
            }
            ClientError::TooLarge => Code::Refused,
            ClientError::Stuck { generation, workers, .. } => {
                (refused.generation, refused.workers) = (Some(generation), workers);
                Code::Stuck
            }
            _ => Code::Daemon,
        };
        Self::bad(output, code, &refused, sources)
    }

    /// The answer cannot be written.
    pub(crate) fn unwritable(error: &io::Error) -> Self {
        let stderr = format!("floodway: cannot write the output: {error}\n");
        Self { stdout: String::new(), stderr, code: Code::Unwritable }
    }

    fn bad(output: Output, code: Code, refused: &Refused, sources: &[Source]) -> Self {
        match output {
            Output::Json => Self { stdout: json(refused), stderr: String::new(), code },
            Output::Table => {
                let stderr = format!("{}floodway: {}\n", refused.diagnostics.render(sources), refused.error);
                Self { stdout: String::new(), stderr, code }
            }
        }
    }

    /// Writes it; the code is what `main` ends with. Who closes the pipe has seen enough: that is no error.
    pub(crate) fn finish(self) -> ExitCode {
        let mut stdout = io::stdout().lock();
        let written = stdout.write_all(self.stdout.as_bytes()).and_then(|()| stdout.flush());
        match written {
            Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Self::unwritable(&error).complain(),
            _ => self.complain(),
        }
    }

    fn complain(self) -> ExitCode {
        // Where stderr is closed, nobody is left to be told.
        let _ = io::stderr().write_all(self.stderr.as_bytes());
        ExitCode::from(self.code as u8)
    }
}

fn json<T: Serialize>(value: &T) -> String {
    match serde_json::to_string_pretty(value) {
        Ok(text) => text + "\n",
        // Only maps with keys that are no text can fail, and no answer has one.
        Err(error) => format!("{{\"error\": \"{error}\"}}\n"),
    }
}
