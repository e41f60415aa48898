//! What a filter of system calls (`seccomp`) says of a call: the classic BPF of `linux/filter.h`,
//! as far as the kernel takes it for such filters.
//!
//! The kernel judges a filter before it takes it. Here one that makes no sense refuses each call.

use crate::arch::AUDIT;

/// An instruction (`struct sock_filter`).
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Instruction {
    /// Class, size, mode, operation and source, as `linux/bpf_common.h` packs them.
    pub code: u16,
    /// Instructions that a jump skips if its condition holds.
    pub if_true: u8,
    /// And if it does not.
    pub if_false: u8,
    /// The constant of the instruction: a number, an index or the length of a jump.
    pub k: u32,
}

/// A system call of this machine, as far as it is known beforehand: its number, and pairs of an
/// argument's index and value. The other arguments are 0.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Call {
    /// Its number.
    pub number: i64,
    /// What is known of its arguments.
    pub arguments: &'static [(usize, u64)],
}

/// Bytes of `struct seccomp_data`.
const DATA: usize = 64;
/// Words of memory that a filter has.
const MEMORY: usize = 16;
/// Answers that let a call be made: `SECCOMP_RET_ALLOW` and `SECCOMP_RET_LOG`.
const ALLOWS: [u32; 2] = [0x7fff_0000, 0x7ffc_0000];
const ACTION: u32 = 0xffff_0000;

/// Whether a filter lets a call be made.
#[must_use]
pub fn allows(filter: &[Instruction], call: &Call) -> bool {
    answer(filter, &data(call)).is_some_and(|answer| ALLOWS.contains(&(answer & ACTION)))
}

fn data(call: &Call) -> [u8; DATA] {
    let mut data = [0; DATA];
    data[..4].copy_from_slice(&(call.number as u32).to_ne_bytes());
    data[4..8].copy_from_slice(&AUDIT.to_ne_bytes());
    for (index, value) in call.arguments {
        data[16 + index * 8..][..8].copy_from_slice(&value.to_ne_bytes());
    }
    data
}

/// The answer of a filter. None where it makes no sense.
fn answer(filter: &[Instruction], data: &[u8; DATA]) -> Option<u32> {
    let (mut a, mut x, mut memory, mut at) = (0u32, 0u32, [0u32; MEMORY], 0usize);
    loop {
        let Instruction { code, if_true, if_false, k } = *filter.get(at)?;
        at += 1;
        let operand = if code & 0x08 == 0 { k } else { x };
        // The class, and below the operation or the mode.
        match code & 0x07 {
            0x00 => {
                a = match code & 0xe0 {
                    0x00 => k,
                    0x20 => word(data, k)?,
                    0x60 => *memory.get(k as usize)?,
                    0x80 => DATA as u32,
                    _ => return None,
                }
            }
            0x01 => {
                x = match code & 0xe0 {
                    0x00 => k,
                    0x60 => *memory.get(k as usize)?,
                    0x80 => DATA as u32,
                    _ => return None,
                }
            }
            0x02 => *memory.get_mut(k as usize)? = a,
            0x03 => *memory.get_mut(k as usize)? = x,
            0x04 => {
                a = match code & 0xf0 {
                    0x00 => a.wrapping_add(operand),
                    0x10 => a.wrapping_sub(operand),
                    0x20 => a.wrapping_mul(operand),
                    0x30 => a.checked_div(operand)?,
                    0x40 => a | operand,
                    0x50 => a & operand,
                    0x60 => a.wrapping_shl(operand),
                    0x70 => a.wrapping_shr(operand),
                    0x80 => a.wrapping_neg(),
                    0xa0 => a ^ operand,
                    _ => return None,
                }
            }
            0x05 => {
                let jump = match code & 0xf0 {
                    0x00 => k,
                    0x10 => u32::from(if a == operand { if_true } else { if_false }),
                    0x20 => u32::from(if a > operand { if_true } else { if_false }),
                    0x30 => u32::from(if a >= operand { if_true } else { if_false }),
                    0x40 => u32::from(if a & operand != 0 { if_true } else { if_false }),
                    _ => return None,
                };
                at += jump as usize;
            }
            0x06 => return Some(if code & 0x18 == 0x10 { a } else { k }),
            _ => match code & 0xf8 {
                0x00 => x = a,
                0x80 => a = x,
                _ => return None,
            },
        }
    }
}

