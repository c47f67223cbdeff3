//! Images inside the page.

use ::png::{BitDepth, ColorType, Compression, Encoder};

/// Maximum number of columns of an image in the page; larger ones lose rows and columns.
const COLUMNS: usize = 256;

/// Encodes an image, [height, width, 3] of bytes, as PNG in a `data:` address.
pub fn colours(pixels: &[u8], [height, width]: [usize; 2]) -> Option<String> {
    let step = width.div_ceil(COLUMNS).max(1);
    let rows = pixels.chunks_exact(3 * width).step_by(step);
    let data: Vec<u8> = rows.flat_map(|row| row.chunks_exact(3).step_by(step).flatten()).copied().collect();
    encode(&data, [height.div_ceil(step), width.div_ceil(step)], None)
}

/// Encodes an image of class ids, [height, width], as PNG in the classes' colours.
pub fn classes(classes: &[u8], [height, width]: [usize; 2], palette: &[[u8; 3]]) -> Option<String> {
    let step = width.div_ceil(COLUMNS).max(1);
    let data: Vec<u8> =
        classes.chunks_exact(width).step_by(step).flat_map(|row| row.iter().step_by(step)).copied().collect();
    encode(&data, [height.div_ceil(step), width.div_ceil(step)], Some(palette.concat()))
}

fn encode(data: &[u8], [height, width]: [usize; 2], palette: Option<Vec<u8>>) -> Option<String> {
    let mut file = Vec::new();
    let mut encoder = Encoder::new(&mut file, u32::try_from(width).ok()?, u32::try_from(height).ok()?);
    encoder.set_color(if palette.is_some() { ColorType::Indexed } else { ColorType::Rgb });
    encoder.set_depth(BitDepth::Eight);
    encoder.set_compression(Compression::Balanced);
    if let Some(palette) = palette {
        encoder.set_palette(palette);
    }
    let mut writer = encoder.write_header().ok()?;
    writer.write_image_data(data).ok()?;
    writer.finish().ok()?;
    Some(format!("data:image/png;base64,{}", base64(&file)))
}

/// Encodes bytes as base64 (RFC 4648, section 4).
fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let group = |group: &[u8]| {
        let at = |i: usize| u32::from(group.get(i).copied().unwrap_or(0));
        let bits = at(0) << 16 | at(1) << 8 | at(2);
        let digit = |i: usize, shift: u32| {
            if i <= group.len() { char::from(DIGITS[(bits >> shift & 63) as usize]) } else { '=' }
        };
        [digit(0, 18), digit(1, 12), digit(2, 6), digit(3, 0)]
    };
    bytes.chunks(3).flat_map(group).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn vectors_of_rfc_4648() {
        let words = ["", "f", "fo", "foo", "foob", "fooba", "foobar"].map(|word| base64(word.as_bytes()));
        assert_eq!(words, ["", "Zg==", "Zm8=", "Zm9v", "Zm9vYg==", "Zm9vYmE=", "Zm9vYmFy"]);
    }

    #[test]
    fn wide_images_lose_columns() {
        let address = classes(&[1; 600 * 2], [2, 600], &[[0, 0, 0], [255, 0, 0]]).expect("an image");
        assert!(address.starts_with("data:image/png;base64,iVBORw0KGgo"));
        assert!(colours(&[7; 12], [2, 2]).is_some());
        assert!(colours(&[7; 11], [2, 2]).is_none(), "too few bytes");
    }
}
