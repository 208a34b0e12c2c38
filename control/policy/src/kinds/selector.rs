//! Label selectors as Kubernetes has them (apimachinery, `metav1.LabelSelector`).

use crate::{
    Labels, Position, has_labels,
    read::{Fields, Read, Report, word},
    yaml::Node,
};

/// Labels that something must have; all conditions are to hold, and none is no condition.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Selector {
    /// Values that labels must have.
    pub labels: Labels,
    /// Further conditions.
    pub expressions: Vec<Requirement>,
}

/// One condition on one label.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Requirement {
    /// The label's name.
    pub key: String,
    /// What must hold of it.
    pub operator: Operator,
    /// What it is compared with; empty for the operators that compare nothing.
    pub values: Vec<String>,
}

/// What must hold of a label.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Operator {
    /// It is there and has one of the values.
    In,
    /// It is not there, or has none of the values.
    NotIn,
    /// It is there.
    Exists,
    /// It is not there.
    DoesNotExist,
}

impl Selector {
    /// True when those labels fulfil it.
    pub fn selects(&self, labels: &Labels) -> bool {
        has_labels(labels, &self.labels) && self.expressions.iter().all(|wanted| wanted.holds(labels))
    }
}

impl Requirement {
    fn holds(&self, labels: &Labels) -> bool {
        let value = labels.get(&self.key);
        let is_listed = value.is_some_and(|value| self.values.contains(value));
        match self.operator {
            Operator::In => is_listed,
            Operator::NotIn => !is_listed,
            Operator::Exists => value.is_some(),
            Operator::DoesNotExist => value.is_none(),
        }
    }
}

/// `null` is the empty selector, as for the API server.
impl Read for Selector {
    fn read(node: &Node, report: &mut Report) -> Option<Self> {
        if node.is_null() {
            return Some(Self::default());
        }
        let mut fields = Fields::of(node, "a label selector", report)?;
        let labels = fields.given("matchLabels").and_then(|node| Read::read(node, fields.report));
        let expressions = fields.given("matchExpressions").and_then(|node| Read::read(node, fields.report));
        // Without what could not be read it would select something else.
        fields.finish().then(|| Self {
            labels: labels.unwrap_or_default(),
            expressions: expressions.unwrap_or_default(),
        })
    }
}

impl Read for Requirement {
    fn read(node: &Node, report: &mut Report) -> Option<Self> {
        let mut fields = Fields::of(node, "a label requirement", report)?;
        let key = fields.required("key");
        let operator = fields.required("operator");
        let values: Vec<String> =
            fields.given("values").and_then(|node| Read::read(node, fields.report)).unwrap_or_default();
        let at = fields.at();
        let is_whole = fields.finish();
        let (key, operator) = (key?, operator?);
        (is_whole && check_values(at, operator, &values, report)).then_some(Self { key, operator, values })
    }
}

fn check_values(at: Position, operator: Operator, values: &[String], report: &mut Report) -> bool {
    let takes_values = matches!(operator, Operator::In | Operator::NotIn);
    if takes_values == values.is_empty() {
        let rule = if takes_values { "needs at least one of `values`" } else { "takes no `values`" };
        report.error(at, format!("operator {operator:?} {rule}"));
        return false;
    }
    true
}

impl Read for Operator {
    fn read(node: &Node, report: &mut Report) -> Option<Self> {
        let words = [Self::In, Self::NotIn, Self::Exists, Self::DoesNotExist];
        let names = ["In", "NotIn", "Exists", "DoesNotExist"];
        let words: Vec<(&str, Self)> = names.into_iter().zip(words).collect();
        word(node, "an operator", &words, report)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(pairs: &[(&str, &str)]) -> Labels {
        pairs.iter().map(|(key, value)| ((*key).into(), (*value).into())).collect()
    }

    #[test]
    fn operators_say_of_absent_labels_what_kubernetes_says() {
        let with = |operator, values: &[&str]| Selector {
            labels: Labels::new(),
            expressions: vec![Requirement {
                key: "a".into(),
                operator,
                values: values.iter().map(|value| (*value).into()).collect(),
            }],
        };
        let answers = |selector: Selector| {
            [&[][..], &[("a", "1")][..], &[("a", "2")][..]].map(|own| selector.selects(&labels(own)))
        };
        assert_eq!(answers(with(Operator::In, &["1"])), [false, true, false]);
        assert_eq!(answers(with(Operator::NotIn, &["1"])), [true, false, true]);
        assert_eq!(answers(with(Operator::Exists, &[])), [false, true, true]);
        assert_eq!(answers(with(Operator::DoesNotExist, &[])), [true, false, false]);
        assert_eq!(answers(Selector::default()), [true, true, true]);
    }
}
