//! Parts of images of any size: random ones to train on, middles for scores. Numbers are those of torchvision's
//! reference training: a part of 8 % to 100 % of the image, of 3 : 4 to 4 : 3; for scores, the shorter side at 8/7 of the
//! part's, of which the middle remains; colours by up to 40 %.

use super::Random;
use image::{ImageBuffer, Luma, Pixel, Rgb, imageops};
use std::borrow::Cow;

/// Range of a random crop's area, as a share of the image's area.
const AREA: [f64; 2] = [0.08, 1.0];
/// Range of a random crop's ratio of columns to rows.
const RATIO: [f64; 2] = [3.0 / 4.0, 4.0 / 3.0];
/// Attempts to draw a random crop that fits before the centre is taken.
const TRIES: usize = 10;
/// Maximum relative change of brightness, contrast and saturation.
const JITTER: f64 = 0.4;

/// Decoded image before it is cropped: bytes, [rows, columns, channels].
#[derive(Clone, Debug)]
pub struct Whole<'a> {
    /// Values of the pixels, row by row.
    pub pixels: Cow<'a, [u8]>,
    /// Number of rows and of columns of the whole image.
    pub size: [usize; 2],
    /// Number of values of a pixel: 1 for grey, 3 for R G B.
    pub channels: usize,
}

/// Rectangle of an image: first row and column, and numbers of rows and columns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Rectangle([usize; 4]);

impl Whole<'_> {
    /// Returns a random part of the image, resized to `side` × `side`; of colours also mirrored and changed at random.
    #[must_use]
    pub fn random_part(&self, side: usize, random: &mut Random) -> Vec<u8> {
        let mut pixels = self.resized(self.random_rectangle(random), [side; 2]);
        if self.channels == 3 {
            // Only colour photographs are mirrored, because mirrored letters and digits are wrong.
            if random.word() >> 63 == 1 {
                let rows = pixels.chunks_exact(3 * side);
                pixels = rows.flat_map(|row| row.rchunks_exact(3).flatten().copied()).collect();
            }
            jitter(&mut pixels, random);
        }
        pixels
    }

    /// Returns the centre of the image, resized to a square of `side` pixels.
    #[must_use]
    pub fn middle(&self, side: usize) -> Vec<u8> {
        let [rows, columns] = self.size;
        let shorter = rows.min(columns).max(1);
        // The part that becomes side × side after the shorter side is resized to 8/7 of it.
        let part = (shorter * 7).div_ceil(8).max(1);
        let inside = [rows, columns].map(|all| all.saturating_sub(part) / 2);
        self.resized(Rectangle([inside[0], inside[1], part, part]), [side; 2])
    }

    fn random_rectangle(&self, random: &mut Random) -> Rectangle {
        let size = self.size;
        #[expect(clippy::cast_precision_loss, reason = "sizes of images")]
        let [rows, columns] = size.map(|all| all as f64);
        let between = |[low, high]: [f64; 2], random: &mut Random| low + (high - low) * random.uniform();
        for _ in 0..TRIES {
            let area = rows * columns * between(AREA, random);
            let ratio = between(RATIO.map(f64::ln), random).exp();
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "sizes of images")]
            let part = [(area / ratio).sqrt(), (area * ratio).sqrt()].map(|side| side.round() as usize);
            if (0..2).all(|axis| (1..=size[axis]).contains(&part[axis])) {
                let [row, column] = [0, 1].map(|axis| random.below(size[axis] - part[axis] + 1));
                return Rectangle([row, column, part[0], part[1]]);
            }
        }
        // Long images: the middle, of the nearest shape.
        let [height, width] = size;
        let part = if columns < RATIO[0] * rows {
            [(width * 4).div_ceil(3).min(height), width]
        } else {
            [height, (height * 4).div_ceil(3).min(width)]
        };
        Rectangle([(height - part[0]) / 2, (width - part[1]) / 2, part[0], part[1]])
    }

    /// Returns the whole image resized to `size`.
    #[must_use]
    pub fn resized_to(&self, size: [usize; 2]) -> Vec<u8> {
        self.part([0, 0, self.size[0], self.size[1]], size)
    }

    /// Returns a part of the image (first row and column, rows and columns), resized to `size` rows and columns.
    pub(super) fn part(&self, rectangle: [usize; 4], size: [usize; 2]) -> Vec<u8> {
        self.resized(Rectangle(rectangle), size)
    }

    fn resized(&self, rectangle: Rectangle, size: [usize; 2]) -> Vec<u8> {
        let resized = if self.channels == 3 {
            resized::<Rgb<u8>>(self, rectangle, size)
        } else {
            resized::<Luma<u8>>(self, rectangle, size)
        };
        resized.unwrap_or_default()
    }
}

