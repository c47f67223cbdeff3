//! Synthetic detection data: coloured shapes on a background of another colour, with noise.

use super::{Kept, Pictured};
use crate::{Random, Whole};
use gradscale::metrics::Truth;

/// Classes of synthetic pictures: the shapes that are drawn.
pub const CLASSES: [&str; 3] = ["disc", "square", "triangle"];
const COLOURS: [[i32; 3]; 3] = [[190, 60, 60], [70, 160, 80], [60, 80, 190]];
/// Number of synthetic pictures for training, and for each set of scores.
const COUNTS: [usize; 2] = [160, 40];
const ROWS: i32 = 96;
const COLUMNS: i32 = 128;
/// Maximum number of shapes in a synthetic picture.
const MAX_SHAPES: i32 = 6;
const SIDES: [i32; 2] = [14, 44];

/// Generates the synthetic training and test pictures; a seed always gives the same bytes.
pub fn pictures(seed: u64) -> [Vec<Pictured>; 2] {
    [0, 1].map(|part: u64| {
        let one = |i: usize| {
            picture(
                &mut Random::from_key(&[seed, part, i as u64]),
                format!("{}-{i}", ["train", "test"][usize::from(part == 1)]),
            )
        };
        (0..COUNTS[usize::from(part == 1)]).map(one).collect()
    })
}

fn picture(random: &mut Random, name: String) -> Pictured {
    let ground = [0; 3].map(|_: i32| random.between(120, 220));
    let mut colours = vec![ground; usize::try_from(ROWS * COLUMNS).unwrap_or(0)];
    let mut truths: Vec<Truth> = Vec::new();
    for _ in 0..random.between(1, MAX_SHAPES) {
        let (side, class) = (random.between(SIDES[0], SIDES[1]), random.below(CLASSES.len()));
        let (left, top) = (random.between(0, COLUMNS - side), random.between(0, ROWS - side));
        let share = |at: i32, of: i32| at as f32 / of as f32;
        let corners = [share(left, COLUMNS), share(top, ROWS), share(left + side, COLUMNS), share(top + side, ROWS)];
        // A later object would cover it.
        if truths.iter().any(|truth| gradscale::boxes::overlap(truth.corners, corners) > 0.0) {
            continue;
        }
        let colour = COLOURS[class].map(|value| value + random.between(-40, 40));
        for (y, x) in (0..side).flat_map(|y| (0..side).map(move |x| (y, x))) {
            let (from_x, from_y) = (2 * x + 1 - side, 2 * y + 1 - side);
            let inside = match class {
                0 => from_x * from_x + from_y * from_y <= side * side,
                1 => true,
                _ => from_x.abs() <= y + 1,
            };
            if let (true, Ok(at)) = (inside, usize::try_from((top + y) * COLUMNS + left + x)) {
                colours[at] = colour;
            }
        }
        truths.push(Truth { class: class + 1, corners, difficult: false });
    }
    let noisy = colours.iter().flatten().map(|value| (value + random.between(-12, 12)).clamp(0, 255));
    let pixels: Vec<u8> = noisy.map(|value| u8::try_from(value).unwrap_or(u8::MAX)).collect();
    let size = [ROWS, COLUMNS].map(|side| usize::try_from(side).unwrap_or(0));
    Pictured { name, truths, kept: Kept::Memory(Whole { pixels: pixels.into(), size, channels: 3 }) }
}
