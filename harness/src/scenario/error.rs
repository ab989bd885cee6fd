//! What can be wrong with a scenario.

use std::{ops::Range, path::PathBuf};

use miette::{Diagnostic, NamedSource, SourceSpan};

/// Why there is no scenario. Nothing was started.
#[derive(Debug, thiserror::Error, Diagnostic)]
pub enum ScenarioError {
    /// Neither a file nor a shipped scenario.
    #[error("there is no scenario `{asked}`: no such file, and no shipped scenario of that name")]
    NotFound {
        /// As it was asked for.
        asked: String,
        /// What there is.
        #[help]
        help: String,
    },
    /// The file is there and cannot be read.
    #[error("cannot read the scenario {}: {why}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system says.
        why: String,
    },
    /// What was asked on the command line does not fit the scenario.
    #[error("{message}")]
    Asked {
        /// What, and the rule.
        message: String,
        /// The way out.
        #[help]
        help: String,
    },
    /// Something in its text.
    #[error(transparent)]
    #[diagnostic(transparent)]
    Invalid(#[from] Box<Invalid>),
}

/// What is wrong in a scenario's text, and where.
#[derive(Debug, thiserror::Error, Diagnostic)]
#[error("{file}:{line}: {message}")]
pub struct Invalid {
    /// The file, or the shipped scenario's name.
    pub file: String,
    /// Line of it, from 1. Overrides of the command line stand in lines after its last.
    pub line: usize,
    /// Key, value and rule.
    pub message: String,
    /// The way out.
    #[help]
    pub help: String,
    #[source_code]
    text: NamedSource<String>,
    #[label("here")]
    span: SourceSpan,
}

/// What is wrong at a place of the text, before it is known which file that is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Flaw {
    pub(super) span: Range<usize>,
    pub(super) message: String,
    pub(super) help: String,
}

impl Flaw {
    pub(super) fn new(span: Range<usize>, message: impl Into<String>, help: impl Into<String>) -> Self {
        Self { span, message: message.into(), help: help.into() }
    }
    pub(super) fn in_text(self, file: &str, text: &str) -> ScenarioError {
        let start = self.span.start.min(text.len());
        let line = text.as_bytes()[..start].iter().filter(|byte| **byte == b'\n').count() + 1;
        ScenarioError::Invalid(Box::new(Invalid {
            file: file.to_owned(),
            line,
            message: self.message,
            help: self.help,
            text: NamedSource::new(file, text.to_owned()),
            span: (start, self.span.end.clamp(start, text.len()) - start).into(),
        }))
    }
}
