// Functions whose errors are a few ulp on every driver. WGSL allows 2.5 ulp for a quotient and far more for exp, log and
// tanh. Polynomials are Chebyshev fits on the intervals named. Needs half.wgsl, scale.wgsl, logarithm.wgsl.

fn is_nan(x: f32) -> bool {
    return (bitcast<u32>(x) & F32_MAGNITUDE) > F32_INFINITY;
}

fn is_infinite(x: f32) -> bool {
    return (bitcast<u32>(x) & F32_MAGNITUDE) == F32_INFINITY;
}

/// Returns a number that orders f32 by value, with −0 next to 0, even if the device flushes subnormals.
fn order(x: u32) -> u32 {
    let m = x & F32_MAGNITUDE;
    return select(0x80000000u + m, 0x80000000u - m, x > F32_MAGNITUDE);
}

/// Returns a number by which f32 values are ordered, NaN above all others.
fn order_rank(x: u32) -> u32 {
    return select(order(x), 0xffffffffu, (x & F32_MAGNITUDE) > F32_INFINITY);
}

fn rank_to_float(order_rank: u32) -> f32 {
    if order_rank == 0xffffffffu {
        return bits_as_float(F32_NAN);
    }
    return bits_as_float(select((0x80000000u - order_rank) | ~F32_MAGNITUDE, order_rank - 0x80000000u, order_rank >= 0x80000000u));
}

/// Rounded number together with its rounding error.
struct Exact {
    value: f32,
    error: f32,
}

/// Returns a · b and its rounding error, by halves of the digits (Dekker 1971). For magnitudes where nothing leaves
/// f32.
fn two_product(a: f32, b: f32) -> Exact {
    let product = a * b;
    let a1 = bits_as_float(bitcast<u32>(a) & 0xfffff000u);
    let b1 = bits_as_float(bitcast<u32>(b) & 0xfffff000u);
    let a2 = a - a1;
    let b2 = b - b1;
    return Exact(product, a2 * b2 - (((product - a1 * b1) - a2 * b1) - a1 * b2));
}

/// A positive finite number as digits in [1, 2) and an exponent.
struct Split {
    digits: f32,
    exponent: i32,
}

fn split(m: u32) -> Split {
    var digits = m;
    var field = i32(m >> 23u);
    if field == 0 {
        let shift = countLeadingZeros(m) - 8u;
        digits = m << shift;
        field = 1 - i32(shift);
    }
    return Split(bits_as_float((digits & (F32_HIDDEN - 1u)) | 0x3f800000u), field - 127);
}

/// Computes a / b, rounded once but for the last half ulp; subnormals as they are.
fn divide(a: f32, b: f32) -> f32 {
    let ma = bitcast<u32>(a) & F32_MAGNITUDE;
    let mb = bitcast<u32>(b) & F32_MAGNITUDE;
    let sign = (bitcast<u32>(a) ^ bitcast<u32>(b)) & ~F32_MAGNITUDE;
    if ma > F32_INFINITY || mb > F32_INFINITY || (ma == mb && (ma == 0u || ma == F32_INFINITY)) {
        return bits_as_float(F32_NAN);
    }
    if ma == F32_INFINITY || mb == 0u {
        return bits_as_float(sign | F32_INFINITY);
    }
    if ma == 0u || mb == F32_INFINITY {
        return bits_as_float(sign);
    }
    let x = split(ma);
    let z = split(mb);
    let q = x.digits / z.digits;
    let product = two_product(q, z.digits);
    let rest = (x.digits - product.value) - product.error;
    return bits_as_float(sign | scaled_bits(bitcast<u32>(q + rest / z.digits), x.exponent - z.exponent));
}

fn square_root(x: f32) -> f32 {
    let m = bitcast<u32>(x);
    if m == 0u || m == (F32_MAGNITUDE + 1u) || m == F32_INFINITY {
        return x;
    }
    if m > F32_INFINITY {
        return bits_as_float(F32_NAN);
    }
    let parts = split(m);
    let odd = parts.exponent & 1;
    let digits = parts.digits * f32(1 + odd);
    let root = sqrt(digits);
    let square = two_product(root, root);
    let rest = (digits - square.value) - square.error;
    return bits_as_float(scaled_bits(bitcast<u32>(root + rest / (2.0 * root)), (parts.exponent - odd) / 2));
}

