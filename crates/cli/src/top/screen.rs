//! The screen of `fulgurite top`.
//!
//! ```text
//!  fulgurite top: 2 programs
//!  PID*    program       memory  of cap  faults/s   hits  read/s  write/s  waiting
//!  4711    redis-server     63M   98.4%     1,000  75.0%   1000K     500K      0.1
//!  +- redis-server (4711): faults/s, up to 1,000; peak .. ------------------------+
//!  |                                                        ▂▃▅▇█▇▅▃▂▁            |
//!  +------------------------------------------------------------------------------+
//!  q end ..
//! ```

use std::time::{Duration, Instant};

use anyhow::Result;
use fulgurite_fault::Published;
use fulgurite_format::{format_bytes, format_duration};
use fulgurite_term::interrupt::Interrupt;
use fulgurite_term::report::table::{or_dash, percent, thousands};
use ratatui::backend::Backend;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use ratatui::layout::{Alignment, Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Text};
use ratatui::widgets::{Block, Cell, Paragraph, Row, Sparkline, Table, TableState, Wrap};
use ratatui::{Frame, Terminal};

use super::NONE;
use super::sample::{Sample, Samples};

/// Columns, by which rows may be sorted.
const COLUMNS: [&str; 9] = ["PID", "program", "memory", "of cap", "faults/s", "hits", "read/s", "write/s", "waiting"];
const WIDTHS: [Constraint; 9] = [
    Constraint::Length(7),
    Constraint::Fill(1),
    Constraint::Length(7),
    Constraint::Length(7),
    Constraint::Length(9),
    Constraint::Length(6),
    Constraint::Length(7),
    Constraint::Length(8),
    Constraint::Length(8),
];
/// The least columns and lines in which all of that is seen.
const LEAST: (u16, u16) = (75, 6);
/// Lines from which on faults are drawn as well, and how many those take.
const WITH_HISTORY: u16 = 12;
const HISTORY: u16 = 6;
/// The share of the cap from which on memory is shown in red.
const CLOSE: f64 = 0.98;
/// How often a signal is looked for.
const SAMPLE_EVERY: Duration = Duration::from_millis(250);

/// What the screen shows, and how.
#[derive(Default)]
pub struct Screen {
    samples: Samples,
    /// The column that rows are sorted by.
    sorted: usize,
    /// The program that is selected: it stays so when rows move.
    selected: Option<u32>,
    paused: bool,
}

/// Whether the screen goes on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Then {
    Goes,
    Ends,
}

/// Shows programs until a key or a signal ends it.
pub fn run<B>(
    terminal: &mut Terminal<B>,
    every: Duration,
    interrupt: &Interrupt,
    look: impl Fn() -> Vec<Published>,
) -> Result<()>
where
    B: Backend,
    B::Error: Send + Sync + 'static,
{
    let (mut screen, begun) = (Screen::default(), Instant::now());
    let mut next = begun;
    loop {
        interrupt.check()?;
        if Instant::now() >= next {
            screen.add_sample(look(), begun.elapsed());
            next = Instant::now() + every;
        }
        terminal.draw(|frame| screen.draw(frame))?;
        if event::poll(next.saturating_duration_since(Instant::now()).min(SAMPLE_EVERY))?
            && let Event::Key(key) = event::read()?
            && screen.press(key) == Then::Ends
        {
            return Ok(());
        }
    }
}

/// Bytes in five columns: `63M`, `1.2G`.
fn short(bytes: f64) -> String {
    const UNITS: [&str; 6] = ["", "K", "M", "G", "T", "P"];
    let (mut value, mut unit) = (bytes, 0);
    while value >= 1023.5 && unit + 1 < UNITS.len() {
        (value, unit) = (value / 1024.0, unit + 1);
    }
    if unit > 0 && value < 9.95 { format!("{value:.1}{}", UNITS[unit]) } else { format!("{value:.0}{}", UNITS[unit]) }
}

impl Screen {
    /// Takes a sample, unless it is paused.
    pub fn add_sample(&mut self, seen: Vec<Published>, at: Duration) {
        if !self.paused {
            self.samples.add(seen, at);
        }
    }

