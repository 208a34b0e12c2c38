//! Bytes to trees of nodes with positions. YAML 1.2 (JSON is a part of it), less what a policy file has no use for:
//! anchors, aliases, tags, directives and keys that are not text. Everything is bounded, see [`crate::limit`].

use std::borrow::Cow;

use memchr::{memchr, memchr_iter, memmem};
use saphyr_parser::{Event, Marker, Parser, ScalarStyle, Span};

use crate::{
    Position,
    limit::{DEPTH_MAX, DOCUMENTS_MAX, FILE_BYTES_MAX, NODES_MAX},
    read::Report,
};

/// A value and where it starts.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Node {
    pub at: Position,
    pub value: Value,
}

impl Node {
    /// Nothing, `~` or `null`.
    pub fn is_null(&self) -> bool {
        self.value == Value::Null
    }

    /// The text of a field, without any complaint.
    pub fn peek(&self, name: &str) -> Option<&str> {
        let Value::Map(entries) = &self.value else { return None };
        match &entries.iter().find(|(key, _)| key.text == name)?.1.value {
            Value::Plain(text) | Value::Quoted(text) => Some(text),
            _ => None,
        }
    }
}

/// What a node holds. Plain scalars keep their text: what they mean depends on the field that they are written in.
#[derive(Clone, PartialEq, Debug)]
pub(crate) enum Value {
    /// Nothing, `~` or `null`.
    Null,
    /// A scalar without quotes.
    Plain(String),
    /// A scalar in quotes, or a block scalar.
    Quoted(String),
    List(Vec<Node>),
    Map(Vec<(Key, Node)>),
    /// Reported already.
    Broken,
}

/// A field's name and where it starts.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Key {
    pub at: Position,
    pub text: String,
}

/// All documents of a file that can be read. `None` in place of one that cannot: it has been reported.
pub(crate) fn documents(source: u32, bytes: &[u8], report: &mut Report) -> Vec<Option<Node>> {
    let text = match text(source, bytes) {
        Ok(text) => text,
        Err((at, message)) => {
            report.error(at, message);
            return vec![None];
        }
    };
    let mut budget = Budget { nodes: NODES_MAX, documents: DOCUMENTS_MAX, is_spent: false };
    let mut documents = Vec::new();
    for chunk in chunks(&text) {
        documents.append(&mut Builder::new(source, &chunk, &mut budget, report).build(chunk.text));
        if budget.is_spent {
            break;
        }
    }
    documents
}

/// For showing a line of a file, whatever it holds.
pub(crate) fn readable(bytes: &[u8]) -> String {
    unify_line_ends(&String::from_utf8_lossy(without_bom(bytes))).into_owned()
}

/// The text with `\n` as the only line end, or where and why it is none.
fn text(source: u32, bytes: &[u8]) -> Result<Cow<'_, str>, (Position, String)> {
    let start = Position { source, line: 1, column: 1 };
    if bytes.len() > FILE_BYTES_MAX {
        let message = format!("the file has {} bytes; at most {FILE_BYTES_MAX} are read", bytes.len());
        return Err((start, message));
    }
    let body = without_bom(bytes);
    let text = std::str::from_utf8(body).map_err(|error| {
        let valid = String::from_utf8_lossy(&body[..error.valid_up_to()]);
        let offset = bytes.len() - body.len() + error.valid_up_to();
        let message = format!("the file is not UTF-8: byte {:#04x} at offset {offset}", bytes[offset]);
        (end_of(source, &unify_line_ends(&valid)), message)
    })?;
    let text = unify_line_ends(text);
    // The parser takes a NUL for the end of its input; what follows must not be dropped in silence.
    match control_character(&text) {
        Some(index) => {
            let code = u32::from(text[index..].chars().next().unwrap_or_default());
            Err((end_of(source, &text[..index]), format!("control character U+{code:04X}")))
        }
        None => Ok(text),
    }
}

/// Where the first control character is that may not stand in a file.
fn control_character(text: &str) -> Option<usize> {
    // Most files have none, which their bytes tell faster: U+0080 to U+009F begin with 0xc2.
    let may_begin_one =
        |byte: &u8| (*byte < b' ' && !matches!(byte, b'\n' | b'\t')) || matches!(byte, 0x7f | 0xc2);
    let first = text.bytes().position(|byte| may_begin_one(&byte))?;
    let is_bad = |c: char| c.is_control() && !matches!(c, '\n' | '\t' | '\u{85}');
    text[first..].find(is_bad).map(|index| first + index)
}

fn without_bom(bytes: &[u8]) -> &[u8] {
    bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes)
}

fn unify_line_ends(text: &str) -> Cow<'_, str> {
    if memchr(b'\r', text.as_bytes()).is_some() {
        Cow::Owned(text.replace("\r\n", "\n").replace('\r', "\n"))
    } else {
        text.into()
    }
}