/// Computes e^(x + small) for a tiny correction `small` of the argument.
fn exponential_of(x: f32, small: f32) -> f32 {
    if is_nan(x) {
        return x;
    }
    let within = clamp(x, -110.0, 90.0);
    let n = floor(within * 1.44269504 + 0.5);
    let r = ((within - n * LN2_LARGE) - n * LN2_SMALL) + small;
    // e^r = 1 + r + r² q(r), |r| ≤ ½ ln 2.
    var q = 0.000198995872;
    q = q * r + 0.00139338835;
    q = q * r + 0.00833329811;
    q = q * r + 0.0416664628;
    q = q * r + 0.166666667;
    q = q * r + 0.500000001;
    return bits_as_float(scaled_bits(bitcast<u32>(1.0 + (r + r * r * q)), i32(n)));
}

fn exponential(x: f32) -> f32 {
    return exponential_of(x, 0.0);
}

fn natural_logarithm(x: f32) -> f32 {
    let bits = bitcast<u32>(x);
    let m = bits & F32_MAGNITUDE;
    if m == 0u {
        return bits_as_float(F32_INFINITY | ~F32_MAGNITUDE);
    }
    if m > F32_INFINITY || bits > F32_INFINITY {
        return bits_as_float(F32_NAN);
    }
    if m == F32_INFINITY {
        return x;
    }
    return logarithm(m);
}

fn hyperbolic_tangent(x: f32) -> f32 {
    if is_nan(x) {
        return x;
    }
    let a = abs(x);
    if a < 0.625 {
        // tanh x = x + x³ p(x²).
        let z = x * x;
        var p = 0.00222431735;
        p = p * z - 0.00828176919;
        p = p * z + 0.0217493992;
        p = p * z - 0.0539567998;
        p = p * z + 0.133332929;
        p = p * z - 0.333333331;
        return x + x * z * p;
    }
    let t = 1.0 - divide(2.0, exponential(2.0 * min(a, 20.0)) + 1.0);
    return select(t, -t, x < 0.0);
}

/// Returns a word of 2/π behind the point, after one word of zeros.
fn two_over_pi(i: u32) -> u32 {
    switch i {
        case 1u: { return 0xa2f9836eu; }
        case 2u: { return 0x4e441529u; }
        case 3u: { return 0xfc2757d1u; }
        case 4u: { return 0xf534ddc0u; }
        case 5u: { return 0xdb629599u; }
        case 6u: { return 0x3c439041u; }
        case 7u: { return 0xfe5163abu; }
        default: { return 0u; }
    }
}

/// Returns 32 bits of 2/π from bit `place` of [`two_over_pi`] on.
fn two_over_pi_bits(place: u32) -> u32 {
    let word = place >> 5u;
    let shift = place & 31u;
    // In two steps, because a shift by 32 is not defined.
    return (two_over_pi(word) << shift) | ((two_over_pi(word + 1u) >> 1u) >> (31u - shift));
}

/// Returns the upper word of the product of `a` < 2^24 and `b`.
fn multiply_high(a: u32, b: u32) -> u32 {
    let low = (a & 0xffffu) * (b & 0xffffu);
    let first = (a >> 16u) * (b & 0xffffu) + (low >> 16u);
    let second = (a & 0xffffu) * (b >> 16u) + (first & 0xffffu);
    return (a >> 16u) * (b >> 16u) + (first >> 16u) + (second >> 16u);
}

