//! Synthetic digits: seven segments, drawn with jitter and noise.
//!
//! Like the road scenes, they were fixed before anything was trained on them; a checksum pins them.

use super::{Classification, Element, Labelled, LoadNotes, Random, classify::Moments};

const SIDE: usize = 28;

/// Segments from (row, column) to (row, column) on a grid of 3 × 2 corners, and for each digit which of them shine.
const SEGMENTS: [[[i32; 2]; 2]; 7] = [
    [[0, 0], [0, 1]],
    [[0, 0], [1, 0]],
    [[0, 1], [1, 1]],
    [[1, 0], [1, 1]],
    [[1, 0], [2, 0]],
    [[1, 1], [2, 1]],
    [[2, 0], [2, 1]],
];
const DIGITS: [&[usize]; 10] = [
    &[0, 1, 2, 4, 5, 6],
    &[2, 5],
    &[0, 2, 3, 4, 6],
    &[0, 2, 3, 5, 6],
    &[1, 2, 3, 5],
    &[0, 1, 3, 5, 6],
    &[0, 1, 3, 4, 5, 6],
    &[0, 2, 5],
    &[0, 1, 2, 3, 4, 5, 6],
    &[0, 1, 2, 3, 5, 6],
];

/// Generates the synthetic data set of digits.
pub(super) fn labelled(seed: u64) -> Labelled {
    let train = part(&[seed, 2], 2000);
    let [mean, deviation] = Moments::measure(train.features.memory()).mean_and_deviation();
    Labelled {
        name: "synthetic".into(),
        classes: (0..DIGITS.len()).map(|digit| digit.to_string()).collect(),
        mean,
        deviation,
        channels: None,
        columns: Vec::new(),
        train,
        validation: Some(part(&[seed, 4], 500)),
        test: part(&[seed, 3], 500),
        notes: LoadNotes::default(),
    }
}

fn part(key: &[u64; 2], count: usize) -> Classification {
    let (mut features, mut labels) = (Vec::new(), Vec::new());
    for number in 0..count {
        let mut random = Random::from_key(&[key[0], key[1], number as u64]);
        let digit = random.below(DIGITS.len());
        features.extend(draw(&mut random, digit));
        labels.push(u32::try_from(digit).unwrap_or(u32::MAX));
    }
    let (features, element) = (features.into(), Element::Byte);
    Classification {
        count,
        height: SIDE,
        width: SIDE,
        channels: 1,
        element,
        features,
        labels,
        classes: DIGITS.len(),
        crop: None,
    }
}

/// Draws the image of a digit. Coordinates are in 16ths of a pixel.
fn draw(random: &mut Random, digit: usize) -> Vec<u8> {
    // About centred, as MNIST's are.
    let (top, left) = (random.between(72, 104), random.between(120, 168));
    let (height, width) = (random.between(110, 150), random.between(100, 140));
    let slant = random.between(-32, 32);
    let mut corner = |[row, column]: [i32; 2]| {
        let lean = slant * (1 - row);
        let y = top + row * height + random.between(-16, 16);
        [y, left + column * width + lean + random.between(-16, 16)]
    };
    let corners = [[0, 0], [0, 1], [1, 0], [1, 1], [2, 0], [2, 1]].map(&mut corner);
    let at = |[row, column]: [i32; 2]| corners[usize::try_from(2 * row + column).unwrap_or(0)];
    let (thick, light) = (random.between(14, 34), random.between(110, 230));
    let mut image = Vec::with_capacity(SIDE * SIDE);
    for place in 0..SIDE * SIDE {
        let [y, x] = [place / SIDE, place % SIDE].map(|i| 16 * i32::try_from(i).unwrap_or(0) + 8);
        let near = |&segment: &usize| distance([y, x], SEGMENTS[segment].map(at)) <= thick;
        let ink = if DIGITS[digit].iter().any(near) { light } else { 16 };
        let value = ink + random.between(-30, 30) + random.between(-30, 30);
        image.push(u8::try_from(value.clamp(0, 255)).unwrap_or(u8::MAX));
    }
    image
}

/// Returns the distance of a point from a line segment, rounded to units.
fn distance([y, x]: [i32; 2], [[y0, x0], [y1, x1]]: [[i32; 2]; 2]) -> i32 {
    let (dy, dx) = (y1 - y0, x1 - x0);
    let length = (dy * dy + dx * dx).max(1);
    let along = ((y - y0) * dy + (x - x0) * dx).clamp(0, length);
    let (y, x) = (y - y0 - dy * along / length, x - x0 - dx * along / length);
    (y * y + x * x).isqrt()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn same_seed_same_bytes() {
        let data = labelled(0);
        assert_eq!(data, labelled(0));
        let mut crc = flate2::Crc::new();
        for part in [&data.train, &data.test] {
            crc.update(part.features.memory());
            crc.update(&part.labels.iter().map(|label| u8::try_from(*label).expect("a digit")).collect::<Vec<_>>());
        }
        assert_eq!(format!("{:08x}", crc.sum()), "a57eb092");
        assert_ne!(data.train, labelled(1).train);
        assert_ne!(data.train.features.memory()[..1000], data.test.features.memory()[..1000]);
    }

    #[test]
    fn every_digit_is_as_frequent() {
        let mut counts = [0; 10];
        labelled(0).train.labels.iter().for_each(|&label| counts[label as usize] += 1);
        // 200 each; five standard deviations.
        assert!(counts.iter().all(|count| (133..267).contains(count)), "{counts:?}");
    }
}
