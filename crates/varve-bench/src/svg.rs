//! Lines against time, as a picture: panels one below the other, with the same time and a legend. Moments are
//! marked in all of them.

use std::fmt::Write;

const WIDTH: f64 = 960.0;
const PANEL: f64 = 200.0;
const LEFT: f64 = 80.0;
const RIGHT: f64 = 20.0;
const TOP: f64 = 34.0;
const COLOURS: [&str; 4] = ["#1f6feb", "#d1570c", "#2a8a3e", "#7a3fb0"];

pub struct Panel {
    pub title: String,
    pub lines: Vec<Line>,
}

impl Panel {
    /// A line for each of what was measured.
    pub fn of<T>(title: &str, measured: &[T], line: impl Fn(&T) -> Line) -> Panel {
        Panel {
            title: title.into(),
            lines: measured.iter().map(line).collect(),
        }
    }
}

pub struct Line {
    pub name: String,
    /// Seconds, and values from 0 on.
    pub points: Vec<(f64, f64)>,
}

/// A moment, marked by a vertical line in each panel and named in the first.
pub struct Mark {
    pub name: String,
    pub seconds: f64,
    /// It has the colour of this line of each panel.
    pub line: usize,
}

/// The picture. Names may have any characters.
pub fn render(panels: &[Panel], marks: &[Mark]) -> String {
    let height = panels.len() as f64 * (PANEL + TOP) + 30.0;
    let lines = || panels.iter().flat_map(|panel| &panel.lines);
    let end = greatest(lines().flat_map(|line| line.points.iter().map(|p| p.0)));
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{height}\" font-family=\"sans-serif\" font-size=\"12\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n"
    );
    for (n, panel) in panels.iter().enumerate() {
        let top = n as f64 * (PANEL + TOP) + TOP;
        draw(&mut out, panel, top, end);
        for mark in marks {
            draw_mark(&mut out, mark, top, end);
        }
    }
    for (n, mark) in marks.iter().enumerate() {
        name_mark(&mut out, mark, n, end);
    }
    out.push_str("</svg>\n");
    out
}

fn x(seconds: f64, end: f64) -> f64 {
    LEFT + seconds / end * (WIDTH - LEFT - RIGHT)
}

fn colour(line: usize) -> &'static str {
    COLOURS[line % COLOURS.len()]
}

fn draw_mark(out: &mut String, mark: &Mark, top: f64, end: f64) {
    put(
        out,
        format_args!(
            "<line x1=\"{at:.1}\" x2=\"{at:.1}\" y1=\"{top}\" y2=\"{:.1}\" stroke=\"{}\" stroke-dasharray=\"4 3\"/>",
            top + PANEL,
            colour(mark.line),
            at = x(mark.seconds, end),
        ),
    );
}

/// Names stand one below the other, because their moments may lie close together.
fn name_mark(out: &mut String, mark: &Mark, n: usize, end: f64) {
    let (beside, anchor) = match mark.seconds < 0.8 * end {
        true => (4.0, "start"),
        false => (-4.0, "end"),
    };
    put(
        out,
        format_args!(
            "<text x=\"{:.1}\" y=\"{:.1}\" fill=\"{}\" text-anchor=\"{anchor}\">{}</text>",
            x(mark.seconds, end) + beside,
            TOP + 14.0 * (n + 1) as f64,
            colour(mark.line),
            escaped(&mark.name),
        ),
    );
}