    /// Does what a key means.
    pub fn press(&mut self, key: KeyEvent) -> Then {
        if key.kind == KeyEventKind::Release {
            return Then::Goes;
        }
        match key.code {
            KeyCode::Char('q') | KeyCode::Esc => return Then::Ends,
            KeyCode::Char('c') if key.modifiers.contains(KeyModifiers::CONTROL) => return Then::Ends,
            KeyCode::Char('s') => self.sorted = (self.sorted + 1) % COLUMNS.len(),
            KeyCode::Char(' ') => self.paused = !self.paused,
            KeyCode::Up => self.select(|at, _| at.saturating_sub(1)),
            KeyCode::Down => self.select(|at, last| (at + 1).min(last)),
            _ => {}
        }
        Then::Goes
    }
    /// Selects another row: of the place of the selected one, and of the last.
    fn select(&mut self, to: impl FnOnce(usize, usize) -> usize) {
        let rows = self.rows();
        self.selected = rows.len().checked_sub(1).map(|last| rows[to(self.place(&rows), last)].pid);
    }
    /// Where the selected program is. The first one, until one is selected that is still there.
    fn place(&self, rows: &[Sample]) -> usize {
        rows.iter().position(|row| Some(row.pid) == self.selected).unwrap_or(0)
    }

    fn rows(&self) -> Vec<Sample> {
        let mut rows = self.samples.rows();
        let figure = |row: &Sample| match self.sorted {
            2 => row.used_bytes as f64,
            3 => row.share_of_cap(),
            4 => row.faults_per_s.unwrap_or(0.0),
            5 => row.hit_ratio,
            6 => row.bytes_read_per_s.unwrap_or(0.0),
            7 => row.bytes_written_per_s.unwrap_or(0.0),
            _ => row.threads_waiting.unwrap_or(0.0),
        };
        // Numbers of processes and names ascend, and figures descend.
        match self.sorted {
            0 => {}
            1 => rows.sort_by(|a, b| a.program.cmp(&b.program)),
            _ => rows.sort_by(|a, b| figure(b).total_cmp(&figure(a))),
        }
        rows
    }

    /// Draws it.
    pub fn draw(&self, frame: &mut Frame<'_>) {
        let area = frame.area();
        if area.width < LEAST.0 || area.height < LEAST.1 {
            let reported = format!("The terminal is too small: {} x {} at least. q ends.", LEAST.0, LEAST.1);
            frame.render_widget(Paragraph::new(reported).wrap(Wrap { trim: true }), area);
            return;
        }
        let history = if area.height >= WITH_HISTORY { HISTORY } else { 0 };
        let parts = [Constraint::Length(1), Constraint::Min(2), Constraint::Length(history), Constraint::Length(1)];
        let [head, body, below, foot] = Layout::vertical(parts).areas(area);
        let rows = self.rows();
        let programs = match rows.len() {
            1 => "1 program".to_owned(),
            n => format!("{n} programs"),
        };
        let paused = if self.paused { ", paused" } else { "" };
        let bold = Style::new().add_modifier(Modifier::BOLD);
        frame.render_widget(Line::from(format!("fulgurite top: {programs}{paused}")).style(bold), head);
        let keys = "q end   Up/Down select   s sort   space pause";
        frame.render_widget(Line::from(keys).style(Style::new().fg(Color::DarkGray)), foot);
        if rows.is_empty() {
            let none = format!("{NONE}\nStart one:  fulgurite run --dram 512M --flash DIR -- PROGRAM");
            frame.render_widget(Paragraph::new(none), body);
            return;
        }
        let at = self.place(&rows);
        self.draw_table(frame, body, &rows, at);
        if history > 0 {
            self.draw_history(frame, below, &rows[at]);
        }
    }

