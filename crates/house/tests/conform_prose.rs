//! Goal: documents and comments are plain technical English that fits the page. Method: split every
//! document into sentences and report sentences of more than 40 words, semicolons, persons as
//! subjects, words that have a plainer replacement, and lines of more than 100 columns. Code and
//! generated blocks are skipped, and rows of tables may be long. Comments are checked for the same
//! words, and comments of public items for long sentences. Their lines that are too long are
//! counted, and the count may only fall. String literals of several words (messages, help, titles)
//! are checked for the same words.

use crate::tree::{files, none};

const COLUMNS: usize = 100;
const WORDS: usize = 40;

/// Lines of comments that are too long. Lower the number when comments are rewritten.
const LONG_COMMENTS: usize = 27;

/// A word or phrase that has a plainer replacement.
struct Listed {
    phrase: &'static [&'static str],
    /// It begins a sentence.
    first: bool,
    /// Before one of these words it is ordinary English.
    unless_before: &'static [&'static str],
    instead: &'static str,
}

const fn listed(phrase: &'static [&'static str], instead: &'static str) -> Listed {
    Listed { phrase, first: false, unless_before: &[], instead }
}

const fn unless(
    phrase: &'static [&'static str],
    unless_before: &'static [&'static str],
    instead: &'static str,
) -> Listed {
    Listed { phrase, first: false, unless_before, instead }
}

const LOOK: &[&str] = &["up", "for", "like"];
const GOES: &[&str] = &[
    "ahead", "back", "beyond", "by", "down", "first", "from", "in", "into", "on", "out", "over", "through", "to", "up",
    "without",
];
const WORD_LIST: &[Listed] = &[
    listed(&["told"], "notified, logged, reported"),
    listed(&["lies"], "is stored, is"),
    listed(&["lie"], "are stored, are"),
    listed(&["by", "chance"], "at random"),
    unless(&["look"], LOOK, "poll, check, look up, read"),
    unless(&["looks"], LOOK, "polls, checks, looks up, reads"),
    unless(&["looked"], LOOK, "polled, checked, looked up, read"),
    listed(&["so", "many"], "the number itself, or N"),
    unless(&["so", "much"], &["as", "that"], "the amount itself, or N"),
    listed(&["that", "of"], "its, or the noun again"),
    listed(&["those", "of"], "its, or the noun again"),
    listed(&["beside"], "next to, compared with, in addition to"),
    Listed { phrase: &["the", "same"], first: true, unless_before: &[], instead: "say what" },
    listed(&["at", "the", "most"], "at most"),
    listed(&["at", "the", "least"], "at least"),
    listed(&["of", "ours"], "Fulgurite's"),
    listed(&["of", "one's", "own"], "your"),
    listed(&["others", "keep", "better"], "third-party"),
    listed(&["by", "halves"], "partially"),
    unless(&["goes"], GOES, "is removed, is freed, ends"),
    // A way is one of a cache's set, or ordinary English. These are modes, backends or types.
    Listed { phrase: &["way"], first: true, unless_before: &["there", "to"], instead: "mode, backend" },
    listed(&["the", "ways"], "the modes, backends, methods"),
    listed(&["these", "ways"], "these modes, backends, methods"),
    unless(&["two", "ways"], &["of"], "two modes, backends, types"),
    listed(&["in", "both", "ways"], "in both modes, as both types"),
    listed(&["in", "either", "way"], "in either mode, as either type"),
    listed(&["in", "another", "way"], "in another mode, as another type"),
    listed(&["opened", "in", "one", "way"], "in one mode, as one type"),
];

/// The listed words of a sentence, each with its replacement.
fn listed_words(sentence: &str) -> Vec<String> {
    let plain = |word: &str| word.trim_matches(|c: char| !c.is_alphanumeric()).to_lowercase();
    let words: Vec<String> = sentence.split_whitespace().map(plain).filter(|word| !word.is_empty()).collect();
    let mut found = Vec::new();
    for Listed { phrase, first, unless_before, instead } in WORD_LIST {
        for (at, run) in words.windows(phrase.len()).enumerate() {
            let next = words.get(at + phrase.len()).map_or("", String::as_str);
            if run == *phrase && (!first || at == 0) && !unless_before.contains(&next) {
                found.push(format!("\"{}\": {instead}", phrase.join(" ")));
            }
        }
    }
    found
}

/// A paragraph or list item, with the number of its first line.
struct Block {
    line: usize,
    text: String,
}

/// What is wrong, with its line.
type Offences = Vec<(usize, String)>;

