//! Pictures as a detector sees them: whole for scores; for training with other colours, farther away, a part of them, or
//! mirrored (Liu et al. 2016, section 2.2). Numbers are those of torchvision's reference training.

use super::Pictured;
use crate::{DataError, Random, Whole};
use gradscale::{
    boxes::{Corners, overlap},
    metrics::Truth,
};

/// Minimum overlap of a crop with at least one box; 1 means the whole picture.
const OVERLAPS: [f32; 7] = [0.0, 0.1, 0.3, 0.5, 0.7, 0.9, 1.0];
/// Sides of a part, of those of the picture, and how much longer one may be than the other.
const SIDES: [f64; 2] = [0.3, 1.0];
const MAX_ASPECT_RATIO: f64 = 2.0;
/// Attempts to draw a crop for one minimum overlap, and to draw a minimum overlap.
const TRIES: usize = 40;
const ROUNDS: usize = 8;
/// Maximum relative change of contrast and saturation.
const CONTRAST: f64 = 0.5;
const BRIGHTNESS: f64 = 0.125;
const HUE: f64 = 0.05;
/// Colour around a picture that was zoomed out: about the mean of photographs (the mean of `ImageNet`).
const PADDING_COLOUR: [u8; 3] = [123, 117, 104];

/// Image resized to the network's input, with its true boxes.
#[derive(Clone, Debug, PartialEq)]
pub struct Shown {
    /// Values of the pixels, `[side, side, 3]`.
    pub pixels: Vec<u8>,
    /// True boxes relative to the image size.
    pub truths: Vec<Truth>,
}

/// Window in pixels, which may exceed its image: left, top, columns and rows.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Window {
    begin: [i64; 2],
    size: [i64; 2],
}

impl Pictured {
    /// Returns the whole image, resized without augmentation.
    ///
    /// # Errors
    /// A file that can no longer be read.
    pub fn plain(&self, side: usize) -> Result<Shown, DataError> {
        let whole = self.whole()?;
        Ok(Shown { pixels: Window::covering(&whole).resized(&whole, side), truths: self.truths.clone() })
    }

    /// Returns an augmented training image: a random crop, with probability ½ each recoloured, zoomed out up to
    /// `farthest` times, and mirrored. The same word gives the same image.
    ///
    /// # Errors
    /// A file that can no longer be read.
    pub fn random(&self, side: usize, farthest: f64, word: u64) -> Result<Shown, DataError> {
        let (whole, mut random) = (self.whole()?, Random::from_key(&[word]));
        let mut window = Window::covering(&whole);
        if random.uniform() < 0.5 {
            window = window.around(1.0 + (farthest - 1.0) * random.uniform(), &mut random);
        }
        let [wide, high] = Window::covering(&whole).size.map(|side| side as f32);
        let there: Vec<Corners> = self
            .truths
            .iter()
            .map(|truth| truth.corners)
            .map(|[l, t, r, b]| [l * wide, t * high, r * wide, b * high])
            .collect();
        window = window.part(&there, &mut random);
        let mut pixels = window.resized(&whole, side);
        let mut truths: Vec<Truth> = self
            .truths
            .iter()
            .zip(&there)
            .filter_map(|(truth, &at)| Some(Truth { corners: window.shares(at)?, ..*truth }))
            .collect();
        if random.uniform() < 0.5 {
            pixels = pixels.chunks_exact(3 * side).flat_map(|row| row.rchunks_exact(3).flatten().copied()).collect();
            for Truth { corners: [left, _, right, _], .. } in &mut truths {
                (*left, *right) = (1.0 - *right, 1.0 - *left);
            }
        }
        recolour(&mut pixels, &mut random);
        Ok(Shown { pixels, truths })
    }
}

#[expect(clippy::cast_possible_truncation, reason = "pixels of a picture")]
impl Window {
    fn covering(whole: &Whole<'_>) -> Self {
        Self { begin: [0; 2], size: [whole.size[1] as i64, whole.size[0] as i64] }
    }

    /// Zooms out: places the image at a random position in one `times` as large.
    fn around(self, times: f64, random: &mut Random) -> Self {
        let size = self.size.map(|side| (side as f64 * times) as i64);
        let begin = [0, 1].map(|axis| -(((size[axis] - self.size[axis]) as f64 * random.uniform()) as i64));
        Self { begin, size }
    }

    fn corners(self) -> Corners {
        let Self { begin: [left, top], size: [wide, high] } = self;
        [left, top, left + wide, top + high].map(|side| side as f32)
    }

