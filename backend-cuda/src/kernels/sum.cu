// y[i] = Σ terms[·][i]: each term is scaled from the exponent of its slot to that of y, and added in order in f32.

struct Term {
    const void* x;
    u32 type;
    u32 slot;
};

struct SumParams {
    Store y;
    Term terms[SUM_TERMS];
    // Sum of the terms of previous launches, or null.
    const float* previous_sum;
    u32 count;
    u32 len;
};

struct SumTerms {
    const SumParams& p;
    Factor factors[SUM_TERMS];
    template <int N>
    DEVICE_MEMBER void compute_vec(u32 i, float (&v)[N]) const {
#pragma unroll
        for (int j = 0; j < N; j++) v[j] = 0.0f;
        if (p.previous_sum != 0) load_vec(p.previous_sum, TYPE_F32, i, v);
#pragma unroll
        for (u32 term = 0; term < SUM_TERMS; term++) {
            if (term >= p.count) break;
            float x[N];
            load_vec_streaming(p.terms[term].x, p.terms[term].type, i, x);
            apply_factor(factors[term], x);
#pragma unroll
            for (int j = 0; j < N; j++) v[j] += x[j];
        }
    }
    DEVICE_MEMBER u32 width() const { return 8; }
};

KERNEL(sum, SumParams) {
    RowWise<SumTerms> f = {{p, {}}};
    const int to = p.y.exponents[p.y.to];
#pragma unroll
    for (u32 term = 0; term < SUM_TERMS; term++) {
        if (term < p.count) f.factors[term] = scale_factor(p.y.exponents[p.terms[term].slot], to);
    }
    store_elementwise(p.y, p.len, f);
}
