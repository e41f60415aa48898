//! Whether the curves of figures 8 and 9 have the shapes that the paper describes, over each
//! medium.
//!
//! Numbers differ with the machine, and shapes are what the design claims. Only values of one round
//! are compared. A missing shape has its reason, as far as it follows from the medium.

use fulgurite_format::format_bytes;
use serde::Serialize;

use super::cells::Row;
use fulgurite_harness::Spread;
use fulgurite_term::report::table;

/// Of the best: what counts as the same. Rounds of some 20 ms differ by some percent.
const SAME: f64 = 0.9;
/// A step up that is none may be noise within this share.
const NOISE: f64 = 0.95;

#[derive(Clone, Debug, Serialize)]
pub struct Shape {
    medium: &'static str,
    what: &'static str,
    paper: &'static str,
    found: String,
    holds: bool,
    why: Option<&'static str>,
}

impl Shape {
    pub fn line(&self) -> String {
        let holds = if self.holds { "yes" } else { "no" };
        let why = self.why.filter(|_| !self.holds).map_or_else(String::new, |why| format!(" {why}."));
        format!("{}, {}: {holds}: {}; the paper: {}.{why}", self.medium, self.what, self.found, self.paper)
    }
}

/// All shapes that can be concluded from what was measured.
pub fn shapes(rows: &[Row]) -> Vec<Shape> {
    let mut shapes = Vec::new();
    for medium in ["device", "nand", "nand-dma"] {
        let of = |figure: &str| rows.iter().filter(|r| r.figure == figure && r.way == medium).collect::<Vec<_>>();
        let (buffer, chunk) = (of("buffer"), of("chunk"));
        if !buffer.is_empty() {
            by_buffer(medium, &buffer, &mut shapes);
        }
        if !chunk.is_empty() {
            by_chunk(medium, &chunk, &mut shapes);
        }
    }
    shapes
}

/// Round by round: the one as a multiple of the other.
fn ratio(of: &Row, to: &Row) -> Spread {
    Spread::of(of.by_round.iter().zip(&to.by_round).map(|(a, b)| a / b))
}

/// Whether one is less than the other: the median by more than noise, and three of four rounds.
fn is_less(of: &Row, to: &Row) -> bool {
    let rounds = of.by_round.iter().zip(&to.by_round);
    let (all, less) = (rounds.len(), rounds.filter(|(a, b)| a < b).count());
    ratio(of, to).median < NOISE && less * 4 >= all * 3
}

fn shown(ratio: Spread) -> String {
    format!("{} {}", table::percent(ratio.median), ratio.range(table::percent))
}

pub fn size(bytes: u64) -> String {
    format_bytes(bytes).replace(".0 ", " ")
}

/// By chunk, what it reaches with each buffer, in ascending order.
fn curves<'r>(rows: &[&'r Row]) -> Vec<(u64, Vec<&'r Row>)> {
    let mut curves: Vec<(u64, Vec<&Row>)> = Vec::new();
    for row in rows {
        match curves.iter_mut().find(|(chunk, _)| *chunk == row.chunk_bytes) {
            Some((_, curve)) => curve.push(row),
            None => curves.push((row.chunk_bytes, vec![row])),
        }
    }
    curves.iter_mut().for_each(|(_, curve)| curve.sort_by_key(|row| row.buffer_bytes));
    curves.sort_by_key(|(chunk, _)| *chunk);
    curves
}

