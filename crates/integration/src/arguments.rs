//! What the harnesses' options have in common.

/// Each of the words between commas, by name.
///
/// # Errors
/// There is none of such a name.
pub fn named<T: Copy>(text: &str, all: &[T], name: fn(T) -> &'static str) -> Result<Vec<T>, String> {
    let one = |word| all.iter().copied().find(|one| name(*one) == word).ok_or_else(|| format!("there is no `{word}`"));
    text.split(',').map(one).collect()
}
