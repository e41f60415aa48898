//! Maps of a pool: one cell for each extent (or for some). Its colour says what the extent is used
//! for, how much of it is live, how old that is, how much of it only tokens still see, or how often
//! it was filled. Next to them is shown how many pages have how many versions, and how many extents
//! are how full.
//!
//! A map more is a [`Map`] more in [`draw`]: a colour and a sentence for each extent, and a legend.

use fulgurite_format::{SUBPAGE_BYTES, format_bytes};
use fulgurite_store::admin::{ExtentUse, OpenedPool, Survey, SurveyedExtent};

use super::open::name_of;
use fulgurite_term::report::charts::{Bar, Bars, stack};
use fulgurite_term::report::svg::{Anchor, Canvas, PALETTE};
use fulgurite_term::report::table::thousands;

/// The most cells of a map; a larger pool has several extents in one.
const CELLS_MAX: usize = 1024;
const WIDTH: f64 = 660.0;
const LEFT: f64 = 58.0;
const RIGHT: f64 = 18.0;
/// Of what holds nothing: it shows on light and dark ground.
const NOTHING: &str = "#8c959f33";

/// What extents are used for, in the order of the legend.
const USES: [ExtentUse; 4] = [ExtentUse::Data, ExtentUse::Metadata, ExtentUse::Fixed, ExtentUse::Free];

fn look_of(used_for: ExtentUse) -> (&'static str, &'static str) {
    match used_for {
        ExtentUse::Fixed => ("superblock, anchors", PALETTE[7]),
        ExtentUse::Metadata => ("journal, checkpoint", PALETTE[2]),
        ExtentUse::Data => ("data", PALETTE[3]),
        ExtentUse::Free => ("free", NOTHING),
    }
}

/// A map: a colour and a sentence for each cell.
struct Map {
    title: &'static str,
    subtitle: String,
    legend: Legend,
    cells: Vec<(String, String)>,
    per_cell: usize,
}

enum Legend {
    Kinds,
    /// From none to this much.
    Ramp {
        hue: [u8; 3],
        low: String,
        high: String,
        unit: &'static str,
    },
}

const BLUE: [u8; 3] = [0x1f, 0x5f, 0xa8];
const GREEN: [u8; 3] = [0x0b, 0x6e, 0x53];
const BROWN: [u8; 3] = [0x8a, 0x4b, 0x08];
const PURPLE: [u8; 3] = [0x84, 0x2c, 0x74];

/// From pale to the hue. The pale end still differs from [`NOTHING`].
fn shade(hue: [u8; 3], share: f64) -> String {
    let pale = [0xf2u8, 0xf5, 0xf8];
    let share = 0.2 + 0.8 * share.clamp(0.0, 1.0);
    let mix = |i: usize| (f64::from(pale[i]) * (1.0 - share) + f64::from(hue[i]) * share).round() as u8;
    format!("#{:02x}{:02x}{:02x}", mix(0), mix(1), mix(2))
}

impl Map {
    fn draw(&self) -> Canvas {
        let wide = WIDTH - LEFT - RIGHT;
        let count = self.cells.len().max(1);
        // As large as makes about 200 points of height.
        let pitch = (wide * 200.0 / count as f64).sqrt().floor().clamp(8.0, 30.0);
        let columns = (wide / pitch).floor().max(1.0) as usize;
        let rows = count.div_ceil(columns);
        let top = 92.0;
        let mut canvas = Canvas::new(WIDTH, (top + rows as f64 * pitch + 26.0).max(320.0));
        canvas.text(16.0, 26.0, Anchor::Start, "title", self.title);
        canvas.text(16.0, 45.0, Anchor::Start, "sub", &self.subtitle);
        self.legend(&mut canvas, 66.0);
        // A number next to every row is too many where rows are low.
        let every = (14.0 / pitch).ceil().max(1.0) as usize;
        for row in (0..rows).step_by(every) {
            let y = top + row as f64 * pitch + pitch / 2.0 + 4.0;
            canvas.text(LEFT - 8.0, y, Anchor::End, "tick", &thousands((row * columns * self.per_cell) as i64));
        }
        for (i, (colour, tip)) in self.cells.iter().enumerate() {
            let (x, y) = (LEFT + (i % columns) as f64 * pitch, top + (i / columns) as f64 * pitch);
            canvas.bar(x, y, pitch - 1.5, pitch - 1.5, colour, tip);
        }
        canvas
    }
    fn legend(&self, canvas: &mut Canvas, y: f64) {
        let mut x = LEFT;
        match &self.legend {
            Legend::Kinds => {
                for (name, colour) in USES.map(look_of) {
                    canvas.bar(x, y - 2.0, 11.0, 11.0, colour, name);
                    canvas.text(x + 16.0, y + 8.0, Anchor::Start, "label", name);
                    x += 34.0 + name.chars().count() as f64 * 6.8;
                }
            }
            Legend::Ramp { hue, low, high, unit } => {
                canvas.text(x, y + 8.0, Anchor::Start, "label", low);
                x += 14.0 + low.chars().count() as f64 * 6.8;
                for step in 0..12 {
                    canvas.bar(x, y - 2.0, 11.0, 11.0, &shade(*hue, f64::from(step) / 11.0), unit);
                    x += 11.0;
                }
                let high = format!("{high} {unit}");
                canvas.text(x + 8.0, y + 8.0, Anchor::Start, "label", &high);
                x += 30.0 + high.chars().count() as f64 * 6.8;
                canvas.bar(x, y - 2.0, 11.0, 11.0, NOTHING, "nothing live");
                canvas.text(x + 16.0, y + 8.0, Anchor::Start, "label", "nothing live");
            }
        }
    }
}

