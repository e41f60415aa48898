//! Progress bars: on standard error, silent when that is no terminal.

use std::time::Duration;

pub use indicatif::ProgressBar;
use indicatif::ProgressStyle;

/// A bar over `count` steps.
pub fn steps(what: &str, count: u64) -> ProgressBar {
    let bar = ProgressBar::new(count);
    let style = ProgressStyle::with_template("{prefix} [{bar:40}] {pos}/{len} {msg}").expect("a valid template");
    bar.set_style(style.progress_chars("=> "));
    bar.set_prefix(what.to_owned());
    bar
}

/// A bar over a share, 0 to 1.
pub fn share(what: &str) -> ProgressBar {
    let bar = ProgressBar::new(1000);
    let style = ProgressStyle::with_template("{prefix} [{bar:40}] {percent}% {eta}").expect("a valid template");
    bar.set_style(style.progress_chars("=> "));
    bar.set_prefix(what.to_owned());
    bar
}

/// Sets a bar made by [`share`].
pub fn set_share(bar: &ProgressBar, share: f64) {
    bar.set_position((share.clamp(0.0, 1.0) * 1000.0) as u64);
}

/// Something that takes a while and has no length.
pub fn waiting(what: &str) -> ProgressBar {
    let bar = ProgressBar::new_spinner();
    bar.set_message(what.to_owned());
    bar.enable_steady_tick(Duration::from_millis(120));
    bar
}
