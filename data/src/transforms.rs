//! Transforms of examples: normalisation and random changes for training.

use crate::{Cause, Example, Random};

/// Change of an example before it is used. A pair of transforms applies the first, then the second; `()` changes
/// nothing.
pub trait Transform {
    /// Changes an example. `random` is the stream of this example in this epoch, so the change can be repeated.
    fn apply(&self, example: &mut Example, random: &mut Random);
}

impl Transform for () {
    fn apply(&self, _: &mut Example, _: &mut Random) {}
}

impl<A: Transform, B: Transform> Transform for (A, B) {
    fn apply(&self, example: &mut Example, random: &mut Random) {
        self.0.apply(example, random);
        self.1.apply(example, random);
    }
}

/// List of transforms that a program chooses while it runs, applied in order.
impl Transform for Vec<Box<dyn Transform>> {
    fn apply(&self, example: &mut Example, random: &mut Random) {
        self.iter().for_each(|transform| transform.apply(example, random));
    }
}

/// Normalisation: (x − mean) / deviation, for each channel or alike for all.
#[derive(Clone, Debug, PartialEq)]
pub struct Normalize {
    mean: Vec<f32>,
    deviation: Vec<f32>,
}

impl Normalize {
    /// Creates a normalisation from means and standard deviations: one for all channels, or one for each. Channels
    /// beyond the last one begin again with the first.
    ///
    /// ```
    /// use gradscale_data::transforms::Normalize;
    /// // ImageNet's, for values from 0 to 1.
    /// let photographs = Normalize::new(&[0.485, 0.456, 0.406], &[0.229, 0.224, 0.225])?;
    /// assert!(Normalize::new(&[0.5], &[0.0]).is_err());
    /// # let _ = photographs;
    /// # Ok::<(), gradscale_data::Cause>(())
    /// ```
    ///
    /// # Errors
    /// No numbers, different numbers of means and deviations, a number that is not finite, a deviation that is not
    /// positive.
    pub fn new(mean: &[f32], deviation: &[f32]) -> Result<Self, Cause> {
        if mean.is_empty() || mean.len() != deviation.len() {
            let (means, deviations) = (mean.len(), deviation.len());
            return Err(Cause::Option(format!(
                "normalisation with {means} means and {deviations} deviations; give as many of each, at least one"
            )));
        }
        if let Some(bad) = mean.iter().find(|mean| !mean.is_finite()) {
            return Err(Cause::Option(format!("normalisation with the mean {bad}, which is not finite")));
        }
        if let Some(bad) = deviation.iter().find(|deviation| !(deviation.is_finite() && **deviation > 0.0)) {
            return Err(Cause::Option(format!("normalisation with the deviation {bad}, which must be positive")));
        }
        Ok(Self { mean: mean.to_vec(), deviation: deviation.to_vec() })
    }
}

impl Transform for Normalize {
    fn apply(&self, example: &mut Example, _: &mut Random) {
        let channels = example.shape[2].max(1);
        for pixel in example.values.chunks_mut(channels) {
            let numbers = self.mean.iter().zip(&self.deviation).cycle();
            pixel.iter_mut().zip(numbers).for_each(|(value, (mean, deviation))| *value = (*value - mean) / deviation);
        }
    }
}

/// Mirrors an image from left to right, with probability ½.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[doc(alias = "RandomHorizontalFlip")]
pub struct Mirror;

impl Transform for Mirror {
    fn apply(&self, example: &mut Example, random: &mut Random) {
        let [_, width, channels] = example.shape;
        if random.below(2) == 0 || width * channels == 0 {
            return;
        }
        for row in example.values.chunks_exact_mut(width * channels) {
            for left in 0..width / 2 {
                let right = width - 1 - left;
                (0..channels).for_each(|channel| row.swap(left * channels + channel, right * channels + channel));
            }
        }
    }
}

/// Shifts an image by a random number of pixels in each direction, and fills with zeros. It is what padding and a random
/// crop do together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[doc(alias = "RandomCrop")]
pub struct Shift {
    /// Maximum shift up and down, in pixels.
    pub rows: u16,
    /// Maximum shift left and right, in pixels.
    pub columns: u16,
}

