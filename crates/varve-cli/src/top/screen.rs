//! What is drawn: the verdict, numbers of now, plots of the last minutes, and a table.

use std::time::Duration;

use ratatui::Frame;
use ratatui::layout::{Alignment, Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::symbols::Marker;
use ratatui::text::{Line, Span};
use ratatui::widgets::{Axis, Block, Borders, Chart, Dataset, GraphType, Paragraph, Wrap};
use serde_json::Value;
use varve_monitor::text;

use super::series::{Reading, SHOWN, Series, list};
use super::tables::{self, Shown};

/// Everything that a screen is made from.
#[derive(Default)]
pub struct View {
    pub state: Value,
    pub series: Series,
    pub table: Shown,
    /// Why there is nothing newer.
    pub error: Option<String>,
    pub paused: bool,
    /// What a program that plays something says of it.
    pub note: Option<String>,
}

#[derive(Clone, Copy)]
pub enum Unit {
    Count,
    Rate,
    Bytes,
    ByteRate,
    Percent,
    Seconds,
}

impl Unit {
    fn text(self, value: f64) -> String {
        let whole = value.round().max(0.0) as u64;
        match self {
            Unit::Count => text::count(whole),
            Unit::Rate => format!("{}/s", text::count(whole)),
            Unit::Bytes => text::bytes(whole),
            Unit::ByteRate => format!("{}/s", text::bytes(whole)),
            Unit::Percent => format!("{value:.1} %"),
            Unit::Seconds => text::time(Duration::from_secs(whole)),
        }
    }
}

type Number = (&'static str, Unit, Reading);

const NUMBERS: [Number; 6] = [
    ("Commits", Unit::Rate, Reading::Rate("commits")),
    ("History", Unit::Count, Reading::Now("history_list_length")),
    (
        "Oldest snapshot",
        Unit::Seconds,
        Reading::Now("oldest_view_seconds"),
    ),
    (
        "Kept for snapshots",
        Unit::Bytes,
        Reading::Now("history_store_bytes"),
    ),
    (
        "Redo log in use",
        Unit::Percent,
        Reading::Share("checkpoint_age", "checkpoint_max_age"),
    ),
    (
        "Changed pages",
        Unit::Percent,
        Reading::Share("buffer_pool_pages_dirty", "buffer_pool_pages_total"),
    ),
];

struct Plot {
    title: &'static str,
    unit: Unit,
    lines: &'static [(&'static str, Color, Reading)],
}

/// In the order in which they are left out on a small screen, the last ones first.
const PLOTS: [Plot; 9] = [
    Plot {
        title: "Transactions",
        unit: Unit::Rate,
        lines: &[
            ("commits", Color::Cyan, Reading::Rate("commits")),
            ("rollbacks", Color::Red, Reading::Rate("rollbacks")),
        ],
    },
    Plot {
        title: "History that waits for purge",
        unit: Unit::Count,
        lines: &[(
            "length",
            Color::Magenta,
            Reading::Now("history_list_length"),
        )],
    },
    Plot {
        title: "Old versions kept",
        unit: Unit::Bytes,
        lines: &[
            ("undo", Color::Cyan, Reading::Pages("undo_pages_used")),
            ("store", Color::Green, Reading::Now("history_store_bytes")),
        ],
    },
    Plot {
        title: "Checkpoint age",
        unit: Unit::Bytes,
        lines: &[
            ("age", Color::Cyan, Reading::Now("checkpoint_age")),
            (
                "faster from",
                Color::Yellow,
                Reading::Now("checkpoint_age_async"),
            ),
        ],
    },
    Plot {
        title: "Purged transactions",
        unit: Unit::Rate,
        lines: &[("purged", Color::Green, Reading::Rate("purged_logs"))],
    },
    Plot {
        title: "Waits for row locks",
        unit: Unit::Rate,
        lines: &[("begun", Color::Red, Reading::Rate("row_lock_waits"))],
    },
    Plot {
        title: "Changed pages",
        unit: Unit::Count,
        lines: &[(
            "dirty",
            Color::Yellow,
            Reading::Now("buffer_pool_pages_dirty"),
        )],
    },
    Plot {
        title: "Redo written",
        unit: Unit::ByteRate,
        lines: &[("redo", Color::Cyan, Reading::Rate("os_log_written"))],
    },
    Plot {
        title: "Pages found in the pool",
        unit: Unit::Percent,
        lines: &[("hit rate", Color::Green, Reading::HitRate)],
    },
];

const PLOT_LINES: u16 = 8;
const PLOT_COLUMNS: u16 = 38;
const TABLE_LINES: u16 = 6;

pub fn draw(frame: &mut Frame<'_>, view: &View) {
    let area = frame.area();
    let findings = findings(view);
    let verdict_lines = lines_of(&findings, area.width);
    let verdict = Paragraph::new(findings).wrap(Wrap { trim: true });
    let rest = area.height.saturating_sub(1 + verdict_lines + 2 + 1);
    let across = (area.width / PLOT_COLUMNS).clamp(1, 3);
    let fit = rest.saturating_sub(TABLE_LINES) / PLOT_LINES;
    let down = fit.min((PLOTS.len() as u16).div_ceil(across));
    let [head, said, numbers, plots, table, keys] = Layout::vertical([
        Constraint::Length(1),
        Constraint::Length(verdict_lines),
        Constraint::Length(2),
        Constraint::Length(down * PLOT_LINES),
        Constraint::Min(0),
        Constraint::Length(1),
    ])
    .areas(area);
    draw_head(frame, head, view);
    frame.render_widget(verdict, said);
    draw_numbers(frame, numbers, &view.series);
    draw_plots(frame, plots, &view.series, (across, down));
    tables::draw(frame, table, &view.state, view.table);
    let help = "q quit   p pause   Tab another table";
    frame.render_widget(Paragraph::new(help).style(faint()), keys);
}

