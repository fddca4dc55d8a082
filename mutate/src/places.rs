//! Where a source file can be mutated, and how.
//!
//! The operators are those of the literature on mutation testing (conditions, boundaries,
//! statements, results). A mutation is an expression that asks a switch, so that all of them are
//! built at once (mutant schemata).

use std::ops::Range;

use syn::spanned::Spanned;
use syn::visit::{self, Visit};

/// A place, and what is to stand there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    pub operator: &'static str,
    /// The function that it is in.
    pub function: String,
    /// From 1.
    pub line: usize,
    /// Of bytes that are replaced.
    pub range: Range<usize>,
    /// What is put there; `SWITCH` stands for the question whether the mutation is on.
    pub put: String,
}

/// What stands for the switch in [`Place::put`].
pub const SWITCH: &str = "\u{1}SWITCH\u{1}";

/// What is called for speed or for people only. Without it nothing is wrong.
const HARMLESS: [&str; 12] = [
    "reserve",
    "shrink_to",
    "shrink_to_fit",
    "prefetch",
    "yield_now",
    "spin_loop",
    "warn",
    "info",
    "debug",
    "trace",
    "error",
    "trim",
];

/// All places of a file.
///
/// # Errors
/// The file is no Rust.
pub fn places(source: &str) -> Result<Vec<Place>, String> {
    let file = syn::parse_file(source).map_err(|error| error.to_string())?;
    let mut finder = Finder { source, function: Vec::new(), found: Vec::new() };
    finder.visit_file(&file);
    finder.found.sort_by_key(|place| (place.range.start, place.range.end));
    Ok(finder.found)
}

/// Modules of a file that are there for tests, fuzzing or loom only and lie in files of their own:
/// their names, and where `#[path]` puts them.
///
/// # Errors
/// The file is no Rust.
pub fn test_modules(source: &str) -> Result<Vec<(String, Option<String>)>, String> {
    let file = syn::parse_file(source).map_err(|error| error.to_string())?;
    let modules = file.items.iter().filter_map(|item| match item {
        syn::Item::Mod(module) if module.content.is_none() && is_test(&module.attrs) => Some(module),
        _ => None,
    });
    Ok(modules.map(|module| (module.ident.to_string(), path_of(&module.attrs))).collect())
}

/// What `#[path = "…"]` says.
fn path_of(attributes: &[syn::Attribute]) -> Option<String> {
    attributes.iter().find_map(|attribute| match &attribute.meta {
        syn::Meta::NameValue(syn::MetaNameValue {
            path,
            value: syn::Expr::Lit(syn::ExprLit { lit: syn::Lit::Str(text), .. }),
            ..
        }) if path.is_ident("path") => Some(text.value()),
        _ => None,
    })
}

struct Finder<'a> {
    source: &'a str,
    /// The functions around, the innermost last.
    function: Vec<String>,
    found: Vec<Place>,
}

impl Finder<'_> {
    fn text(&self, node: &impl Spanned) -> &str {
        self.source.get(node.span().byte_range()).unwrap_or_default()
    }

    fn add(&mut self, operator: &'static str, range: Range<usize>, put: String) {
        // Outside of a function an expression is a constant, which cannot ask a switch.
        let Some(function) = self.function.last().cloned() else { return };
        let line = 1 + self.source.as_bytes().iter().take(range.start).filter(|byte| **byte == b'\n').count();
        self.found.push(Place { operator, function, line, range, put });
    }

    /// Visits a function, unless it is a test or a constant one.
    fn function(&mut self, attributes: &[syn::Attribute], signature: &syn::Signature, block: &syn::Block) {
        if signature.constness.is_some() || signature.asyncness.is_some() || is_test(attributes) {
            return;
        }
        self.function.push(signature.ident.to_string());
        let at = block.brace_token.span.open().byte_range().end;
        if let Some(result) = result_of(&signature.output) {
            self.add("returns at once", at..at, format!(" if {SWITCH} {{ return {result}; }} "));
        }
        self.visit_block(block);
        self.function.pop();
    }
}

