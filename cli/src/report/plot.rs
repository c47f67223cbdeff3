//! Two kinds of chart: lines over an axis, and a row for each name.

use super::{
    axis::Axis,
    svg::{Point, Svg},
    text::fitted,
};

/// Width of a chart in its units, which are about pixels on a phone.
pub const WIDTH: f64 = 400.0;

/// SVG plot with a horizontal and a vertical axis.
#[derive(Debug)]
pub struct Plot {
    pub svg: Svg,
    pub x: Axis,
    pub y: Axis,
}

impl Plot {
    /// Creates a plot with names of its axes.
    pub fn new(x: Axis, y: Axis, x_name: &str, y_name: &str) -> Self {
        let (height, left, right, top, bottom) = (250.0, 46.0, 8.0, 20.0, 34.0);
        let mut plot =
            Self::framed((WIDTH, height), x.placed(left, WIDTH - right), y.placed(height - bottom, top), 5.0);
        plot.svg.text("name", (2.0, 11.0), y_name);
        plot.svg.text("name middle", ((left + WIDTH - right) / 2.0, height - 4.0), x_name);
        plot
    }

    /// Creates a small plot for a grid of plots.
    pub fn small(x: Axis, y: Axis) -> Self {
        Self::framed((200.0, 122.0), x.placed(30.0, 194.0), y.placed(102.0, 6.0), 4.0)
    }

    fn framed((width, height): Point, x: Axis, y: Axis, count: f64) -> Self {
        let mut svg = Svg::new(width, height);
        for tick in y.ticks(count) {
            svg.line("grid", (x.from, y.at(tick)), (x.to, y.at(tick)));
            svg.text("tick end", (x.from - 5.0, y.at(tick) + 3.5), &y.label(tick));
        }
        for tick in x.ticks(count) {
            let at = x.at(tick);
            svg.line("axis", (at, y.from), (at, y.from + 3.0));
            // The last label would leave the drawing.
            let class = if at > width - 16.0 { "tick end" } else { "tick middle" };
            svg.text(class, (if at > width - 16.0 { width } else { at }, y.from + 15.0), &x.label(tick));
        }
        svg.line("axis", (x.from, y.from), (x.to, y.from));
        Self { svg, x, y }
    }

    /// Draws a line through points of the plot.
    pub fn line(&mut self, class: &str, points: &[Point]) {
        let placed: Vec<Point> = points.iter().map(|&(x, y)| (self.x.at(x), self.y.at(y))).collect();
        self.svg.path(class, &placed);
    }

    /// Draws a band; points are x, lower and upper end.
    pub fn band(&mut self, class: &str, points: &[(f64, f64, f64)]) {
        let finite = |(x, low, high): &&(f64, f64, f64)| x.is_finite() && low.is_finite() && high.is_finite();
        let side = |high: bool| -> Vec<Point> {
            let end = |&(x, low, top): &(f64, f64, f64)| (self.x.at(x), self.y.at(if high { top } else { low }));
            points.iter().filter(finite).map(end).collect()
        };
        self.svg.area(class, &side(true), &side(false));
    }
}

/// Plot with a row for each name, for bars and dots.
#[derive(Debug)]
pub struct RowPlot {
    pub svg: Svg,
    pub x: Axis,
    bottom: f64,
    pitch: f64,
}

const TOP: f64 = 8.0;
/// Maximum number of characters of a printed name.
const MAX_LABEL_CHARS: usize = 24;

impl RowPlot {
    /// Creates a plot of rows with names, and a named axis below.
    pub fn new(names: &[&str], x: Axis, x_name: &str) -> Self {
        let longest = names.iter().map(|name| name.chars().count()).max().unwrap_or(0);
        let left = (6.2 * longest.min(MAX_LABEL_CHARS) as f64 + 14.0).max(40.0);
        // Few rows are as high as other charts.
        let pitch = (196.0 / names.len().max(1) as f64).clamp(19.0, 34.0);
        let bottom = TOP + pitch * names.len() as f64;
        let mut svg = Svg::new(WIDTH, bottom + 36.0);
        let x = x.placed(left, WIDTH - 12.0);
        for tick in x.ticks(5.0) {
            svg.line("grid", (x.at(tick), TOP), (x.at(tick), bottom));
            svg.text("tick middle", (x.at(tick), bottom + 15.0), &x.label(tick));
        }
        svg.line("axis", (left, bottom), (WIDTH - 12.0, bottom));
        svg.text("name middle", (f64::midpoint(left, WIDTH - 12.0), bottom + 31.0), x_name);
        let rows = Self { svg, x, bottom, pitch };
        names.iter().enumerate().fold(rows, |mut rows, (i, name)| {
            let y = rows.y(i) + 3.8;
            rows.svg.text("row end", (left - 9.0, y), &fitted(name, MAX_LABEL_CHARS));
            rows
        })
    }

    /// Returns the vertical coordinate of the middle of a row.
    pub fn y(&self, row: usize) -> f64 {
        TOP + self.pitch * (row as f64 + 0.5)
    }

    /// Returns half the height of a row's bar.
    pub fn half(&self) -> f64 {
        (0.32 * self.pitch).min(8.0)
    }

    /// Draws a vertical line at a value through all rows.
    pub fn mark(&mut self, class: &str, value: f64) {
        let x = self.x.at(value);
        self.svg.line(class, (x, TOP), (x, self.bottom));
    }
}