/// How many lines they take, about: lines are broken between words. Six are read, more are not.
fn lines_of(findings: &[Line<'_>], columns: u16) -> u16 {
    let columns = usize::from(columns).saturating_sub(6).max(1);
    let lines = findings.iter().map(|line| line.width().div_ceil(columns));
    lines.sum::<usize>().clamp(1, 6) as u16
}

pub fn faint() -> Style {
    Style::new().fg(Color::DarkGray)
}

fn draw_head(frame: &mut Frame<'_>, area: Rect, view: &View) {
    let database = view.state["database"].as_str().unwrap_or_default();
    let mut left = vec![
        Span::styled("Varve ", Style::new().add_modifier(Modifier::BOLD)),
        Span::raw(database),
    ];
    if let Some(note) = &view.note {
        left.push(Span::styled(
            format!("   {note}"),
            Style::new().fg(Color::Yellow),
        ));
    }
    let right = match (&view.error, view.paused) {
        (Some(_), _) => Span::styled("no answer", Style::new().fg(Color::Red)),
        (None, true) => Span::styled("paused", Style::new().fg(Color::Yellow)),
        (None, false) => Span::styled("live", Style::new().fg(Color::Green)),
    };
    frame.render_widget(Line::from(left), area);
    frame.render_widget(Paragraph::new(right).alignment(Alignment::Right), area);
}

/// What is wrong, the worst first.
fn findings(view: &View) -> Vec<Line<'_>> {
    let mut lines = Vec::new();
    if let Some(error) = &view.error {
        lines.push(finding("No answer", Color::Red, error));
    }
    for found in list(&view.state["findings"]) {
        let (name, color) = match found["level"].as_str() {
            Some("bad") => ("Stands still", Color::Red),
            Some("warning") => ("Costs", Color::Yellow),
            Some("note") => ("Note", Color::Cyan),
            _ => ("Well", Color::Green),
        };
        let text = found["text"].as_str().unwrap_or_default();
        lines.push(finding(name, color, text));
    }
    lines
}

fn finding<'a>(name: &'a str, color: Color, text: &'a str) -> Line<'a> {
    let bold = Style::new().fg(color).add_modifier(Modifier::BOLD);
    Line::from(vec![
        Span::styled(name, bold),
        Span::raw("  "),
        Span::raw(text),
    ])
}

fn draw_numbers(frame: &mut Frame<'_>, area: Rect, series: &Series) {
    let shown = (area.width / 20).clamp(1, NUMBERS.len() as u16);
    let places = Layout::horizontal(vec![Constraint::Fill(1); usize::from(shown)]).split(area);
    for ((name, unit, reading), place) in NUMBERS.iter().zip(places.iter()) {
        let value = match series.now(*reading) {
            Some(value) => unit.text(value),
            None => "–".into(),
        };
        let bold = Style::new().add_modifier(Modifier::BOLD);
        let lines = vec![Line::styled(*name, faint()), Line::styled(value, bold)];
        frame.render_widget(Paragraph::new(lines), *place);
    }
}

fn draw_plots(frame: &mut Frame<'_>, area: Rect, series: &Series, (across, down): (u16, u16)) {
    let rows = Layout::vertical(vec![Constraint::Fill(1); usize::from(down)]).split(area);
    let places = rows.iter().flat_map(|row| {
        let cells = vec![Constraint::Fill(1); usize::from(across)];
        Layout::horizontal(cells).spacing(2).split(*row).to_vec()
    });
    for (plot, place) in PLOTS.iter().zip(places) {
        draw_plot(frame, place, plot, series);
    }
}

fn draw_plot(frame: &mut Frame<'_>, area: Rect, plot: &Plot, series: &Series) {
    // What there is fills the plot, once it is a minute.
    let shown = series.seconds().clamp(60.0, SHOWN);
    let lines = plot.lines.iter();
    let points: Vec<_> = lines
        .map(|(_, _, reading)| series.points(*reading))
        .collect();
    let values = points.iter().flatten().map(|(_, value)| *value);
    let most = values.fold(0.0, f64::max);
    let top = match plot.unit {
        Unit::Percent => 100.0,
        _ if most > 0.0 => most * 1.05,
        _ => 1.0,
    };
    let datasets = plot
        .lines
        .iter()
        .zip(&points)
        .map(|((_, color, _), points)| {
            Dataset::default()
                .marker(Marker::Braille)
                .graph_type(GraphType::Line)
                .style(Style::new().fg(*color))
                .data(points)
        });
    let mut title = vec![Span::raw(plot.title)];
    for ((label, color, reading), _) in plot.lines.iter().zip(&points) {
        let value = series.now(*reading).map(|value| plot.unit.text(value));
        let value = value.as_deref().unwrap_or("–");
        let label = match plot.lines {
            [_] => String::new(),
            _ => format!("{label} "),
        };
        let text = format!("  {label}{value}");
        title.push(Span::styled(text, Style::new().fg(*color)));
    }
    let marks = [String::new(), plot.unit.text(top)];
    let chart = Chart::new(datasets.collect())
        .block(Block::new().borders(Borders::TOP).title(Line::from(title)))
        .legend_position(None)
        .x_axis(Axis::default().bounds([-shown, 0.0]))
        .y_axis(
            Axis::default()
                .bounds([0.0, top])
                .labels(marks)
                .style(faint()),
        );
    frame.render_widget(chart, area);
}
