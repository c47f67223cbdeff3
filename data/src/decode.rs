//! Decoding of image and label files.

use super::{
    Cause, classes,
    error::{ITS_IMAGE, ITS_TURNED_IMAGE},
};
use image::{
    DynamicImage, ImageDecoder, ImageError, ImageFormat, ImageReader,
    error::{LimitError, LimitErrorKind},
    imageops::FilterType,
    metadata::Orientation,
};
use png::{ColorType, Transformations};
use std::io::{BufRead, Cursor, Seek};

/// Maximum number of pixels of an image that is decoded. It keeps a small file from asking for much memory.
const MOST_PIXELS: usize = 1 << 26;

/// First bytes of a JPEG file.
const JPEG_MAGIC: [u8; 3] = [0xff, 0xd8, 0xff];

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
    /// Number of rows and of columns of the image as viewers show it.
    pub size: [usize; 2],
    /// Turn from the stored to the shown image, by the file's EXIF metadata.
    pub orientation: Orientation,
    /// True if the image has one channel (grey), false for R G B.
    pub grey: bool,
}

/// Reads size and colour from the header of an image file.
pub(super) fn header(file: impl BufRead + Seek) -> Result<Header, Cause> {
    let Opened { decoder, size, orientation, .. } = open(file)?;
    Ok(Header { size, orientation, grey: !decoder.color_type().has_color() })
}

/// Returns the rows and columns of an image file from its header.
pub(super) fn size(file: &[u8]) -> Result<[usize; 2], Cause> {
    header(Cursor::new(file)).map(|header| header.size)
}

/// Decodes an image file to [h, w, channels], turned as its EXIF orientation says.
pub(super) fn image(file: &[u8], form: Form) -> Result<Vec<u8>, Cause> {
    let opened = open(Cursor::new(file))?;
    let found = opened.size;
    if found != form.size && !form.resize {
        return Err(Cause::Size { expected: form.size, of: "the first image of its split", found });
    }
    let mut image = opened.decoded(file)?;
    if found != form.size {
        let [height, width] = form.size.map(|side| u32::try_from(side).unwrap_or(u32::MAX));
        // Averages the covered pixels when shrinking, and interpolates linearly when enlarging.
        image = image.resize_exact(width, height, FilterType::Triangle);
    }
    Ok(bytes(image, form.channels))
}

/// Decodes an image at its own size; returns pixels, rows and columns.
pub(super) fn whole(file: &[u8], channels: usize) -> Result<(Vec<u8>, [usize; 2]), Cause> {
    let opened = open(Cursor::new(file))?;
    let size = opened.size;
    Ok((bytes(opened.decoded(file)?, channels), size))
}

/// Image file whose header has been read.
struct Opened<D> {
    decoder: D,
    format: Option<ImageFormat>,
    /// Rows and columns after the image has been turned.
    size: [usize; 2],
    orientation: Orientation,
}

impl<D: ImageDecoder> Opened<D> {
    /// Decodes the image and turns it by its EXIF orientation.
    fn decoded(self, file: &[u8]) -> Result<DynamicImage, Cause> {
        // The decoder would fill in missing data. JPEG has no checksum, so damage inside its data may still pass
        // unnoticed.
        if self.format == Some(ImageFormat::Jpeg) && !is_finished(file) {
            return Err(Cause::Unfinished);
        }
        let mut image = DynamicImage::from_decoder(self.decoder).map_err(Cause::Image)?;
        image.apply_orientation(self.orientation);
        Ok(image)
    }
}

/// Returns true if an orientation exchanges rows and columns.
const fn is_turned(orientation: Orientation) -> bool {
    match orientation {
        Orientation::Rotate90 | Orientation::Rotate270 | Orientation::Rotate90FlipH | Orientation::Rotate270FlipH => {
            true
        }
        Orientation::NoTransforms
        | Orientation::Rotate180
        | Orientation::FlipHorizontal
        | Orientation::FlipVertical => false,
    }
}

/// Returns the rows and columns of an image after it has been turned, or of a turned image as it is stored.
pub(super) const fn turned_size([height, width]: [usize; 2], orientation: Orientation) -> [usize; 2] {
    if is_turned(orientation) { [width, height] } else { [height, width] }
}

fn bytes(image: DynamicImage, channels: usize) -> Vec<u8> {
    if channels == 1 { image.into_luma8().into_raw() } else { image.into_rgb8().into_raw() }
}

fn open<'a>(file: impl BufRead + Seek + 'a) -> Result<Opened<impl ImageDecoder + 'a>, Cause> {
    let reader = ImageReader::new(file).with_guessed_format().map_err(Cause::Io)?;
    let format = reader.format();
    let mut decoder = reader.into_decoder().map_err(Cause::Image)?;
    let (width, height) = decoder.dimensions();
    let size = [height, width].map(|side| usize::try_from(side).unwrap_or(usize::MAX));
    if size[0].saturating_mul(size[1]) > MOST_PIXELS {
        return Err(Cause::Image(ImageError::Limits(LimitError::from_kind(LimitErrorKind::DimensionError))));
    }
    // Damaged metadata do not make an image unreadable: viewers show it as it is stored.
    let orientation = decoder.orientation().unwrap_or(Orientation::NoTransforms);
    Ok(Opened { decoder, format, size: turned_size(size, orientation), orientation })
}

