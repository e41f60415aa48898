//! Goal: the search index says of a directory's text what a plain index of the same files says,
//! whatever files are there, and answers the same whether or not accesses fail on the way.
//!
//! Method: generate directories (words drawn with a skew from a small vocabulary, so that lists of
//! one posting, of one block and of many blocks all occur), index them, and compare with
//! `BTreeMap`s and a scorer that reads every document. The naive side has its own tokeniser and its
//! own BM25. A memory that fails each first access stands in for flash that does. Sizes are small.
//! Seeds are printed.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicU64;

use fulgurite_memory::{
    AccessError, Address, Memory, NoLatch, PlainMemory, PlainPin, RawMemory, Region, View, ViewMut,
};
use fulgurite_sys::Backed;
use fulgurite_testkit::Random;
use fulgurite_workloads::{Corpus, CorpusError, Params, Query, Site, Workload, WorkloadError};

type Search = fulgurite_workloads::Search<NoLatch>;

/// Seed of everything generated here.
const SEED: u64 = 0x5EA2C4;

/// A memory that fails the first access to every subpage, and succeeds at the next, until it is
/// made to forget.
struct Failing {
    memory: PlainMemory,
    failed: BTreeSet<u32>,
}

impl Failing {
    fn step(&mut self, at: Address) -> Result<(), AccessError> {
        if self.failed.insert(at.subpage().0) { Err(AccessError::OutOfRange { at }) } else { Ok(()) }
    }
}

impl RawMemory for Failing {
    type Pin = PlainPin;
    type Section = ();
    type Inner = Self;
    fn identity(&self) -> fulgurite_memory::Identity<'_> {
        self.memory.identity()
    }
    fn view(&mut self, at: Address, len: usize) -> Result<View<'_>, AccessError> {
        self.step(at)?;
        self.memory.view(at, len)
    }
    fn view_mut(&mut self, at: Address, len: usize) -> Result<ViewMut<'_>, AccessError> {
        self.step(at)?;
        self.memory.view_mut(at, len)
    }
    fn pin(&mut self, at: Address) -> Result<PlainPin, AccessError> {
        self.step(at)?;
        self.memory.pin(at)
    }
    fn park(&mut self, word: &AtomicU64, expected: u64) -> Result<(), AccessError> {
        self.memory.park(word, expected)
    }
    fn write_section(&mut self) -> Result<(), AccessError> {
        Ok(())
    }
    fn yield_now(&mut self) -> Result<(), AccessError> {
        self.memory.yield_now()
    }
}

/// Writes `count` files of words of which low numbers are frequent.
fn write_texts(dir: &Path, count: u64, numbers: &mut Random) {
    for i in 0..count {
        let mut text = format!("Title{i}");
        for _ in 0..numbers.below(120) {
            let range = 1 << numbers.below(12);
            let word = numbers.below(range);
            let separator = [" ", ", ", "\n", "_", " — ", "(", "\t"][numbers.below(7) as usize];
            text.push_str(separator);
            match word % 3 {
                0 => text.push_str(&format!("word{word}")),
                1 => text.push_str(&format!("Wörd{word}")),
                _ => text.push_str(&format!("W{word}")),
            }
        }
        fs::write(dir.join(format!("{i:05}.txt")), text).unwrap();
    }
}

fn scan(dir: &Path) -> Corpus {
    Corpus::scan(dir, u64::MAX, &mut |_, _| ()).unwrap()
}

fn params(bytes: u64, zipf: f64) -> Params {
    Params { bytes, zipf, seed: SEED, ..Params::default() }
}

fn build(corpus: &Corpus) -> (PlainMemory, Region, Search) {
    let mut memory = PlainMemory::new(Backed::BasePages).unwrap();
    // Not at the start, so that places and addresses differ.
    let region = Region::new(Address::from_linear(5 << 12), Search::bytes_needed(corpus).next_multiple_of(4096));
    let mut last = 0.0;
    let mut progress = |share: f64| {
        assert!((last..=1.0).contains(&share), "progress goes from {last} to {share}");
        last = share;
    };
    Search::build_from(&mut memory, region, corpus, SEED, &mut progress).unwrap();
    assert_eq!(last, 1.0);
    let search = Search::open(&mut memory, region, &params(region.bytes, 0.99)).unwrap();
    (memory, region, search)
}