/// The position just after `text`.
fn end_of(source: u32, text: &str) -> Position {
    let last = text.rsplit('\n').next().unwrap_or_default();
    let lines = lines(text);
    Position { source, line: count(lines + 1), column: count(last.chars().count() + 1) }
}

/// Saturates: files are far smaller.
fn count(number: usize) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

/// A part of a file from one `---` to the next. No scalar can hold such a line (YAML 1.2.2, rule c-forbidden), so a
/// syntax error in one part hides nothing in the others.
struct Chunk<'a> {
    text: &'a str,
    /// Lines of the file before it.
    lines_before: usize,
}

fn chunks(text: &str) -> Vec<Chunk<'_>> {
    let mut chunks = Vec::new();
    let (mut start, mut lines_before) = (0, 0);
    for line_end in memmem::find_iter(text.as_bytes(), "\n---") {
        if is_document_start(&text[line_end + 1..]) {
            let chunk = Chunk { text: &text[start..=line_end], lines_before };
            (start, lines_before) = (line_end + 1, lines_before + lines(chunk.text));
            chunks.push(chunk);
        }
    }
    chunks.push(Chunk { text: &text[start..], lines_before });
    chunks
}

fn lines(text: &str) -> usize {
    memchr_iter(b'\n', text.as_bytes()).count()
}

/// True when the text begins with a line that starts a document.
fn is_document_start(text: &str) -> bool {
    text.strip_prefix("---").is_some_and(|rest| rest.is_empty() || rest.starts_with([' ', '\t', '\n']))
}

/// Where a line starts that is a directive.
fn directive(text: &str) -> Option<usize> {
    let bytes = text.as_bytes();
    memchr_iter(b'%', bytes).find(|index| *index == 0 || bytes[index - 1] == b'\n')
}

/// What is left of a file's bounds.
struct Budget {
    nodes: usize,
    documents: usize,
    /// More was asked for than there was.
    is_spent: bool,
}

impl Budget {
    fn take_node(&mut self) -> bool {
        take(&mut self.nodes, &mut self.is_spent)
    }

    fn take_document(&mut self) -> bool {
        take(&mut self.documents, &mut self.is_spent)
    }
}

/// False when nothing is left.
fn take(left: &mut usize, is_spent: &mut bool) -> bool {
    *is_spent |= *left == 0;
    *left = left.saturating_sub(1);
    !*is_spent
}

/// Why a chunk is read no further.
struct Stop(Position, String);

/// Builds the trees of one chunk from the parser's events; keeps its own stack, so depth costs no recursion.
struct Builder<'a, 'r> {
    source: u32,
    lines_before: usize,
    /// Where the chunk's text ends. What is missing is reported here, not on the empty lines after it.
    end: Position,
    open: Vec<Open>,
    budget: &'a mut Budget,
    report: &'a mut Report<'r>,
}

/// A list or map whose end has not come.
struct Open {
    at: Position,
    inside: Inside,
}

enum Inside {
    List(Vec<Node>),
    Map(Vec<(Key, Node)>, Option<Key>),
}

impl<'a, 'r> Builder<'a, 'r> {
    fn new(source: u32, chunk: &Chunk<'_>, budget: &'a mut Budget, report: &'a mut Report<'r>) -> Self {
        let mut end = end_of(source, chunk.text.trim_end());
        end.line += count(chunk.lines_before);
        Self { source, lines_before: chunk.lines_before, end, open: Vec::new(), budget, report }
    }

    fn build(mut self, text: &str) -> Vec<Option<Node>> {
        let mut documents = Vec::new();
        let result = self.fill(text, &mut documents);
        if let Err(Stop(at, message)) = result {
            let help =
                message.contains(" tab").then(|| "indent with spaces: YAML does not take tabs there".into());
            self.report.error(at, message).help_if(help);
            documents.push(None);
        }
        documents
    }

    fn fill(&mut self, text: &str, documents: &mut Vec<Option<Node>>) -> Result<(), Stop> {
        if let Some(offset) = directive(text) {
            let line = count(self.lines_before + lines(&text[..offset]) + 1);
            let at = Position { source: self.source, line, column: 1 };
            return Err(Stop(at, "YAML directives are not read; remove the line".into()));
        }
        let mut parser = Parser::new_from_str(text);
        while let Some(event) = parser.next_event() {
            let (event, span) = event.map_err(|error| {
                Stop(self.position(error.marker()), format!("not YAML: {}", error.info()))
            })?;
            if let Some(root) = self.take(event, span)? {
                documents.push(Some(root));
            }
        }
        Ok(())
    }