    fn draw_table(&self, frame: &mut Frame<'_>, area: Rect, rows: &[Sample], selected: usize) {
        let figure = |text: String| Cell::from(Text::from(text).alignment(Alignment::Right));
        let header = COLUMNS.iter().enumerate().map(|(column, name)| {
            let shown = if column == self.sorted { format!("{name}*") } else { (*name).to_owned() };
            if column < 2 { Cell::from(shown) } else { figure(shown) }
        });
        let lines = rows.iter().map(|row| {
            let memory = if row.share_of_cap() > CLOSE { Style::new().fg(Color::Red) } else { Style::new() };
            Row::new([
                Cell::from(row.pid.to_string()),
                Cell::from(row.program.clone()),
                figure(short(row.used_bytes as f64)).style(memory),
                figure(percent(row.share_of_cap())).style(memory),
                figure(or_dash(row.faults_per_s, |rate| thousands(rate as i64))),
                figure(percent(row.hit_ratio)),
                figure(or_dash(row.bytes_read_per_s, short)),
                figure(or_dash(row.bytes_written_per_s, short)),
                figure(or_dash(row.threads_waiting, |threads| format!("{threads:.1}"))),
            ])
        });
        let heading = Style::new().add_modifier(Modifier::BOLD | Modifier::UNDERLINED);
        let table = Table::new(lines, WIDTHS)
            .header(Row::new(header).style(heading))
            .row_highlight_style(Style::new().add_modifier(Modifier::REVERSED));
        let mut state = TableState::default().with_selected(Some(selected));
        frame.render_stateful_widget(table, area, &mut state);
    }

    /// Faults of the selected program, and what its row does not show.
    fn draw_history(&self, frame: &mut Frame<'_>, area: Rect, row: &Sample) {
        let faults = self.samples.history(row.pid);
        let most = faults.iter().copied().max().unwrap_or(0);
        let title = format!(" {} ({}): faults/s, up to {} ", row.program, row.pid, thousands(most.cast_signed()));
        let errors = match row.errors {
            0 => Line::from(""),
            n => Line::from(format!(" {n} errors of flash ")).style(Style::new().fg(Color::Red)),
        };
        let so_far = format!(
            " peak {} of {}; {} read, {} written, waited {} ",
            format_bytes(row.peak_bytes),
            format_bytes(row.cap_bytes),
            format_bytes(row.bytes_read),
            format_bytes(row.bytes_written),
            format_duration(Duration::try_from_secs_f64(row.waited_s).unwrap_or_default()),
        );
        let block = Block::bordered().title(title).title(errors.right_aligned()).title_bottom(so_far);
        let width = usize::from(block.inner(area).width);
        let shown = &faults[faults.len().saturating_sub(width)..];
        frame.render_widget(Sparkline::default().block(block).data(shown.iter().copied()), area);
    }
}

#[cfg(test)]
mod tests {
    use fulgurite_fault::Summary;
    use ratatui::backend::TestBackend;

    use super::*;

    fn program(pid: u32, name: &str, faults: u64, used_mib: u64) -> Published {
        let summary = Summary {
            faults,
            reads: faults / 4,
            evicted_dirty: faults / 8,
            waited: Duration::from_millis(faults / 10),
            peak_bytes: 60 << 20,
            cap_bytes: 64 << 20,
            errors: u64::from(pid == 9),
            ..Summary::default()
        };
        Published { pid, name: name.to_owned(), used_bytes: used_mib << 20, summary }
    }

    fn drawn_in(screen: &Screen, (width, height): (u16, u16)) -> String {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        terminal.draw(|frame| screen.draw(frame)).unwrap();
        let buffer = terminal.backend().buffer().clone();
        let line = |y| (0..width).map(|x| buffer[(x, y)].symbol()).collect::<String>().trim_end().to_owned();
        (0..height).map(line).collect::<Vec<_>>().join("\n")
    }
    fn drawn(screen: &Screen) -> String {
        drawn_in(screen, (80, 14))
    }
    fn press(screen: &mut Screen, code: KeyCode) -> Then {
        screen.press(KeyEvent::new(code, KeyModifiers::NONE))
    }
    /// Two programs, of which two seconds were seen.
    fn two_programs() -> Screen {
        let mut screen = Screen::default();
        let programs =
            |times: u64| vec![program(7, "redis-server", 1000 * times, 63), program(9, "sort", 4000 * times, 10)];
        screen.add_sample(programs(1), Duration::ZERO);
        screen.add_sample(programs(3), Duration::from_secs(2));
        screen
    }

