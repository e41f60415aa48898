//! What `fulgurite-lab reproduce` found, as a page: counts, then for each paper where its text
//! disagrees with itself, a table, and its figures.

use fulgurite_reproduce::checks::disagreements::{self, Disagreement};
use fulgurite_reproduce::{Paper, Report, Row, Verdict};
use fulgurite_term::report::html::Page;
use fulgurite_term::report::table::Columns;

/// The page. Each figure is SVG, and of a paper.
pub fn page(report: &Report, figures: &[(Paper, String)]) -> String {
    let mut page = Page::new("The papers' numbers");
    let version = &report.version;
    page.paragraph(&format!("{} ({version}): {}.", report.command, report.summary_line()));
    page.paragraph(
        "Live numbers are of kept results of the runtime, each with its file. Nothing was measured for this page. \
         Curves are ours: the papers' own are not in their texts, and what the texts state is drawn next to them.",
    );
    let counts: Vec<(String, String)> =
        Verdict::ALL.iter().map(|verdict| (report.count(*verdict).to_string(), verdict.to_string())).collect();
    page.figures(&counts);
    for used in &report.calibrations {
        page.heading(&used.paper);
        let kinds: Vec<String> = used.kinds.iter().map(|(kind, count)| format!("{count} {kind}")).collect();
        page.paragraph(&format!("{}, hash {}: values by kind: {}.", used.file, used.hash, kinds.join(", ")));
        let all: Vec<&Disagreement> = disagreements::ALL.iter().filter(|one| is_of(one.paper, &used.paper)).collect();
        if !all.is_empty() {
            let columns = Columns::of(all)
                .left("the text disagrees with itself", |one| one.text)
                .left("what is taken", |one| one.taken)
                .left("checks", |one| one.checks);
            page.words(&columns, |_| false);
        }
        let rows = report.rows.iter().filter(|row| row.paper == used.paper);
        let columns = Columns::of(rows)
            .left("check", Row::name)
            .left("verdict", |row| row.verdict)
            .left("the paper", |row| row.stated.clone())
            .left("ours", Row::ours_shown)
            .left("band", Row::band_shown)
            .left("live", |row| row.live.clone().unwrap_or_else(|| "not measured".to_owned()))
            .left("mechanism", Row::explanation);
        let stands_out = [Verdict::Fail, Verdict::Undecided, Verdict::Fragile].map(|verdict| verdict.to_string());
        page.words(&columns, |row| stands_out.contains(&row[1]));
        for (_, figure) in figures.iter().filter(|(paper, _)| is_of(*paper, &used.paper)) {
            page.drawing(figure);
        }
    }
    page.finish()
}

fn is_of(paper: Paper, name: &str) -> bool {
    paper.name() == name
}

#[cfg(test)]
mod tests {
    use super::*;
    use fulgurite_term::report::charts::{Axis, Curve, Curves};

    #[test]
    fn a_page_has_each_row_and_each_figure_and_nothing_from_elsewhere() {
        let kept = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/reproduction.json");
        let report: Report = serde_json::from_str(&std::fs::read_to_string(kept).unwrap()).unwrap();
        let curve = || vec![Curve { name: "ours <1>".to_owned(), points: vec![(1.0, 2.0), (2.0, 3.0)] }];
        let drawn = || Curves::new("a figure", "", Axis::linear("x"), Axis::linear("x"), curve()).draw().finish();
        let text = page(&report, &[(Paper::Nvmm, drawn()), (Paper::Nvmm, drawn())]);
        for row in &report.rows {
            assert!(text.contains(&row.name()), "{}", row.name());
        }
        for one in disagreements::ALL {
            assert!(text.contains(one.text) && text.contains(one.taken), "{one:?}");
        }
        assert_eq!(text.matches("<svg").count(), 2);
        assert!(text.contains("ours &lt;1&gt;") && !text.contains("ours <1>"));
        let links = text.replace("http://www.w3.org/2000/svg", "");
        assert!(!links.contains("http") && !links.contains("<script") && !text.contains("NaN"));
    }
}