impl<'ast> Visit<'ast> for Finder<'_> {
    fn visit_item_mod(&mut self, module: &'ast syn::ItemMod) {
        if !is_test(&module.attrs) {
            visit::visit_item_mod(self, module);
        }
    }

    fn visit_item_impl(&mut self, block: &'ast syn::ItemImpl) {
        let is_for_people = block
            .trait_
            .as_ref()
            .and_then(|(_, path, _)| path.segments.last())
            .is_some_and(|name| ["Debug", "Display", "Error", "Hash"].iter().any(|known| name.ident == known));
        if !is_for_people && !is_test(&block.attrs) {
            visit::visit_item_impl(self, block);
        }
    }

    fn visit_item_fn(&mut self, function: &'ast syn::ItemFn) {
        self.function(&function.attrs, &function.sig, &function.block);
    }

    fn visit_impl_item_fn(&mut self, function: &'ast syn::ImplItemFn) {
        self.function(&function.attrs, &function.sig, &function.block);
    }

    fn visit_trait_item_fn(&mut self, function: &'ast syn::TraitItemFn) {
        if let Some(block) = &function.default {
            self.function(&function.attrs, &function.sig, block);
        }
    }

    // Constants, types and patterns cannot ask a switch.
    fn visit_item_const(&mut self, _: &'ast syn::ItemConst) {}
    fn visit_item_static(&mut self, _: &'ast syn::ItemStatic) {}
    fn visit_impl_item_const(&mut self, _: &'ast syn::ImplItemConst) {}
    fn visit_type(&mut self, _: &'ast syn::Type) {}
    fn visit_pat(&mut self, _: &'ast syn::Pat) {}
    fn visit_expr_const(&mut self, _: &'ast syn::ExprConst) {}
    fn visit_generic_argument(&mut self, _: &'ast syn::GenericArgument) {}

    fn visit_expr_repeat(&mut self, repeat: &'ast syn::ExprRepeat) {
        self.visit_expr(&repeat.expr);
    }

    fn visit_expr_if(&mut self, branch: &'ast syn::ExprIf) {
        if !has_let(&branch.cond) {
            let put = format!("{SWITCH} != ({})", self.text(&branch.cond));
            self.add("condition turned round", branch.cond.span().byte_range(), put);
        }
        visit::visit_expr_if(self, branch);
    }

    fn visit_expr_binary(&mut self, binary: &'ast syn::ExprBinary) {
        if let Some((operator, put)) = self.other_binary(binary) {
            self.add(operator, binary.span().byte_range(), put);
        }
        visit::visit_expr_binary(self, binary);
    }

    fn visit_arm(&mut self, arm: &'ast syn::Arm) {
        if let Some((_, guard)) = &arm.guard
            && !has_let(guard)
        {
            let put = format!("{SWITCH} || ({})", self.text(guard));
            self.add("guard ignored", guard.span().byte_range(), put);
        }
        visit::visit_arm(self, arm);
    }

    fn visit_stmt(&mut self, statement: &'ast syn::Stmt) {
        if let syn::Stmt::Expr(expression, Some(_)) = statement
            && can_be_left_out(expression)
        {
            let put = format!("if !{SWITCH} {{ {} }}", self.text(statement));
            self.add("statement left out", statement.span().byte_range(), put);
        }
        visit::visit_stmt(self, statement);
    }
}

impl Finder<'_> {
    /// What may stand for a comparison, a conjunction or a sum, by which operator.
    fn other_binary(&self, binary: &syn::ExprBinary) -> Option<(&'static str, String)> {
        let (left, right) = (self.text(&binary.left), self.text(&binary.right));
        let shifted = |is: &str, other: &str| {
            // What is told twice has to keep its lines: the compiler names them.
            if left.contains('\n') || right.contains('\n') {
                return None;
            }
            let put = format!("(if {SWITCH} {{ ({left}) {other} ({right}) }} else {{ ({left}) {is} ({right}) }})");
            Some(("boundary shifted", put))
        };
        let is_whole = !has_let(&binary.left) && !has_let(&binary.right);
        match &binary.op {
            syn::BinOp::Lt(_) => shifted("<", "<="),
            syn::BinOp::Le(_) => shifted("<=", "<"),
            syn::BinOp::Gt(_) => shifted(">", ">="),
            syn::BinOp::Ge(_) => shifted(">=", ">"),
            syn::BinOp::And(_) if is_whole => {
                Some(("condition left out", format!("(({left}) && ({SWITCH} || ({right})))")))
            }
            syn::BinOp::Or(_) if is_whole => {
                Some(("condition left out", format!("(({left}) || (!{SWITCH} && ({right})))")))
            }
            syn::BinOp::Add(_) | syn::BinOp::Sub(_) if is_number(&binary.right) => {
                let sign = if matches!(binary.op, syn::BinOp::Add(_)) { '+' } else { '-' };
                Some(("nothing added", format!("({left} {sign} (if {SWITCH} {{ 0 }} else {{ {right} }}))")))
            }
            _ => None,
        }
    }
}

fn is_number(expression: &syn::Expr) -> bool {
    matches!(expression, syn::Expr::Lit(literal) if matches!(literal.lit, syn::Lit::Int(_)))
}

/// Whether a statement can be left out and the rest still be built: it binds nothing, and does
/// something.
fn can_be_left_out(expression: &syn::Expr) -> bool {
    match expression {
        syn::Expr::MethodCall(call) => !HARMLESS.iter().any(|name| call.method == name),
        syn::Expr::Call(call) => {
            let name = match &*call.func {
                syn::Expr::Path(path) => path.path.segments.last().map(|segment| segment.ident.to_string()),
                _ => None,
            };
            name.is_some_and(|name| name != "drop" && !HARMLESS.contains(&name.as_str()))
        }
        syn::Expr::Try(tried) => can_be_left_out(&tried.expr),
        // What is assigned to a variable may be its first value.
        syn::Expr::Assign(assign) => matches!(*assign.left, syn::Expr::Field(_) | syn::Expr::Index(_)),
        syn::Expr::Binary(binary) => is_assignment(&binary.op) && matches!(*binary.left, syn::Expr::Field(_)),
        _ => false,
    }
}

fn is_assignment(operator: &syn::BinOp) -> bool {
    use syn::BinOp as Op;
    matches!(operator, Op::AddAssign(_) | Op::SubAssign(_) | Op::BitOrAssign(_) | Op::BitAndAssign(_))
}

/// A value that a function may return at once.
fn result_of(output: &syn::ReturnType) -> Option<&'static str> {
    let syn::ReturnType::Type(_, kind) = output else { return Some("") };
    let syn::Type::Path(path) = &**kind else { return None };
    let last = path.path.segments.last()?;
    match last.ident.to_string().as_str() {
        "bool" => Some("false"),
        "Option" => Some("None"),
        "usize" | "u64" | "u32" => Some("0"),
        "Vec" => Some("Vec::new()"),
        "Result" => {
            let syn::PathArguments::AngleBracketed(arguments) = &last.arguments else { return None };
            let first = arguments.args.first();
            let is_unit = |kind: &syn::Type| matches!(kind, syn::Type::Tuple(tuple) if tuple.elems.is_empty());
            matches!(first, Some(syn::GenericArgument::Type(kind)) if is_unit(kind)).then_some("Ok(())")
        }
        _ => None,
    }
}

fn has_let(expression: &syn::Expr) -> bool {
    struct Lets(bool);
    impl<'ast> Visit<'ast> for Lets {
        fn visit_expr_let(&mut self, _: &'ast syn::ExprLet) {
            self.0 = true;
        }
        // Those of a closure or a block are its own.
        fn visit_block(&mut self, _: &'ast syn::Block) {}
    }
    let mut lets = Lets(false);
    lets.visit_expr(expression);
    lets.0
}

/// Whether something is there for tests, fuzzing or loom only.
fn is_test(attributes: &[syn::Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        let path = attribute.path();
        let tokens = match &attribute.meta {
            syn::Meta::List(list) => list.tokens.to_string(),
            _ => String::new(),
        };
        let apart = ["test", "fuzzing", "loom", "fault_points"];
        path.is_ident("test") || path.is_ident("cfg") && apart.iter().any(|word| tokens.contains(word))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(source: &str) -> Vec<(&'static str, String)> {
        let places = places(source).expect("it is Rust");
        places.into_iter().map(|place| (place.operator, place.put.replace(SWITCH, "S"))).collect()
    }

    #[test]
    fn conditions_boundaries_statements_and_results_are_found() {
        let source = "fn f(&self, a: u8) -> bool { if a < 3 && b { self.x.y(a); } a + 1 == 2 }";
        assert_eq!(
            found(source),
            [
                ("returns at once", " if S { return false; } ".to_owned()),
                ("boundary shifted", "(if S { (a) <= (3) } else { (a) < (3) })".into()),
                ("condition turned round", "S != (a < 3 && b)".into()),
                ("condition left out", "((a < 3) && (S || (b)))".into()),
                ("statement left out", "if !S { self.x.y(a); }".into()),
                ("nothing added", "(a + (if S { 0 } else { 1 }))".into()),
            ]
        );
    }

    #[test]
    fn guards_and_lets_are_told_apart() {
        let source = "fn f() -> X { match a { Some(b) if b > c => {} _ => {} } if let Some(d) = e && g && h {} }";
        let found = found(source);
        assert!(found.contains(&("guard ignored", "S || (b > c)".into())), "{found:?}");
        assert!(found.iter().all(|(operator, _)| !operator.starts_with("condition")), "{found:?}");
    }

    #[test]
    fn modules_of_tests_in_files_of_their_own_are_found() {
        let source = "mod a; #[cfg(test)] mod b; #[cfg(any(test, fuzzing))] pub mod c; #[cfg(test)] mod d { }\n\
                      #[cfg(test)] #[path = \"f_tests.rs\"] mod tests;";
        let found = test_modules(source).expect("it is Rust");
        let expected = [("b", None), ("c", None), ("tests", Some("f_tests.rs"))];
        assert_eq!(found, expected.map(|(name, path)| (name.to_owned(), path.map(str::to_owned))));
    }

    #[test]
    fn tests_constants_and_deliberate_defects_are_left_alone() {
        let source = "const A: bool = 1 < 2; const fn f() -> bool { 1 < 2 } #[cfg(test)] mod tests { fn g() { a.b(); } }\n\
                      #[test] fn h() { a.b(); } fn i() -> X { let x = [0; 1 + 1]; fault_point!(\"n\", y && z, x.push(1)); x.reserve(1); }";
        assert_eq!(found(source), []);
    }
}
