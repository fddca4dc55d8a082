//! As much of Rust's lexical grammar as the checks need.

/// `text` with comments and the insides of string and character literals replaced by spaces. Lines
/// stay where they are.
pub fn code_only(text: &str) -> String {
    let mut scanner = Scanner { text, at: 0, out: String::with_capacity(text.len()) };
    while scanner.at < text.len() {
        scanner.step();
    }
    scanner.out
}

struct Scanner<'a> {
    text: &'a str,
    at: usize,
    out: String,
}

impl Scanner<'_> {
    fn rest(&self) -> &str {
        &self.text[self.at..]
    }

    fn step(&mut self) {
        let rest = self.rest();
        if rest.starts_with("//") {
            let end = rest.find('\n').unwrap_or(rest.len());
            self.blank(end);
        } else if rest.starts_with("/*") {
            let end = block_comment_len(rest);
            self.blank(end);
        } else if let Some((open, close)) = raw_string_delimiters(rest).filter(|_| !self.after_identifier()) {
            let body = rest.get(open..).unwrap_or_default();
            let end = body.find(&close).map_or(rest.len(), |at| open + at + close.len());
            self.blank(end);
        } else if rest.starts_with('"') {
            let end = string_len(rest);
            self.blank(end);
        } else if let Some(len) = char_literal_len(rest) {
            self.blank(len);
        } else {
            let len = rest.chars().next().map_or(1, char::len_utf8);
            self.out.push_str(&self.text[self.at..self.at + len]);
            self.at += len;
        }
    }

    fn after_identifier(&self) -> bool {
        self.text[..self.at].chars().next_back().is_some_and(|c| c.is_alphanumeric() || c == '_')
    }

    fn blank(&mut self, len: usize) {
        let blanked = self.text[self.at..self.at + len].chars().map(|c| if c == '\n' { '\n' } else { ' ' });
        self.out.extend(blanked);
        self.at += len;
    }
}

fn block_comment_len(text: &str) -> usize {
    let (mut depth, mut at) = (0usize, 0);
    let bytes = text.as_bytes();
    while at < bytes.len() {
        match bytes.get(at..at + 2) {
            Some(b"/*") => {
                depth += 1;
                at += 2;
            }
            Some(b"*/") => {
                depth -= 1;
                at += 2;
                if depth == 0 {
                    return at;
                }
            }
            _ => at += 1,
        }
    }
    text.len()
}

/// For `r"`, `r#"`, `br##"`, ...: the length of the opening and the text of the closing delimiter.
fn raw_string_delimiters(text: &str) -> Option<(usize, String)> {
    let prefix = if text.starts_with("br") || text.starts_with("cr") { 2 } else { 1 };
    let after = text.strip_prefix("br").or_else(|| text.strip_prefix("cr")).or_else(|| text.strip_prefix('r'))?;
    let hashes = after.bytes().take_while(|byte| *byte == b'#').count();
    after[hashes..].starts_with('"').then(|| (prefix + hashes + 1, format!("\"{}", "#".repeat(hashes))))
}

fn string_len(text: &str) -> usize {
    let mut escaped = false;
    for (at, c) in text.char_indices().skip(1) {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            '"' => return at + 1,
            _ => {}
        }
    }
    text.len()
}

/// The length of a character literal at the start of `text`; `None` for a lifetime and everything
/// else.
fn char_literal_len(text: &str) -> Option<usize> {
    let body = text.strip_prefix('\'')?;
    let first = body.chars().next()?;
    if first == '\\' {
        let after = body.get(2..)?;
        return Some(1 + 2 + after.find('\'')? + 1);
    }
    let after = &body[first.len_utf8()..];
    after.starts_with('\'').then(|| 1 + first.len_utf8() + 1)
}

/// For each line of blanked code: whether it lies in an item under `#[cfg(test)]`.
pub fn test_lines(code: &str) -> Vec<bool> {
    let mut flags = vec![false; code.lines().count()];
    let mut from = 0;
    while let Some(found) = code[from..].find("#[cfg(test)]") {
        let start = from + found;
        let end = item_end(code, start);
        let first = code[..start].matches('\n').count();
        let last = code[..end].matches('\n').count();
        flags.iter_mut().take(last + 1).skip(first).for_each(|flag| *flag = true);
        from = end.max(start + 1);
    }
    flags
}

/// Where the item that starts at `start` ends: at its `;`, or at the brace that closes its body.
fn item_end(code: &str, start: usize) -> usize {
    let mut depth = 0usize;
    for (at, c) in code[start..].char_indices() {
        match c {
            '{' => depth += 1,
            '}' if depth <= 1 => return start + at,
            '}' => depth -= 1,
            ';' if depth == 0 => return start + at,
            _ => {}
        }
    }
    code.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blanks_comments_and_literals_only() {
        let text = "a // x\nb /* y /* z */ y */ c\nd \"q \\\" q\" e r#\"w \" w\"# f 'x' '\\'' g<'h> br\"k\" i_r\"\"";
        let code = code_only(text);
        let words: Vec<&str> = code.split_whitespace().collect();
        assert_eq!(words, ["a", "b", "c", "d", "e", "f", "g<'h>", "i_r"]);
        assert_eq!(code.lines().count(), text.lines().count());
    }

    #[test]
    fn an_open_literal_ends_with_the_text() {
        for text in ["\"abc", "r#\"abc\"", "/* abc", "'", "'\\"] {
            assert!(!code_only(text).contains("abc"), "{text}");
        }
    }

    #[test]
    fn finds_the_lines_of_tests() {
        let code = "fn a() {}\n#[cfg(test)]\nmod tests {\n  fn b() {}\n}\nfn c() {}\n#[cfg(test)]\nmod d;\nfn e() {}";
        assert_eq!(test_lines(code), [false, true, true, true, true, false, true, true, false]);
    }
}