fn draw(out: &mut String, panel: &Panel, top: f64, end: f64) {
    let values = panel.lines.iter().flat_map(|line| &line.points);
    let most = round_up(greatest(values.map(|p| p.1)));
    let x = |seconds: f64| x(seconds, end);
    let y = |value: f64| top + PANEL - value / most * PANEL;
    for step in 0..=4 {
        let (value, time) = (most * f64::from(step) / 4.0, end * f64::from(step) / 4.0);
        let (at, below) = (y(value), top + PANEL + 14.0);
        put(
            out,
            format_args!(
                "<line x1=\"{LEFT}\" x2=\"{:.1}\" y1=\"{at:.1}\" y2=\"{at:.1}\" stroke=\"#ddd\"/>\
                 <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{value}</text>\
                 <text x=\"{:.1}\" y=\"{below:.1}\" text-anchor=\"middle\">{time:.0} s</text>",
                WIDTH - RIGHT,
                LEFT - 6.0,
                at + 4.0,
                x(time),
            ),
        );
    }
    let title = escaped(&panel.title);
    put(
        out,
        format_args!(
            "<text x=\"{LEFT}\" y=\"{:.1}\" font-weight=\"bold\">{title}</text>",
            top - 8.0
        ),
    );
    for (n, line) in panel.lines.iter().enumerate() {
        let colour = colour(n);
        let points = line
            .points
            .iter()
            .map(|p| format!("{:.1},{:.1}", x(p.0), y(p.1)));
        let points: Vec<String> = points.collect();
        put(
            out,
            format_args!(
                "<polyline fill=\"none\" stroke=\"{colour}\" stroke-width=\"1.2\" points=\"{}\"/>\
                 <text x=\"{:.1}\" y=\"{:.1}\" fill=\"{colour}\" text-anchor=\"end\">{}</text>",
                points.join(" "),
                WIDTH - RIGHT - 100.0 * n as f64,
                top - 8.0,
                escaped(&line.name),
            ),
        );
    }
}

fn put(out: &mut String, element: std::fmt::Arguments<'_>) {
    writeln!(out, "{element}").expect("a string takes everything");
}

fn greatest(values: impl Iterator<Item = f64>) -> f64 {
    values.fold(0.0, f64::max).max(1.0)
}

/// To one, two or five times a power of ten.
fn round_up(value: f64) -> f64 {
    let power = 10f64.powf(value.log10().floor());
    let steps = [1.0, 2.0, 5.0, 10.0].map(|step| step * power);
    steps
        .into_iter()
        .find(|step| *step >= value)
        .unwrap_or(value)
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scales_end_at_round_values() {
        for (value, end) in [(1.0, 1.0), (1.1, 2.0), (437.0, 500.0), (5001.0, 10_000.0)] {
            assert_eq!(round_up(value), end);
        }
    }

    #[test]
    fn every_point_is_in_its_panel() {
        let line = |points: &[(f64, f64)]| Line {
            name: "a < b & c".into(),
            points: points.to_vec(),
        };
        let panel = |points: &[(f64, f64)]| Panel {
            title: "p".into(),
            lines: vec![line(points)],
        };
        let panels = [panel(&[(0.0, 0.0), (10.0, 4.0)]), panel(&[(5.0, 1.0)])];
        let picture = render(&panels, &[]);
        assert!(picture.contains("a &lt; b &amp; c"));
        // The first goes from the lower left to four fifths of the height at the right.
        assert!(
            picture.contains("points=\"80.0,234.0 940.0,74.0\""),
            "{picture}"
        );
        assert!(picture.contains("points=\"510.0,268.0\""), "{picture}");
        assert!(
            render(&[panel(&[])], &[]).ends_with("</svg>\n"),
            "nothing to draw"
        );
    }

    #[test]
    fn a_mark_crosses_every_panel_and_is_named_once() {
        let panel = || Panel {
            title: "p".into(),
            lines: vec![Line {
                name: "l".into(),
                points: vec![(10.0, 1.0)],
            }],
        };
        let mark = Mark {
            name: "opened".into(),
            seconds: 5.0,
            line: 1,
        };
        let picture = render(&[panel(), panel()], &[mark]);
        let crossing = format!("stroke=\"{}\" stroke-dasharray", COLOURS[1]);
        assert_eq!(picture.matches(&crossing).count(), 2, "{picture}");
        assert_eq!(picture.matches("x1=\"510.0\" x2=\"510.0\"").count(), 2);
        assert_eq!(picture.matches(">opened<").count(), 1);
    }
}