/// Resizes pixels. `None` if their number does not fit the size, which does not happen here.
fn resized<P: Pixel<Subpixel = u8> + 'static>(
    Whole { pixels, size, .. }: &Whole<'_>, Rectangle(rectangle): Rectangle, to: [usize; 2],
) -> Option<Vec<u8>> {
    let side = |size: usize| u32::try_from(size).ok();
    let whole: ImageBuffer<P, &[u8]> = ImageBuffer::from_raw(side(size[1])?, side(size[0])?, pixels.as_ref())?;
    let [row, column, rows, columns] = rectangle.map(side);
    let part = imageops::crop_imm(&whole, column?, row?, columns?, rows?);
    // Averages the covered pixels when shrinking, and interpolates linearly when enlarging.
    let filter = imageops::FilterType::Triangle;
    Some(imageops::resize(&*part, side(to[1])?, side(to[0])?, filter).into_raw())
}

/// Changes brightness, contrast and saturation of an image at random, in random order.
fn jitter(pixels: &mut [u8], random: &mut Random) {
    let mut order = [0, 1, 2];
    for last in [2, 1] {
        order.swap(last, random.below(last + 1));
    }
    for change in order {
        let factor = 1.0 + JITTER * (2.0 * random.uniform() - 1.0);
        // Towards black, towards the mean grey, towards each pixel's own grey.
        let mean = if change == 1 {
            let sum: f64 = pixels.chunks_exact(3).map(grey).sum();
            #[expect(clippy::cast_precision_loss, reason = "pixels of an image")]
            let count = (pixels.len() / 3).max(1) as f64;
            sum / count
        } else {
            0.0
        };
        for pixel in pixels.chunks_exact_mut(3) {
            let towards = if change == 2 { grey(pixel) } else { mean };
            for value in pixel {
                let mixed = factor * f64::from(*value) + (1.0 - factor) * towards;
                #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a byte")]
                let byte = mixed.clamp(0.0, 255.0) as u8;
                *value = byte;
            }
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

    fn gradient(rows: usize, columns: usize) -> Whole<'static> {
        let byte = |value: usize| u8::try_from(value).expect("a byte");
        let pixel = |at: usize| [byte(at / columns * 255 / rows), byte(at % columns * 255 / columns), 40];
        let pixels: Vec<u8> = (0..rows * columns).flat_map(pixel).collect();
        Whole { pixels: pixels.into(), size: [rows, columns], channels: 3 }
    }

    #[test]
    fn rectangles_lie_inside_and_cover_what_they_should() {
        for size in [[60, 80], [7, 200], [200, 7], [1, 1], [224, 224]] {
            let whole = Whole { size, ..gradient(1, 1) };
            let mut random = Random::from_key(&[3]);
            let (mut areas, mut some) = (0.0, [false; 2]);
            for _ in 0..400 {
                let Rectangle([row, column, rows, columns]) = whole.random_rectangle(&mut random);
                assert!(rows > 0 && columns > 0 && row + rows <= size[0] && column + columns <= size[1], "{size:?}");
                areas += (rows * columns) as f64 / (size[0] * size[1]) as f64 / 400.0;
                some[usize::from(rows > columns)] = true;
            }
            // The mean of 0.08 … 1 is 0.54; of those that fit a little less.
            if size == [60, 80] || size == [224, 224] {
                assert!((0.4..0.6).contains(&areas) && some == [true; 2], "{size:?}: {areas}");
            }
        }
    }

    #[test]
    fn the_same_word_gives_the_same_part() {
        let whole = gradient(50, 70);
        let part = |key| whole.random_part(32, &mut Random::from_key(&[key]));
        assert_eq!((part(1), part(1).len()), (part(1), 32 * 32 * 3));
        assert_ne!(part(1), part(2));
    }

    /// Checks that the middle is the one that torchvision would crop after resizing: of 64 × 96, 56 × 56 from row 4 and
    /// column 20.
    #[test]
    fn the_middle() {
        let whole = gradient(64, 96);
        let middle = whole.middle(28);
        let at = |row: usize, column: usize, channel: usize| f64::from(middle[(row * 28 + column) * 3 + channel]);
        for (row, column) in [(0, 0), (13, 20), (27, 27)] {
            let [expected_row, expected_column] = [4.5 + 2.0 * row as f64, 20.5 + 2.0 * column as f64];
            assert!((at(row, column, 0) - expected_row * 255.0 / 64.0).abs() < 3.0, "{row}");
            assert!((at(row, column, 1) - expected_column * 255.0 / 96.0).abs() < 3.0, "{column}");
            assert!((at(row, column, 2) - 40.0).abs() < 1.0);
        }
        // Grey images too, and images that are smaller than the crop.
        let grey = Whole { pixels: vec![9; 6].into(), size: [2, 3], channels: 1 };
        assert_eq!(grey.middle(5), [9; 25]);
        assert_eq!(grey.random_part(4, &mut Random::from_key(&[1])), [9; 16]);
    }

    #[test]
    fn colours_change_and_stay_bytes() {
        let mut changed = 0;
        for key in 0..50 {
            let mut pixels = vec![100, 150, 200, 10, 250, 30];
            jitter(&mut pixels, &mut Random::from_key(&[key]));
            changed += usize::from(pixels != [100, 150, 200, 10, 250, 30]);
            // By 40 % in brightness, and twice about that towards greys.
            assert!((20..=255).contains(&pixels[2]), "{pixels:?}");
        }
        assert!(changed > 45);
    }
}