/// Words of a text as the index defines them, found by another method: by splitting.
fn naive_words(text: &str) -> impl Iterator<Item = String> {
    text.split(|c: char| !c.is_alphanumeric()).map(str::to_lowercase).filter(|word| {
        let limit = if word.starts_with(|c: char| c.is_ascii_digit()) { 4 } else { 24 };
        (2..=limit).contains(&word.len())
    })
}

/// The index in plain collections.
struct Naive {
    paths: Vec<PathBuf>,
    lengths: Vec<u32>,
    average: f64,
    /// word -> document -> count
    lists: BTreeMap<String, BTreeMap<u32, u32>>,
}

impl Naive {
    fn of(corpus: &Corpus) -> Naive {
        let mut naive = Naive { paths: vec![], lengths: vec![], average: 0.0, lists: BTreeMap::new() };
        for (document, file) in corpus.files().iter().enumerate() {
            let text = fs::read_to_string(&file.path).unwrap();
            naive.paths.push(file.path.clone());
            naive.lengths.push(naive_words(&text).count() as u32);
            for word in naive_words(&text) {
                *naive.lists.entry(word).or_default().entry(document as u32).or_default() += 1;
            }
        }
        let total: u32 = naive.lengths.iter().sum();
        naive.average = (f64::from(total) / naive.lengths.len() as f64).round();
        naive
    }
    /// Best documents with all the words: BM25 with parts of the score in 255ths and weights in
    /// 1024ths, as documented.
    fn top(&self, words: &[&str]) -> Vec<(PathBuf, f32)> {
        let mut scored = Vec::new();
        'documents: for document in 0..self.paths.len() as u32 {
            let mut score = 0.0;
            for word in words {
                let Some(list) = self.lists.get(*word) else { continue };
                let Some(&count) = list.get(&document) else { continue 'documents };
                let (n, df) = (self.paths.len() as f64, list.len() as f64);
                let weight = ((1.0 + ((n - df + 0.5).max(0.5)) / (df + 0.5)).ln() * 1024.0).round().max(1.0);
                let length = 0.25 + 0.75 * f64::from(self.lengths[document as usize]) / self.average;
                let part = (255.0 * f64::from(count) / (f64::from(count) + 1.2 * length)).round().clamp(1.0, 255.0);
                score += weight * part;
            }
            if score > 0.0 {
                scored.push((score, document));
            }
        }
        scored.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
        let hit = |&(score, document): &(f64, u32)| {
            (self.paths[document as usize].clone(), (score / 1024.0 / 255.0 * 2.2) as f32)
        };
        scored.iter().take(10).map(hit).collect()
    }
}

fn agree(memory: &mut PlainMemory, search: &Search, naive: &Naive, words: &[&str]) {
    let hits = search.answer(memory, &words.join(" ")).unwrap();
    let got: Vec<_> = hits.iter().map(|h| (h.path.clone(), h.score)).collect();
    assert_eq!(got, naive.top(words), "{words:?}");
    let known: Vec<&&str> = words.iter().filter(|w| naive.lists.contains_key(**w)).collect();
    for hit in &hits {
        let shown = hit.snippet.to_lowercase();
        assert!(known.iter().any(|w| shown.contains(**w)), "{words:?}: no word in {shown:?}");
    }
}