/// Computes sin(x + quarters·π/2). From π/4 on, x·2/π modulo 4 is computed in integers with 62 bits behind the point (Payne
/// and Hanek 1983), so that any x has a result with full precision. Bits of 2/π whose product with x is a multiple of 4
/// are left out.
fn sine(x: f32, quarters: u32) -> f32 {
    let bits = bitcast<u32>(x);
    let magnitude = bits & F32_MAGNITUDE;
    if magnitude >= F32_INFINITY {
        return bits_as_float(F32_NAN);
    }
    var r = bits_as_float(magnitude);
    var quadrant = quarters;
    if magnitude >= 0x3f490fdbu {
        let digits = (magnitude & (F32_HIDDEN - 1u)) | F32_HIDDEN;
        let place = (magnitude >> 23u) - 120u;
        let middle = two_over_pi_bits(place + 32u);
        let product = digits * middle;
        let low = product + multiply_high(digits, two_over_pi_bits(place + 64u));
        let high = digits * two_over_pi_bits(place) + multiply_high(digits, middle) + select(0u, 1u, low < product);
        quadrant += (high + 0x20000000u) >> 30u;
        // The rest is at most half a quarter turn in either direction, in units of 2^-64 of it.
        var rest_high = (high << 2u) | (low >> 30u);
        var rest_low = low << 2u;
        let negative = rest_high > F32_MAGNITUDE;
        if negative {
            rest_low = ~rest_low + 1u;
            rest_high = ~rest_high + select(0u, 1u, rest_low == 0u);
        }
        let turns = f32(rest_high) * 2.3283064365386963e-10 + f32(rest_low) * 5.421010862427522e-20;
        r = select(turns, -turns, negative) * 1.57079633;
    }
    let z = r * r;
    var q = 2.44957837e-5;
    q = q * z - 0.00138879009;
    q = q * z + 0.0416666585;
    let cosine = 1.0 - 0.5 * z + z * z * q;
    q = 2.72499018e-6;
    q = q * z - 0.000198400866;
    q = q * z + 0.00833333187;
    q = q * z - 0.166666667;
    let y = bitcast<u32>(select(r + r * (z * q), cosine, (quadrant & 1u) == 1u));
    // A sine has the sign of x, a cosine does not depend on it.
    let sign = ((quadrant & 2u) << 30u) ^ select(0u, bits & ~F32_MAGNITUDE, quarters == 0u);
    return bits_as_float(y ^ sign);
}

/// Computes the sigmoid 1 / (1 + e^-x), by the exponential that does not overflow.
fn sigmoid(x: f32) -> f32 {
    let e = exponential(-abs(x));
    return divide(select(1.0, e, x < 0.0), 1.0 + e);
}

/// Computes erfc z for z ≥ 0: e^(−z²) · (1 + 2z)⁻¹ · g(q), q = (z − 2) / (z + 2).
fn complementary_error(z: f32) -> f32 {
    if is_nan(z) {
        return z;
    }
    // Below 2^-148.
    if z > 10.0 {
        return 0.0;
    }
    let x = z;
    let q = divide(x - 2.0, x + 2.0);
    var g = 8.38769847e-5;
    g = g * q + 0.000178289584;
    g = g * q - 0.000400977279;
    g = g * q - 0.00143009724;
    g = g * q + 0.00124986214;
    g = g * q + 0.00871248006;
    g = g * q - 0.00802957924;
    g = g * q - 0.0542183317;
    g = g * q + 0.164050862;
    g = g * q - 0.166030495;
    g = g * q - 0.0927638145;
    g = g * q + 1.27697838;
    let square = two_product(x, x);
    return divide(exponential_of(-square.value, -square.error) * g, 1.0 + 2.0 * x);
}

fn error_function(x: f32) -> f32 {
    if is_nan(x) {
        return x;
    }
    let a = abs(x);
    if a < 1.0 {
        let z = x * x;
        var p = -9.67359017e-6;
        p = p * z + 0.000112682537;
        p = p * z - 0.000848439652;
        p = p * z + 0.00522105341;
        p = p * z - 0.0268654383;
        p = p * z + 0.112837826;
        p = p * z - 0.376126385;
        p = p * z + 1.12837917;
        return x * p;
    }
    let e = 1.0 - complementary_error(a);
    return select(e, -e, x < 0.0);
}

