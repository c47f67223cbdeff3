//! Reduction of long series for plots.

use super::svg::Point;
use crate::record::Spread;

/// Returns mean and standard deviation of the finite values; a single value has a deviation of 0.
pub fn mean_and_spread(values: impl IntoIterator<Item = f64>) -> Option<(f64, f64)> {
    let values: Vec<f64> = values.into_iter().filter(|value| value.is_finite()).collect();
    Spread::new(&values).map(|Spread { mean, deviation }| (mean, deviation.unwrap_or(0.0)))
}

/// Returns the least and largest of the finite values; +∞ and −∞ if there are none.
pub fn extent(values: impl IntoIterator<Item = f64>) -> (f64, f64) {
    let finite = values.into_iter().filter(|value| value.is_finite());
    finite.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), value| (low.min(value), high.max(value)))
}

/// Returns the moving average over a thirtieth of the series, half of it on each side. Values that are not finite leave
/// a gap.
pub fn smooth(values: &[f32]) -> Vec<f64> {
    let radius = values.len() / 60;
    let average = |i: usize| {
        if !values[i].is_finite() {
            return f64::NAN;
        }
        // As far on one side as on the other, so that the ends are not pulled to the middle.
        let reach = radius.min(i).min(values.len() - 1 - i);
        let window = values[i - reach..=i + reach].iter().copied().map(f64::from);
        mean_and_spread(window).map_or(f64::NAN, |(mean, _)| mean)
    };
    (0..values.len()).map(average).collect()
}

/// Reduces a series to about 300 points: minimum and maximum of each interval.
pub fn raw(values: &[f32]) -> Vec<Point> {
    let stretch = values.len().div_ceil(150);
    let point = |(i, &value): (usize, &f32)| (i as f64 + 1.0, f64::from(value));
    if values.len() <= 300 {
        return values.iter().enumerate().map(point).collect();
    }
    let ends = |(i, part): (usize, &[f32])| {
        let (low, high) = extent(part.iter().copied().map(f64::from));
        let at = (i * stretch) as f64 + 1.0;
        [(at, low), (at + stretch as f64 / 2.0, high)]
    };
    values.chunks(stretch).enumerate().flat_map(ends).collect()
}

/// Returns about `count` evenly spaced positions below `length`, the last one included.
pub fn sample_positions(length: usize, count: usize) -> impl Iterator<Item = usize> {
    let step = length.div_ceil(count).max(1);
    (0..length).filter(move |i| i % step == 0 || i + 1 == length)
}

/// Removes points whose neighbours have the same value, which a line does not need.
pub fn without_repeats(points: Vec<Point>) -> Vec<Point> {
    let level =
        |i: usize| i > 0 && i + 1 < points.len() && points[i - 1].1 == points[i].1 && points[i + 1].1 == points[i].1;
    let kept: Vec<bool> = (0..points.len()).map(|i| !level(i)).collect();
    points.into_iter().zip(kept).filter(|(_, kept)| *kept).map(|(point, _)| point).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fewer_numbers() {
        assert_eq!(mean_and_spread([1.0, 3.0, f64::NAN]), Some((2.0, 2f64.sqrt())));
        assert_eq!((mean_and_spread([5.0]), mean_and_spread([])), (Some((5.0, 0.0)), None));
        assert_eq!(smooth(&[4.0; 100])[99], 4.0);
        assert!(smooth(&[f32::NAN, 2.0])[0].is_nan());
        assert_eq!(sample_positions(10, 4).collect::<Vec<_>>(), [0, 3, 6, 9]);
        assert_eq!(sample_positions(0, 4).count(), 0);
        assert_eq!(without_repeats(vec![(1.0, 2.0), (2.0, 2.0), (3.0, 2.0), (4.0, 3.0)]).len(), 3);
        assert!(raw(&vec![1.0; 5000]).len() <= 302);
    }
}