    #[test]
    fn programs_are_shown_with_what_they_did_in_a_second() {
        let mut screen = Screen::default();
        let empty = drawn(&screen);
        assert!(empty.contains("0 programs") && empty.contains(NONE) && empty.contains("Start one:"), "{empty}");
        screen.add_sample(vec![program(7, "redis-server", 1000, 63)], Duration::ZERO);
        let first = drawn(&screen);
        let words = |shown: &str, line| {
            let line: &str = shown.lines().nth(line).expect("the line is there");
            line.split_whitespace().map(str::to_owned).collect::<Vec<_>>()
        };
        assert!(first.contains("1 program"), "{first}");
        assert_eq!(words(&first, 2), ["7", "redis-server", "63M", "98.4%", "-", "75.0%", "-", "-", "-"], "{first}");
        let shown = drawn(&two_programs());
        let heading = ["PID*", "program", "memory", "of", "cap", "faults/s", "hits", "read/s", "write/s", "waiting"];
        assert_eq!(words(&shown, 1), heading, "{shown}");
        // 1000 faults a second. A quarter of them reads a page, an eighth writes one.
        let row = ["7", "redis-server", "63M", "98.4%", "1,000", "75.0%", "1000K", "500K", "0.1"];
        assert_eq!(words(&shown, 2), row, "{shown}");
        assert!(shown.contains("redis-server (7): faults/s, up to 1,000"), "{shown}");
        assert!(shown.contains("peak 63.0 MiB of 64.0 MiB; 2.9 MiB read, 1.5 MiB written, waited 300 ms"), "{shown}");
        assert!(shown.contains('█'), "the history is drawn: {shown}");
        let wide = drawn_in(&two_programs(), (120, 7));
        assert!(wide.contains("redis-server ") && !wide.contains('█'), "{wide}");
        let small = drawn_in(&two_programs(), (60, 14));
        assert!(small.contains("The terminal is too small: 75 x 6 at least. q ends."), "{small}");
        drawn_in(&two_programs(), (1, 1));
    }
    #[test]
    fn keys_select_sort_pause_and_end() {
        let mut screen = two_programs();
        assert_eq!(press(&mut screen, KeyCode::Down), Then::Goes);
        let shown = drawn(&screen);
        assert!(shown.contains("sort (9): faults/s, up to 4,000") && shown.contains("1 errors of flash"), "{shown}");
        for _ in 0..4 {
            press(&mut screen, KeyCode::Char('s'));
        }
        let sorted = drawn(&screen);
        assert!(sorted.lines().nth(2).unwrap().starts_with('9') && sorted.contains("faults/s*"), "{sorted}");
        assert!(sorted.contains("sort (9):"), "it stays selected: {sorted}");
        press(&mut screen, KeyCode::Down);
        assert!(drawn(&screen).contains("redis-server (7):"));
        press(&mut screen, KeyCode::Char(' '));
        screen.add_sample(vec![], Duration::from_secs(3));
        assert!(drawn(&screen).contains("2 programs, paused"));
        press(&mut screen, KeyCode::Char(' '));
        // Another program, with the number of the one that ended.
        screen.add_sample(vec![program(7, "bash", 5000, 1)], Duration::from_secs(4));
        let other = drawn(&screen);
        assert!(other.contains("1 program\n") && other.contains("bash (7): faults/s, up to 0"), "{other}");
        screen.add_sample(vec![], Duration::from_secs(5));
        assert!(drawn(&screen).contains("0 programs"));
        assert_eq!(press(&mut screen, KeyCode::Up), Then::Goes);
        assert_eq!(press(&mut screen, KeyCode::Char('q')), Then::Ends);
        assert_eq!(screen.press(KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL)), Then::Ends);
    }
    #[test]
    fn bytes_fit_into_five_columns() {
        let shown = [0.0, 999.0, 1023.9, 10_200.0, 1.5 * f64::from(1 << 20), 63e9, 1e16, 1e18].map(short);
        assert_eq!(shown, ["0", "999", "1.0K", "10K", "1.5M", "59G", "8.9P", "888P"]);
    }
}