/// Computes Φ(x) by erfc, so that the lower tail keeps its digits.
fn normal_cdf(x: f32) -> f32 {
    let tail = 0.5 * complementary_error(abs(x) * 0.707106781);
    return select(1.0 - tail, tail, x < 0.0);
}

/// Computes x^p for positive finite x and finite p: e^(p ln x), the logarithm and its product as pairs.
fn positive_power(x: f32, p: f32) -> f32 {
    // x = m · 2^e with m in [√½, √2).
    let parts = split(bitcast<u32>(x));
    let up = parts.digits > 1.41421356;
    let m = select(parts.digits, parts.digits * 0.5, up);
    let e = f32(parts.exponent + select(0, 1, up));
    // ln m = 2 artanh s, with s = (m − 1) / (m + 1) and its rounding error. Sums here are exact because their terms are
    // truncated before. Drivers simplify (a + b) − a, which would remove the error of a rounded sum.
    let below = m - 1.0;
    let m1 = bits_as_float(bitcast<u32>(m) & 0xfffffffcu);
    let above = m1 + 1.0;
    let s = divide(below, above);
    let product = two_product(s, above);
    let lost = (((below - product.value) - product.error) - s * (m - m1)) / above;
    let z = s * s;
    var series = 0.233411783;
    series = series * z + 0.285504252;
    series = series * z + 0.400001253;
    series = series * z + 0.666666666;
    // Multiples of 2^-16 below 2^7.
    let coarse = floor(2.0 * s * 65536.0) / 65536.0;
    let log = e * LN2_LARGE + coarse;
    let rest = (2.0 * s - coarse) + ((2.0 * lost + s * z * series) + e * LN2_SMALL);
    // Beyond these ends the result is 0 or ∞ anyway; products of halves of digits need the room.
    let power = clamp(p, -1e18, 1e18);
    if abs(log * power) > 200.0 {
        return exponential(clamp(log * power, -110.0, 110.0));
    }
    let argument = two_product(log, power);
    return exponential_of(argument.value, argument.error + rest * power);
}

/// Computes x^p as `pow` of IEEE 754-2019 §9.2.
fn power(x: f32, p: f32) -> f32 {
    let mx = bitcast<u32>(x) & F32_MAGNITUDE;
    let mp = bitcast<u32>(p) & F32_MAGNITUDE;
    if mp == 0u || bitcast<u32>(x) == 0x3f800000u {
        return 1.0;
    }
    if mx > F32_INFINITY || mp > F32_INFINITY {
        return bits_as_float(F32_NAN);
    }
    let negative = bitcast<u32>(x) > F32_MAGNITUDE;
    if mp == F32_INFINITY {
        if mx == 0x3f800000u {
            return 1.0;
        }
        return bits_as_float(select(0u, F32_INFINITY, (mx > 0x3f800000u) == (p > 0.0)));
    }
    let a = bits_as_float(mp);
    // Above 2^24 every number is an even integer.
    let round_half_away = a >= 16777216.0 || floor(a) == a;
    let odd = a < 16777216.0 && round_half_away && (u32(min(a, 16777216.0)) & 1u) == 1u;
    let sign = select(0u, ~F32_MAGNITUDE, negative && odd);
    if mx == 0u || mx == F32_INFINITY {
        return bits_as_float(sign | select(0u, F32_INFINITY, (mx != 0u) == (p > 0.0)));
    }
    if negative && !round_half_away {
        return bits_as_float(F32_NAN);
    }
    return bits_as_float(sign | bitcast<u32>(positive_power(bits_as_float(mx), p)));
}

/// Computes core's `hash`: a random u32 for (seed, stream, index).
fn hash(seed: vec2<u32>, stream: u32, index: u32) -> u32 {
    return mix(mix(mix(mix(seed.x ^ 0x9e3779b9u) ^ seed.y) ^ stream) ^ index);
}

fn mix(word: u32) -> u32 {
    var x = word;
    x ^= x >> 16u;
    x *= 0x7feb352du;
    x ^= x >> 15u;
    x *= 0x846ca68bu;
    return x ^ (x >> 16u);
}
