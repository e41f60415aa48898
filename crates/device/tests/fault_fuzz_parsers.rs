//! Goal: no bytes in the shared memory make their reader panic, and results are inside what there
//! is: registers, entries of both queues, the answer to *identify*.
//! Method: a million of them, sound, damaged and random, with right checksums so that the checks
//! behind them are reached, from a printed seed.

use fulgurite_testkit as trials;

use std::sync::Arc;
use std::sync::atomic::Ordering;

use fulgurite_device::*;
use fulgurite_format::crc32c;
use fulgurite_sys::{Arena, Backed};
use trials::Random;

/// Words of the capability registers, before their checksum.
const REGISTERS: usize = 10;

/// A number that a field may be meant to break with, or a sound one.
fn odd(random: &mut Random, sound: u64) -> u64 {
    match random.below(8) {
        0 => random.next(),
        1 => 1 << random.below(64),
        2 => u64::MAX - random.below(4),
        3 => 0,
        _ => random.below(sound),
    }
}

/// Returns whether they were taken.
fn registers(random: &mut Random, arena: &Arc<Arena>) -> bool {
    let mut words = [u64::from_le_bytes(*b"FULGDEV1"), 2, 0, 0, 0, 0, 0, 0, 0, 0];
    for (word, sound) in words[2..].iter_mut().zip([100, 4, 20, 5, 4, 128, 10, 9]) {
        *word = odd(random, sound);
    }
    if random.below(8) == 0 {
        words[random.below(2) as usize] ^= 1 << random.below(64);
    }
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    let check = if random.below(16) == 0 { random.next() } else { crc32c(&bytes).into() };
    let memory = arena.words(0, REGISTERS + 1);
    memory.iter().zip(words.into_iter().chain([check])).for_each(|(to, word)| to.store(word, Ordering::Relaxed));
    let Ok(region) = Region::attach(arena.clone()) else { return false };
    let capability = *region.capability();
    assert!(capability.bytes() <= arena.len(), "{capability:?}");
    for pair in 0..capability.pairs {
        let end = u64::from(region.buffer_first(pair) + capability.buffer_sectors) * SECTOR_BYTES as u64;
        assert!(end <= arena.len() as u64, "{capability:?}");
        let (_, mut completions) = region.host_ends(pair);
        let (mut submissions, _) = region.device_ends(pair);
        std::hint::black_box((completions.pop(), submissions.pop(), region.host_bell(pair).must_wake()));
    }
    let (offset, length) = (odd(random, 20_000) as usize, random.below(9000) as usize);
    let inside = offset.checked_add(length).is_some_and(|end| end <= capability.boot_sectors as usize * SECTOR_BYTES);
    assert_eq!(region.read_boot(offset, &mut vec![0; length]), inside, "{capability:?}");
    true
}

/// Entries of a ring, with any of their bits turned but those that say that they are there.
fn entries<const WORDS: usize>(
    random: &mut Random,
    producer: &mut Producer<WORDS>,
    consumer: &mut Consumer<WORDS>,
    ring: &[std::sync::atomic::AtomicU64],
) {
    let at = producer.position() as usize * WORDS % ring.len();
    let mut entry = [0; WORDS];
    entry.iter_mut().for_each(|word| *word = odd(random, 1 << 20));
    // What of the last word an entry may use.
    entry[WORDS - 1] &= 0x7FFF_FFFF_0000_0000;
    producer.push(entry);
    // In one word: a flip of the last bit of the others and the same one of the check is not found.
    let mut turned = [0; WORDS];
    let word = random.below(WORDS as u64) as usize;
    (0..random.below(4)).for_each(|_| turned[word] ^= 1 << random.below(63));
    for (word, bits) in ring[at..].iter().zip(turned) {
        word.fetch_xor(bits, Ordering::Relaxed);
    }
    match consumer.pop() {
        Some(Ok(words)) => assert_eq!((words, turned), (entry, [0; WORDS]), "a damaged entry is believed"),
        Some(Err(damaged)) => assert!(turned != [0; WORDS] && damaged.position + 1 == producer.position()),
        None => panic!("an entry that is there is not seen"),
    }
}

/// What is in an entry whose check is right.
fn contents(random: &mut Random) {
    let words = [(); SUBMISSION_WORDS].map(|()| random.next());
    let command = Command::unpack(words);
    assert_eq!(Command::unpack(command.pack()), command);
    std::hint::black_box(Opcode::of(command.opcode));
    let ended = Ended::unpack([random.next(), random.next()]);
    assert_eq!(Ended::unpack(ended.pack()), ended);
    assert_eq!(ended.status.to_result().is_ok(), ended.status == Status::SUCCESS);
    assert!(!ended.status.words().is_empty());
}

fn identity(random: &mut Random, bytes: &mut [u8; SECTOR_BYTES]) {
    for (i, sound) in [1 << 20, 1 << 10, 128, 10, 1 << 30, 1100].into_iter().enumerate() {
        bytes[i * 8..i * 8 + 8].copy_from_slice(&odd(random, sound).to_le_bytes());
    }
    let at = 64 + random.below(1100) as usize;
    bytes[at] = if random.below(4) == 0 { random.next() as u8 } else { b' ' };
    if let Some(identity) = Identity::of(bytes) {
        assert!(identity.sectors > 0 && identity.description.len() <= 1024);
        assert_eq!(Identity::of(&identity.to_bytes()), Some(identity));
    }
}

#[test]
fn no_bytes_in_the_shared_memory_make_their_reader_panic() {
    const EXECUTIONS: u64 = 1_000_000;
    let (mut executions, mut taken) = (0, 0);
    trials::each_seed(1, 1, |seed| {
        let mut random = Random(seed);
        let arena = Arc::new(Arena::anonymous(1 << 20, Backed::BasePages).unwrap());
        let capability = Capability {
            sectors: 1,
            pairs: 1,
            depth: 4,
            buffer_sectors: 1,
            boot_sectors: 0,
            features: Features::default(),
            instance: 1,
            command_sectors: 1,
        };
        let region = Region::create(capability, false).unwrap();
        let ((mut submits, mut hears), (mut takes, mut ends)) = (region.host_ends(0), region.device_ends(0));
        let submissions = region.arena().words(0x1000 + 128, 16 * SUBMISSION_WORDS);
        let completions = region.arena().words(0x1000 + 128 + 16 * SUBMISSION_WORDS * 8, 16 * COMPLETION_WORDS);
        let mut sector = [0; SECTOR_BYTES];
        for i in 0..EXECUTIONS {
            match i % 5 {
                0 => taken += u64::from(registers(&mut random, &arena)),
                1 => entries(&mut random, &mut submits, &mut takes, submissions),
                2 => entries(&mut random, &mut ends, &mut hears, completions),
                3 => contents(&mut random),
                _ => identity(&mut random, &mut sector),
            }
            executions += 1;
        }
    });
    println!("{executions} executions, {taken} registers were taken");
    assert!(taken > 0);
    trials::figure(12, "what a device and its host read of each other", executions);
}
