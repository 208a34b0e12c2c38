//! Questions that change nothing: why a packet gets its verdict, and what files would change.

use compile::{
    Compiled,
    diff::{self, Plan},
    explain::{Concern, Explanation, Question, QuestionError, live},
};
use serde_json::{Map, Value};

use crate::{
    DataPlane,
    api::{CheckRequest, LIMIT_MAX},
    apply::{self, Refusal},
    recompile::Shared,
};

/// Entries of one flow and of what it answers: more than one only of echoes and of fragments.
const FLOWS_LOOKED_AT_MAX: usize = 4096;
/// Fields of a question that are numbers.
const NUMBERS: [&str; 5] = ["srcPort", "dstPort", "type", "code", "queuePair"];

/// What would change if the files were applied, for the flows that are open as well.
pub(crate) fn plan(
    plane: &dyn DataPlane,
    recompiler: &Shared,
    request: CheckRequest,
) -> Result<Plan, Refusal> {
    let running = plane.running();
    let sources = apply::named(request.sources)?;
    let Compiled { program, warnings, recompiled } = apply::compile(recompiler, &sources, &running)?;
    let mut flows = plane.flows(LIMIT_MAX + 1);
    let is_cut = flows.len() > LIMIT_MAX;
    flows.truncate(LIMIT_MAX);
    let mut plan = diff::diff(&running, &program);
    plan.flows = diff::flows(&program, &flows, is_cut);
    diff::count_flows(&mut plan, &program, &flows);
    (plan.recompiled, plan.warnings) = (recompiled, warnings);
    Ok(plan)
}

/// Why a packet gets its verdict, and what the flow table says of it at this moment.
pub(crate) fn explain(plane: &dyn DataPlane, question: &Question) -> Result<Explanation, QuestionError> {
    let program = plane.running();
    let mut told = question.answer(&program)?;
    let concern = Concern::of(&program, &told);
    if concern != Concern::default() {
        let flows = plane.flows_wanted(&|flow| concern.covers(&program, flow), FLOWS_LOOKED_AT_MAX);
        told.live = live(&program, &told, &concern, flows);
    }
    Ok(told)
}

/// A question out of a query: `from=red0&dst=10.1.0.20&protocol=tcp&dstPort=80`.
pub(crate) fn from_query(query: &str) -> Result<Question, String> {
    let mut fields = Map::new();
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        let (name, text) = pair.split_once('=').ok_or_else(|| format!("`{pair}` is not name=value"))?;
        let text = decode(text).ok_or_else(|| format!("the value of `{name}` is badly encoded"))?;
        let value = match text.parse::<u32>() {
            Ok(number) if NUMBERS.contains(&name) => number.into(),
            _ => Value::String(text),
        };
        if fields.insert(name.into(), value).is_some() {
            return Err(format!("`{name}` is given twice"));
        }
    }
    serde_json::from_value(Value::Object(fields)).map_err(|error| format!("not a question: {error}"))
}

/// Takes percent encoding away (RFC 3986, section 2.1); `None` when it is broken or gives no UTF-8.
fn decode(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        rest = after;
        if *first != b'%' {
            bytes.push(*first);
            continue;
        }
        let digits = str::from_utf8(after.get(..2)?).ok()?;
        bytes.push(u8::from_str_radix(digits, 16).ok().filter(|_| !digits.starts_with('+'))?);
        rest = &after[2..];
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn queries_become_questions() {
        let question = from_query("from=red%30&dst=fd00::20&protocol=6&dstPort=80").unwrap();
        assert_eq!((question.from.as_str(), question.dst_port), ("red0", Some(80)));
        assert_eq!(question.protocol.as_deref(), Some("6"));
        for bad in ["from", "from=a&from=b", "prot=tcp", "from=%2", "from=%+1", "dstPort=x", "dstPort=65536"]
        {
            assert!(from_query(bad).is_err(), "{bad}");
        }
    }
}
