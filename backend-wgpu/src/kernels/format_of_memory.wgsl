// Stores whose conversion to the type of y is their only rounding.

fn to_format(s: vec4<u32>) -> vec4<u32> {
    return s;
}