#[test]
fn index_equals_a_naive_one_and_answers_equal_a_naive_scorer() {
    println!("seed {SEED:#x}");
    let dir = tempfile::tempdir().unwrap();
    let mut numbers = Random(SEED);
    write_texts(dir.path(), 1500, &mut numbers);
    let corpus = scan(dir.path());
    let naive = Naive::of(&corpus);
    let (mut memory, region, search) = build(&corpus);
    search.check(&mut memory).unwrap();

    let summary = search.summary();
    assert_eq!(summary.documents, naive.paths.len() as u64);
    assert_eq!(summary.words, naive.lists.len() as u64);
    assert_eq!(summary.postings, naive.lists.values().map(|l| l.len() as u64).sum::<u64>());
    assert_eq!(summary.text_bytes, corpus.text_bytes());
    assert!(summary.index_bytes <= region.bytes);
    let lengths: BTreeSet<usize> = naive.lists.values().map(BTreeMap::len).collect();
    assert!(lengths.contains(&1) && lengths.range(2..128).count() > 10 && lengths.last() > Some(&600), "{lengths:?}");

    let all: Vec<&str> = naive.lists.keys().map(String::as_str).collect();
    for word in &all {
        agree(&mut memory, &search, &naive, &[word]);
    }
    let mut by_frequency = all.clone();
    by_frequency.sort_by_key(|w| std::cmp::Reverse(naive.lists[*w].len()));
    for i in 0..1500 {
        let limit = if i % 2 == 0 { 20 } else { 300.min(by_frequency.len() as u64) };
        let mut words: BTreeSet<&str> = BTreeSet::new();
        for _ in 0..1 + numbers.below(4) {
            words.insert(by_frequency[numbers.below(limit) as usize]);
        }
        agree(&mut memory, &search, &naive, &words.into_iter().collect::<Vec<_>>());
    }
    agree(&mut memory, &search, &naive, &["nowhere"]);
    agree(&mut memory, &search, &naive, &["nowhere", by_frequency[0]]);
    assert_eq!(search.answer(&mut memory, "").unwrap(), []);
}

#[test]
fn odd_files_are_left_out_and_counted() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    fs::create_dir_all(at("sub/.hidden")).unwrap();
    fs::write(at("plain.txt"), "plain words here").unwrap();
    fs::write(at("one"), "solitary").unwrap();
    fs::write(at("sub/.hidden/.gitignore"), "*\nignored rules").unwrap();
    fs::write(at("sub/long-line"), format!("{} needle {}", "x".repeat(300_000), "ab ".repeat(200_000))).unwrap();
    fs::write(at("sub/ümlaut.txt"), "Größe und Übermut").unwrap();
    // None of these is indexed.
    fs::write(at("sub/copy.txt"), "plain words here").unwrap();
    fs::hard_link(at("one"), at("sub/one-again")).unwrap();
    fs::write(at("binary"), b"ELF\0\0\0 words").unwrap();
    fs::write(at("latin1"), b"Gr\xF6\xDFe").unwrap();
    fs::write(at("late-latin1"), [vec![b'a'; 100_000], vec![0xFF]].concat()).unwrap();
    fs::write(at("empty"), "").unwrap();
    fs::write(at("blank"), " \n . a 1234567 \n").unwrap();
    fs::write(at("huge"), "word ".repeat(2 << 20)).unwrap();
    std::os::unix::fs::symlink(dir.path(), at("sub/loop")).unwrap();
    std::os::unix::fs::symlink(at("plain.txt"), at("link.txt")).unwrap();
    let _socket = std::os::unix::net::UnixListener::bind(at("socket")).unwrap();
    // Root reads files without permission bits. So the count depends on the user that runs the
    // test.
    fs::write(at("secret"), "secret").unwrap();
    fs::set_permissions(at("secret"), std::os::unix::fs::PermissionsExt::from_mode(0o000)).unwrap();
    let readable = fs::File::open(at("secret")).is_ok();

    let corpus = scan(dir.path());
    let root = dir.path().canonicalize().unwrap();
    let names: Vec<_> = corpus.files().iter().map(|f| f.path.strip_prefix(&root).unwrap().to_str().unwrap()).collect();
    let mut expected = vec!["one", "plain.txt", "secret", "sub/.hidden/.gitignore", "sub/long-line", "sub/ümlaut.txt"];
    expected.retain(|&name| name != "secret" || readable);
    assert_eq!(names, expected);
    let skipped = corpus.skipped();
    assert_eq!((skipped.binary, skipped.large, skipped.duplicate), (5, 1, 2), "{skipped:?}");
    assert_eq!(skipped.unreadable, u64::from(!readable));
    assert!(corpus.is_complete());
    assert_eq!(scan(dir.path()).files(), corpus.files(), "the same tree gives the same corpus");

    let (mut memory, _, search) = build(&corpus);
    search.check(&mut memory).unwrap();
    let first = |memory: &mut _, typed: &str| search.answer(memory, typed).unwrap().first().cloned();
    assert_eq!(first(&mut memory, "SOLITARY").unwrap().path, root.join("one"));
    assert_eq!(first(&mut memory, "größe übermut").unwrap().snippet, "Größe und Übermut");
    assert!(first(&mut memory, "needle ab").unwrap().snippet.contains(" needle ab ab"));
    assert_eq!(first(&mut memory, "plain needle"), None);
    for number in 0..200 {
        search.execute(&mut memory, &search.request(1, number)).unwrap();
    }
}

