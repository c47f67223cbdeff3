//! One image file, or one label file, to bytes.

use super::Cause;
use image::{
    DynamicImage, ImageDecoder, ImageError, ImageFormat, ImageReader,
    error::{LimitError, LimitErrorKind},
};
use png::{BitDepth, ColorType, Transformations};
use std::io::Cursor;

/// The largest image that is decoded, in pixels. It keeps a small file from asking for much memory.
const MOST_PIXELS: usize = 1 << 26;

/// Rows and columns of an image file, as its header has them.
pub(super) fn size(file: &[u8]) -> Result<[usize; 2], Cause> {
    open(file).map(|(_, _, size)| size)
}

/// An image as R G B, [h, w, 3].
pub(super) fn image(file: &[u8], size: [usize; 2]) -> Result<Vec<u8>, Cause> {
    let (decoder, format, found) = open(file)?;
    if found != size {
        return Err(Cause::Size { expected: size, of: "the first image of its split", found });
    }
    // The decoder would invent what is missing. JPEG has no checksum, so damage inside its data may still pass unseen.
    if format == Some(ImageFormat::Jpeg) && !is_finished(file) {
        return Err(Cause::Unfinished);
    }
    let image = DynamicImage::from_decoder(decoder).map_err(Cause::Image)?;
    Ok(image.into_rgb8().into_raw())
}

fn open(file: &[u8]) -> Result<(impl ImageDecoder, Option<ImageFormat>, [usize; 2]), Cause> {
    let reader = ImageReader::new(Cursor::new(file)).with_guessed_format().map_err(Cause::Io)?;
    let format = reader.format();
    let decoder = reader.into_decoder().map_err(Cause::Image)?;
    let (width, height) = decoder.dimensions();
    let size = [height, width].map(|side| usize::try_from(side).unwrap_or(usize::MAX));
    if size[0].saturating_mul(size[1]) > MOST_PIXELS {
        return Err(Cause::Image(ImageError::Limits(LimitError::from_kind(LimitErrorKind::DimensionError))));
    }
    Ok((decoder, format, size))
}

/// Whether JPEG's end marker follows its last scan. A scan's data cannot contain one.
fn is_finished(file: &[u8]) -> bool {
    let last_scan = file.windows(2).rposition(|pair| pair == [0xff, 0xda]).unwrap_or(0);
    file[last_scan..].windows(2).any(|pair| pair == [0xff, 0xd9])
}

/// A label image as class ids, [h, w]: grey values or palette indices, as they are in the file.
pub(super) fn labels(file: &[u8], size: [usize; 2]) -> Result<Vec<u8>, Cause> {
    let mut decoder = png::Decoder::new(Cursor::new(file));
    decoder.set_transformations(Transformations::IDENTITY);
    let mut reader = decoder.read_info().map_err(Cause::Png)?;
    let (colour, depth) = (reader.info().color_type, reader.info().bit_depth);
    if !matches!(colour, ColorType::Grayscale | ColorType::Indexed) || depth == BitDepth::Sixteen {
        return Err(Cause::Colours(colour, depth));
    }
    let (width, height) = reader.info().size();
    let found = [height, width].map(|side| usize::try_from(side).unwrap_or(usize::MAX));
    if found != size {
        return Err(Cause::Size { expected: size, of: "its image", found });
    }

    // As large as the image, which has been decoded.
    let mut packed = vec![0; reader.output_buffer_size().unwrap_or(0)];
    let line = reader.next_frame(&mut packed).map_err(Cause::Png)?.line_size;
    let bits = depth as usize;
    let mask = u8::MAX >> (8 - bits);
    let value = |row: &[u8], column: usize| {
        let end = (column + 1) * bits; // first bit after the value, counted from the most significant
        row[(end - 1) / 8] >> ((8 - end % 8) % 8) & mask
    };
    Ok(packed.chunks_exact(line.max(1)).flat_map(|row| (0..size[1]).map(move |column| value(row, column))).collect())
}
