//! Synthetic digits: seven segments, drawn with jitter and noise.
//!
//! Like the road scenes, they were fixed before anything was trained on them, but for the noise of the faint ones, which
//! the accuracy of f32 decided. Checksums pin them.

use super::{Classification, Element, Labelled, LoadNotes, Random, Sources, classify::Moments};

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
    let [train, validation, test] = [([seed, 2], 2000), ([seed, 4], 500), ([seed, 3], 500)]
        .map(|(key, count)| part(&key, count, SIDE, |_, image| image));
    described("synthetic", train, Some(validation), test)
}

/// Number of training and test images of [`with_bad_image`]: as many as in the study with photographs.
const BAD_IMAGE_COUNTS: [usize; 2] = [10_000, 1000];
/// Rows and columns of these images, of half the resolution of the others.
const FAINT_SIDE: usize = SIDE / 2;
/// Largest value of each of four uniform noises, whose sum has a standard deviation of 127. It was chosen by f32 alone:
/// of 78, 110 and 150, which leave 59.2 %, 40.7 % and 29.7 % of the digits correct, 110 makes them as hard for this
/// network as photographs, of which 40.8 % are correct (`regimes --only bad-sample:nan` on CIFAR-10, seeds 0 and 1).
const FAINT_NOISE: i32 = 110;

/// Generates faint digits with much noise, whose values are numbers. One training image is NaN, as after 0/0 in an
/// augmentation.
pub(super) fn with_bad_image(seed: u64) -> Labelled {
    let faint = |random: &mut Random, image: Vec<u8>| {
        let noisy = |value: u8| {
            let noise: i32 = [(); 4].map(|()| random.between(-FAINT_NOISE, FAINT_NOISE)).iter().sum();
            u8::try_from((i32::from(value) + noise).clamp(0, 255)).unwrap_or(u8::MAX)
        };
        image.into_iter().map(noisy).collect()
    };
    let [train, test] = [([seed, 6], BAD_IMAGE_COUNTS[0]), ([seed, 7], BAD_IMAGE_COUNTS[1])]
        .map(|(key, count)| part(&key, count, FAINT_SIDE, faint));
    let bad = Random::from_key(&[seed, 18]).below(train.count);
    let mut data = described("faint digits, one of them NaN", train, None, test);
    for (part, bad) in [(&mut data.train, Some(bad)), (&mut data.test, None)] {
        let values = FAINT_SIDE * FAINT_SIDE;
        let number = |(at, byte): (usize, &u8)| if bad == Some(at / values) { f32::NAN } else { f32::from(*byte) };
        let numbers: Vec<u8> =
            part.features.memory().iter().enumerate().flat_map(|one| number(one).to_le_bytes()).collect();
        (part.element, part.features) = (Element::Number, numbers.into());
    }
    data
}

fn described(name: &str, train: Classification, validation: Option<Classification>, test: Classification) -> Labelled {
    let [mean, deviation] = Moments::measure(train.features.memory()).mean_and_deviation();
    Labelled {
        name: name.into(),
        classes: (0..DIGITS.len()).map(|digit| digit.to_string()).collect(),
        mean,
        deviation,
        channels: None,
        columns: Vec::new(),
        train,
        validation,
        test,
        notes: LoadNotes::default(),
    }
}

/// Generates images of `side` rows and columns, each changed by `change`.
fn part(key: &[u64; 2], count: usize, side: usize, change: impl Fn(&mut Random, Vec<u8>) -> Vec<u8>) -> Classification {
    let (mut features, mut labels) = (Vec::new(), Vec::new());
    for number in 0..count {
        let mut random = Random::from_key(&[key[0], key[1], number as u64]);
        let digit = random.below(DIGITS.len());
        let image = draw(&mut random, digit, side);
        features.extend(change(&mut random, image));
        labels.push(u32::try_from(digit).unwrap_or(u32::MAX));
    }
    let (features, element) = (features.into(), Element::Byte);
    Classification {
        count,
        height: side,
        width: side,
        channels: 1,
        element,
        features,
        labels,
        classes: DIGITS.len(),
        sources: Sources::Unnamed,
        crop: None,
    }
}

/// Draws the image of a digit, of `side` rows and columns. Coordinates are in 16ths of a pixel of [`SIDE`].
fn draw(random: &mut Random, digit: usize, side: usize) -> Vec<u8> {
    let pitch = i32::try_from(16 * SIDE / side).unwrap_or(16);
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
    let mut image = Vec::with_capacity(side * side);
    for place in 0..side * side {
        let [y, x] = [place / side, place % side].map(|i| pitch * i32::try_from(i).unwrap_or(0) + pitch / 2);
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
    fn one_image_is_bad_and_nothing_else() {
        let data = with_bad_image(0);
        let numbers = |part: &Classification| -> Vec<f32> {
            part.features.memory().as_chunks().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect()
        };
        let train = numbers(&data.train);
        let bad: Vec<usize> = (0..train.len()).filter(|at| !train[*at].is_finite()).collect();
        let values = FAINT_SIDE * FAINT_SIDE;
        assert_eq!((train.len(), bad.len(), bad[0] % values), (10_000 * values, values, 0));
        assert!(bad.iter().all(|at| train[*at].is_nan()) && bad.windows(2).all(|two| two[1] == two[0] + 1));
        assert!(numbers(&data.test).iter().all(|value| value.is_finite()));
        let mut crc = flate2::Crc::new();
        crc.update(data.train.features.memory());
        assert_eq!(format!("{:08x}", crc.sum()), "e027a636");
        assert!(data.mean.is_finite() && data.deviation.is_finite() && data.train.element == Element::Number);
    }

    #[test]
    fn every_digit_is_as_frequent() {
        let mut counts = [0; 10];
        labelled(0).train.labels.iter().for_each(|&label| counts[label as usize] += 1);
        // 200 each; five standard deviations.
        assert!(counts.iter().all(|count| (133..267).contains(count)), "{counts:?}");
    }
}
