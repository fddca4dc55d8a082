//! How plain the project's pages are: words in a sentence, characters in a line. A page that is not
//! rewritten yet stands in a list, which only gets shorter.

use pulldown_cmark::{Event, Options, Parser, Tag, TagEnd};

use super::{Finding, Tree};

/// Most words of a sentence. Writers aim at 25.
pub const WORDS_MAX: usize = 40;
/// Most characters of a line, in Markdown and comments. Tables and code of Markdown are apart.
pub const LINE_CHARS_MAX: usize = 100;
/// A line may be longer for code in backticks that is longer than this.
const CODE_CHARS_MAX: usize = 60;
/// Pages that may break these rules until they are rewritten.
const TO_DO: &str = "xtask/prose-to-do.txt";

/// A sentence of a page.
#[derive(Debug, PartialEq, Eq)]
pub struct Sentence {
    /// Of its paragraph.
    pub line: usize,
    /// How many it has; code in backticks is one.
    pub words: usize,
}

/// The sentences of paragraphs, list items and table cells. Headings and code have none.
pub fn sentences(markdown: &str) -> Vec<Sentence> {
    let (mut found, mut text, mut at, mut code_blocks) = (Vec::new(), String::new(), 0, 0);
    let mut flush = |text: &mut String, at: usize| {
        let line = markdown.get(..at).unwrap_or_default().matches('\n').count() + 1;
        found.extend(split(text).into_iter().map(|words| Sentence { line, words }));
        text.clear();
    };
    for (event, range) in Parser::new_ext(markdown, Options::ENABLE_TABLES).into_offset_iter() {
        match event {
            Event::Start(Tag::CodeBlock(_)) | Event::Start(Tag::Heading { .. }) => code_blocks += 1,
            Event::End(TagEnd::CodeBlock | TagEnd::Heading(_)) => code_blocks -= 1,
            _ if code_blocks > 0 => {}
            Event::Start(Tag::Paragraph | Tag::Item | Tag::TableCell | Tag::List(_))
            | Event::End(TagEnd::Paragraph | TagEnd::Item | TagEnd::TableCell) => {
                flush(&mut text, at);
                at = range.start;
            }
            Event::Text(part) => text.push_str(&part),
            // As the first word of a sentence it looks like one.
            Event::Code(_) => text.push_str("Code"),
            Event::SoftBreak | Event::HardBreak => text.push(' '),
            _ => {}
        }
    }
    flush(&mut text, at);
    found
}

/// The number of words of each sentence.
fn split(text: &str) -> Vec<usize> {
    let (mut all, mut words) = (Vec::new(), 0);
    let mut tokens = text.split_whitespace().peekable();
    while let Some(token) = tokens.next() {
        words += usize::from(token.chars().any(char::is_alphanumeric));
        let bare = token.trim_end_matches(['"', '\'', ')', '”', '*']);
        let is_short = ["e.g.", "i.e.", "etc.", "vs.", "cf."].contains(&bare);
        let begins = tokens.peek().is_none_or(|next| !next.starts_with(char::is_lowercase));
        if bare.ends_with(['.', '!', '?']) && !is_short && begins {
            all.push(std::mem::take(&mut words));
        }
    }
    all.push(words);
    all.retain(|words| *words > 0);
    all
}

/// The numbers of lines that are too long. Tables, headings, code and what cannot be broken may be.
pub fn long_lines(markdown: &str) -> Vec<usize> {
    let mut in_code = false;
    let mut long = Vec::new();
    for (index, line) in markdown.lines().enumerate() {
        let is_fence = line.trim_start().starts_with("```");
        in_code ^= is_fence;
        let is_table = line.trim_start().starts_with(['|', '#']);
        // Code in backticks stays on one line.
        let unbroken = line.split('`').skip(1).step_by(2).any(|code| code.chars().count() > CODE_CHARS_MAX);
        let can_break = line.trim_start().trim_start_matches(['-', '*', '>', ' ']).contains(' ') && !unbroken;
        let is_comment = line.starts_with("<!--");
        if !in_code && !is_fence && !is_table && !is_comment && can_break && line.chars().count() > LINE_CHARS_MAX {
            long.push(index + 1);
        }
    }
    long
}