/// Returns true if the JPEG end marker follows the last scan. Scan data cannot contain the marker.
fn is_finished(file: &[u8]) -> bool {
    let last_scan = file.windows(2).rposition(|pair| pair == [0xff, 0xda]).unwrap_or(0);
    file[last_scan..].windows(2).any(|pair| pair == [0xff, 0xd9])
}

/// Decodes the values of a label image, [h, w]: grey values or palette indices as they are in the file, or colours.
pub(super) fn labels(file: &[u8], form: Form) -> Result<Vec<u32>, Cause> {
    let mut reader = open_labels(file)?;
    let (colour, depth) = (reader.info().color_type, reader.info().bit_depth);
    let (stored, orientation) = (stored_size(&reader), label_orientation(&reader));
    let found = turned_size(stored, orientation);
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
    let mut values = Vec::with_capacity(form.size[0].saturating_mul(form.size[1]));
    for row in (0..form.size[0]).map(|row| nearest(row, 0)) {
        values.extend(columns.iter().map(|&column| {
            let [row, column] = stored_place([row, column], stored, orientation);
            rows.get(row).map_or(0, |row| value(row, column))
        }));
    }
    Ok(values)
}

/// Reads the header of a label image.
fn open_labels(file: &[u8]) -> Result<png::Reader<Cursor<&[u8]>>, Cause> {
    if file.starts_with(&JPEG_MAGIC) {
        return Err(Cause::LabelFormat("JPEG".to_owned()));
    }
    let mut decoder = png::Decoder::new(Cursor::new(file));
    decoder.set_transformations(Transformations::IDENTITY);
    decoder.read_info().map_err(Cause::Png)
}

/// Returns the rows and columns of a label image as they are stored.
fn stored_size(reader: &png::Reader<Cursor<&[u8]>>) -> [usize; 2] {
    let (width, height) = reader.info().size();
    [height, width].map(|side| usize::try_from(side).unwrap_or(usize::MAX))
}

/// Returns the EXIF orientation of a label image.
fn label_orientation(reader: &png::Reader<Cursor<&[u8]>>) -> Orientation {
    let exif = reader.info().exif_metadata.as_deref();
    exif.and_then(Orientation::from_exif_chunk).unwrap_or(Orientation::NoTransforms)
}

/// Returns the row and column at which a pixel of a turned image is stored.
const fn stored_place([row, column]: [usize; 2], [height, width]: [usize; 2], orientation: Orientation) -> [usize; 2] {
    match orientation {
        Orientation::NoTransforms => [row, column],
        Orientation::Rotate90 => [height - 1 - column, row],
        Orientation::Rotate180 => [height - 1 - row, width - 1 - column],
        Orientation::Rotate270 => [column, width - 1 - row],
        Orientation::FlipHorizontal => [row, width - 1 - column],
        Orientation::FlipVertical => [height - 1 - row, column],
        Orientation::Rotate90FlipH => [column, row],
        Orientation::Rotate270FlipH => [height - 1 - column, width - 1 - row],
    }
}

/// Checks that a label image has the rows and columns of its image.
pub(super) fn check_label_size(labels: &[u8], image: &[u8]) -> Result<(), Cause> {
    let (header, reader) = (header(Cursor::new(image))?, open_labels(labels)?);
    let found = turned_size(stored_size(&reader), label_orientation(&reader));
    if header.size == found {
        return Ok(());
    }
    let of = if is_turned(header.orientation) { ITS_TURNED_IMAGE } else { ITS_IMAGE };
    Err(Cause::Size { expected: header.size, of, found })
}

#[cfg(test)]
mod tests {
    use super::*;
    use image::{GrayImage, Luma};

    /// Compares the places of label pixels with the turned images of the library.
    #[test]
    fn labels_turn_as_images_do() {
        let [height, width] = [2, 3_u32];
        let stored = GrayImage::from_fn(width, height, |x, y| Luma([u8::try_from(10 * y + x).expect("small")]));
        for orientation in (1..=8).filter_map(Orientation::from_exif) {
            let mut image = DynamicImage::from(stored.clone());
            image.apply_orientation(orientation);
            let size = turned_size([2, 3], orientation);
            assert_eq!([image.height(), image.width()].map(|side| side as usize), size, "{orientation:?}");
            let pixels = image.into_luma8().into_raw();
            for (i, pixel) in pixels.iter().enumerate() {
                let [row, column] = stored_place([i / size[1], i % size[1]], [2, 3], orientation);
                assert_eq!(usize::from(*pixel), 10 * row + column, "{orientation:?}, pixel {i}");
            }
        }
    }
}