#[test]
fn one_word_is_an_index() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("a"), "  lonely ").unwrap();
    let (mut memory, _, search) = build(&scan(dir.path()));
    search.check(&mut memory).unwrap();
    assert_eq!(search.answer(&mut memory, "lonely").unwrap()[0].snippet, "lonely");
    assert_eq!(search.request(0, 0).words().len(), 1);
    search.execute(&mut memory, &search.request(0, 0)).unwrap();
}

#[test]
fn failing_accesses_change_no_answer() {
    println!("seed {SEED:#x}");
    let dir = tempfile::tempdir().unwrap();
    write_texts(dir.path(), 1200, &mut Random(SEED ^ 1));
    let (mut plain, region, search) = build(&scan(dir.path()));
    let mut memory = Failing { memory: plain.clone(), failed: BTreeSet::new() };
    let mut failures = 0;
    for number in 0..1000 {
        let request = search.request(4, number);
        let expected = search.execute(&mut plain, &request).unwrap();
        memory.failed.clear();
        let got = (0..1000).find_map(|_| search.execute(&mut memory, &request).ok());
        assert_eq!(got, Some(expected), "{request:?}");
        failures += memory.failed.len();
    }
    assert!(failures > 5000, "{failures} accesses failed");
    memory.failed.clear();
    assert!(matches!(search.check(&mut memory), Err(WorkloadError::Access(_))));
    memory.failed.clear();
    assert!(matches!(Search::open(&mut memory, region, &params(0, 1.0)), Err(WorkloadError::Access(_))));
}

#[test]
fn damage_is_found_and_never_a_panic() {
    println!("seed {SEED:#x}");
    let dir = tempfile::tempdir().unwrap();
    let mut numbers = Random(SEED ^ 2);
    write_texts(dir.path(), 400, &mut numbers);
    let (mut memory, _, search) = build(&scan(dir.path()));
    let base = Address::from_linear(5 << 12);
    let whole = search.check(&mut memory).unwrap();
    let used = search.summary().index_bytes;
    let mut found = 0;
    for _ in 0..300 {
        let at = base.add(4096 + numbers.below(used - 4096));
        let mut old = [0];
        memory.read_bytes(at, &mut old).unwrap();
        memory.write_bytes(at, &[old[0] ^ (1 << numbers.below(8))]).unwrap();
        found += u32::from(search.check(&mut memory).is_err());
        for number in 0..20 {
            let _ = search.execute(&mut memory, &search.request(3, number));
        }
        memory.write_bytes(at, &old).unwrap();
    }
    // The rest fell on padding, on the sample of queries, or on paths, which carry no checksum.
    assert!(found > 50, "{found} of 300 found");
    assert_eq!(search.check(&mut memory).unwrap(), whole);
}

#[test]
fn requests_are_a_function_of_seed_and_number_and_follow_zipf() {
    println!("seed {SEED:#x}");
    let dir = tempfile::tempdir().unwrap();
    write_texts(dir.path(), 800, &mut Random(SEED ^ 3));
    let corpus = scan(dir.path());
    let (mut memory, region, search) = build(&corpus);
    let (mut twin_memory, _, twin) = build(&corpus);
    assert_eq!(search.check(&mut memory).unwrap(), twin.check(&mut twin_memory).unwrap());
    assert!(search.dram_bytes() <= 1 << 20);
    let mut sum = [0u64; 2];
    for number in 0..500 {
        let request = search.request(9, number);
        assert_eq!(request, twin.request(9, number));
        assert!((1..=3).contains(&request.words().len()));
        let typed: Vec<_> = request.words().iter().map(|w| String::from_utf8_lossy(w.as_bytes())).collect();
        assert!(!search.answer(&mut memory, &typed.join(" ")).unwrap().is_empty(), "{typed:?} has no answer");
        sum[0] = sum[0].wrapping_add(search.execute(&mut memory, &request).unwrap());
        sum[1] = sum[1].wrapping_add(twin.execute(&mut twin_memory, &request).unwrap());
    }
    assert_eq!(sum[0], sum[1]);
    let mut distinct = |zipf: f64| {
        let search = Search::open(&mut memory, region, &params(region.bytes, zipf)).unwrap();
        let all = (0..2000).map(|n| search.request(1, n));
        all.map(|q: Query| format!("{q:?}")).collect::<BTreeSet<_>>().len()
    };
    let (uniform, skewed) = (distinct(0.0), distinct(2.0));
    assert!(uniform > 1800 && skewed < uniform / 2, "{uniform} {skewed}");
    assert!(Search::open(&mut memory, region, &params(0, -1.0)).is_err());
    assert!(Search::open(&mut memory, region, &params(0, f64::NAN)).is_err());
}

