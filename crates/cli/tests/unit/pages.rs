//! Every command line of `stratakv` on the pages, in the helps and in the packages' texts is one
//! that the program takes: its subcommands, its options, and how many words they want.

use std::path::{Path, PathBuf};

use clap::error::ErrorKind;
use pulldown_cmark::{CodeBlockKind, Event, Parser, Tag, TagEnd};

use super::*;

/// Pages that tell what was: options that they name may be gone.
const HISTORY: [&str; 3] = ["CHANGELOG.md", "docs/decisions", "docs/measurements"];
/// What stands in front of a program's name and runs it.
const RUNNERS: [&str; 4] = ["sudo", "time", "exec", "nohup"];

/// A command line, and where it stands.
struct Shown {
    place: String,
    words: Vec<String>,
    /// In a sentence, which may leave out what a command needs.
    is_mention: bool,
}

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The pages of people, from the repository's root.
fn pages() -> Vec<String> {
    let mut pages = vec!["README.md".to_owned(), "CONTRIBUTING.md".to_owned(), "SECURITY.md".to_owned()];
    pages.extend(["python/README.md", "java/README.md"].map(str::to_owned));
    let docs = std::fs::read_dir(repository().join("docs")).unwrap();
    let names = docs.map(|entry| format!("docs/{}", entry.unwrap().file_name().to_string_lossy()));
    pages.extend(names.filter(|name| name.ends_with(".md")));
    pages.retain(|page| !HISTORY.iter().any(|past| page.starts_with(past)));
    pages
}

/// The lines of a shell on a page: whole blocks, and words of its text that begin with the
/// program's name.
fn shown_on(page: &str) -> Vec<Shown> {
    let text = std::fs::read_to_string(repository().join(page)).unwrap();
    let mut block: Option<String> = None;
    let mut shown = Vec::new();
    for (event, range) in Parser::new(&text).into_offset_iter() {
        let line = text[..range.start].matches('\n').count() + 1;
        let mut add = |script: &str, is_mention: bool| {
            let found = commands(script).into_iter();
            shown.extend(found.map(|words| Shown { place: format!("{page}:{line}"), words, is_mention }));
        };
        match event {
            Event::Start(Tag::CodeBlock(CodeBlockKind::Fenced(language))) => {
                block = ["", "sh", "bash"].contains(&&*language).then(String::new);
            }
            Event::Text(part) if block.is_some() => block.iter_mut().for_each(|block| block.push_str(&part)),
            Event::End(TagEnd::CodeBlock) => {
                if let Some(script) = block.take() {
                    add(&script, false);
                }
            }
            Event::Code(code) if code.starts_with("stratakv ") => add(&code, true),
            _ => {}
        }
    }
    shown
}

/// The examples below the help of each subcommand.
fn shown_in_helps() -> Vec<Shown> {
    let mut all = vec![Arguments::command()];
    let mut shown = Vec::new();
    while let Some(command) = all.pop() {
        all.extend(command.get_subcommands().cloned());
        let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
        let examples = help.split("Examples:").nth(1).unwrap_or_default();
        let examples = examples.split("\n\n").next().unwrap_or_default();
        for line in examples.lines() {
            // Behind the command and two blanks stands what it does.
            let command_line = line.trim_start().split("   ").next().unwrap_or_default();
            let place = format!("{} --help", command.get_name());
            let found = commands(command_line).into_iter();
            shown.extend(found.map(|words| Shown { place: place.clone(), words, is_mention: false }));
        }
    }
    shown
}

/// The words of each call of the program in a script.
fn commands(script: &str) -> Vec<Vec<String>> {
    let joined = script.replace("\\\n", " ");
    // Drawings have names of commands too.
    let simple = joined.lines().filter(|line| !line.contains('─')).flat_map(simple_commands);
    simple.filter_map(call).collect()
}

