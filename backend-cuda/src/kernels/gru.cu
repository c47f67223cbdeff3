// Steps of a GRU cell, and their gradients (`core::ops::Gru`). The gradient computes the gates again.

// Units from `i` on.
template <int N>
struct GruUnits {
    // Gates r, z, n; the third product with h; h.
    float gates[3][N], product[N], before[N];
    DEVICE_MEMBER void compute(const Cell& p, u32 i) {
        const u64 of_h = gate_of_unit<3>(p, i), of_x = gate_of_step<3>(p, i);
        load_vec(p.state, p.state_type, i, before);
#pragma unroll
        for (u32 gate = 0; gate < 3; gate++) {
            load_vec_streaming(p.x, p.x_type, of_x + (u64)gate * p.hidden, gates[gate]);
            load_vec_streaming(p.h, p.h_type, of_h + (u64)gate * p.hidden, product);
#pragma unroll
            for (int j = 0; j < N; j++) {
                gates[gate][j] = gate == 2 ? tanhf(gates[2][j] + gates[0][j] * product[j]) : sigmoid(gates[gate][j] + product[j]);
            }
        }
    }
};

struct GruParams {
    Store y;
    Cell cell;
};

template <int N>
DEVICE void compute_units(const GruParams& p, const Epilogue& e, StatsAccumulator& stats) {
    for_units<N>(p.cell, [&](u32 i) {
        GruUnits<N> units;
        units.compute(p.cell, i);
        float v[N];
#pragma unroll
        for (int j = 0; j < N; j++) v[j] = units.gates[2][j] + units.gates[1][j] * (units.before[j] - units.gates[2][j]);
        store_units(p.y, e, stats, i, v);
    });
}

KERNEL(gru, GruParams) {
    Epilogue e = begin_epilogue(p.y);
    StatsAccumulator stats = {};
    if (p.cell.hidden % 8 == 0) {
        compute_units<8>(p, e, stats);
    } else {
        compute_units<1>(p, e, stats);
    }
    end_epilogue(p.y, e, stats);
}

struct GruVjpParams {
    Store y;
    Cell cell;
    // Gradient of h′.
    const void* dh;
    // Gradients of the products with the inputs of all steps, and of h.
    float* dx;
    float* state;
    u32 dh_type, dx_slot;
};

template <int N>
DEVICE void differentiate_units(const GruVjpParams& p, const Epilogue& e, StatsAccumulator& stats) {
    const Factor factor = scale_factor(p.y.exponents[p.y.from], p.y.exponents[p.dx_slot]);
    for_units<N>(p.cell, [&](u32 i) {
        GruUnits<N> units;
        units.compute(p.cell, i);
        float dh[N], of_state[N], of_candidate[N];
        load_vec(p.dh, p.dh_type, i, dh);
#pragma unroll
        for (int j = 0; j < N; j++) {
            const float r = units.gates[0][j], z = units.gates[1][j], n = units.gates[2][j];
            const float d = dh[j] * (1.0f - z) * (1.0f - n * n);
            units.gates[0][j] = d * units.product[j] * (r * (1.0f - r));
            units.gates[1][j] = dh[j] * (units.before[j] - n) * (z * (1.0f - z));
            units.gates[2][j] = d * r;
            of_candidate[j] = d;
            of_state[j] = dh[j] * z;
        }
        write_units(p.state, i, of_state);
        const u64 of_h = gate_of_unit<3>(p.cell, i), of_x = gate_of_step<3>(p.cell, i);
#pragma unroll
        for (u32 gate = 0; gate < 3; gate++) {
            float v[N];
#pragma unroll
            for (int j = 0; j < N; j++) v[j] = gate == 2 ? of_candidate[j] : units.gates[gate][j];
            apply_factor(factor, v);
            write_units(p.dx, of_x + (u64)gate * p.cell.hidden, v);
            store_units(p.y, e, stats, of_h + (u64)gate * p.cell.hidden, units.gates[gate]);
        }
    });
}

KERNEL(gru_vjp, GruVjpParams) {
    Epilogue e = begin_epilogue(p.y);
    StatsAccumulator stats = {};
    if (p.cell.hidden % 8 == 0) {
        differentiate_units<8>(p, e, stats);
    } else {
        differentiate_units<1>(p, e, stats);
    }
    end_epilogue(p.y, e, stats);
}