    /// Returns a random part of the window with the middle of one box at least, which one of these overlaps enough.
    fn part(self, there: &[Corners], random: &mut Random) -> Self {
        for _ in 0..if there.is_empty() { 0 } else { ROUNDS } {
            let least = OVERLAPS[random.below(OVERLAPS.len())];
            if least >= 1.0 {
                return self;
            }
            for _ in 0..TRIES {
                let size =
                    self.size.map(|side| (side as f64 * (SIDES[0] + (SIDES[1] - SIDES[0]) * random.uniform())) as i64);
                let free = [0, 1].map(|axis| ((self.size[axis] - size[axis]) as f64 * random.uniform()) as i64);
                let ratio = size[0] as f64 / size[1].max(1) as f64;
                if size.contains(&0) || !(1.0 / MAX_ASPECT_RATIO..=MAX_ASPECT_RATIO).contains(&ratio) {
                    continue;
                }
                let part = Self { begin: [0, 1].map(|axis| self.begin[axis] + free[axis]), size };
                let inside = there.iter().filter(|&&corners| part.shares(corners).is_some());
                let most = inside.map(|&corners| overlap(corners, part.corners())).reduce(f32::max);
                if most.is_some_and(|most| most >= least) {
                    return part;
                }
            }
        }
        self
    }

    /// Returns a box relative to this window and clipped to it, if the window contains its centre.
    fn shares(self, [left, top, right, bottom]: Corners) -> Option<Corners> {
        let [begin_x, begin_y, end_x, end_y] = self.corners();
        let (x, y) = (0.5 * (left + right), 0.5 * (top + bottom));
        let inside = (begin_x..end_x).contains(&x) && (begin_y..end_y).contains(&y);
        let share = |at: f32, begin: f32, end: f32| ((at - begin) / (end - begin)).clamp(0.0, 1.0);
        inside.then(|| {
            [
                share(left, begin_x, end_x),
                share(top, begin_y, end_y),
                share(right, begin_x, end_x),
                share(bottom, begin_y, end_y),
            ]
        })
    }

    /// Returns the window's pixels, `[side, side, 3]`; outside the image they have one colour.
    #[expect(clippy::cast_sign_loss, reason = "inside of a picture")]
    fn resized(self, whole: &Whole<'_>, side: usize) -> Vec<u8> {
        let picture = Self::covering(whole);
        let begin = [0, 1].map(|axis| self.begin[axis].max(0));
        let end = [0, 1].map(|axis| (self.begin[axis] + self.size[axis]).min(picture.size[axis]));
        // Of the result, the columns and rows that these become.
        let place = |at: i64, axis: usize| {
            let share = (at - self.begin[axis]) as f64 / self.size[axis].max(1) as f64;
            ((share * side as f64).round() as usize).min(side)
        };
        let [from, to] = [begin, end].map(|at| [place(at[0], 0), place(at[1], 1)]);
        let mut pixels: Vec<u8> = PADDING_COLOUR.iter().copied().cycle().take(3 * side * side).collect();
        let sides = [0, 1].map(|axis| to[axis].saturating_sub(from[axis]));
        if sides.contains(&0) || begin[0] >= end[0] || begin[1] >= end[1] {
            return pixels;
        }
        let part = [begin[1], begin[0], end[1] - begin[1], end[0] - begin[0]].map(|number| number as usize);
        let inside = whole.part(part, [sides[1], sides[0]]);
        for (row, line) in inside.chunks_exact(3 * sides[0]).enumerate() {
            let at = 3 * ((from[1] + row) * side + from[0]);
            pixels[at..at + line.len()].copy_from_slice(line);
        }
        pixels
    }
}

/// Changes brightness, contrast, saturation and hue at random, each with half a chance; contrast before the others or
/// after them.
fn recolour(pixels: &mut [u8], random: &mut Random) {
    let mut factor = |by: f64| {
        let (some, change) = (random.uniform() < 0.5, 2.0 * random.uniform() - 1.0);
        if some { 1.0 + by * change } else { 1.0 }
    };
    let (bright, before, saturated) = (factor(BRIGHTNESS), factor(CONTRAST), factor(CONTRAST));
    let (hue, after) = ((factor(HUE) - 1.0) * std::f64::consts::TAU, factor(CONTRAST));
    let first = random.uniform() < 0.5;
    let contrast = if first { before } else { after };
    let count = (pixels.len() / 3).max(1) as f64;
    let mean = pixels.chunks_exact(3).map(grey).sum::<f64>() / count;
    let (sine, cosine) = hue.sin_cos();
    for pixel in pixels.chunks_exact_mut(3) {
        let [r, g, b] = [0, 1, 2].map(|i| {
            let value = f64::from(pixel[i]) * bright;
            contrast * value + (1.0 - contrast) * mean * bright
        });
        // Luma and two differences of colour (YIQ): a turn of these is another hue.
        let luma = 0.299 * r + 0.587 * g + 0.114 * b;
        let (i, q) = (0.5959 * r - 0.2746 * g - 0.3213 * b, 0.2115 * r - 0.5227 * g + 0.3112 * b);
        let (i, q) = (saturated * (cosine * i - sine * q), saturated * (sine * i + cosine * q));
        let changed = [luma + 0.956 * i + 0.619 * q, luma - 0.272 * i - 0.647 * q, luma - 1.106 * i + 1.703 * q];
        for (value, changed) in pixel.iter_mut().zip(changed) {
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a byte")]
            let byte = changed.round().clamp(0.0, 255.0) as u8;
            *value = byte;
        }
    }
}