/// The words of a line, in simple commands: quotes are taken off, comments and redirections left
/// out.
fn simple_commands(line: &str) -> Vec<Vec<String>> {
    let (mut all, mut words, mut word) = (Vec::new(), Vec::new(), None::<String>);
    let mut quote = None;
    let mut letters = line.chars().peekable();
    while let Some(letter) = letters.next() {
        match (quote, letter) {
            (Some(open), _) if letter == open => quote = None,
            (Some(_), _) => word.get_or_insert_default().push(letter),
            (None, '\'' | '"') => (quote, word) = (Some(letter), Some(word.unwrap_or_default())),
            (None, '#') if word.is_none() => break,
            (None, '|' | '&' | ';' | '(' | ')') => {
                words.extend(word.take());
                all.push(std::mem::take(&mut words));
            }
            (None, '<' | '>') => {
                // `2>` and `>>` too; the file is no word of the command.
                word = word.filter(|number| number != "2");
                words.extend(word.take());
                while letters.next_if(|next| ['>', '&', ' '].contains(next)).is_some() {}
                while letters.next_if(|next| !next.is_whitespace() && *next != ')').is_some() {}
            }
            (None, _) if letter.is_whitespace() => words.extend(word.take()),
            (None, _) => word.get_or_insert_default().push(letter),
        }
    }
    words.extend(word);
    all.push(words);
    all
}

/// The call of the program in a simple command: at its begin, or behind what runs it there, such as
/// `docker exec store`.
fn call(words: Vec<String>) -> Option<Vec<String>> {
    let is_program = |word: &String| word.rsplit('/').next() == Some("stratakv");
    let first = words.iter().position(|word| !word.contains('=') && !RUNNERS.contains(&word.as_str()))?;
    let at = match is_program(&words[first]) {
        true => first,
        false => {
            let known = Arguments::command();
            let is_call = |pair: &[String]| is_program(&pair[0]) && known.find_subcommand(&pair[1]).is_some();
            words.windows(2).position(is_call)?
        }
    };
    Some(words[at..].to_vec())
}

/// Why the program would not take it; words in capitals and dots stand for what users put there.
fn refused(words: &[String], is_mention: bool) -> Option<String> {
    let left_out = ["..", "..."];
    let is_cut = is_mention || words.len() == 1 || words.iter().any(|word| left_out.contains(&word.as_str()));
    let words = words.iter().filter(|word| !left_out.contains(&word.as_str()));
    let error = headings::grouped(Arguments::command()).try_get_matches_from(words).err()?;
    let value = error.get(ContextKind::InvalidValue).or_else(|| error.get(ContextKind::InvalidSubcommand));
    let stands_for_another =
        matches!(value, Some(ContextValue::String(value)) if value.chars().any(char::is_uppercase));
    let is_value_missing = matches!(value, Some(ContextValue::String(value)) if value.is_empty());
    match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => None,
        ErrorKind::MissingRequiredArgument | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand if is_cut => None,
        ErrorKind::InvalidValue if is_cut && is_value_missing => None,
        ErrorKind::InvalidValue | ErrorKind::ValueValidation | ErrorKind::InvalidSubcommand if stands_for_another => {
            None
        }
        _ => Some(error.to_string().lines().next().unwrap_or_default().to_owned()),
    }
}

#[test]
fn the_program_takes_every_command_line_of_the_pages() {
    let shown: Vec<Shown> = pages().iter().flat_map(|page| shown_on(page)).chain(shown_in_helps()).collect();
    assert!(shown.len() > 200, "only {} command lines were found", shown.len());
    let refused = shown.iter().filter_map(|shown| {
        refused(&shown.words, shown.is_mention)
            .map(|why| format!("{}: `{}`: {why}", shown.place, shown.words.join(" ")))
    });
    let refused: Vec<String> = refused.collect();
    assert!(refused.is_empty(), "{}", refused.join("\n"));
}

#[test]
fn command_lines_are_found_and_judged() {
    let script = "A=1 stratakv get 'a b' --server h:1 2>err   # stratakv nonsense\nstratakv dump | gzip > all.gz\n\
                  docker exec store stratakv stats \\\n  --json\ndocker build -t stratakv .\nstratakv frob\n";
    let found: Vec<String> = commands(script).iter().map(|words| words.join(" ")).collect();
    let expected = ["stratakv get a b --server h:1", "stratakv dump", "stratakv stats --json", "stratakv frob"];
    assert_eq!(found, expected);
    let judged = |line: &str| commands(line).first().and_then(|words| refused(words, false));
    assert_eq!(judged("stratakv serve --memory BYTES --data DIR"), None);
    assert_eq!(judged("stratakv serve .."), None);
    assert!(judged("stratakv frob").is_some() && judged("stratakv get").is_some());
    assert!(judged("stratakv serve --memory many").is_some());
    assert!(judged("stratakv serve --no-such-option").is_some());
    let mentioned = |line: &str| commands(line).first().and_then(|words| refused(words, true));
    assert!(mentioned("stratakv scan --match").is_none() && mentioned("stratakv top").is_none());
    assert!(mentioned("stratakv top --nonsense").is_some());
}
