//! Boxes of images that are turned by their EXIF orientation.

use gradscale::boxes::Corners;
use image::metadata::Orientation;

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
