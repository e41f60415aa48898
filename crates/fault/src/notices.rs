//! Words for the user of the program. They go to a descriptor of our own, because the
//! program may close its standard error output, or open something else in its place.

use std::fs::File;
use std::io::Write;

use fulgurite_sys::signals;

use crate::statistics::Summary;

/// Where words go, if anywhere. Words that cannot be written are lost.
#[derive(Debug, Default)]
pub struct Notices(Option<File>);

impl Notices {
    /// To this file.
    #[must_use]
    pub fn to(file: Option<File>) -> Notices {
        Notices(file)
    }
    /// Tells a line.
    pub fn report(&self, text: &str) {
        self.report_line(&format!("fulgurite run: {text}"));
    }
    /// Tells figures: as a line of JSON with this process' number, or as words with others before
    /// them.
    pub fn report_figures(&self, figures: &Summary, json: bool, before: &str) {
        match json {
            true => self.report_line(&figures.to_json(std::process::id())),
            false => self.report(&format!("{before}{figures}")),
        }
    }
    /// Tells a line as it is, without a name before it.
    pub fn report_line(&self, line: &str) {
        if let Some(mut file) = self.0.as_ref() {
            // One write, so that lines of several processes do not mix.
            let line = format!("{line}\n");
            let _ = signals::without_pipe_signal(|| file.write_all(line.as_bytes()));
        }
    }
}
