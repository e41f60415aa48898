//! A report as one HTML file: text, tables and drawings, nothing from elsewhere.

use super::table::Columns;

use super::svg::escape;

/// A page under construction.
#[derive(Debug)]
pub struct Page {
    title: String,
    body: String,
}

impl Page {
    /// An empty page.
    pub fn new(title: &str) -> Page {
        Page { title: escape(title), body: String::new() }
    }
    /// A heading.
    pub fn heading(&mut self, text: &str) {
        self.body.push_str(&format!("<h2>{}</h2>\n", escape(text)));
    }
    /// A paragraph.
    pub fn paragraph(&mut self, text: &str) {
        self.body.push_str(&format!("<p>{}</p>\n", escape(text)));
    }
    /// Numbers with what they are of.
    pub fn figures(&mut self, figures: &[(String, String)]) {
        self.body.push_str("<div class=\"figures\">\n");
        for (figure, caption) in figures {
            self.body.push_str(&format!("<div><b>{}</b><span>{}</span></div>\n", escape(figure), escape(caption)));
        }
        self.body.push_str("</div>\n");
    }
    /// A table; columns after the first are aligned to the right. `strong` rows stand out.
    pub fn table<R>(&mut self, columns: &Columns<'_, R>, strong: impl Fn(&[String]) -> bool) {
        self.lay_out("<table>", columns, strong);
    }
    /// A table of words: cells break into lines and are aligned to the left. `strong` rows stand
    /// out.
    pub fn words<R>(&mut self, columns: &Columns<'_, R>, strong: impl Fn(&[String]) -> bool) {
        self.lay_out("<table class=\"words\">", columns, strong);
    }
    fn lay_out<R>(&mut self, table: &str, columns: &Columns<'_, R>, strong: impl Fn(&[String]) -> bool) {
        self.body.push_str(&format!("<div class=\"wide\">{table}<thead><tr>"));
        for cell in &columns.headings {
            self.body.push_str(&format!("<th>{}</th>", escape(cell)));
        }
        self.body.push_str("</tr></thead><tbody>\n");
        for row in &columns.lines {
            self.body.push_str(if strong(row) { "<tr class=\"strong\">" } else { "<tr>" });
            for cell in row {
                self.body.push_str(&format!("<td>{}</td>", escape(cell)));
            }
            self.body.push_str("</tr>\n");
        }
        self.body.push_str("</tbody></table></div>\n");
    }
    /// A drawing (the text of an SVG file).
    pub fn drawing(&mut self, svg: &str) {
        self.body.push_str(&format!("<div class=\"wide\">{svg}</div>\n"));
    }
    /// The file.
    pub fn finish(&self) -> String {
        let (title, body) = (&self.title, &self.body);
        format!(
            "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n\
             <meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\n<title>{title}</title>\n\
             <style>{STYLE}</style></head>\n<body><main>\n<h1>{title}</h1>\n{body}</main></body></html>\n"
        )
    }
}

const STYLE: &str = "
:root{color-scheme:light dark;--ink:#24292f;--soft:#59636e;--ground:#ffffff;--line:#d6dae0;--good:#0f8f6c;--tint:#eef7f4}
@media(prefers-color-scheme:dark){:root{--ink:#e6edf3;--soft:#9aa5b1;--ground:#14181d;--line:#2b323a;--good:#3fbf97;--tint:#17251f}}
body{margin:0;background:var(--ground);color:var(--ink);font:16px/1.55 system-ui,'Segoe UI',Roboto,'DejaVu Sans',sans-serif}
main{max-width:66rem;margin:0 auto;padding:2.5rem 1.25rem 4rem}
h1{font-size:1.9rem;line-height:1.2;margin:0 0 .6rem}
h2{font-size:1.25rem;margin:2.4rem 0 .6rem}
p{margin:.5rem 0;max-width:48rem}
.figures{display:grid;grid-template-columns:repeat(auto-fit,minmax(11rem,1fr));gap:1rem;margin:1.6rem 0}
.figures div{border:1px solid var(--line);border-radius:10px;padding:.9rem 1rem}
.figures b{display:block;font-size:1.7rem;line-height:1.2;color:var(--good);font-variant-numeric:tabular-nums}
.figures span{color:var(--soft);font-size:.87rem}
.wide{overflow-x:auto}
table{border-collapse:collapse;width:100%;font-size:.86rem;font-variant-numeric:tabular-nums}
th,td{padding:.42rem .5rem;text-align:right;border-bottom:1px solid var(--line);white-space:nowrap}
th:first-child,td:first-child{text-align:left}
.words th,.words td{text-align:left;white-space:normal;vertical-align:top;overflow-wrap:anywhere}
.words td:first-child,.words th{white-space:nowrap}
th{color:var(--soft);font-weight:600}
tr.strong td{background:var(--tint);font-weight:600}
svg{max-width:100%;height:auto;display:block;margin:1rem 0}
@media(max-width:44rem){svg{max-width:none}}
";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_comes_from_elsewhere() {
        let mut page = Page::new("a <b>");
        page.heading("h");
        page.figures(&[("95%".into(), "of DRAM".into())]);
        page.table(&Columns::of(&[("1", "<2>")]).left("x", |row| row.0).left("y", |row| row.1), |_| true);
        let text = page.finish();
        assert!(text.contains("a &lt;b&gt;") && text.contains("&lt;2&gt;"));
        assert!(!text.contains("http") && !text.contains("<script"));
    }
}
