//! Places in tensors of four dimensions.

/// Index of `at` in a tensor of this shape, the last dimension running fastest.
pub fn index(shape: [u32; 4], at: [u32; 4]) -> usize {
    shape.iter().zip(at).fold(0, |i, (&size, at)| i * size as usize + at as usize)
}

/// Returns all positions of a tensor of this shape, in order of their elements.
pub fn places(shape: [u32; 4]) -> impl Iterator<Item = [u32; 4]> {
    let [_, b, c, d] = shape;
    (0..len(shape) as u32).map(move |i| [i / (b * c * d), i / (c * d) % b, i / d % c, i % d])
}

/// Number of elements.
pub fn len(shape: [u32; 4]) -> usize {
    shape.iter().map(|&size| size as usize).product()
}

/// Returns true if `v` replaces `best`: the largest value wins, and the first NaN wins over all numbers.
pub fn wins(v: f32, best: f32) -> bool {
    v > best || v.is_nan() && !best.is_nan()
}
