//! Functions have at most 70 lines, unless a comment with `long:` directly above or inside says why.

use syn::{
    Attribute, ImplItemFn, ItemFn, Signature, TraitItemFn,
    spanned::Spanned,
    visit::{self, Visit},
};

use super::Source;

const LONGEST: usize = 70;

/// The functions of one Rust file that are too long. Those within macro calls are not seen.
pub fn check(source: &Source) -> Vec<String> {
    let Source { path, text } = source;
    let file = match syn::parse_file(text) {
        Ok(file) => file,
        Err(error) => return vec![format!("{path}:{}: does not parse: {error}", error.span().start().line)],
    };
    let mut search = Search { path, lines: text.lines().collect(), violations: Vec::new() };
    search.visit_file(&file);
    search.violations
}

struct Search<'a> {
    path: &'a str,
    lines: Vec<&'a str>,
    violations: Vec<String>,
}

impl Search<'_> {
    fn function(&mut self, attributes: &[Attribute], signature: &Signature, end: usize) {
        let start = signature.span().start().line;
        let count = end + 1 - start;
        let top = attributes.iter().map(|attribute| attribute.span().start().line).min().unwrap_or(start);
        if count > LONGEST && !self.explained(top.min(start), end) {
            let (path, name) = (self.path, &signature.ident);
            self.violations.push(format!(
                "{path}:{start}: {name} has {count} lines, more than {LONGEST}: split it, or say why in `// long: ...`"
            ));
        }
    }

    /// True when a comment gives the reason, on the lines from `top` to `end` (from 1) or directly above them.
    fn explained(&self, top: usize, end: usize) -> bool {
        let above = self.lines[..top - 1].iter().rev().take_while(|line| line.trim_start().starts_with("//"));
        above.chain(&self.lines[top - 1..end]).any(|line| is_reason(line))
    }
}

/// A comment with `long:` and at least one word behind it.
fn is_reason(line: &str) -> bool {
    let comment = line.split_once("//").map_or("", |(_, comment)| comment);
    comment.split_once("long:").is_some_and(|(_, reason)| !reason.trim().is_empty())
}

impl<'ast> Visit<'ast> for Search<'_> {
    fn visit_item_fn(&mut self, item: &'ast ItemFn) {
        self.function(&item.attrs, &item.sig, item.span().end().line);
        visit::visit_item_fn(self, item);
    }

    fn visit_impl_item_fn(&mut self, item: &'ast ImplItemFn) {
        self.function(&item.attrs, &item.sig, item.span().end().line);
        visit::visit_impl_item_fn(self, item);
    }

    fn visit_trait_item_fn(&mut self, item: &'ast TraitItemFn) {
        self.function(&item.attrs, &item.sig, item.span().end().line);
        visit::visit_trait_item_fn(self, item);
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::source;
    use super::*;

    /// `head`, then a body so long that a one-line head makes a function of `lines` lines.
    fn function(head: &str, lines: usize) -> String {
        format!("{head}{}}}\n", "\n".to_owned() + &"    work();\n".repeat(lines - 2))
    }

    fn found(text: &str) -> Vec<String> {
        check(&source("a.rs", text))
    }

    #[test]
    fn seventy_lines_pass_and_one_more_does_not() {
        assert_eq!(found(&function("fn f() {", 70)), [] as [String; 0]);
        assert!(found(&function("fn f() {", 71))[0].starts_with("a.rs:1: f has 71 lines"));
        assert!(found(&function("/// Doc.\n#[inline]\npub fn f() {", 71))[0].starts_with("a.rs:3: f has 71"));
    }

    #[test]
    fn methods_defaults_and_nested_functions_are_seen() {
        for head in ["impl T {\nfn f() {", "trait T {\nfn f() {", "mod m {\nfn f() {", "fn g() {\nfn f() {"] {
            let text = format!("{}}}\n", function(head, 71));
            assert!(found(&text).iter().any(|line| line.contains("f has 71")), "{head}");
        }
    }

    #[test]
    fn a_reason_excuses() {
        for text in [
            function("// long: one table\nfn f() {", 71),
            function("// long: one table\n/// Doc.\n#[inline]\nfn f() {", 71),
            function("/// long: one table\nfn f() {", 71),
            function("fn f() {\n    // long: one table", 71),
        ] {
            assert_eq!(found(&text), [] as [String; 0], "{}", &text[..60]);
        }
        for text in [
            function("// long:\nfn f() {", 71),
            function("// long: one table\n\nfn f() {", 71),
            function("fn f() {\n    let long: u8 = 1;", 71),
            format!("{}// long: too late\n", function("fn f() {", 71)),
        ] {
            assert_eq!(found(&text).len(), 1, "{}", &text[..40]);
        }
    }

    #[test]
    fn what_does_not_parse_is_named() {
        assert!(found("fn f() {}\nfn (\n")[0].starts_with("a.rs:2: does not parse"));
    }
}
