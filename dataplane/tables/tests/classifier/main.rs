//! The classifier against a linear scan: sets at random that are made to meet at their edges, ClassBench's sets with and
//! without their last rule, and faults that others have had.
#![allow(clippy::unwrap_used)] // what a test sets up may fail it

mod bounds;
mod bugs;
mod classbench;
mod random;
mod scan;

use classbench::Set;
use scan::Header;

const TRACED: [&str; 6] = ["acl1_1k", "acl1_10k", "fw1_1k", "fw1_10k", "ipc1_1k", "ipc1_10k"];

/// Every header of the trace, of random ones, and of the edges of the rules: the classifier says what a scan says.
fn agrees(set: &Set, headers: &[Header<u32>]) {
    let classifier = scan::classifier(&set.rules);
    let keys: Vec<_> = headers.iter().map(Header::key).collect();
    let mut found = vec![None; keys.len()];
    classifier.first_of(&keys, &mut found);
    for (header, found) in headers.iter().zip(found) {
        let expected = scan::first(&set.rules, header, 0);
        assert_eq!(found, expected, "{}: {header:?}", set.name);
        assert_eq!(classifier.first(&header.key(), 0), expected, "{}: {header:?}", set.name);
        // As rules that pass on ask: the next one after a match.
        if let Some(first) = expected {
            let next = scan::first(&set.rules, header, first + 1);
            assert_eq!(classifier.first(&header.key(), first + 1), next, "{}: {header:?}", set.name);
        }
    }
}

#[test]
fn traces_say_which_rule_comes_first() {
    let Some(dir) = classbench::dir() else { return };
    for name in TRACED {
        let set = classbench::set(&dir, name);
        let trace = classbench::trace(&dir, name);
        assert_eq!(trace.len(), 4000);
        let classifier = scan::classifier(&set.rules);
        for (header, expected) in trace {
            assert_eq!(classifier.first(&header.key(), 0), expected, "{name}: {header:?}");
        }
    }
}

#[test]
fn every_set_with_and_without_its_last_rule() {
    let Some(dir) = classbench::dir() else { return };
    let names = classbench::names(&dir);
    assert!(names.len() >= 16, "{names:?}");
    let mut catch_alls = 0;
    for name in names {
        let mut set = classbench::set(&dir, &name);
        let mut headers = scan::headers_at_edges(&set.rules, 400);
        if TRACED.contains(&&*name) {
            let trace = classbench::trace(&dir, &name);
            headers.extend(trace.into_iter().step_by(8).map(|(header, _)| header));
        }
        agrees(&set, &headers);
        catch_alls += usize::from(set.rules.pop().is_some_and(|rule| rule.is_catch_all()));
        agrees(&set, &headers);
    }
    assert!(catch_alls >= 10, "{catch_alls} sets end in a rule for everything");
}

#[test]
fn sets_of_classbench_ng() {
    let Some(dir) = classbench::dir() else { return };
    for rules in [classbench::openflow(&dir), classbench::iptables(&dir)] {
        let headers = scan::headers_at_edges(&rules, 400);
        agrees(&Set { name: "ng".into(), rules }, &headers);
    }
    let (four, six) = classbench::custom(&dir);
    assert_eq!((four.len(), six.len()), (2, 4));
    let classifier = scan::classifier(&six);
    for header in scan::headers_at_edges(&six, 400) {
        assert_eq!(classifier.first(&header.key(), 0), scan::first(&six, &header, 0), "{header:?}");
    }
    agrees(&Set { name: "ng custom".into(), rules: four.clone() }, &scan::headers_at_edges(&four, 400));
}
