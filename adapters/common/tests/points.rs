//! Data of the two towers: points around one centre for each class.

use crate::numbers::Random;

pub const CLASSES: u16 = 4;
pub const VALUES: usize = 8;

/// Returns `count` points, one after another, and their classes.
pub fn points(random: &Random, count: usize) -> (Vec<f32>, Vec<u16>) {
    let classes: Vec<u16> = (0..count).map(|_| random.below(CLASSES)).collect();
    let value = |at: usize, class: u16| {
        let centre = if at % usize::from(CLASSES) == usize::from(class) { 1.0 } else { 0.0 };
        centre + 0.4 * random.uniform()
    };
    let values = classes.iter().flat_map(|&class| (0..VALUES).map(move |at| (at, class)));
    (values.map(|(at, class)| value(at, class)).collect(), classes)
}

/// Returns the accuracy: the fraction of points with the correct class.
pub fn share<T: Copy + PartialEq + From<u16>>(told: &[T], classes: &[u16]) -> f64 {
    assert_eq!(told.len(), classes.len());
    told.iter().zip(classes).filter(|(told, class)| **told == T::from(**class)).count() as f64 / told.len() as f64
}
