//! Of each Rust file named on standard input: its lines of code, its structs with their fields, its
//! functions with their lines. One JSON object a line, for `cargo xtask shape`.

use std::io::{BufRead, Write};

use proc_macro2::{TokenStream, TokenTree};
use serde_json::json;
use syn::spanned::Spanned;
use syn::visit::{self, Visit};

/// What a file has, modules for tests left out.
#[derive(Default)]
struct Shape {
    /// Lines on which something stands that the compiler reads.
    lines: std::collections::BTreeSet<usize>,
    /// Name and fields.
    structs: Vec<(String, usize)>,
    /// Name, first line, lines.
    functions: Vec<(String, usize, usize)>,
}

fn main() -> std::io::Result<()> {
    let mut out = std::io::stdout().lock();
    for path in std::io::stdin().lock().lines() {
        let path = path?;
        let source = std::fs::read_to_string(&path)?;
        let Ok(file) = syn::parse_file(&source) else { continue };
        let mut shape = Shape::default();
        shape.visit_file(&file);
        for item in file.items.iter().filter(|item| !is_for_tests(attributes(item))) {
            shape.note_lines(quote(item));
        }
        let functions: Vec<_> = shape.functions.iter().map(|(name, at, lines)| json!([name, at, lines])).collect();
        let row =
            json!({ "path": path, "lines": shape.lines.len(), "structs": shape.structs, "functions": functions });
        writeln!(out, "{row}")?;
    }
    Ok(())
}

impl Shape {
    fn note_lines(&mut self, tokens: TokenStream) {
        for token in tokens {
            match token {
                // A doc comment reads as an attribute.
                TokenTree::Group(group) if is_doc(&group) => {}
                TokenTree::Group(group) => {
                    self.lines.insert(group.span_open().start().line);
                    self.lines.insert(group.span_close().end().line);
                    self.note_lines(group.stream());
                }
                TokenTree::Punct(punct) if punct.as_char() == '#' => {}
                token => self.lines.extend(token.span().start().line..=token.span().end().line),
            }
        }
    }

    fn note_function(&mut self, name: String, whole: proc_macro2::Span, body: proc_macro2::Span) {
        let (first, last) = (whole.start().line, body.end().line);
        self.functions.push((name, first, last + 1 - first));
    }
}

impl<'ast> Visit<'ast> for Shape {
    fn visit_item(&mut self, item: &'ast syn::Item) {
        if !is_for_tests(attributes(item)) {
            visit::visit_item(self, item);
        }
    }

    fn visit_item_struct(&mut self, item: &'ast syn::ItemStruct) {
        self.structs.push((item.ident.to_string(), item.fields.len()));
    }

    fn visit_item_fn(&mut self, item: &'ast syn::ItemFn) {
        self.note_function(item.sig.ident.to_string(), item.sig.span(), item.block.span());
        visit::visit_item_fn(self, item);
    }

    fn visit_impl_item_fn(&mut self, item: &'ast syn::ImplItemFn) {
        if !is_for_tests(&item.attrs) {
            self.note_function(item.sig.ident.to_string(), item.sig.span(), item.block.span());
            visit::visit_impl_item_fn(self, item);
        }
    }
}

/// Of a struct literal's or an attribute's content: whether it is a doc comment.
fn is_doc(group: &proc_macro2::Group) -> bool {
    group.delimiter() == proc_macro2::Delimiter::Bracket
        && matches!(group.stream().into_iter().next(), Some(TokenTree::Ident(word)) if word == "doc")
}

fn quote(item: &syn::Item) -> TokenStream {
    use quote::ToTokens;
    item.to_token_stream()
}

fn attributes(item: &syn::Item) -> &[syn::Attribute] {
    match item {
        syn::Item::Const(item) => &item.attrs,
        syn::Item::Enum(item) => &item.attrs,
        syn::Item::Fn(item) => &item.attrs,
        syn::Item::Impl(item) => &item.attrs,
        syn::Item::Macro(item) => &item.attrs,
        syn::Item::Mod(item) => &item.attrs,
        syn::Item::Static(item) => &item.attrs,
        syn::Item::Struct(item) => &item.attrs,
        syn::Item::Trait(item) => &item.attrs,
        syn::Item::Type(item) => &item.attrs,
        syn::Item::Use(item) => &item.attrs,
        _ => &[],
    }
}

/// `#[cfg(test)]`, `#[cfg(any(test, fuzzing))]` and the like.
fn is_for_tests(attributes: &[syn::Attribute]) -> bool {
    let words = |attribute: &syn::Attribute| match &attribute.meta {
        syn::Meta::List(list) if list.path.is_ident("cfg") => list.tokens.to_string(),
        _ => String::new(),
    };
    attributes.iter().map(words).any(|words| {
        let mut words = words.split(|c: char| !c.is_alphanumeric() && c != '_');
        words.clone().all(|word| word != "not") && words.any(|word| word == "test" || word == "fuzzing")
    })
}
