//! Goal: no bytes of a client make what reads them panic, and what is accepted is inside the export
//! and the limits.
//! Method: a million requests and options, sound, damaged and random, from a printed seed, against
//! what each may be.

use fulgurite_testkit as trials;

use trials::Random;

use crate::exchange::Kind;
use crate::negotiate::asked_for;
use crate::reader::{May, Span, judge};
use crate::wire::{self, Request, command};

/// A number that a field may be meant to break with, or a sound one.
fn odd(random: &mut Random, sound: u64) -> u64 {
    match random.below(6) {
        0 => random.next(),
        1 => 1 << random.below(64),
        2 => u64::MAX - random.below(5000),
        3 => sound.wrapping_sub(random.below(5000)),
        _ => random.below(sound),
    }
}

fn request(random: &mut Random, may: &May) {
    let mut bytes = [0; wire::REQUEST_BYTES];
    bytes[..4].copy_from_slice(&wire::REQUEST_MAGIC.to_be_bytes());
    let flags = if random.below(4) == 0 { random.next() as u16 } else { random.below(8) as u16 };
    bytes[4..6].copy_from_slice(&flags.to_be_bytes());
    bytes[6..8].copy_from_slice(&(random.below(9) as u16).to_be_bytes());
    bytes[8..16].copy_from_slice(&random.next().to_be_bytes());
    bytes[16..24].copy_from_slice(&odd(random, may.bytes).to_be_bytes());
    bytes[24..].copy_from_slice(&(odd(random, may.request_bytes_max.into()) as u32).to_be_bytes());
    for _ in 0..random.below(3) {
        bytes[random.below(28) as usize] ^= 1 << random.below(8);
    }
    let request = Request::parse(&bytes);
    let Ok(kind) = judge(&request, may) else { return };
    if kind == Kind::Flush {
        return;
    }
    let end = u128::from(request.offset) + u128::from(request.length);
    assert!(request.length > 0 && end <= may.bytes.into(), "{request:?} is accepted");
    assert!(kind == Kind::Read || !may.read_only, "{request:?} is accepted");
    if matches!(kind, Kind::Read | Kind::Write) {
        assert!(request.length <= may.request_bytes_max, "{request:?} is accepted");
    }
    assert!(request.command != command::TRIM || may.trims, "{request:?} is accepted");
    let span = Span::of(request.offset, request.length);
    let last = u64::from(span.first) + u64::from(span.subpages()) - 1;
    assert!(last * 4096 < may.bytes, "{span:?} of {request:?}");
    // Its bytes are the bytes of its subpages, each once. The middle ones are whole.
    let parts = [0, span.subpages() - 1].map(|i| span.within(i).len() as u64);
    let sum = match span.subpages() {
        1 => parts[0],
        n => parts[0] + parts[1] + u64::from(n - 2) * 4096,
    };
    assert_eq!(sum, request.length.into(), "{span:?} of {request:?}");
    let (first, whole) = span.whole();
    assert_eq!((whole + span.partial(), first >= span.first), (span.subpages(), true), "{span:?}");
}

fn option(random: &mut Random) {
    let name = random.below(40);
    let kinds = random.below(6);
    let said = if random.below(3) == 0 { odd(random, 40) as u32 } else { name as u32 };
    let count = if random.below(3) == 0 { odd(random, 6) as u16 } else { kinds as u16 };
    let mut content = said.to_be_bytes().to_vec();
    content.extend((0..name).map(|_| random.next() as u8));
    content.extend(count.to_be_bytes());
    content.extend((0..kinds * 2).map(|_| random.next() as u8 & 1));
    if random.below(4) == 0 {
        content.truncate(random.below(content.len() as u64 + 1) as usize);
    }
    if let Some((name, kinds)) = asked_for(&content) {
        assert_eq!(content.len(), 4 + name.len() + 2 + kinds.len(), "{content:?}");
        assert!(kinds.len().is_multiple_of(2));
    }
}

#[test]
fn no_bytes_of_a_client_make_the_server_panic() {
    const EXECUTIONS: u64 = 1_000_000;
    let mut executions = 0;
    trials::each_seed(1, 1, |seed| {
        let mut random = Random(seed);
        for i in 0..EXECUTIONS {
            let bytes = if i % 2 == 0 { 1 << 20 } else { u64::from(u32::MAX - 1) << 12 };
            let bits = random.next();
            let may = May {
                bytes,
                request_bytes_max: 1 << 16,
                read_only: bits & 1 != 0,
                trims: bits & 2 != 0,
                structured: bits & 4 != 0,
            };
            if i % 4 == 0 {
                option(&mut random)
            } else {
                request(&mut random, &may)
            }
            executions += 1;
        }
    });
    trials::figure(12, "requests and options of NBD clients", executions);
}
