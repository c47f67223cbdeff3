//! Loops over a row of pooling windows.

use super::kernels;

/// Geometry of pooling windows along a row of an image.
#[derive(Clone, Copy, Debug)]
pub struct RowWindows {
    pub channels: usize,
    pub window: usize,
    pub stride: usize,
    pub pad: usize,
    /// Offset of the row's first element in a pooling window.
    pub offset: usize,
}

impl RowWindows {
    /// Calls `work` with (window, position, offset) of all positions inside a row of `pixels` pixels, in elements.
    #[inline(always)]
    fn for_each_tap(self, windows: usize, pixels: usize, mut work: impl FnMut(usize, usize, u8)) {
        for q in 0..windows {
            for j in 0..self.window {
                let place = q * self.stride + j;
                if place >= self.pad && place - self.pad < pixels {
                    // A window of at most 256 places.
                    let [offset, ..] = (self.offset + j).to_le_bytes();
                    work(q * self.channels, (place - self.pad) * self.channels, offset);
                }
            }
        }
    }
}

kernels! {
    /// Updates the largest value of each window and its offset; offset 255 means none yet. Only the last element of the
    /// largest window has that offset itself, and none comes after it.
    fn max_pool_row[](row: &[f32], best: &mut [f32], at: &mut [u8], windows_of_row: RowWindows) {
        let c = windows_of_row.channels;
        windows_of_row.for_each_tap(best.len() / c, row.len() / c, |q, place, offset| {
            let (best, at) = (&mut best[q..q + c], &mut at[q..q + c]);
            for ((best, at), &v) in best.iter_mut().zip(at).zip(&row[place..place + c]) {
                // The first value of a window always wins.
                let wins = (v > *best) | (v.is_nan() & !best.is_nan()) | (*at == u8::MAX);
                *best = if wins { v } else { *best };
                *at = if wins { offset } else { *at };
            }
        });
    }

    /// Adds the value of each window to its chosen position in a row. A select instead of a product, because a value
    /// may be ∞ where it is not chosen.
    fn scatter_row[](values: &[f32], at: &[u8], row: &mut [f32], windows_of_row: RowWindows) {
        let c = windows_of_row.channels;
        windows_of_row.for_each_tap(values.len() / c, row.len() / c, |q, place, offset| {
            let row = &mut row[place..place + c];
            for ((sum, &v), &at) in row.iter_mut().zip(&values[q..q + c]).zip(&at[q..q + c]) {
                *sum += if at == offset { v } else { 0.0 };
            }
        });
    }

    /// Gathers the values of a row from the chosen position of each pooling window.
    fn gather_row[](row: &[f32], at: &[u8], values: &mut [f32], windows_of_row: RowWindows) {
        let c = windows_of_row.channels;
        windows_of_row.for_each_tap(values.len() / c, row.len() / c, |q, place, offset| {
            let values = &mut values[q..q + c];
            for ((value, &v), &at) in values.iter_mut().zip(&row[place..place + c]).zip(&at[q..q + c]) {
                // By bit operations, because a branch would be mispredicted in half of all cases.
                let mask = u32::from(at == offset).wrapping_neg();
                *value = f32::from_bits((v.to_bits() & mask) | (value.to_bits() & !mask));
            }
        });
    }
}
