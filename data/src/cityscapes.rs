//! Classes of Cityscapes: the 19 that its benchmark scores (Cordts et al. 2016), by their values in `labelIds`.

use super::classes::Classes;

/// Class id of all values that the benchmark ignores.
const IGNORED: u8 = 255;
/// Values that label images may have. License plates are −1, which PNG stores as 255.
const MAX_VALUE: u32 = 33;
const LICENSE_PLATE: u32 = 255;
/// Value, name and colour of each class.
const CLASSES: [(u32, &str, [u8; 3]); 19] = [
    (7, "road", [128, 64, 128]),
    (8, "sidewalk", [244, 35, 232]),
    (11, "building", [70, 70, 70]),
    (12, "wall", [102, 102, 156]),
    (13, "fence", [190, 153, 153]),
    (17, "pole", [153, 153, 153]),
    (19, "traffic light", [250, 170, 30]),
    (20, "traffic sign", [220, 220, 0]),
    (21, "vegetation", [107, 142, 35]),
    (22, "terrain", [152, 251, 152]),
    (23, "sky", [70, 130, 180]),
    (24, "person", [220, 20, 60]),
    (25, "rider", [255, 0, 0]),
    (26, "car", [0, 0, 142]),
    (27, "truck", [0, 0, 70]),
    (28, "bus", [0, 60, 100]),
    (31, "train", [0, 80, 100]),
    (32, "motorcycle", [0, 0, 230]),
    (33, "bicycle", [119, 11, 32]),
];

/// Returns the classes of the benchmark; all other values are ignored.
pub(super) fn classes() -> Option<Classes> {
    let named = CLASSES.map(|(value, name, colour)| (value, name.to_owned(), colour));
    let mut classes = Classes::new(named.into_iter(), Some((LICENSE_PLATE, IGNORED.into())))?;
    for value in 0..=MAX_VALUE {
        classes.values.0.entry(value).or_insert(IGNORED);
    }
    Some(classes)
}
