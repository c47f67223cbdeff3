// y[i] = f(a[i], b[…]), b broadcast over the rows and columns of a.

struct BinaryParams {
    Store y;
    const void* a;
    const void* b;
    u32 a_type, b_type;
    u32 len;
    u32 cols;
    u32 broadcast;
    u32 op;
    Function f;
};

DEVICE float combine(const BinaryParams& p, float a, float b, u32 i) {
    switch (p.op) {
        case BINARY_ADD: return a + b;
        case BINARY_SUB: return a - b;
        case BINARY_MUL: return a * b;
        case BINARY_DIV: return a / b;
        case BINARY_MAX: return a > b || a != a ? a : b;
        case BINARY_GRAD:
        default: return derive(p.f, a, b, p.y.control, i);
    }
}

struct BinaryElements {
    const BinaryParams& p;
    DEVICE_MEMBER float load_b(u32 i) const {
        u32 at = p.broadcast == OVER_ALL ? i : p.broadcast == OVER_PER_COLUMN ? i % p.cols : p.broadcast == OVER_PER_ROW ? i / p.cols : 0;
        return load(p.b, p.b_type, at);
    }
    DEVICE_MEMBER float compute_scalar(u32 i) const { return combine(p, load(p.a, p.a_type, i), load_b(i), i); }
    DEVICE_MEMBER void compute_vec8(u32 i, float (&v)[8]) const {
        float b[8];
        const bool whole = p.cols % 8 == 0;
        load_vec8_streaming(p.a, p.a_type, i, v);
        if (p.broadcast == OVER_ALL) {
            load_vec8_streaming(p.b, p.b_type, i, b);
        } else if (p.broadcast == OVER_PER_COLUMN && whole) {
            load_vec8(p.b, p.b_type, i % p.cols, b);
        } else {
            const bool is_uniform = p.broadcast == OVER_ONE || (p.broadcast == OVER_PER_ROW && whole);
            b[0] = load_b(i);
#pragma unroll
            for (u32 j = 1; j < 8; j++) b[j] = is_uniform ? b[0] : load_b(i + j);
        }
#pragma unroll
        for (u32 j = 0; j < 8; j++) v[j] = combine(p, v[j], b[j], i + j);
    }
};

KERNEL(binary, BinaryParams) { store_elementwise(p.y, p.len, BinaryElements{p}); }