#[test]
fn bad_directories_say_what_to_do() {
    let dir = tempfile::tempdir().unwrap();
    let scan = |path: &Path| Corpus::scan(path, u64::MAX, &mut |_, _| ()).unwrap_err();
    fs::write(dir.path().join("data"), b"\0\0\0").unwrap();
    assert!(matches!(scan(dir.path()), CorpusError::NoText { .. }));
    assert!(scan(dir.path()).to_string().contains("name a directory with text files"));
    assert!(matches!(scan(&dir.path().join("data")), CorpusError::NotADirectory { .. }));
    assert!(matches!(scan(&dir.path().join("nothing")), CorpusError::Unreadable { .. }));

    let mut memory = PlainMemory::new(Backed::BasePages).unwrap();
    let region = Region::new(Address::from_linear(0), 4 << 20);
    let with = |input: PathBuf| Params { input: Some(input), ..params(4 << 20, 0.5) };
    let built = Search::build(&mut memory, Site::new(region, &with(dir.path().join("nothing")), &mut |_| ()));
    assert!(matches!(built, Err(WorkloadError::Unusable { .. })));
    assert!(matches!(Search::open(&mut memory, region, &params(0, 1.0)), Err(WorkloadError::Unusable { .. })));
}

#[test]
fn build_takes_as_much_text_as_fits() {
    println!("seed {SEED:#x}");
    let dir = tempfile::tempdir().unwrap();
    for i in 0..40 {
        let text: String = (0..20_000).map(|w| format!("word{} ", (w * (i + 1)) % 3000)).collect();
        fs::write(dir.path().join(format!("{i}.txt")), text).unwrap();
    }
    let mut memory = PlainMemory::new(Backed::BasePages).unwrap();
    let region = Region::new(Address::from_linear(0), 4 << 20);
    let params = Params { input: Some(dir.path().to_owned()), ..params(4 << 20, 0.5) };
    Search::build(&mut memory, Site::new(region, &params, &mut |_| ())).unwrap();
    let search = Search::open(&mut memory, region, &params).unwrap();
    search.check(&mut memory).unwrap();
    let summary = search.summary();
    assert!(summary.documents < 40 && summary.text_bytes > 1 << 20 && summary.index_bytes <= 4 << 20, "{summary:?}");

    let tiny = Region::new(Address::from_linear(0), 8192);
    assert!(matches!(
        Search::build(&mut memory, Site::new(tiny, &params, &mut |_| ())),
        Err(WorkloadError::Unusable { .. })
    ));
    let corpus = scan(dir.path());
    let short = Search::build_from(&mut memory, tiny, &corpus, 1, &mut |_| ()).unwrap_err();
    assert!(short.to_string().contains("give it more"), "{short}");
    // What was half built is not an index.
    assert!(Search::open(&mut memory, tiny, &params).is_err());
}

#[test]
fn files_that_change_after_the_scan_are_taken_as_they_are() {
    let dir = tempfile::tempdir().unwrap();
    for name in ["a", "b", "c", "d"] {
        fs::write(dir.path().join(name), format!("file {name}{name} original contents, longer than later")).unwrap();
    }
    let corpus = scan(dir.path());
    fs::remove_file(dir.path().join("a")).unwrap();
    fs::write(dir.path().join("b"), b"\0").unwrap();
    fs::write(dir.path().join("c"), "changed").unwrap();
    let (mut memory, _, search) = build(&corpus);
    search.check(&mut memory).unwrap();
    assert_eq!(search.summary().documents, 2);
    assert_eq!(search.answer(&mut memory, "changed").unwrap().len(), 1);
    assert_eq!(search.answer(&mut memory, "original").unwrap().len(), 1);
}