impl Transform for Shift {
    fn apply(&self, example: &mut Example, random: &mut Random) {
        let [height, width, channels] = example.shape;
        let [down, right] = [self.rows, self.columns].map(|most| random.between(-i32::from(most), i32::from(most)));
        let before = std::mem::replace(&mut example.values, vec![0.0; height * width * channels]);
        for row in 0..height {
            for column in 0..width {
                let from = |place: usize, shift: i32, end: usize| {
                    let from = isize::try_from(place).ok()?.checked_sub(isize::try_from(shift).ok()?)?;
                    usize::try_from(from).ok().filter(|from| *from < end)
                };
                let (Some(from_row), Some(from_column)) = (from(row, down, height), from(column, right, width)) else {
                    continue;
                };
                let [to, from] = [[row, column], [from_row, from_column]].map(|[r, c]| (r * width + c) * channels);
                if let Some(pixel) = before.get(from..from + channels) {
                    example.values[to..to + channels].copy_from_slice(pixel);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two rows of three pixels with two channels: 0 … 11.
    fn example() -> Example {
        Example { shape: [2, 3, 2], values: (0..12u8).map(f32::from).collect(), label: 1 }
    }

    fn changed(transform: &impl Transform, key: u64) -> Vec<f32> {
        let mut changed = example();
        transform.apply(&mut changed, &mut Random::from_key(&[key]));
        assert_eq!((changed.shape, changed.label, changed.values.len()), ([2, 3, 2], 1, 12));
        changed.values
    }

    #[test]
    fn channels_are_normalised() {
        let all = Normalize::new(&[1.0], &[2.0]).expect("numbers");
        assert_eq!(changed(&all, 0)[..4], [-0.5, 0.0, 0.5, 1.0]);
        let each = Normalize::new(&[0.0, 1.0], &[1.0, 4.0]).expect("numbers");
        assert_eq!(changed(&each, 0)[..4], [0.0, 0.0, 2.0, 0.5]);
        for (mean, deviation) in [
            (&[][..], &[][..]),
            (&[0.0], &[1.0, 1.0]),
            (&[f32::NAN], &[1.0]),
            (&[0.0], &[0.0]),
            (&[0.0], &[-1.0]),
            (&[0.0], &[f32::INFINITY]),
        ] {
            assert!(Normalize::new(mean, deviation).is_err(), "{mean:?} {deviation:?}");
        }
    }

    #[test]
    fn half_of_the_images_are_mirrored() {
        let mirror = [4.0, 5.0, 2.0, 3.0, 0.0, 1.0, 10.0, 11.0, 8.0, 9.0, 6.0, 7.0];
        let all: Vec<_> = (0..100).map(|key| changed(&Mirror, key)).collect();
        let mirrored = all.iter().filter(|values| **values == mirror).count();
        assert!(all.iter().all(|values| *values == mirror || *values == example().values));
        assert!((25..75).contains(&mirrored), "{mirrored} of 100"); // 5 standard deviations
    }

    #[test]
    fn every_shift_occurs_and_the_rest_is_zero() {
        let shift = Shift { rows: 1, columns: 1 };
        let mut seen = std::collections::BTreeSet::new();
        for key in 0..200 {
            let values = changed(&shift, key);
            seen.insert(values.iter().map(|value| value.to_bits()).collect::<Vec<_>>());
        }
        assert_eq!(seen.len(), 9);
        // One down and one to the right.
        let moved = [0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 2, 3].map(|value: u8| f32::from(value).to_bits());
        assert!(seen.contains(&moved[..]));
        assert_eq!(changed(&Shift { rows: 0, columns: 0 }, 3), example().values);
        // Beyond the image nothing is left, and nothing fails.
        let far = Shift { rows: u16::MAX, columns: u16::MAX };
        assert!(changed(&far, 1).iter().all(|value| *value == 0.0));
    }

    #[test]
    fn transforms_compose() {
        let norm = Normalize::new(&[1.0], &[2.0]).expect("numbers");
        let list: Vec<Box<dyn Transform>> = vec![Box::new(Mirror), Box::new(norm.clone())];
        for key in 0..10 {
            assert_eq!(changed(&(Mirror, norm.clone()), key), changed(&list, key));
        }
        assert_eq!(changed(&(), 0), example().values);
    }
}