/// What the rules exclude in a document, and which listed words it has, line by line.
fn offences(document: &str) -> (Offences, Offences) {
    let (mut found, mut words_found) = (Vec::new(), Vec::new());
    let mut blocks: Vec<Block> = Vec::new();
    let (mut code, mut generated, mut open) = (false, false, false);
    for (line, text) in document.lines().enumerate().map(|(i, text)| (i + 1, text)) {
        let trimmed = text.trim_start();
        // What a test writes from kept results has its own form.
        generated = (generated || text.starts_with("<!-- begin ")) && !text.starts_with("<!-- end ");
        if trimmed.starts_with("```") {
            code = !code;
            open = false;
        } else if code || generated || text.starts_with("<!--") || trimmed.is_empty() {
            open = false;
        } else if text.starts_with('|') {
            // A row must be one line, so only its words are checked.
            open = false;
            if names_a_person(&without_code(text)) {
                found.push((line, format!("\"who\" in a table: {text}")));
            }
            for cell in without_targets(&without_code(text)).split('|') {
                words_found
                    .extend(listed_words(cell).into_iter().map(|word| (line, format!("{word}: {}", cell.trim()))));
            }
        } else {
            if text.chars().count() > COLUMNS {
                found.push((line, format!("{} columns: {text}", text.chars().count())));
            }
            let item = item(trimmed);
            if let (true, None, Some(block)) = (open, item, blocks.last_mut()) {
                block.text.push(' ');
                block.text.push_str(trimmed);
            } else {
                blocks.push(Block { line, text: item.unwrap_or(trimmed).to_owned() });
            }
            // A heading is a block of its own.
            open = !text.starts_with('#');
        }
    }
    for Block { line, text } in blocks {
        let text = without_targets(&without_code(&text));
        if text.contains(';') {
            found.push((line, format!("a semicolon: {text}")));
        }
        if names_a_person(&text) {
            found.push((line, format!("\"who\": {text}")));
        }
        for sentence in sentences(&text) {
            let words = sentence.split_whitespace().count();
            if words > WORDS {
                found.push((line, format!("{words} words: {sentence}")));
            }
            words_found.extend(listed_words(&sentence).into_iter().map(|word| (line, format!("{word}: {sentence}"))));
        }
    }
    found.sort();
    words_found.sort();
    (found, words_found)
}

/// What begins a comment.
const COMMENTS: &[&str] = &["///", "//!", "//"];
/// What begins a comment of a public item.
const DOCS: &[&str] = &["///", "//!"];

/// The comments of a source as a document: what is no line of a comment is an empty line.
fn comments(source: &str, marks: &[&str]) -> String {
    let mut document = String::new();
    for line in source.lines().map(str::trim_start) {
        let comment = marks.iter().find_map(|mark| line.strip_prefix(mark)).unwrap_or_default();
        document.push_str(comment.strip_prefix(' ').unwrap_or(comment));
        document.push('\n');
    }
    document
}

/// The string literals of a source before its tests, each with its line. Placeholders are left out.
fn literals(source: &str) -> Vec<(usize, String)> {
    let source = source.split("#[cfg(test)]\nmod ").next().unwrap_or_default();
    let (mut found, mut rest, mut line) = (Vec::new(), source, 1);
    while let Some(at) = rest.find(['"', '\'', '/', '\n']) {
        let (from, plain) = (&rest[at..], ["'\"'", "'\\\"'"]);
        let raw = rest[..at].ends_with("r#");
        let taken = if from.starts_with("//") {
            from.find('\n').unwrap_or(from.len())
        } else if let Some(character) = plain.iter().find(|character| from.starts_with(**character)) {
            character.len()
        } else if from.starts_with('"') {
            let escaped = |end: usize| from[..end].bytes().rev().take_while(|byte| *byte == b'\\').count() % 2 == 1;
            let mut ends = from.match_indices('"').map(|(end, _)| end).skip(1);
            let end = ends.find(|end| if raw { from[*end..].starts_with("\"#") } else { !escaped(*end) });
            let text = &from[1..end.unwrap_or(from.len())];
            let pieces = text.split('{').map(|piece| piece.split_once('}').map_or(piece, |(_, behind)| behind));
            found.push((line, pieces.collect::<Vec<_>>().join("_").replace("\\n", " ").replace('\\', "")));
            text.len() + 2
        } else {
            1
        };
        let taken = taken.min(from.len());
        line += from[..taken].matches('\n').count();
        rest = &from[taken..];
    }
    found
}

