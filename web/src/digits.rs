//! Handwritten digits as strokes, random distortions of these strokes, and their rendering as images.
//!
//! There is no data set. Ten skeletons, some of them in two shapes, are randomly slanted, stretched, rotated and bent.
//! A visitor's drawing is a list of strokes too and is rendered by the same pen, so the network sees it like its
//! training digits.

use gradscale::data::Random;

/// Number of pixels along each side of an image.
pub const SIDE: usize = 16;

/// Number of pixels of an image of a digit.
pub const PIXELS: usize = SIDE * SIDE;

/// Longer side of a centered digit, in pixels.
const DIGIT_SIDE: f32 = 12.0;

/// Default half width of a pen, in pixels.
pub const PEN: f32 = 0.85;

/// Point of a drawing: x to the right, y down.
pub type Point = [f32; 2];

/// Stroke of a pen: the points between touching and lifting.
pub type Stroke = Vec<Point>;

/// Returns `count` images, concatenated, and their digits. Equal keys return equal batches.
#[must_use]
pub fn batch(count: usize, key: u64) -> (Vec<f32>, Vec<u8>) {
    let (mut images, mut labels) = (Vec::with_capacity(count * PIXELS), Vec::with_capacity(count));
    for example in 0..count as u64 {
        let mut random = Random::from_key(&[key, example]);
        let [digit, ..] = random.below(10).to_le_bytes();
        let strokes = written(digit, &mut random);
        let pen = PEN + 0.3 * symmetric(&mut random);
        images.extend(image(&strokes, pen));
        labels.push(digit);
    }
    (images, labels)
}

/// Renders strokes as an image, from 0 (paper) to 1 (ink). The drawing is scaled and centered. Without strokes, or if a
/// coordinate is not finite, the image is paper only.
#[must_use]
pub fn image(strokes: &[Stroke], pen: f32) -> [f32; PIXELS] {
    let mut pixels = [0f32; PIXELS];
    let points = || strokes.iter().flatten().copied();
    if points().next().is_none() || points().flatten().any(|at| !at.is_finite() || at.abs() > 1e6) {
        return pixels;
    }
    let (mut least, mut most) = ([f32::INFINITY; 2], [f32::NEG_INFINITY; 2]);
    for point in points() {
        for axis in 0..2 {
            least[axis] = least[axis].min(point[axis]);
            most[axis] = most[axis].max(point[axis]);
        }
    }
    // A drawing of a single point has no extent; the minimum keeps its scale finite.
    let size = (most[0] - least[0]).max(most[1] - least[1]).max(1e-3);
    let place = |point: Point| -> Point {
        let along = |axis: usize| {
            (point[axis] - (least[axis] + most[axis]) / 2.0) / size * (DIGIT_SIDE - 1.0) + SIDE as f32 / 2.0
        };
        [along(0), along(1)]
    };
    for stroke in strokes {
        let placed: Stroke = stroke.iter().copied().map(place).collect();
        match placed.as_slice() {
            [dot] => ink(&mut pixels, [*dot, *dot], pen),
            line => line.windows(2).for_each(|ends| ink(&mut pixels, [ends[0], ends[1]], pen)),
        }
    }
    pixels
}

/// Draws a straight line into an image of a digit.
fn ink(pixels: &mut [f32; PIXELS], [from, to]: [Point; 2], pen: f32) {
    let [dx, dy] = [to[0] - from[0], to[1] - from[1]];
    let length = (dx * dx + dy * dy).max(1e-12);
    for (i, pixel) in pixels.iter_mut().enumerate() {
        // Center of the pixel.
        let [x, y] = [(i % SIDE) as f32 + 0.5, (i / SIDE) as f32 + 0.5];
        let along = (((x - from[0]) * dx + (y - from[1]) * dy) / length).clamp(0.0, 1.0);
        let [x, y] = [x - from[0] - along * dx, y - from[1] - along * dy];
        *pixel = pixel.max((pen + 0.5 - (x * x + y * y).sqrt()).clamp(0.0, 1.0));
    }
}

/// Returns the strokes of a randomly distorted handwritten digit.
#[must_use]
pub fn written(digit: u8, random: &mut Random) -> Vec<Stroke> {
    let mut strokes = skeleton(digit, random);
    let [turn, slant] = [0.25 * symmetric(random), 0.35 * symmetric(random)];
    let stretch = 0.75 + 0.25 * symmetric(random);
    let waves: [[f32; 3]; 2] = [(); 2].map(|()| {
        let [height, phase] = [0.08 * symmetric(random), 3.0 * symmetric(random)];
        [height, 4.0 + 2.0 * symmetric(random), phase]
    });
    for point in strokes.iter_mut().flatten() {
        let [x, y] = [point[0] - 0.5, point[1] - 0.5];
        let wave = |[height, number, phase]: [f32; 3], at: f32| height * (number * at + phase).sin();
        let [x, y] = [(x + wave(waves[0], y)) * stretch - slant * y, y + wave(waves[1], x)];
        *point = [x * turn.cos() - y * turn.sin(), x * turn.sin() + y * turn.cos()];
    }
    strokes
}

/// Returns a random number in [−1, 1).
#[expect(clippy::cast_possible_truncation, reason = "any number near it does")]
fn symmetric(random: &mut Random) -> f32 {
    (2.0 * random.uniform() - 1.0) as f32
}

/// Returns a stroke along part of an ellipse, in degrees from the right over the bottom.
fn arc(middle: Point, radius: Point, from: f32, to: f32) -> Stroke {
    const PARTS: u8 = 14;
    let at = |i: u8| (from + (to - from) * f32::from(i) / f32::from(PARTS)).to_radians();
    (0..=PARTS).map(|i| [middle[0] + radius[0] * at(i).cos(), middle[1] + radius[1] * at(i).sin()]).collect()
}

