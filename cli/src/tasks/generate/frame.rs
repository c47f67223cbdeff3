//! Images of a data set in the square of a network: as many times as large as fits, whole numbers of times, in the middle,
//! with black around.

use crate::Failure;

/// Position of images in the network's square.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame {
    /// Number of rows, columns and channels of an image of the data set.
    pub image: [usize; 3],
    /// Number of rows, and of columns, of the square that contains the image.
    pub side: usize,
    factor: usize,
    /// First row and column of the image in the square.
    first: [usize; 2],
}

impl Frame {
    /// Creates the frame for images of a size in a square of `side` pixels.
    ///
    /// # Errors
    /// Images that are larger.
    pub fn new(image: [usize; 3], side: usize) -> Result<Self, Failure> {
        let [height, width, _] = image;
        let factor = side / height.max(width).max(1);
        if factor == 0 || height == 0 || width == 0 {
            let cause = format!("the network generates images of {side} × {side}; --size {side}x{side} resizes files");
            return Err(Failure::at(format!("images of {height} × {width}"), cause));
        }
        Ok(Self { image, side, factor, first: [height, width].map(|size| (side - factor * size) / 2) })
    }

    /// Appends an image, enlarged and surrounded by the square, to a buffer.
    pub fn place(&self, image: &[u8], into: &mut Vec<u8>) {
        let ([height, width, channels], [top, left]) = (self.image, self.first);
        let (inside_rows, inside_columns) = (top..top + self.factor * height, left..left + self.factor * width);
        for row in 0..self.side {
            for column in 0..self.side {
                if inside_rows.contains(&row) && inside_columns.contains(&column) {
                    let at = ((row - top) / self.factor * width + (column - left) / self.factor) * channels;
                    into.extend_from_slice(&image[at..at + channels]);
                } else {
                    into.resize(into.len() + channels, 0);
                }
            }
        }
    }

    /// Crops the image from the middle of a square of values from −1 to 1, as bytes. Each is the mean over the area
    /// that a pixel was enlarged to.
    pub fn take(&self, square: &[f32]) -> Vec<u8> {
        let ([height, width, channels], [top, left]) = (self.image, self.first);
        let mut image = Vec::with_capacity(height * width * channels);
        for row in 0..height {
            for column in 0..width {
                for channel in 0..channels {
                    let value = |i: usize| {
                        let (row, column) =
                            (top + row * self.factor + i / self.factor, left + column * self.factor + i % self.factor);
                        square[(row * self.side + column) * channels + channel]
                    };
                    let parts = self.factor * self.factor;
                    image.push(byte((0..parts).map(value).sum::<f32>() / parts as f32));
                }
            }
        }
        image
    }
}

/// Converts a value from −1 to 1 to a byte; NaN becomes 0.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "between 0 and 255; NaN becomes 0")]
fn byte(value: f32) -> u8 {
    (127.5 * (value + 1.0)).round() as u8
}

/// Converts an image to R G B, as the page and files have it.
pub fn coloured(image: &[u8], channels: usize) -> Vec<u8> {
    match channels {
        3 => image.to_vec(),
        channels => image.chunks_exact(channels.max(1)).flat_map(|pixel| [pixel[0]; 3]).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn images_come_back_from_their_squares() {
        for (image, side) in [([3, 2, 3], 4), ([28, 28, 1], 32), ([5, 7, 1], 64), ([32, 32, 3], 64), ([4, 4, 1], 4)] {
            let frame = Frame::new(image, side).expect("it fits");
            let bytes: Vec<u8> = (0..image.iter().product::<usize>()).map(|i| (i * 37).to_le_bytes()[0]).collect();
            let mut square = Vec::new();
            frame.place(&bytes, &mut square);
            assert_eq!(square.len(), side * side * image[2]);
            let values: Vec<f32> = square.iter().map(|&byte| f32::from(byte) / 127.5 - 1.0).collect();
            assert_eq!(frame.take(&values), bytes, "{image:?} in {side}");
        }
        let frame = Frame::new([1, 1, 1], 5).expect("it fits");
        let mut square = Vec::new();
        frame.place(&[9], &mut square);
        assert_eq!(square, [9; 25]);
        assert!(Frame::new([33, 4, 1], 32).is_err());
        assert_eq!([-2.0, -1.0, 0.0, 1.0, 2.0, f32::NAN].map(byte), [0, 0, 128, 255, 255, 0]);
    }
}