/// The text of a list item behind its mark.
fn item(line: &str) -> Option<&str> {
    let number = line.trim_start_matches(|c: char| c.is_ascii_digit());
    let mark = line.strip_prefix("* ").or_else(|| line.strip_prefix("- "));
    mark.or_else(|| number.strip_prefix(". ").filter(|_| number.len() < line.len()))
}

/// Each piece of code counts as one word.
fn without_code(text: &str) -> String {
    let mut plain = String::new();
    for (i, piece) in text.split('`').enumerate() {
        plain.push_str(if i % 2 == 0 { piece } else { "`" });
    }
    plain
}

/// Links without what they lead to.
fn without_targets(text: &str) -> String {
    let mut pieces = text.split("](");
    let mut plain = pieces.next().unwrap_or_default().to_owned();
    for piece in pieces {
        plain.push(']');
        plain.push_str(piece.split_once(')').map_or("", |(_, rest)| rest));
    }
    plain
}

fn names_a_person(text: &str) -> bool {
    let mut words = text.split(|c: char| !c.is_alphanumeric());
    words.any(|w| ["who", "whoever", "whom", "whomever"].contains(&w.to_lowercase().as_str()))
}

/// Pieces that end in a full stop, a question or an exclamation mark before the beginning of
/// another.
fn sentences(text: &str) -> Vec<String> {
    let mut sentences = vec![String::new()];
    let words: Vec<&str> = text.split_whitespace().collect();
    for (i, word) in words.iter().enumerate() {
        let sentence = sentences.last_mut().expect("there is one");
        sentence.push_str(word);
        sentence.push(' ');
        let ends = word.trim_end_matches(['*', ')', '"']).ends_with(['.', '!', '?']);
        let begins =
            |next: &&str| next.starts_with(|c: char| c.is_uppercase() || c.is_ascii_digit() || "`([*\"".contains(c));
        if ends && words.get(i + 1).is_some_and(begins) {
            sentences.push(String::new());
        }
    }
    sentences
}

#[test]
fn documents_are_plain_and_fit_the_page() {
    let files = files();
    let documents: Vec<_> = files.iter().filter(|f| f.is(".md")).collect();
    assert!(documents.len() >= 10, "the documents were not found: {}", documents.len());
    let mut offenders = Vec::new();
    for file in documents {
        offenders.extend(offences(&file.text).0.iter().map(|(line, what)| format!("{}:{line}: {what}", file.path)));
    }
    none("prose against the rules", &offenders);
}

#[test]
fn documents_use_the_plainer_word() {
    let files = files();
    let mut offenders = Vec::new();
    // The changes of earlier versions stay as they were announced.
    for file in files.iter().filter(|f| f.is(".md") && f.path != "CHANGELOG.md") {
        offenders.extend(offences(&file.text).1.iter().map(|(line, what)| format!("{}:{line}: {what}", file.path)));
    }
    none("words that have a plainer replacement (left: the word, right: what to write)", &offenders);
}

#[test]
fn comments_use_the_plainer_word() {
    let files = files();
    let mut offenders = Vec::new();
    for file in files.iter().filter(|f| f.is(".rs")) {
        let found = offences(&comments(&file.text, COMMENTS)).1;
        offenders.extend(found.iter().map(|(line, what)| format!("{}:{line}: {what}", file.path)));
    }
    none("words in comments that have a plainer replacement (left: the word, right: what to write)", &offenders);
}

#[test]
fn sentences_of_public_comments_are_short() {
    let mut offenders = Vec::new();
    for file in files().iter().filter(|f| f.is(".rs") && !f.is_test()) {
        let found = offences(&comments(&file.text, DOCS)).0;
        let long = found.iter().filter(|(_, what)| what.contains(" words: "));
        offenders.extend(long.map(|(line, what)| format!("{}:{line}: {what}", file.path)));
    }
    none("sentences of comments that are too long", &offenders);
}

#[test]
fn messages_use_the_plainer_word() {
    let (mut offenders, mut seen) = (Vec::new(), 0);
    let files = files();
    let sources = files.iter().filter(|f| f.is(".rs") && f.path.contains("/src/") && !f.path.ends_with("/tests.rs"));
    // The words of checks are in the kept hashes of their runs.
    for file in sources.filter(|f| !f.path.starts_with("crates/reproduce/src/checks/")) {
        for (line, text) in literals(&file.text).iter().filter(|(_, text)| text.split_whitespace().count() > 2) {
            seen += 1;
            for sentence in sentences(&without_code(text)) {
                // A label may begin with "the same": the row above it says what.
                let words = listed_words(&sentence).into_iter().filter(|word| !word.starts_with("\"the same\""));
                offenders.extend(words.map(|word| format!("{}:{line}: {word}: {sentence}", file.path)));
            }
        }
    }
    assert!(seen > 3000, "the messages were not found: {seen}");
    none("words in messages that have a plainer replacement (left: the word, right: what to write)", &offenders);
}