/// Returns the brightness of an R G B pixel by ITU-R BT.601.
fn grey(pixel: &[u8]) -> f64 {
    0.299 * f64::from(pixel[0]) + 0.587 * f64::from(pixel[1]) + 0.114 * f64::from(pixel[2])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pascal_voc::Kept;

    /// Returns a picture with a red box and a smaller green one on blue.
    fn picture() -> Pictured {
        let boxes = [[10, 20, 60, 50], [70, 5, 90, 25]];
        let inside = |[left, top, right, bottom]: [usize; 4], x: usize, y: usize| {
            (left..right).contains(&x) && (top..bottom).contains(&y)
        };
        let colour = |i: usize| match boxes.map(|corners| inside(corners, i % 100, i / 100)) {
            [true, _] => [200, 40, 40],
            [false, true] => [40, 200, 40],
            [false, false] => [40, 40, 200],
        };
        let pixels: Vec<u8> = (0..100 * 60).flat_map(colour).collect();
        let share = |[left, top, right, bottom]: [usize; 4]| {
            [left as f32 / 100.0, top as f32 / 60.0, right as f32 / 100.0, bottom as f32 / 60.0]
        };
        let truths = [1, 2].map(|class| Truth { class, corners: share(boxes[class - 1]), difficult: false }).to_vec();
        let kept = Kept::Memory(Whole { pixels: pixels.into(), size: [60, 100], channels: 3 });
        Pictured { name: "one".into(), truths, kept }
    }

    /// Checks that the middle of a box keeps the box's colour in every augmentation.
    #[test]
    fn boxes_stay_around_what_is_in_them() {
        let (picture, side) = (picture(), 64);
        let (mut fewer, mut mirrored, mut smaller) = (0, 0, 0);
        for word in 0..300 {
            let shown = picture.random(side, 4.0, word).expect("in memory");
            assert_eq!(shown.pixels.len(), 3 * side * side);
            assert_eq!(shown, picture.random(side, 4.0, word).expect("in memory"));
            assert!(!shown.truths.is_empty());
            fewer += usize::from(shown.truths.len() < 2);
            for truth in &shown.truths {
                let [left, top, right, bottom] = truth.corners;
                assert!(0.0 <= left && left < right && right <= 1.0 && 0.0 <= top && top < bottom && bottom <= 1.0);
                #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "inside of a picture")]
                let at = |share: f32| ((share * side as f32) as usize).min(side - 1);
                let place = 3 * (at(0.5 * (top + bottom)) * side + at(0.5 * (left + right)));
                let [r, g, b] = shown.pixels[place..place + 3] else { panic!("three") };
                assert!(
                    if truth.class == 1 { r > g && r > b } else { g > r && g > b },
                    "{word}: {truth:?} {r} {g} {b}"
                );
                smaller += usize::from(right - left < 0.1);
            }
            if let [red, green] = &shown.truths[..] {
                mirrored += usize::from(red.corners[0] > green.corners[0]);
            }
        }
        assert!(fewer > 20 && mirrored > 40 && smaller > 20, "{fewer} {mirrored} {smaller}");
        let plain = picture.plain(50).expect("in memory");
        assert_eq!((plain.pixels.len(), plain.truths), (7500, picture.truths));
    }

    #[test]
    fn around_a_picture_is_one_colour() {
        let (picture, mut random) = (picture(), Random::from_key(&[1]));
        let whole = picture.whole().expect("in memory");
        let window = Window::covering(&whole).around(3.0, &mut random);
        assert_eq!(window.size, [300, 180]);
        let pixels = window.resized(&whole, 90);
        let around = pixels.chunks_exact(3).filter(|pixel| *pixel == PADDING_COLOUR).count();
        assert_eq!(around, 90 * 90 - 30 * 30);
        // A picture of which nothing is in the window.
        let nowhere = Window { begin: [200, 0], size: [10, 10] };
        assert!(nowhere.resized(&whole, 4).chunks_exact(3).all(|pixel| pixel == PADDING_COLOUR));
        assert_eq!(nowhere.part(&[], &mut random), nowhere);
    }
}
