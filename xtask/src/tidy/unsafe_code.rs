//! `unsafe` only where the design allows it. Clippy sees to the SAFETY comments.

use proc_macro2::{TokenStream, TokenTree};

use super::Source;

/// Folders and files in which the word may stand.
const ALLOWED: [&str; 4] =
    ["bindings/", "dataplane/backends/", "dataplane/quiescent/", "dataplane/packet/src/arch.rs"];

/// Every `unsafe` of one Rust file, within macros too.
pub fn check(Source { path, text }: &Source) -> Vec<String> {
    if ALLOWED.iter().any(|allowed| path.starts_with(allowed)) {
        return Vec::new();
    }
    let Ok(tokens) = text.parse::<TokenStream>() else {
        return vec![format!("{path}: is not made of Rust's tokens")];
    };
    let mut lines = Vec::new();
    search(tokens, &mut lines);
    let violation = |line| format!("{path}:{line}: unsafe is only for {}", ALLOWED.join(", "));
    lines.into_iter().map(violation).collect()
}

fn search(tokens: TokenStream, lines: &mut Vec<usize>) {
    for token in tokens {
        match token {
            TokenTree::Ident(word) if word == "unsafe" => lines.push(word.span().start().line),
            TokenTree::Group(group) => search(group.stream(), lines),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::source;
    use super::*;

    #[test]
    fn it_is_found_in_every_form() {
        for text in [
            "fn f() { unsafe { g() } }",
            "unsafe fn f() {}",
            "unsafe impl Send for T {}",
            "unsafe extern \"C\" { fn g(); }",
            "macro_rules! m { () => { unsafe { g() } } }",
            "#[unsafe(no_mangle)] fn f() {}",
        ] {
            assert_eq!(
                check(&source("pipelines/edge/src/lib.rs", &format!("//! A.\n\n{text}"))).len(),
                1,
                "{text}"
            );
        }
        let found = check(&source("a.rs", "fn f() {\n    unsafe {}\n}\n"));
        assert!(found[0].starts_with("a.rs:2: unsafe is only for bindings/"));
    }

    #[test]
    fn words_and_allowed_places_pass() {
        for text in ["// unsafe", "#![forbid(unsafe_code)]", "const A: &str = \"unsafe\";"] {
            assert_eq!(check(&source("a.rs", text)), [] as [String; 0], "{text}");
        }
        for path in
            ["bindings/dpdk/src/lib.rs", "dataplane/backends/src/tap.rs", "dataplane/packet/src/arch.rs"]
        {
            assert_eq!(check(&source(path, "unsafe fn f() {}")), [] as [String; 0], "{path}");
        }
        assert_eq!(check(&source("dataplane/packet/src/lib.rs", "unsafe fn f() {}")).len(), 1);
    }
}
