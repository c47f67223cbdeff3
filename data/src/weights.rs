//! Weights for classes of unequal area.

use super::tally::Tally;

/// Computes median-frequency weights: median(f)/f(c), where f(c) is the share of class c in the pixels of the images in
/// which it occurs (Eigen and Fergus 2015, §3.3.1). One for each class; 0 for a class that never occurs.
///
/// Ignored pixels are no class, but count as pixels of their image. The median is over the classes that occur; of an
/// even number, it is the mean of the middle two.
#[expect(clippy::cast_possible_truncation, reason = "a weight in f32")]
pub(super) fn median_frequency(tally: &Tally, classes: usize, ignore: Option<u8>) -> Vec<f32> {
    let frequency = |class: usize| {
        let class = u8::try_from(class).ok().filter(|class| Some(*class) != ignore)?;
        tally.0.get(&class.into()).map(|count| count.area as f64 / count.within as f64)
    };
    let frequencies: Vec<_> = (0..classes).map(frequency).collect();
    let mut sorted: Vec<_> = frequencies.iter().flatten().copied().collect();
    sorted.sort_by(f64::total_cmp);
    let median = match sorted.len() {
        0 => 0.0,
        n => f64::midpoint(sorted[(n - 1) / 2], sorted[n / 2]),
    };
    frequencies.iter().map(|f| f.map_or(0.0, |f| (median / f) as f32)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Computes the class weights of images of eight pixels each.
    fn weights(labels: &[u8], classes: usize, ignore: Option<u8>) -> Vec<f32> {
        let mut tally = Tally::default();
        for (i, image) in labels.chunks(8).enumerate() {
            tally.add(i, &Tally::count(image.iter().map(|label| u32::from(*label))));
        }
        median_frequency(&tally, classes, ignore)
    }

    #[test]
    fn by_hand() {
        // Shares: class 0 4/8 in image 0 and 2/8 in image 1: 6/16. Class 1 2/8 and 1/8: 3/16. Class 2 only in image 0:
        // 1/8. Class 3 never. Class 4 only in image 1: 4/8. Label 9 is ignored.
        let labels = [0, 0, 0, 0, 1, 1, 2, 9, 0, 0, 1, 4, 4, 4, 4, 9];
        // Median of 2/16, 3/16, 6/16, 8/16: 4.5/16.
        let expected = [4.5 / 6.0, 4.5 / 3.0, 4.5 / 2.0, 0.0, 4.5 / 8.0];
        assert_eq!(weights(&labels, 5, Some(9)), expected);
        // Without class 4 the median is that of three.
        assert_eq!(weights(&labels, 5, Some(4))[..3], [0.5, 1.0, 1.5]);
    }

    #[test]
    fn nothing_to_weigh() {
        assert_eq!(weights(&[9; 8], 2, Some(9)), [0.0, 0.0]);
        assert_eq!(weights(&[], 300, None), [0.0; 300]);
    }
}
