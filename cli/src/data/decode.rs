//! Decoding of image and label files.

use super::{Cause, classes, error::ITS_IMAGE};
use image::{
    DynamicImage, ImageDecoder, ImageError, ImageFormat, ImageReader,
    error::{LimitError, LimitErrorKind},
    imageops::FilterType,
};
use png::{ColorType, Transformations};
use std::io::{BufRead, Cursor, Seek};

/// Maximum number of pixels of an image that is decoded. It keeps a small file from asking for much memory.
const MOST_PIXELS: usize = 1 << 26;

/// Target size and channels of decoded images.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Form {
    /// Number of rows and of columns that a decoded image must have.
    pub size: [usize; 2],
    /// Values of a pixel: 3 for R G B, 1 for grey.
    pub channels: usize,
    /// True if images of other sizes are resized, false if they are errors.
    pub resize: bool,
}

/// Size and colour of an image, as read from the header of its file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Header {
    /// Number of rows and of columns of the image.
    pub size: [usize; 2],
    /// True if the image has one channel (grey), false for R G B.
    pub grey: bool,
}

/// Reads size and colour from the header of an image file.
pub(super) fn header(file: impl BufRead + Seek) -> Result<Header, Cause> {
    let (decoder, _, size) = open(file)?;
    Ok(Header { size, grey: !decoder.color_type().has_color() })
}

/// Returns the rows and columns of an image file from its header.
pub(super) fn size(file: &[u8]) -> Result<[usize; 2], Cause> {
    header(Cursor::new(file)).map(|header| header.size)
}

/// Decodes an image file to [h, w, channels].
pub(super) fn image(file: &[u8], form: Form) -> Result<Vec<u8>, Cause> {
    let (decoder, format, found) = open(Cursor::new(file))?;
    if found != form.size && !form.resize {
        return Err(Cause::Size { expected: form.size, of: "the first image of its split", found });
    }
    let mut image = decoded(file, decoder, format)?;
    if found != form.size {
        let [height, width] = form.size.map(|side| u32::try_from(side).unwrap_or(u32::MAX));
        // Averages the covered pixels when shrinking, and interpolates linearly when enlarging.
        image = image.resize_exact(width, height, FilterType::Triangle);
    }
    Ok(bytes(image, form.channels))
}

/// Decodes an image at its own size; returns pixels, rows and columns.
pub(super) fn whole(file: &[u8], channels: usize) -> Result<(Vec<u8>, [usize; 2]), Cause> {
    let (decoder, format, size) = open(Cursor::new(file))?;
    Ok((bytes(decoded(file, decoder, format)?, channels), size))
}

fn decoded(file: &[u8], decoder: impl ImageDecoder, format: Option<ImageFormat>) -> Result<DynamicImage, Cause> {
    // The decoder would fill in missing data. JPEG has no checksum, so damage inside its data may still pass unnoticed.
    if format == Some(ImageFormat::Jpeg) && !is_finished(file) {
        return Err(Cause::Unfinished);
    }
    DynamicImage::from_decoder(decoder).map_err(Cause::Image)
}

fn bytes(image: DynamicImage, channels: usize) -> Vec<u8> {
    if channels == 1 { image.into_luma8().into_raw() } else { image.into_rgb8().into_raw() }
}

fn open<'a>(
    file: impl BufRead + Seek + 'a,
) -> Result<(impl ImageDecoder + 'a, Option<ImageFormat>, [usize; 2]), Cause> {
    let reader = ImageReader::new(file).with_guessed_format().map_err(Cause::Io)?;
    let format = reader.format();
    let decoder = reader.into_decoder().map_err(Cause::Image)?;
    let (width, height) = decoder.dimensions();
    let size = [height, width].map(|side| usize::try_from(side).unwrap_or(usize::MAX));
    if size[0].saturating_mul(size[1]) > MOST_PIXELS {
        return Err(Cause::Image(ImageError::Limits(LimitError::from_kind(LimitErrorKind::DimensionError))));
    }
    Ok((decoder, format, size))
}

/// Returns true if the JPEG end marker follows the last scan. Scan data cannot contain the marker.
fn is_finished(file: &[u8]) -> bool {
    let last_scan = file.windows(2).rposition(|pair| pair == [0xff, 0xda]).unwrap_or(0);
    file[last_scan..].windows(2).any(|pair| pair == [0xff, 0xd9])
}

/// Decodes the values of a label image, [h, w]: grey values or palette indices as they are in the file, or colours.
pub(super) fn labels(file: &[u8], form: Form) -> Result<Vec<u32>, Cause> {
    let mut decoder = png::Decoder::new(Cursor::new(file));
    decoder.set_transformations(Transformations::IDENTITY);
    let mut reader = decoder.read_info().map_err(Cause::Png)?;
    let (colour, depth) = (reader.info().color_type, reader.info().bit_depth);
    let (width, height) = reader.info().size();
    let found = [height, width].map(|side| usize::try_from(side).unwrap_or(usize::MAX));
    if found != form.size && !form.resize {
        return Err(Cause::Size { expected: form.size, of: ITS_IMAGE, found });
    }
    if found[0].saturating_mul(found[1]) > MOST_PIXELS {
        return Err(Cause::Image(ImageError::Limits(LimitError::from_kind(LimitErrorKind::DimensionError))));
    }
    let mut packed = vec![0; reader.output_buffer_size().unwrap_or(0)];
    let line = reader.next_frame(&mut packed).map_err(Cause::Png)?.line_size;
    let (samples, bits) = (colour.samples(), depth as usize);
    // The first byte of a sample of 16 bits is its high one.
    let sample = |row: &[u8], index: usize| match bits {
        8 => row[index].into(),
        16 => u16::from_be_bytes([row[2 * index], row[2 * index + 1]]),
        _ => {
            let end = (index + 1) * bits; // first bit after the value, counted from the most significant
            u16::from(row[(end - 1) / 8] >> ((8 - end % 8) % 8) & (u8::MAX >> (8 - bits)))
        }
    };
    let value = |row: &[u8], column: usize| {
        let first = column * samples;
        match colour {
            // Transparency carries no class, so alpha is ignored.
            ColorType::Grayscale | ColorType::GrayscaleAlpha | ColorType::Indexed => sample(row, first).into(),
            ColorType::Rgb | ColorType::Rgba => {
                let [r, g, b] = [0, 1, 2].map(|i| sample(row, first + i));
                let byte = |sample: u16| sample.to_be_bytes()[usize::from(bits == 8)];
                if r == g && g == b { r.into() } else { classes::colour_value([r, g, b].map(byte)) }
            }
        }
    };
    let rows: Vec<&[u8]> = packed.chunks_exact(line.max(1)).collect();
    // Of sizes that differ, the nearest pixel.
    let nearest = |place: usize, axis: usize| (2 * place + 1) * found[axis] / (2 * form.size[axis]);
    let columns: Vec<usize> = (0..form.size[1]).map(|column| nearest(column, 1)).collect();
    let row = |row| rows.get(nearest(row, 0)).copied().unwrap_or_default();
    Ok((0..form.size[0])
        .flat_map(|at| {
            let row = row(at);
            columns.iter().map(move |&column| value(row, column))
        })
        .collect())
}

/// Returns the rows and columns of a label image.
pub(super) fn labels_size(file: &[u8]) -> Result<[usize; 2], Cause> {
    let reader = png::Decoder::new(Cursor::new(file)).read_info().map_err(Cause::Png)?;
    let (width, height) = reader.info().size();
    Ok([height, width].map(|side| usize::try_from(side).unwrap_or(usize::MAX)))
}