#[test]
fn comments_do_not_get_worse() {
    let (mut long, mut who, mut comments) = (0, 0, 0);
    for file in files().iter().filter(|f| f.is(".rs")) {
        for line in file.text.lines().filter(|l| l.trim_start().starts_with("//")) {
            comments += 1;
            long += usize::from(line.chars().count() > COLUMNS);
            who += usize::from(names_a_person(&without_code(line)));
        }
    }
    assert!(comments > 10_000, "the sources were not found: {comments} lines of comments");
    println!("{long} lines of comments are longer than {COLUMNS} columns, {who} have \"who\"");
    assert!(
        long <= LONG_COMMENTS,
        "{long} lines of comments have more than {COLUMNS} columns: more than {LONG_COMMENTS}"
    );
    assert_eq!(who, 0, "{who} lines of comments have \"who\"");
}

#[test]
fn the_rules_find_what_they_exclude() {
    let kinds = |text: &str| offences(text).0.len();
    let long = "word ".repeat(WORDS);
    assert_eq!(kinds("A store has pages. `who; waits` is code. (See [a](b;c).)\n\n* One\n* Two\n"), 0);
    assert_eq!(kinds(&format!("{}\n", "x".repeat(COLUMNS + 1))), 1);
    assert_eq!(kinds(&format!("| {} |\n", "x".repeat(COLUMNS + 1))), 0);
    assert_eq!(kinds("| what | who |\n"), 1);
    assert_eq!(kinds("Whoever waits\nis notified.\n"), 1);
    assert_eq!(kinds("One fact; another.\n"), 1);
    assert_eq!(kinds(&format!("```text\n{long}{long}who; waits\n```\n")), 0);
    assert_eq!(kinds(&format!("<!-- begin x -->\n{long}{long}who; waits\n<!-- end x -->\n")), 0);
    let wrapped = |text: &str| text.split(' ').collect::<Vec<_>>().join("\n");
    assert_eq!(kinds(&wrapped(&format!("A {long}ends."))), 1, "a sentence over several lines");
    assert_eq!(kinds(&wrapped(&format!("A {long}ends.").replacen("word word", "word. Word", 1))), 0);
    assert_eq!(kinds(&format!("* {}\n* {}\n", wrapped("a b c"), wrapped(long.trim()))), 0);
}

#[test]
fn the_word_list_finds_words_and_not_their_ordinary_uses() {
    let words = |text: &str| offences(text).1.len();
    assert_eq!(words("The frame lies\nbeside it, and its fiber is **told**.\n"), 3);
    assert_eq!(words("| a | at the most 3 |\n"), 1);
    assert_eq!(words("A page goes. It goes to flash. Its `told` goes on.\n"), 1);
    assert_eq!(words("It looks at the word. It looks up the word, and looks for it.\n"), 1);
    assert_eq!(words("The same holds. It is the same. (The same word.)\n"), 2);
    assert_eq!(words("[Words that](lies.md) of data, at most 3, at random, next to besides, so far.\n"), 1);
    assert_eq!(words("```sh\ntold lies\n```\n"), 0);
    let in_comments = |source: &str| offences(&comments(source, COMMENTS)).1;
    assert!(in_comments("let told = \"lies\"; // A name.\n/// `told` is code.\n").is_empty());
    let found =
        in_comments("fn f() {\n    // The frame is at\n    // the most half full.\n    g();\n    // The same\n");
    assert_eq!(found.iter().map(|(line, _)| *line).collect::<Vec<_>>(), [2, 5]);
    assert_eq!(words("| way | cost |\n"), 1);
    assert_eq!(words("It opens in either way, with 8 ways of a set, under way in the same way.\n"), 1);
    let in_messages = |source: &str| literals(source).iter().map(|(line, _)| *line).collect::<Vec<_>>();
    assert_eq!(
        in_messages("f('\"', \"a\"); // \"no\nlet 'a = \"b \\\"c\\\n d\"; g(\"e\");\nr#\"\"h\" i\"#"),
        [1, 2, 3, 4]
    );
    assert_eq!(
        literals("f(\"{told} of {x:.1}\", \"a \\\"b\")").iter().map(|(_, text)| text.as_str()).collect::<Vec<_>>(),
        ["_ of _", "a \"b"]
    );
}
