//! Draws boxes on images.

use crate::tasks::DetectedBox;

/// Minimum score of a detection that is drawn.
pub const MIN_DRAWN_SCORE: f32 = 0.3;
/// Number of image columns for each pixel of line width.
const COLUMNS: usize = 160;

/// Returns pixels `[rows, columns, 3]` with the frames of probable boxes in the colours of their classes, the most
/// probable on top.
pub fn framed(pixels: &[u8], size: [usize; 2], boxes: &[DetectedBox], colour: impl Fn(usize) -> [u8; 3]) -> Vec<u8> {
    let (mut drawn, thick) = (pixels.to_vec(), size[1].div_ceil(COLUMNS));
    for one in boxes.iter().rev().filter(|one| one.score >= MIN_DRAWN_SCORE) {
        let at = |share: f32, side: usize| {
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "inside of a picture")]
            let place = (share.clamp(0.0, 1.0) * side as f32).round() as usize;
            place.min(side)
        };
        let [left, top, right, bottom] = one.corners;
        let ([left, right], [top, bottom]) =
            ([left, right].map(|x| at(x, size[1])), [top, bottom].map(|y| at(y, size[0])));
        for (y, x) in (top..bottom).flat_map(|y| (left..right).map(move |x| (y, x))) {
            let inner = y >= top + thick && y + thick < bottom && x >= left + thick && x + thick < right;
            let pixel = 3 * (y * size[1] + x);
            if let (false, Some(pixel)) = (inner, drawn.get_mut(pixel..pixel + 3)) {
                pixel.copy_from_slice(&colour(one.class as usize));
            }
        }
    }
    drawn
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_and_nothing_else() {
        let found = |score, corners| DetectedBox { class: 1, score, corners };
        let boxes = [found(0.9, [0.25, 0.25, 1.0, 1.0]), found(0.1, [0.0, 0.0, 1.0, 1.0])];
        let drawn = framed(&[7; 48], [4, 4], &boxes, |class| [u8::try_from(class).expect("small"); 3]);
        let marked: Vec<usize> = (0..16).filter(|i| drawn[3 * i] == 1).collect();
        assert_eq!(marked, [5, 6, 7, 9, 11, 13, 14, 15]);
        // Corners that are no numbers draw nothing.
        assert_eq!(framed(&[7; 48], [4, 4], &[found(1.0, [f32::NAN; 4])], |_| [1; 3]), [7; 48]);
    }
}
