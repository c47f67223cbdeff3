//! Boxes of images that are turned by their EXIF orientation.

use gradscale::boxes::Corners;
use image::{ImageDecoder, ImageReader, metadata::Orientation};
use std::io::Cursor;

/// Image as its file stores it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct StoredImage {
    /// Rows and columns in the file.
    pub size: [usize; 2],
    /// Turn by which the image is shown.
    pub orientation: Orientation,
}

impl StoredImage {
    /// Reads size and orientation of an image file that is shown with `shown` rows and columns.
    pub fn read(file: &[u8], shown: [usize; 2]) -> Self {
        let upright = Self { size: shown, orientation: Orientation::NoTransforms };
        let reader = ImageReader::new(Cursor::new(file)).with_guessed_format().ok();
        let Some(mut decoder) = reader.and_then(|reader| reader.into_decoder().ok()) else { return upright };
        let (width, height) = decoder.dimensions();
        let size = [height, width].map(|side| usize::try_from(side).unwrap_or(usize::MAX));
        // Damaged metadata do not make an image unreadable: viewers show it as it is stored.
        Self { size, orientation: decoder.orientation().unwrap_or(Orientation::NoTransforms) }
    }
}

/// Returns the corners of a box, as shares of the stored image, in the image after its turn.
pub(super) fn turned([left, top, right, bottom]: Corners, orientation: Orientation) -> Corners {
    match orientation {
        Orientation::NoTransforms => [left, top, right, bottom],
        Orientation::Rotate90 => [1.0 - bottom, left, 1.0 - top, right],
        Orientation::Rotate180 => [1.0 - right, 1.0 - bottom, 1.0 - left, 1.0 - top],
        Orientation::Rotate270 => [top, 1.0 - right, bottom, 1.0 - left],
        Orientation::FlipHorizontal => [1.0 - right, top, 1.0 - left, bottom],
        Orientation::FlipVertical => [left, 1.0 - bottom, right, 1.0 - top],
        Orientation::Rotate90FlipH => [top, left, bottom, right],
        Orientation::Rotate270FlipH => [1.0 - bottom, 1.0 - right, 1.0 - top, 1.0 - left],
    }
}

#[cfg(test)]
mod tests {
    use super::turned;
    use image::{DynamicImage, GenericImageView, GrayImage, Luma, metadata::Orientation};

    /// Compares with the library that turns the pixels: a box of white pixels stays around them.
    #[test]
    fn boxes_turn_as_pixels_do() {
        let stored = GrayImage::from_fn(8, 4, |x, y| Luma([u8::from((1..3).contains(&x) && y == 3)]));
        let corners = [1.0 / 8.0, 3.0 / 4.0, 3.0 / 8.0, 1.0];
        for orientation in (1..=8).filter_map(Orientation::from_exif) {
            let mut image = DynamicImage::from(stored.clone());
            image.apply_orientation(orientation);
            let [left, top, right, bottom] = turned(corners, orientation);
            let (width, height) = image.dimensions();
            for (x, y, pixel) in image.to_luma8().enumerate_pixels() {
                let [column, row] = [(x as f32 + 0.5) / width as f32, (y as f32 + 0.5) / height as f32];
                let inside = left < column && column < right && top < row && row < bottom;
                assert_eq!(inside, pixel.0[0] == 1, "{orientation:?}: {x}, {y}");
            }
        }
    }
}
