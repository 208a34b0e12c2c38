//! Reads OpenMetrics 1.0 text by the letter of its grammar, and refuses what the grammar does not have. It shares no code
//! with what writes it.
#![allow(dead_code, missing_docs, clippy::unwrap_used, reason = "each test file uses its part")]

use std::collections::{BTreeMap, BTreeSet};

#[derive(Debug, Default)]
pub struct Family {
    pub help: String,
    pub kind: String,
    pub unit: String,
    pub samples: Vec<Sample>,
}

#[derive(Debug)]
pub struct Sample {
    pub name: String,
    pub labels: Vec<(String, String)>,
    pub value: u64,
}

#[derive(Debug, Default)]
pub struct Exposition {
    pub families: BTreeMap<String, Family>,
}

impl Exposition {
    /// # Panics
    /// When the text is not OpenMetrics.
    #[track_caller]
    pub fn read(text: &str) -> Self {
        let body = text.strip_suffix("# EOF\n").expect("the text ends with # EOF");
        let (mut exposition, mut series) = (Self::default(), BTreeSet::new());
        // A family's lines stand together: once the next has begun it does not come again.
        let mut current = String::new();
        for line in body.lines() {
            if let Some(descriptor) = line.strip_prefix("# ") {
                let mut words = descriptor.splitn(3, ' ');
                let [what, name, value] = [(); 3].map(|()| words.next().unwrap_or_default());
                if name != current {
                    assert!(!exposition.families.contains_key(name), "{name} comes twice");
                    current = name.to_owned();
                }
                let family = exposition.families.entry(current.clone()).or_default();
                assert!(family.samples.is_empty(), "a descriptor after samples: {line}");
                let field = match what {
                    "HELP" => &mut family.help,
                    "TYPE" => &mut family.kind,
                    "UNIT" => &mut family.unit,
                    _ => panic!("{line}"),
                };
                assert!(field.is_empty() && !value.is_empty(), "{line}");
                *field = value.to_owned();
            } else {
                let sample = sample(line);
                let family = exposition.families.get_mut(&current).expect("a sample after its descriptors");
                let suffix = match family.kind.as_str() {
                    "counter" => "_total",
                    "info" => "_info",
                    "gauge" => "",
                    kind => panic!("{kind}"),
                };
                assert_eq!(sample.name, format!("{current}{suffix}"));
                assert!(
                    family.unit.is_empty() || current.ends_with(&format!("_{}", family.unit)),
                    "{current}"
                );
                let mut labels = sample.labels.clone();
                labels.sort();
                assert!(series.insert((sample.name.clone(), labels)), "twice: {line}");
                family.samples.push(sample);
            }
        }
        exposition
    }

    /// By the values of its labels, in their order.
    pub fn value(&self, name: &str, labels: &[&str]) -> Option<u64> {
        let samples = self.families.values().flat_map(|family| &family.samples);
        let is_it = |sample: &&Sample| {
            sample.name == name
                && sample.labels.iter().map(|(_, value)| value.as_str()).eq(labels.iter().copied())
        };
        samples.filter(is_it).map(|sample| sample.value).next()
    }
}

fn sample(line: &str) -> Sample {
    let end = line.find(|c: char| !(c.is_ascii_alphanumeric() || c == '_' || c == ':')).expect(line);
    let (name, mut rest) = line.split_at(end);
    let mut labels = Vec::new();
    if let Some(set) = rest.strip_prefix('{') {
        rest = set;
        loop {
            let (label, after) = rest.split_once("=\"").expect(line);
            assert!(
                !label.is_empty() && label.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_'),
                "{line}"
            );
            let (value, after) = quoted(after);
            labels.push((label.to_owned(), value));
            match after.strip_prefix(',') {
                Some(next) => rest = next,
                None => {
                    rest = after.strip_prefix('}').expect(line);
                    break;
                }
            }
        }
    }
    let value = rest.strip_prefix(' ').expect(line);
    Sample { name: name.to_owned(), labels, value: value.parse().expect(line) }
}

/// Up to the closing quotation mark, and what is behind it.
fn quoted(text: &str) -> (String, &str) {
    let (mut value, mut chars) = (String::new(), text.char_indices());
    while let Some((at, c)) = chars.next() {
        match c {
            '"' => return (value, &text[at + 1..]),
            '\\' => value.push(match chars.next().expect("an escape").1 {
                'n' => '\n',
                c @ ('"' | '\\') => c,
                c => panic!("no escape: {c}"),
            }),
            c => value.push(c),
        }
    }
    panic!("no closing quotation mark: {text}")
}