/// Returns the strokes of a digit in a square of side 1, in one of the shapes that it has.
fn skeleton(digit: u8, random: &mut Random) -> Vec<Stroke> {
    let other = random.below(2) == 1;
    // The length of curves varies at random.
    let [a, b] = [symmetric(random), symmetric(random)];
    match digit {
        0 => vec![arc([0.5, 0.5], [0.36 + 0.06 * a, 0.5], -90.0 + 20.0 * b, 270.0 + 30.0 * b)],
        1 if other => vec![vec![[0.3 + 0.08 * a, 0.22 + 0.06 * b], [0.5, 0.0], [0.5, 1.0]]],
        1 => vec![vec![[0.5, 0.0], [0.5, 1.0]]],
        2 => {
            let mut stroke = arc([0.5, 0.28], [0.33, 0.28], 190.0 + 15.0 * a, 400.0 + 10.0 * b);
            stroke.extend([[0.14, 1.0], [0.88, 0.98 + 0.04 * a]]);
            vec![stroke]
        }
        3 => {
            let mut stroke = arc([0.45, 0.26], [0.32 + 0.03 * a, 0.26], 205.0 + 15.0 * b, 450.0);
            stroke.extend(arc([0.45, 0.76], [0.36 + 0.03 * b, 0.24], 270.0, 510.0 + 20.0 * a));
            vec![stroke]
        }
        4 if other => {
            let down = vec![[0.68, 0.0], [0.66 + 0.04 * a, 1.0]];
            vec![vec![[0.68, 0.0], [0.1, 0.64 + 0.05 * b], [0.95, 0.64 + 0.05 * a]], down]
        }
        4 => {
            let across = 0.55 + 0.06 * a;
            vec![vec![[0.22, 0.0], [0.15 + 0.05 * b, across], [0.9, across]], vec![[0.7, 0.1 + 0.1 * b], [0.68, 1.0]]]
        }
        5 => {
            let mut stroke = vec![[0.8, 0.02 * a], [0.27, 0.0], [0.22, 0.44]];
            stroke.extend(arc([0.45, 0.68], [0.35, 0.32], 232.0, 510.0 + 20.0 * b));
            vec![stroke]
        }
        6 => {
            let mut stroke = vec![[0.7 + 0.08 * a, 0.0], [0.42, 0.18], [0.25, 0.45]];
            stroke.extend(arc([0.5, 0.72], [0.3 + 0.03 * b, 0.28], 190.0, -180.0 + 20.0 * a));
            vec![stroke]
        }
        7 => {
            let mut strokes = vec![vec![[0.12, 0.03 * a], [0.86, 0.0], [0.42 + 0.1 * b, 1.0]]];
            if other {
                strokes.push(vec![[0.38, 0.5], [0.8, 0.48 + 0.05 * a]]);
            }
            strokes
        }
        8 => {
            let [waist, narrow] = [0.48 + 0.05 * a, 0.27 + 0.04 * b];
            let lower = (1.0 - waist) / 2.0;
            vec![
                arc([0.5, waist / 2.0], [narrow, waist / 2.0], 90.0, 450.0),
                arc([0.5, 1.0 - lower], [0.33, lower], -90.0, 270.0),
            ]
        }
        _ => {
            let mut stroke = arc([0.48, 0.28], [0.3 + 0.03 * a, 0.28], 0.0, -360.0);
            stroke.extend(if other {
                vec![[0.76, 0.7], [0.7, 1.0]]
            } else {
                vec![[0.78, 0.72], [0.6, 0.97], [0.3, 0.92]]
            });
            vec![stroke]
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_is_that_of_its_key() {
        let (images, labels) = batch(200, 7);
        assert_eq!((images.len(), labels.len()), (200 * PIXELS, 200));
        assert_eq!((images.clone(), labels.clone()), batch(200, 7));
        assert_ne!(images, batch(200, 8).0);
        assert!(images.iter().all(|ink| (0.0..=1.0).contains(ink)));
        assert!((0..10).all(|digit| labels.contains(&digit)));
        // Every image has both ink and paper.
        for image in images.chunks(PIXELS) {
            let inked = image.iter().filter(|ink| **ink > 0.5).count();
            assert!((8..160).contains(&inked), "{inked}");
        }
    }

    #[test]
    fn size_and_place_of_a_drawing_do_not_matter() {
        let one = written(5, &mut Random::from_key(&[1]));
        let other: Vec<Stroke> =
            one.iter().map(|stroke| stroke.iter().map(|[x, y]| [300.0 + 64.0 * x, 64.0 * y - 5.0]).collect()).collect();
        let [one, other] = [one, other].map(|strokes| image(&strokes, PEN));
        assert!(one.iter().zip(&other).all(|(a, b)| (a - b).abs() < 1e-3));
        // The digit does not touch the border.
        assert!((0..SIDE).all(|i| one[i] == 0.0 && one[i * SIDE] == 0.0 && one[PIXELS - 1 - i] == 0.0));
    }

    #[test]
    fn what_is_no_drawing_is_paper() {
        for strokes in [vec![], vec![vec![]], vec![vec![[f32::NAN, 0.0]]], vec![vec![[0.0, 0.0], [1e30, 0.0]]]] {
            assert_eq!(image(&strokes, PEN), [0.0; PIXELS]);
        }
        assert!(image(&[vec![[3.0, 3.0]]], PEN).iter().any(|ink| *ink > 0.5), "a dot");
    }
}
