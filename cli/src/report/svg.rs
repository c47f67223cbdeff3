//! Drawings: a few SVG elements, coloured by classes.
//!
//! A plotting library is not used: `plotters` writes colours and sizes into its elements, but neither classes nor
//! tooltips. Here the page's style sheet sets the colours, so one drawing serves the light and the dark page.

use super::text::escape;

/// Point in the units of the drawing: x to the right, y downward.
pub type Point = (f64, f64);

/// SVG drawing that is built element by element.
#[derive(Debug)]
pub struct Svg {
    width: f64,
    height: f64,
    body: String,
    /// Elements on top of all others: marks with a tooltip that appears on hover or tap.
    tips: String,
}

impl Svg {
    /// Creates an empty drawing, scaled to the width of its container.
    pub const fn new(width: f64, height: f64) -> Self {
        Self { width, height, body: String::new(), tips: String::new() }
    }

    /// Draws a straight line between two points.
    pub fn line(&mut self, class: &str, from: Point, to: Point) {
        self.path(class, &[from, to]);
    }

    /// Draws straight lines from each point to the next; a point that is not finite leaves a gap.
    pub fn path(&mut self, class: &str, points: &[Point]) {
        let finite = |point: &Point| point.0.is_finite() && point.1.is_finite();
        let pieces = points.split(|point| !finite(point)).filter(|piece| !piece.is_empty());
        let data: String = pieces.map(|piece| polyline(piece) + if piece.len() == 1 { "h0" } else { "" }).collect();
        if !data.is_empty() {
            self.body.push_str(&format!("<path class=\"{class}\" d=\"{data}\"/>"));
        }
    }

    /// Draws the area between an upper and a lower line.
    pub fn area(&mut self, class: &str, upper: &[Point], lower: &[Point]) {
        let outline: Vec<Point> = upper.iter().chain(lower.iter().rev()).copied().collect();
        if !outline.is_empty() {
            self.body.push_str(&format!("<path class=\"{class}\" d=\"{}z\"/>", polyline(&outline)));
        }
    }

    /// Draws a rectangle between two corners, with a tooltip.
    pub fn rect(&mut self, class: &str, from: Point, to: Point, tip: &str) {
        let (x, y) = (from.0.min(to.0), from.1.min(to.1));
        let (width, height) = ((to.0 - from.0).abs(), (to.1 - from.1).abs());
        if width > 0.0 && height > 0.0 {
            let [x, y, width, height] = [x, y, width, height].map(number);
            let place = format!("x=\"{x}\" y=\"{y}\" width=\"{width}\" height=\"{height}\"");
            self.body.push_str(&format!("<rect class=\"{class}\" {place}/>"));
            self.tip(&format!("<rect {place}/>"), (f64::midpoint(from.0, to.0), from.1.min(to.1)), tip);
        }
    }

    /// Draws a filled circle with a tooltip.
    pub fn dot(&mut self, class: &str, at: Point, radius: f64, tip: &str) {
        if at.0.is_finite() && at.1.is_finite() {
            let [x, y, radius] = [at.0, at.1, radius].map(number);
            self.body.push_str(&format!("<circle class=\"{class}\" cx=\"{x}\" cy=\"{y}\" r=\"{radius}\"/>"));
            // As large as a finger hits.
            self.tip(&format!("<circle cx=\"{x}\" cy=\"{y}\" r=\"8\"/>"), at, tip);
        }
    }

    /// Adds text above a place that is shown while the mark is pointed at, or after it was tapped. A tooltip of the
    /// browser's is never shown on a phone; nor does it take scripts this way.
    fn tip(&mut self, mark: &str, at: Point, tip: &str) {
        if tip.is_empty() {
            return;
        }
        // So far from both ends that it stays inside; a character is about 6.2 units wide.
        let half = (3.1 * tip.chars().count() as f64).min(self.width / 2.0);
        let x = number(at.0.clamp(half, self.width - half));
        let y = number(if at.1 < 22.0 { at.1 + 24.0 } else { at.1 - 8.0 });
        let text = format!("<text class=\"middle\" x=\"{x}\" y=\"{y}\">{}</text>", escape(tip));
        self.tips.push_str(&format!("<g class=\"tip\" tabindex=\"-1\">{mark}{text}</g>"));
    }

    /// Draws text; the class determines its anchor (`start`, `middle`, `end`).
    pub fn text(&mut self, class: &str, at: Point, text: &str) {
        let [x, y] = [at.0, at.1].map(number);
        self.body.push_str(&format!("<text class=\"{class}\" x=\"{x}\" y=\"{y}\">{}</text>", escape(text)));
    }

    /// Returns the finished SVG element, with a description in words.
    pub fn finish(self, label: &str) -> String {
        let Self { width, height, body, tips } = self;
        let label = escape(label);
        format!("<svg viewBox=\"0 0 {width} {height}\" role=\"img\" aria-label=\"{label}\">{body}{tips}</svg>\n")
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

/// Formats a coordinate of the drawing to a tenth.
fn number(value: f64) -> String {
    let tenths = format!("{value:.1}");
    tenths.strip_suffix(".0").map_or_else(|| tenths.clone(), str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_mark_says_is_drawn_last_and_stays_inside() {
        let mut svg = Svg::new(400.0, 100.0);
        svg.dot("fill", (395.0, 50.0), 3.0, "<conv1>, seed 0: 2¹⁷");
        svg.dot("fill", (200.0, 5.0), 3.0, "");
        svg.rect("bar", (0.0, 4.0), (10.0, 14.0), "left");
        let text = svg.finish("a drawing");
        let tips = text.find("<g class=\"tip\"").expect("marks that say something");
        assert!(text.rfind("class=\"bar\"").expect("a bar") < tips, "over everything: {text}");
        assert_eq!(text.matches("<g class=\"tip\" tabindex=\"-1\">").count(), 2, "{text}");
        // 20 characters are about 124 units wide.
        assert!(text.contains("<text class=\"middle\" x=\"338\" y=\"42\">&lt;conv1&gt;, seed 0: 2¹⁷</text>"), "{text}");
        assert!(text.contains("x=\"12.4\" y=\"28\">left</text>"), "below where there is no room above: {text}");
    }
}