    /// Takes one event; gives the document's root when that ends it.
    fn take(&mut self, event: Event<'_>, span: Span) -> Result<Option<Node>, Stop> {
        let at = self.position(&span.start);
        let node = match event {
            Event::DocumentStart(_) => {
                if !self.budget.take_document() {
                    return Err(Stop(at, format!("more than {DOCUMENTS_MAX} documents in one file")));
                }
                return Ok(None);
            }
            Event::SequenceStart(anchor, tag) => {
                self.refuse_extras(at, anchor, tag.is_some());
                return self.open(Open { at, inside: Inside::List(Vec::new()) });
            }
            Event::MappingStart(anchor, tag) => {
                self.refuse_extras(at, anchor, tag.is_some());
                return self.open(Open { at, inside: Inside::Map(Vec::new(), None) });
            }
            Event::SequenceEnd | Event::MappingEnd => self.close(),
            Event::Scalar(text, style, anchor, tag) => {
                self.refuse_extras(at, anchor, tag.is_some());
                Some(Node { at, value: scalar(text.into_owned(), style) })
            }
            Event::Alias(_) => {
                self.report.error(at, "aliases are not read; write the value out");
                Some(Node { at, value: Value::Broken })
            }
            Event::Nothing | Event::StreamStart | Event::StreamEnd | Event::DocumentEnd => None,
        };
        match node {
            Some(node) => self.attach(node),
            None => Ok(None),
        }
    }

    fn open(&mut self, open: Open) -> Result<Option<Node>, Stop> {
        if self.open.len() == DEPTH_MAX {
            return Err(Stop(open.at, format!("nested deeper than {DEPTH_MAX} levels")));
        }
        self.open.push(open);
        Ok(None)
    }

    fn close(&mut self) -> Option<Node> {
        let Open { at, inside } = self.open.pop()?;
        let value = match inside {
            Inside::List(items) => Value::List(items),
            Inside::Map(entries, _) => Value::Map(self.without_duplicates(entries)),
        };
        Some(Node { at, value })
    }

    /// Puts a finished node where it belongs; gives it back when it is the root.
    fn attach(&mut self, node: Node) -> Result<Option<Node>, Stop> {
        if !self.budget.take_node() {
            return Err(Stop(node.at, format!("more than {NODES_MAX} values in one file")));
        }
        match self.open.last_mut().map(|open| &mut open.inside) {
            None => return Ok(Some(node)),
            Some(Inside::List(items)) => items.push(node),
            Some(Inside::Map(entries, key @ Some(_))) => {
                entries.extend(key.take().map(|key| entry(key, node)))
            }
            Some(Inside::Map(_, key)) => {
                let at = node.at;
                let (Value::Plain(text) | Value::Quoted(text)) = node.value else {
                    return Err(Stop(at, "a field's name must be text".into()));
                };
                *key = Some(Key { at, text });
            }
        }
        Ok(None)
    }

    /// The first of each name; the others are reported.
    fn without_duplicates(&mut self, entries: Vec<(Key, Node)>) -> Vec<(Key, Node)> {
        const FEW: usize = 8;
        let is_new = |index: usize| entries[..index].iter().all(|(key, _)| key.text != entries[index].0.text);
        if entries.len() <= FEW && (0..entries.len()).all(is_new) {
            return entries;
        }
        let mut order: Vec<&Key> = entries.iter().map(|(key, _)| key).collect();
        order.sort_by(|a, b| (&a.text, a.at).cmp(&(&b.text, b.at)));
        let mut repeated = Vec::new();
        for group in order.chunk_by(|a, b| a.text == b.text) {
            for key in &group[1..] {
                let message = format!("field {} is given twice", crate::read::quote(&key.text));
                self.report.error(key.at, message).related(group[0].at, "it is given here first");
                repeated.push(key.at);
            }
        }
        if repeated.is_empty() {
            return entries;
        }
        repeated.sort_unstable();
        entries.into_iter().filter(|(key, _)| repeated.binary_search(&key.at).is_err()).collect()
    }

    fn refuse_extras(&mut self, at: Position, anchor: usize, has_tag: bool) {
        if anchor != 0 {
            self.report.error(at, "anchors are not read; write the value out where it is needed");
        }
        if has_tag {
            self.report.error(at, "YAML tags are not read; remove the tag");
        }
    }

    fn position(&self, marker: &Marker) -> Position {
        let line = count(marker.line().max(1) + self.lines_before);
        Position { source: self.source, line, column: count(marker.col() + 1) }.min(self.end)
    }
}

/// A value that is not there is reported at the field's name.
fn entry(key: Key, node: Node) -> (Key, Node) {
    let at = if node.value == Value::Null { key.at } else { node.at };
    (key, Node { at, ..node })
}

fn scalar(text: String, style: ScalarStyle) -> Value {
    match style {
        ScalarStyle::Plain if matches!(text.as_str(), "" | "~" | "null" | "Null" | "NULL") => Value::Null,
        ScalarStyle::Plain => Value::Plain(text),
        _ => Value::Quoted(text),
    }
}
