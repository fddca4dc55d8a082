//! StrataKV chores.
fn main() {}