/// Lines of comments that are too long.
pub fn comments(tree: &Tree) -> Vec<Finding> {
    let code = tree.files.iter().filter(|file| file.is_rust() || file.path.ends_with(".java"));
    let lines = code.flat_map(|file| file.text.lines().enumerate().map(move |(index, line)| (file, index + 1, line)));
    let long =
        lines.filter(|(_, _, line)| line.trim_start().starts_with("//") && line.chars().count() > LINE_CHARS_MAX);
    long.map(|(file, number, _)| {
        file.finding(number, format!("a comment longer than {LINE_CHARS_MAX} characters; wrap it"))
    })
    .collect()
}

/// Long sentences and lines of pages that are not on the list, and pages that need not be on it.
pub fn check(tree: &Tree) -> Vec<Finding> {
    let to_do = tree.files.iter().find(|file| file.path == TO_DO);
    let names: Vec<&str> = to_do.map_or(Vec::new(), |file| file.text.lines().collect());
    let mut findings = Vec::new();
    for page in tree.files.iter().filter(|file| file.path.ends_with(".md")) {
        let long = sentences(&page.text).into_iter().filter(|sentence| sentence.words > WORDS_MAX);
        let mut here: Vec<Finding> = long
            .map(|Sentence { line, words }| {
                page.finding(line, format!("a sentence of {words} words; {WORDS_MAX} is the most, 25 the aim"))
            })
            .collect();
        let message = || format!("longer than {LINE_CHARS_MAX} characters; wrap it");
        here.extend(long_lines(&page.text).into_iter().map(|line| page.finding(line, message())));
        match (names.contains(&page.path.as_str()), here.is_empty()) {
            (false, _) => findings.extend(here),
            (true, true) => findings.push(page.finding(1, format!("plain now: take it off {TO_DO}"))),
            (true, false) => {}
        }
    }
    let is_page = |name: &str| tree.files.iter().any(|file| file.path == name);
    if let Some(list) = to_do {
        let gone = names.iter().enumerate().filter(|(_, name)| !is_page(name));
        findings.extend(gone.map(|(index, name)| list.finding(index + 1, format!("there is no page {name}"))));
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::super::tests::{messages, tree};
    use super::*;

    #[test]
    fn sentences_end_at_stops_and_blocks_and_code_is_one_word() {
        let page = "# A heading of five words\n\nOne `stratakv put a b` is here, e.g. this. Two.\nIs\nit three?\n\n\
                    ```\nno sentence here\n```\n\n- four 4.5 words here\n  - nested\n\n| five | six seven. Eight |\n|---|---|\n| a | b |\n";
        let words: Vec<usize> = sentences(page).iter().map(|sentence| sentence.words).collect();
        assert_eq!(words, [6, 1, 3, 4, 1, 1, 2, 1, 1, 1]);
        assert_eq!(sentences(page).iter().map(|sentence| sentence.line).take(4).collect::<Vec<_>>(), [3, 3, 3, 11]);
    }

    #[test]
    fn long_comments_are_found() {
        let files = [("a.rs", format!("    // {}\n", "x".repeat(94))), ("b.java", format!("// {}", "x".repeat(97)))];
        let found = comments(&tree(&files.each_ref().map(|(path, text)| (*path, text.as_str()))));
        assert_eq!(messages(&found), ["a.rs:1: a comment longer than 100 characters; wrap it"]);
    }

    #[test]
    fn long_sentences_and_lines_are_found_and_the_list_gets_shorter() {
        let (sentence, line) = (format!("{}end.\n", "word\n".repeat(40)), format!("{}\n", "word ".repeat(21)));
        let code = format!("```\n{line}```\n| {line} |\n- {}\n", "x".repeat(200));
        let files = [
            ("a.md", sentence.as_str()),
            ("b.md", line.as_str()),
            ("c.md", code.as_str()),
            ("d.md", sentence.as_str()),
            ("e.md", "Plain.\n"),
            ("xtask/prose-to-do.txt", "d.md\ne.md\nf.md\n"),
        ];
        let expected = [
            "a.md:1: a sentence of 41 words; 40 is the most, 25 the aim",
            "b.md:1: longer than 100 characters; wrap it",
            "e.md:1: plain now: take it off xtask/prose-to-do.txt",
            "xtask/prose-to-do.txt:3: there is no page f.md",
        ];
        assert_eq!(messages(&check(&tree(&files))), expected);
    }
}
