//! Access to the caller's memory. Structures are plain integers: they are copied in, checked, and copied back. So
//! content that C code wrote into one causes at most an error, and pointers may alias.

use crate::status::gs_status::{
    self, GS_ERROR_CORRUPTED, GS_ERROR_LENGTH, GS_ERROR_OVERLAP, GS_ERROR_POINTER, GS_ERROR_VERSION,
};

/// Version number of the structures, raised whenever one changes. gs_abi_version returns that of the library.
pub const GS_ABI_VERSION: u32 = 1;

/// Returns the version of the library's structures. If the library is a shared one, compare it with GS_ABI_VERSION.
#[unsafe(no_mangle)]
pub extern "C" fn gs_abi_version() -> u32 {
    GS_ABI_VERSION
}

/// Plain integers and floats, without relevant padding: any bits are a valid value.
///
/// # Safety
/// Every bit pattern must be a value of the type.
pub(crate) unsafe trait Plain: Copy {}

// SAFETY: any bits are a number.
unsafe impl Plain for f32 {}
// SAFETY: any bits are a number.
unsafe impl Plain for f64 {}
// SAFETY: any bits are a number.
unsafe impl Plain for u8 {}
// SAFETY: any bits are a number.
unsafe impl Plain for u16 {}
// SAFETY: any bits are a number.
unsafe impl Plain for u32 {}
// SAFETY: any bits are a number.
unsafe impl Plain for i32 {}

/// Checks that a pointer can point to `count` elements: not NULL, aligned, not too long.
pub(crate) fn checked<T>(pointer: *const T, count: usize) -> Result<(), gs_status> {
    if pointer.is_null() || !pointer.is_aligned() {
        return Err(GS_ERROR_POINTER);
    }
    let bytes = count.checked_mul(size_of::<T>()).ok_or(GS_ERROR_LENGTH)?;
    if isize::try_from(bytes).is_err() || (pointer as usize).checked_add(bytes).is_none() {
        return Err(GS_ERROR_LENGTH);
    }
    Ok(())
}

/// # Safety
/// A pointer that is neither NULL nor misaligned points to a T.
pub(crate) unsafe fn read<T: Plain>(from: *const T) -> Result<T, gs_status> {
    checked(from, 1)?;
    // SAFETY: checked as far as possible, the rest is promised; any bits are a T.
    Ok(unsafe { from.read() })
}

/// # Safety
/// A pointer that is neither NULL nor misaligned points to memory for a T.
pub(crate) unsafe fn write<T: Plain>(to: *mut T, value: T) -> Result<(), gs_status> {
    checked(to, 1)?;
    // SAFETY: checked as far as possible, the rest is promised.
    unsafe { to.write(value) };
    Ok(())
}

/// Writes a value like [`write`], unless the pointer is NULL because the caller does not need it.
///
/// # Safety
/// As for [`write`].
pub(crate) unsafe fn write_if<T: Plain>(to: *mut T, value: T) -> Result<(), gs_status> {
    if to.is_null() {
        return Ok(());
    }
    // SAFETY: promised.
    unsafe { write(to, value) }
}

/// Returns a slice of `count` elements; the pointer may be NULL if there are none.
///
/// # Safety
/// The pointer points to `count` elements, which are not written before the function returns.
pub(crate) unsafe fn slice<'a, T: Plain>(from: *const T, count: usize) -> Result<&'a [T], gs_status> {
    if count == 0 {
        return Ok(&[]);
    }
    checked(from, count)?;
    // SAFETY: checked as far as possible, the rest is promised.
    Ok(unsafe { core::slice::from_raw_parts(from, count) })
}

/// Returns a mutable slice of `count` elements that does not overlap `others`.
///
/// # Safety
/// The pointer points to `count` elements, which nothing else accesses before the function returns.
pub(crate) unsafe fn slice_apart<'a, T: Plain, S: Plain>(
    to: *mut T, count: usize, others: &[S],
) -> Result<&'a mut [T], gs_status> {
    if count == 0 {
        return Ok(&mut []);
    }
    checked(to, count)?;
    let (start, other) = (to as usize, others.as_ptr() as usize);
    if start < other + size_of_val(others) && other < start + count * size_of::<T>() {
        return Err(GS_ERROR_OVERLAP);
    }
    // SAFETY: checked as far as possible, the rest is promised.
    Ok(unsafe { core::slice::from_raw_parts_mut(to, count) })
}

/// Returns true if the source is also the destination.
pub(crate) fn in_place<T>(from: *const T, to: *mut T) -> bool {
    core::ptr::eq(from, to)
}

/// Type of the content of sealed words.
#[derive(Clone, Copy)]
pub(crate) enum Tag {
    Site,
    LossScale,
}

const fn first(tag: Tag) -> i64 {
    let tag = match tag {
        Tag::Site => 0x6773_0001,
        Tag::LossScale => 0x6773_0002,
    };
    (GS_ABI_VERSION as i64) << 32 | tag
}

/// Computes a checksum: FNV-1a, one word at a time.
fn checksum(words: &[i64]) -> i64 {
    let hash = |hash: u64, word: &i64| {
        (hash ^ u64::from_ne_bytes(word.to_ne_bytes())).wrapping_mul(0x0000_0100_0000_01B3).rotate_left(17)
    };
    words.iter().fold(0xCBF2_9CE4_8422_2325, hash) as i64
}

/// Stores words between a version and a checksum; missing ones are 0.
pub(crate) fn seal<const N: usize>(tag: Tag, content: &[i64]) -> [i64; N] {
    let mut sealed = [0; N];
    if let [version, inside @ .., sum] = sealed.as_mut_slice() {
        *version = first(tag);
        for (to, from) in inside.iter_mut().zip(content) {
            *to = *from;
        }
        *sum = 0;
    }
    let sum = checksum(&sealed);
    if let Some(last) = sealed.last_mut() {
        *last = sum;
    }
    sealed
}

/// Checks version and checksum, and returns the words that [`seal`] stored.
pub(crate) fn open<const N: usize>(tag: Tag, sealed: &[i64; N]) -> Result<&[i64], gs_status> {
    let [version, inside @ .., sum] = sealed.as_slice() else { return Err(GS_ERROR_VERSION) };
    if *version != first(tag) {
        return Err(GS_ERROR_VERSION);
    }
    let mut unsummed = *sealed;
    if let Some(last) = unsummed.last_mut() {
        *last = 0;
    }
    if checksum(&unsummed) == *sum { Ok(inside) } else { Err(GS_ERROR_CORRUPTED) }
}