fn percent(part: u64, whole: u64) -> String {
    format!("{:.0}%", part as f64 / whole.max(1) as f64 * 100.0)
}

/// How many pages have how many versions, in doubling steps.
fn version_bars(pool: &Survey) -> Bars {
    let mut groups = Vec::new();
    let mut bars = Vec::new();
    let mut from = 1;
    while from <= pool.versions.len() {
        let to = (from * 2 - 1).min(pool.versions.len());
        let count: u64 = pool.versions[from - 1..to].iter().sum();
        groups.push(if from == to { from.to_string() } else { format!("{from} to {to}") });
        let tip = format!("{} pages", thousands(count.cast_signed()));
        bars.push(vec![Some(Bar { value: count as f64, spread: None, tip })]);
        from *= 2;
    }
    Bars {
        title: "Versions of a page".into(),
        subtitle: "pages of 64 KiB by how many states of them are kept".into(),
        unit: "pages".into(),
        groups,
        series: vec!["pages".into()],
        bars,
        mark: None,
    }
}

/// How many extents of data are how full.
fn fullness_bars(pool: &Survey) -> Bars {
    let mut counts = [0u64; 10];
    for extent in pool.extents.iter().filter(|extent| extent.used_for == ExtentUse::Data) {
        counts[((extent.live * 10 / pool.data_pages.max(1)) as usize).min(9)] += 1;
    }
    let bar = |count: &u64| {
        let tip = format!("{} extents", thousands(count.cast_signed()));
        vec![Some(Bar { value: *count as f64, spread: None, tip })]
    };
    Bars {
        title: "How full extents are".into(),
        subtitle: "extents with data, by the share of their flash pages that is live, in percent".into(),
        unit: "extents".into(),
        groups: (0..10).map(|tenth| format!("{}-{}", tenth * 10, tenth * 10 + 10)).collect(),
        series: vec!["extents".into()],
        bars: counts.iter().map(bar).collect(),
        mark: None,
    }
}