/// Figure 8.
fn by_buffer(medium: &'static str, rows: &[&Row], shapes: &mut Vec<Shape>) {
    let curves = curves(rows);
    let memory = medium == "device";
    // The knee: the smallest buffer with which as much is reached as with any, about.
    let knee = |curve: &[&Row]| {
        let best = curve.iter().map(|row| row.bytes_per_s.median).fold(0.0, f64::max);
        let at = curve.iter().position(|row| row.bytes_per_s.median >= SAME * best).unwrap_or(0);
        let flat = curve[at..].iter().all(|row| row.bytes_per_s.median >= SAME * best);
        (curve[at].buffer_bytes.unwrap_or(0), flat)
    };
    let knees: Vec<(u64, u64, bool)> =
        curves.iter().map(|(chunk, curve)| (*chunk, knee(curve).0, knee(curve).1)).collect();
    let words = |(chunk, knee, flat): &(u64, u64, bool)| {
        format!("{} from {}{}", size(*chunk), size(*knee), if *flat { "" } else { " (and not flat)" })
    };
    shapes.push(Shape {
        medium,
        what: "by buffer (figure 8), flat past the knee",
        paper: "no gain beyond 512 KiB of buffer, whatever the chunk",
        found: format!("chunks of {} on", knees.iter().map(words).collect::<Vec<_>>().join(", ")),
        holds: knees.iter().all(|(.., flat)| *flat),
        why: memory.then_some(
            "A larger buffer leaves the cores' caches, where data that both copy are passed from one to the other; the paper's buffer was \
             SRAM of one speed",
        ),
    });
    shapes.push(Shape {
        medium,
        what: "by buffer (figure 8), smaller chunks need less buffer",
        paper: "at a smaller chunk the peak is reached with a smaller buffer",
        found: knees.iter().map(words).collect::<Vec<_>>().join(", "),
        holds: knees.windows(2).all(|pair| pair[0].1 <= pair[1].1),
        why: memory.then_some("Whatever the buffer, one core copies in and another one out, which takes about as long"),
    });
    let at =
        |chunk: u64, buffer: u64| rows.iter().find(|row| row.chunk_bytes == chunk && row.buffer_bytes == Some(buffer));
    if let (Some(large), Some(small)) = (at(256 << 10, 128 << 10), at(64 << 10, 128 << 10)) {
        let ratio = ratio(large, small);
        shapes.push(Shape {
            medium,
            what: "with 128 KiB of buffer (figure 8), large chunks lose to small ones",
            paper: "256 KiB chunks are slower than 64 KiB chunks, as four threads vie for the buffer",
            found: format!("256 KiB chunks reach {} of what 64 KiB chunks do", shown(ratio)),
            holds: is_less(large, small),
            why: match medium {
                "device" => Some(
                    "Over plain memory a piece is at the host as soon as it is copied, so that there is little to overlap, and \
                     fewer commands make up for it",
                ),
                "nand" => Some(
                    "The host copies many times as fast as this NAND reads, so that NAND is idle for next to nothing while a piece \
                     that fills the buffer is copied; nand-dma has the paper's DMA",
                ),
                _ => None,
            },
        });
    }
}