fn word(data: &[u8; DATA], at: u32) -> Option<u32> {
    let bytes = data.get(at as usize..)?.get(..4)?;
    at.is_multiple_of(4).then(|| u32::from_ne_bytes(bytes.try_into().expect("four bytes")))
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn one(code: u16, k: u32, if_true: u8, if_false: u8) -> Instruction {
        Instruction { code, if_true, if_false, k }
    }
    const LOAD: u16 = 0x20;
    const EQUAL: u16 = 0x15;
    const RETURN: u16 = 0x06;
    const ALLOW: u32 = ALLOWS[0];
    const KILL: u32 = 0x8000_0000;
    const ERROR: u32 = 0x0005_0001;

    #[test]
    fn filters_of_numbers_and_arguments_are_understood() {
        let call = |number, arguments| Call { number, arguments };
        // Reads, and ioctl 5 only.
        let filter = [
            one(LOAD, 4, 0, 0),
            one(EQUAL, AUDIT, 1, 0),
            one(RETURN, KILL, 0, 0),
            one(LOAD, 0, 0, 0),
            one(EQUAL, 0, 3, 0),
            one(EQUAL, 16, 0, 3),
            one(LOAD, 24, 0, 0),
            one(EQUAL, 5, 0, 1),
            one(RETURN, ALLOW, 0, 0),
            one(RETURN, ERROR, 0, 0),
        ];
        assert!(allows(&filter, &call(0, &[])) && !allows(&filter, &call(1, &[])));
        assert!(allows(&filter, &call(16, &[(1, 5)])) && !allows(&filter, &call(16, &[(1, 6)])));
        assert!(!allows(&filter, &call(16, &[(1, 6 << 32 | 7)])), "the high half is another word");
    }
    #[test]
    fn each_operation_is_the_kernels() {
        // a = 12, x = 5, and the operation with x; then what a is.
        let calculated = |operation: u16| {
            let filter = [
                one(0x01, 5, 0, 0),
                one(0x00, 12, 0, 0),
                one(0x04 | operation | 0x08, 0, 0, 0),
                one(0x02, 3, 0, 0),
                one(0x60, 3, 0, 0),
                one(0x16, 0, 0, 0),
            ];
            answer(&filter, &[0; DATA])
        };
        let expected = [17, 7, 60, 2, 13, 4, 384, 0];
        for (operation, expected) in (0u16..8).zip(expected) {
            assert_eq!(calculated(operation << 4), Some(expected), "{operation}");
        }
        assert_eq!((calculated(0x80), calculated(0xa0)), (Some(12u32.wrapping_neg()), Some(9)));
        let jumps = |code, k| {
            let filter = [one(0x00, 6, 0, 0), one(code, k, 1, 0), one(RETURN, 0, 0, 0), one(RETURN, 1, 0, 0)];
            answer(&filter, &[0; DATA])
        };
        assert_eq!([jumps(0x25, 5), jumps(0x25, 6), jumps(0x35, 6), jumps(0x45, 1)], [1, 0, 1, 0].map(Some));
        let exchanged = [one(0x00, 9, 0, 0), one(0x07, 0, 0, 0), one(0x00, 0, 0, 0), one(0x87, 0, 0, 0)];
        assert_eq!(answer(&[&exchanged[..], &[one(0x16, 0, 0, 0)]].concat(), &[0; DATA]), Some(9));
    }
    #[test]
    fn what_makes_no_sense_allows_nothing() {
        let call = Call { number: 0, arguments: &[] };
        let endless = [one(0x05, u32::MAX, 0, 0)];
        let divides = [one(0x34, 0, 0, 0), one(RETURN, ALLOW, 0, 0)];
        let outside = [one(LOAD, 64, 0, 0), one(RETURN, ALLOW, 0, 0)];
        let unknown = [one(0xff, 0, 0, 0), one(RETURN, ALLOW, 0, 0)];
        for filter in [&[][..], &endless, &divides, &outside, &unknown] {
            assert!(!allows(filter, &call), "{filter:?}");
        }
    }
}