/// Draws all of it: one SVG file.
pub fn draw(opened: &OpenedPool) -> String {
    let pool = opened.survey();
    let g = opened.pool().geometry();
    let per_cell = pool.extents.len().div_ceil(CELLS_MAX).max(1);
    let cells: Vec<(usize, &[SurveyedExtent])> =
        pool.extents.chunks(per_cell).enumerate().map(|(i, all)| (i * per_cell, all)).collect();
    let name = |first: usize, all: &[SurveyedExtent]| match all.len() {
        1 => format!("extent {first}"),
        more => format!("extents {first} to {}", first + more - 1),
    };
    let sum = |all: &[SurveyedExtent], of: fn(&SurveyedExtent) -> u64| all.iter().map(of).sum::<u64>();
    let mean_age = |all: &[SurveyedExtent]| sum(all, |e| e.age) as f64 / sum(all, |e| e.live).max(1) as f64;
    let oldest = cells.iter().map(|(_, all)| mean_age(all)).fold(0.0, f64::max);
    let extent_bytes = u64::from(g.extent_pages) * SUBPAGE_BYTES as u64;
    let unit = match per_cell {
        1 => format!("one cell an extent of {}, extent 0 at the top left", format_bytes(extent_bytes)),
        n => format!("one cell {n} extents of {}, extent 0 at the top left", format_bytes(extent_bytes)),
    };
    let ramp = |share: &dyn Fn(&[SurveyedExtent]) -> f64,
                hue,
                tip: &dyn Fn(&[SurveyedExtent]) -> String|
     -> Vec<(String, String)> {
        let one = |(first, all): &(usize, &[SurveyedExtent])| {
            let colour = if sum(all, |e| e.live) == 0 { NOTHING.to_owned() } else { shade(hue, share(all)) };
            (colour, format!("{}: {}", name(*first, all), tip(all)))
        };
        cells.iter().map(one).collect()
    };
    let main_use = |all: &[SurveyedExtent]| {
        let count = |used_for: ExtentUse| all.iter().filter(|extent| extent.used_for == used_for).count();
        USES.into_iter().max_by_key(|used_for| count(*used_for)).unwrap_or(ExtentUse::Free)
    };
    let mean_fills = |all: &[SurveyedExtent]| sum(all, |e| e.fills) as f64 / all.len().max(1) as f64;
    let most_filled = cells.iter().map(|(_, all)| mean_fills(all)).fold(0.0, f64::max);
    let worn = |(first, all): &(usize, &[SurveyedExtent])| {
        let fills = mean_fills(all);
        let colour = if fills == 0.0 { NOTHING.to_owned() } else { shade(BROWN, fills / most_filled) };
        (colour, format!("{}: filled {fills:.1} times", name(*first, all)))
    };
    let room = |all: &[SurveyedExtent]| all.len() as u64 * pool.data_pages;
    let legend = |hue, low: &str, high: String, unit| Legend::Ramp { hue, low: low.to_owned(), high, unit };
    let map = |title, subtitle: &str, legend, cells| {
        let subtitle = subtitle.to_owned();
        Map { title, subtitle, legend, cells, per_cell }
    };
    let used = |(first, all): &(usize, &[SurveyedExtent])| {
        let (used_for, colour) = look_of(main_use(all));
        (colour.to_owned(), format!("{}: {used_for}", name(*first, all)))
    };
    let maps = [
        map(
            "What the extents are used for",
            &format!("pool {}; {unit}", &name_of(opened.pool().id())[..8]),
            Legend::Kinds,
            cells.iter().map(used).collect(),
        ),
        map(
            "Live data",
            "the share of an extent's flash pages that is needed; what is dead is there until it is reclaimed",
            legend(BLUE, "0%", "100%".into(), "live"),
            ramp(&|all| sum(all, |e| e.live) as f64 / room(all).max(1) as f64, BLUE, &|all| {
                format!("{} of {} flash pages live", sum(all, |e| e.live), room(all))
            }),
        ),
        map(
            "Age",
            "how many syncs ago the live data of an extent was written, on average",
            legend(GREEN, "0", format!("{oldest:.0}"), "syncs ago"),
            ramp(&|all| mean_age(all) / oldest.max(1.0), GREEN, &|all| format!("{:.1} syncs ago", mean_age(all))),
        ),
        map(
            "Older versions",
            "the share of an extent's live data that only tokens still see; dropping tokens frees it",
            legend(PURPLE, "0%", "100%".into(), "older"),
            ramp(&|all| sum(all, |e| e.older) as f64 / sum(all, |e| e.live).max(1) as f64, PURPLE, &|all| {
                format!("{} of what is live", percent(sum(all, |e| e.older), sum(all, |e| e.live)))
            }),
        ),
        map(
            "Wear",
            "how often an extent was filled since the pool was made; flash fails after some thousand times",
            legend(BROWN, "0", format!("{most_filled:.0}"), "times"),
            cells.iter().map(worn).collect(),
        ),
    ];
    let mut charts: Vec<Canvas> = maps.iter().map(Map::draw).collect();
    charts.extend([version_bars(&pool).draw(), fullness_bars(&pool).draw()]);
    stack(&charts)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shades_go_from_pale_to_the_hue() {
        assert_eq!(shade(BLUE, 0.0), "#c8d7e8");
        assert_eq!(shade(BLUE, 1.0), "#1f5fa8");
        assert_eq!(shade(BLUE, 7.0), shade(BLUE, 1.0));
    }
    #[test]
    fn an_empty_pool_has_charts() {
        let pool = Survey::default();
        for bars in [version_bars(&pool), fullness_bars(&pool)] {
            let drawn = bars.draw().finish();
            assert!(drawn.contains("<svg") && !drawn.contains("NaN"));
        }
    }
}
