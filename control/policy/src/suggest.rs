//! Did you mean: the nearest known name.

/// Longer words are not compared: nobody mistypes them, and comparing costs their length squared.
const COMPARED_BYTES_MAX: usize = 64;

/// No more names than these are compared, so that many mistakes among many names cost bounded time.
const COMPARED_NAMES_MAX: usize = 256;

/// `did you mean ...?` when one of `known` is near to `wrong`.
pub(crate) fn did_you_mean<'a>(wrong: &str, known: impl IntoIterator<Item = &'a str>) -> Option<String> {
    nearest(wrong, known).map(|name| format!("did you mean `{name}`?"))
}

/// The one of `known` that is nearest to `wrong`, when it is near enough to be meant.
pub(crate) fn nearest<'a>(wrong: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    if wrong.len() > COMPARED_BYTES_MAX {
        return None;
    }
    let lower = wrong.to_lowercase();
    let scored =
        known.into_iter().take(COMPARED_NAMES_MAX).filter(|name| name.len() <= COMPARED_BYTES_MAX).map(
            |name| {
                let distance = strsim::damerau_levenshtein(&lower, &name.to_lowercase());
                (distance, name)
            },
        );
    let (distance, name) = scored.min()?;
    let allowed = (wrong.len().max(name.len()) / 3).max(1);
    (distance <= allowed).then_some(name)
}