/// Figure 9.
fn by_chunk(medium: &'static str, rows: &[&Row], shapes: &mut Vec<Shape>) {
    let memory = medium == "device";
    let of = |op: &str, depth: usize| {
        let mut curve: Vec<&Row> = rows.iter().copied().filter(|row| row.op == op && row.depth == depth).collect();
        curve.sort_by_key(|row| row.chunk_bytes);
        curve
    };
    let mut found = Vec::new();
    let mut grows = true;
    for op in ["read", "write"] {
        for depth in [1, 4] {
            let curve = of(op, depth);
            let (Some(first), Some(last)) = (curve.first(), curve.last()) else { return };
            found.push(format!("{op}s at depth {depth} {:.1} times", ratio(last, first).median));
            grows &= curve.windows(2).all(|pair| ratio(pair[1], pair[0]).median >= NOISE);
        }
    }
    shapes.push(Shape {
        medium,
        what: "by chunk (figure 9), throughput grows with the chunk",
        paper: "for both read and write",
        found: format!("from 4 KiB to 512 KiB: {}", found.join(", ")),
        holds: grows,
        why: Some(if memory {
            "Chunks at a time that no longer fit a core's caches are copied at the speed of the next one"
        } else {
            "All planes are busy before the largest chunk, and what comes beyond that is noise and the wait for the fullest plane"
        }),
    });
    let last = |op, depth| of(op, depth).last().copied();
    if let (Some(one), Some(four)) = (last("read", 1), last("read", 4)) {
        let ratio = ratio(four, one);
        shapes.push(Shape {
            medium,
            what: "512 KiB reads (figure 9), four at a time are faster than one",
            paper: "432.2 MB/s, its highest, with four",
            found: format!("four reach {} of what one does", shown(ratio)),
            holds: is_less(one, four),
            why: None,
        });
    }
    let writes = of("write", 4);
    if let (Some(small), Some(large)) = (writes.iter().find(|row| row.chunk_bytes == 64 << 10), writes.last()) {
        let ratio = ratio(small, large);
        shapes.push(Shape {
            medium,
            what: "writes four at a time (figure 9), saturated at 64 KiB",
            paper: "nearly",
            found: format!("64 KiB chunks reach {} of what 512 KiB chunks do", shown(ratio)),
            holds: ratio.median >= SAME,
            why: memory.then_some("No program's time covers the command's"),
        });
    }
    if let (Some(write), Some(read)) = (last("write", 4), last("read", 4)) {
        let ratio = ratio(write, read);
        shapes.push(Shape {
            medium,
            what: "512 KiB chunks four at a time (figure 9), writes are slower than reads",
            paper: "95.8 to 432.2 MB/s, 22%",
            found: format!("writes reach {} of what reads do", shown(ratio)),
            holds: is_less(write, read),
            why: memory.then_some("Memory is written as fast as it is read"),
        });
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::cells::{How, Times, cells, rows};
    use super::super::movers::Ran;
    use super::*;
    use crate::device::args::Figure;

    /// Shapes of curves that a function makes, over NAND.
    fn of(mb_per_s: impl Fn(&super::super::movers::Work) -> f64) -> Vec<Shape> {
        let times = Times { each: Duration::ZERO, nand: Duration::ZERO };
        let cells: Vec<_> = cells(&[Figure::Buffer, Figure::Chunk], times, 1)
            .into_iter()
            .filter(|cell| cell.how == How::Nand)
            .collect();
        let ran = |work: &super::super::movers::Work| {
            let ns = f64::from(work.chunk) * 4096.0 * 1e3 / mb_per_s(work);
            Ran { chunks: 1, ns, all_ns: ns, cpu_ns: ns, ..Ran::default() }
        };
        let all: Vec<Vec<Ran>> = cells.iter().map(|cell| vec![ran(&cell.work); 3]).collect();
        shapes(&rows(&cells, &all))
    }

    #[test]
    fn the_papers_curves_have_the_papers_shapes() {
        // As in its figures 8 and 9: what fits the buffer is overlapped, up to the medium's speed.
        let found = of(|work| match work.buffer {
            Some(buffer) => {
                let at_a_time = f64::from((buffer / work.chunk.min(buffer)).min(4));
                let latency_us = 100.0 + f64::from(work.chunk.min(buffer)) * 8.0;
                (f64::from(work.chunk.min(buffer)) * 4096.0 * at_a_time / latency_us).min(436.0)
            }
            None => {
                let most = if work.op == fulgurite_flash::Op::Write { 95.8 } else { 432.2 };
                let grown = f64::from(work.chunk) * work.depth as f64 * 6.0;
                grown.min(most) * if work.depth == 1 { 0.8 } else { 1.0 }
            }
        });
        assert_eq!(found.len(), 7);
        assert!(found.iter().all(|shape| shape.holds), "{found:#?}");
    }
    #[test]
    fn others_have_not() {
        // Everything the same: nothing grows or loses, and what is flat is flat.
        let same: Vec<bool> = of(|_| 100.0).iter().map(|shape| shape.holds).collect();
        assert_eq!(same, [true, true, false, true, false, true, false]);
        // The more buffer the worse.
        let falling = of(|work| 1e4 / f64::from(work.buffer.unwrap_or(1)));
        assert!(!falling[0].holds && falling[0].line().contains("not flat"), "{}", falling[0].line());
    }
}
