// Codes of formats of eight bits, of halves all of whose values are of such a format.

// Returns the code of a half whose value is one of the format. What is not finite stays so; E4M3 has NaN alone for it.
DEVICE u32 code_of(u16 half, u32 is_e4m3) {
    const u32 sign = half >> 8 & 0x80, size = half & 0x7FFF;
    // E5M2 is the upper half of a half, which for NaN may be that of infinity.
    if (!is_e4m3) return sign | (size > 0x7C00 ? 0x7F : size >> 8);
    // Subnormal numbers are multiples of 2^-9. Exponents of others are eight lower.
    if (size < 0x2400) return sign | (u32)(half_to_float((u16)size) * 512.0f);
    const u32 byte = (size - 0x2000) >> 7;
    return sign | (byte < 0x7F ? byte : 0x7F);
}

// Returns the half of a code.
DEVICE u32 half_of(u32 code, u32 is_e4m3) {
    const u32 sign = (code & 0x80) << 8, size = code & 0x7F;
    if (!is_e4m3) return sign | size << 8;
    if (size == 0x7F) return sign | 0x7E00;
    // Subnormal numbers are multiples of 2^-9. Exponents of others are eight higher.
    if (size < 8) return sign | float_to_half((float)size * (1.0f / 512.0f));
    return sign | ((size << 7) + 0x2000);
}
