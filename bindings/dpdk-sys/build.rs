//! Generates bindings.
fn main() {}
