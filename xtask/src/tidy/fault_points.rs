//! Fault points stand apart from the product's logic: each is a statement that begins its line,
//! with its name. So a reader passes over the line, and the tools that read the names find them.

use super::{File, Finding, Tree};

const OPENING: &str = "fault_point!(";

/// Fault points in the product that do not begin their line with their name.
pub fn check(tree: &Tree) -> Vec<Finding> {
    let is_product = |file: &&File| file.path.starts_with("crates/") && file.path.contains("/src/");
    let message = "a fault point begins its line, with its name: `fault_point!(\"name\", statement);`";
    let product = tree.rust().filter(is_product);
    product.flat_map(|file| within_logic(file).into_iter().map(|line| file.finding(line, message))).collect()
}

/// The line of each fault point that stands within a condition or another statement; tests aside.
pub fn within_logic(file: &File) -> Vec<usize> {
    let mut found = Vec::new();
    for ((number, code, is_test), line) in file.code_lines().zip(file.text.lines()) {
        let begins = line.trim_start().strip_prefix(OPENING).is_some_and(|rest| rest.starts_with('"'));
        let within = code.matches(OPENING).count().saturating_sub(usize::from(begins));
        found.extend(std::iter::repeat_n(number, if is_test { 0 } else { within }));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::super::tests::{messages, tree};
    use super::*;

    #[test]
    fn fault_points_within_logic_are_caught() {
        let source = "// if fault_point!(\"a\") {}\n\
                      fn f() {\n    fault_point!(\"b\", x = 1);\n    if y && !fault_point!(\"c\") {}\n\
                      \x20   fault_point!(\n        \"d\",\n        return\n    );\n\
                      \x20   fault_point!(\"e\", { fault_point!(\"f\", return) });\n}\n\
                      #[cfg(test)]\nmod tests {\n    fn g() { if fault_point!(\"h\") {} }\n}\n";
        let found = check(&tree(&[("crates/a/src/b.rs", source), ("crates/a/tests/c.rs", source)]));
        let message = "a fault point begins its line, with its name: `fault_point!(\"name\", statement);`";
        assert_eq!(messages(&found), [4, 5, 9].map(|line| format!("crates/a/src/b.rs:{line}: {message}")));
    }
}
