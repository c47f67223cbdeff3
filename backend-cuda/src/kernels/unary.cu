// y[i] = f(x[i]): casts and element-wise unary functions.

struct UnaryParams {
    Store y;
    const void* x;
    u32 type;
    u32 len;
    Function f;
};

struct UnaryElements {
    const UnaryParams& p;
    DEVICE_MEMBER float compute_scalar(u32 i) const { return evaluate(p.f, load(p.x, p.type, i), p.y.control, i); }
    DEVICE_MEMBER void compute_vec8(u32 i, float (&v)[8]) const {
        load_vec8_streaming(p.x, p.type, i, v);
        if (p.f.code == UNARY_ID) return;
#pragma unroll
        for (u32 j = 0; j < 8; j++) v[j] = evaluate(p.f, v[j], p.y.control, i + j);
    }
};

KERNEL(unary, UnaryParams) { store_elementwise(p.y, p.len, UnaryElements{p}); }
