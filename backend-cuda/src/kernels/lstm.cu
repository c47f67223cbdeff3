// Steps of an LSTM cell, and their gradients (`core::ops::Lstm`). The gradient computes the gates and c′ again.

// Units from `i` on.
template <int N>
struct LstmUnits {
    // Gates i, f, g, o; c and c′.
    float gates[4][N], before[N], state[N];
    DEVICE_MEMBER void compute(const Cell& p, u32 i) {
        const u64 of_h = gate_of_unit<4>(p, i), of_x = gate_of_step<4>(p, i);
        load_vec(p.state, p.state_type, i, before);
#pragma unroll
        for (u32 gate = 0; gate < 4; gate++) {
            float products[N];
            load_vec_streaming(p.x, p.x_type, of_x + (u64)gate * p.hidden, gates[gate]);
            load_vec_streaming(p.h, p.h_type, of_h + (u64)gate * p.hidden, products);
#pragma unroll
            for (int j = 0; j < N; j++) {
                const float sum = gates[gate][j] + products[j];
                gates[gate][j] = gate == 2 ? tanhf(sum) : sigmoid(sum);
            }
        }
#pragma unroll
        for (int j = 0; j < N; j++) state[j] = gates[1][j] * before[j] + gates[0][j] * gates[2][j];
    }
};

struct LstmParams {
    Store y;
    Cell cell;
    float* state;
};

template <int N>
DEVICE void compute_units(const LstmParams& p, const Epilogue& e, StatsAccumulator& stats) {
    for_units<N>(p.cell, [&](u32 i) {
        LstmUnits<N> units;
        units.compute(p.cell, i);
        write_units(p.state, i, units.state);
        float v[N];
#pragma unroll
        for (int j = 0; j < N; j++) v[j] = units.gates[3][j] * tanhf(units.state[j]);
        store_units(p.y, e, stats, i, v);
    });
}

KERNEL(lstm, LstmParams) {
    Epilogue e = begin_epilogue(p.y);
    StatsAccumulator stats = {};
    if (p.cell.hidden % 8 == 0) {
        compute_units<8>(p, e, stats);
    } else {
        compute_units<1>(p, e, stats);
    }
    end_epilogue(p.y, e, stats);
}

struct LstmVjpParams {
    Store y;
    Cell cell;
    // Gradients of h′ and of c′; the latter is f32, or null.
    const void* dh;
    const void* dc;
    // Gradient of c.
    float* state;
    u32 dh_type, dc_slot;
};

template <int N>
DEVICE void differentiate_units(const LstmVjpParams& p, const Epilogue& e, StatsAccumulator& stats) {
    const Factor factor = scale_factor(p.y.exponents[p.dc_slot], p.y.exponents[p.y.from]);
    for_units<N>(p.cell, [&](u32 i) {
        LstmUnits<N> units;
        units.compute(p.cell, i);
        float dh[N], dc[N];
#pragma unroll
        for (int j = 0; j < N; j++) dc[j] = 0.0f;
        load_vec(p.dh, p.dh_type, i, dh);
        if (p.dc != 0) {
            load_vec(p.dc, TYPE_F32, i, dc);
            apply_factor(factor, dc);
        }
        float of_state[N];
#pragma unroll
        for (int j = 0; j < N; j++) {
            const float i = units.gates[0][j], f = units.gates[1][j], g = units.gates[2][j], o = units.gates[3][j];
            const float tanh = tanhf(units.state[j]), d = dc[j] + dh[j] * o * (1.0f - tanh * tanh);
            units.gates[0][j] = d * g * (i * (1.0f - i));
            units.gates[1][j] = d * units.before[j] * (f * (1.0f - f));
            units.gates[2][j] = d * i * (1.0f - g * g);
            units.gates[3][j] = dh[j] * tanh * (o * (1.0f - o));
            of_state[j] = d * f;
        }
        write_units(p.state, i, of_state);
        const u64 first = gate_of_unit<4>(p.cell, i);
#pragma unroll
        for (u32 gate = 0; gate < 4; gate++) store_units(p.y, e, stats, first + (u64)gate * p.cell.hidden, units.gates[gate]);
    });
}

KERNEL(lstm_vjp, LstmVjpParams) {
    Epilogue e = begin_epilogue(p.y);
    StatsAccumulator stats = {};
    if (p.cell.hidden % 8 == 0) {
        differentiate_units<8>(p, e, stats);
    } else {
        differentiate_units<1>(p, e, stats);
    }
    end_epilogue(p.y, e, stats);
}
