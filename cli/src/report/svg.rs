//! Drawings: a few SVG elements, coloured by classes.
//!
//! Not by a plotting library: `plotters` writes colours and sizes into its elements, and neither classes nor
//! tooltips. Here the page's style sheet decides, so one drawing serves the light page and the dark one.

use super::text::escape;

/// A place, in the units of the drawing: x to the right, y downward.
pub type Point = (f64, f64);

/// A drawing.
#[derive(Debug)]
pub struct Svg {
    width: f64,
    height: f64,
    body: String,
}

impl Svg {
    /// An empty one. It is shown as wide as its box.
    pub const fn new(width: f64, height: f64) -> Self {
        Self { width, height, body: String::new() }
    }

    /// A straight line.
    pub fn line(&mut self, class: &str, from: Point, to: Point) {
        self.path(class, &[from, to]);
    }

    /// Straight lines from each point to the next; a point that is not finite leaves a gap.
    pub fn path(&mut self, class: &str, points: &[Point]) {
        let finite = |point: &Point| point.0.is_finite() && point.1.is_finite();
        let pieces = points.split(|point| !finite(point)).filter(|piece| !piece.is_empty());
        let data: String = pieces.map(|piece| polyline(piece) + if piece.len() == 1 { "h0" } else { "" }).collect();
        if !data.is_empty() {
            self.body.push_str(&format!("<path class=\"{class}\" d=\"{data}\"/>"));
        }
    }

    /// What lies between two lines.
    pub fn area(&mut self, class: &str, upper: &[Point], lower: &[Point]) {
        let outline: Vec<Point> = upper.iter().chain(lower.iter().rev()).copied().collect();
        if !outline.is_empty() {
            self.body.push_str(&format!("<path class=\"{class}\" d=\"{}z\"/>", polyline(&outline)));
        }
    }

    /// A rectangle between two corners, with a tooltip.
    pub fn rect(&mut self, class: &str, from: Point, to: Point, tip: &str) {
        let (x, y) = (from.0.min(to.0), from.1.min(to.1));
        let (width, height) = ((to.0 - from.0).abs(), (to.1 - from.1).abs());
        if width > 0.0 && height > 0.0 {
            let [x, y, width, height] = [x, y, width, height].map(number);
            let place = format!("x=\"{x}\" y=\"{y}\" width=\"{width}\" height=\"{height}\"");
            self.element("rect", class, &place, tip);
        }
    }

    /// A dot, with a tooltip.
    pub fn dot(&mut self, class: &str, at: Point, radius: f64, tip: &str) {
        if at.0.is_finite() && at.1.is_finite() {
            let [x, y, radius] = [at.0, at.1, radius].map(number);
            self.element("circle", class, &format!("cx=\"{x}\" cy=\"{y}\" r=\"{radius}\""), tip);
        }
    }

    fn element(&mut self, name: &str, class: &str, place: &str, tip: &str) {
        let tip = if tip.is_empty() { String::new() } else { format!("<title>{}</title>", escape(tip)) };
        self.body.push_str(&format!("<{name} class=\"{class}\" {place}>{tip}</{name}>"));
    }

    /// Text; the class says where in it the point is (`start`, `middle`, `end`).
    pub fn text(&mut self, class: &str, at: Point, text: &str) {
        let [x, y] = [at.0, at.1].map(number);
        self.body.push_str(&format!("<text class=\"{class}\" x=\"{x}\" y=\"{y}\">{}</text>", escape(text)));
    }

    /// The element, with what it shows in words.
    pub fn finish(self, label: &str) -> String {
        let Self { width, height, body } = self;
        let label = escape(label);
        format!("<svg viewBox=\"0 0 {width} {height}\" role=\"img\" aria-label=\"{label}\">{body}</svg>\n")
    }
}

fn polyline(points: &[Point]) -> String {
    let mut data = String::from("M");
    for (i, &(x, y)) in points.iter().enumerate() {
        if i > 0 {
            data.push(' ');
        }
        data.push_str(&number(x));
        data.push(' ');
        data.push_str(&number(y));
    }
    data
}

/// To a tenth.
fn number(value: f64) -> String {
    let tenths = format!("{value:.1}");
    tenths.strip_suffix(".0").map_or_else(|| tenths.clone(), str::to_owned)
}
