//! The examples of `docs/api.md` are what the API takes and gives.
#![allow(missing_docs, clippy::unwrap_used)]

use std::fs;

use agent::api::{Applied, ApplyRequest, Checked, Drop, Flows, ProgramSummary, QueuePairs, Refused, Rules};
use compile::{
    diff::Plan,
    explain::{Explanation, Question},
};
use program::Report;
use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;

/// The text of each JSON block, in order.
fn examples(text: &str) -> Vec<&str> {
    text.split("```json\n").skip(1).map(|rest| rest.split("```").next().unwrap()).collect()
}

/// Reads and writes it again: no field is unknown to the type, none is missing.
#[track_caller]
fn assert_is<T: DeserializeOwned + Serialize>(example: &str) {
    let given: Value = serde_json::from_str(example).unwrap();
    let typed: T = serde_json::from_str(example).unwrap();
    let again = serde_json::to_value(typed).unwrap();
    assert_eq!(again, given);
}

#[test]
fn examples_have_the_fields_of_the_types() {
    let text = fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/api.md")).unwrap();
    let examples = examples(&text);
    let types = [
        assert_is::<Refused>,
        assert_is::<Refused>,
        assert_is::<ApplyRequest>,
        assert_is::<Applied>,
        assert_is::<Checked>,
        assert_is::<Question>,
        assert_is::<Explanation>,
        assert_is::<Plan>,
        assert_is::<Report>,
        assert_is::<Vec<Drop>>,
        assert_is::<ProgramSummary>,
        assert_is::<Rules>,
        assert_is::<Flows>,
        assert_is::<QueuePairs>,
    ];
    assert_eq!(examples.len(), types.len());
    for (example, assert_is) in examples.into_iter().zip(types) {
        assert_is(example);
    }
}

#[test]
fn the_status_of_the_operators_guide_is_one() {
    let text = fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/operations.md")).unwrap();
    let examples = examples(&text);
    assert_eq!(examples.len(), 1);
    assert_is::<agent::api::Status>(examples[0]);
}
