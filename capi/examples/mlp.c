/* Trains a small network in C, with gradients in FP16. Two classes of points in a square, those inside a circle and those
   outside; 2 - 32 - 2, softmax, SGD.

     mlp gs      one scale for each gradient
     mlp fp16    FP16 without scales
     mlp f32     for comparison

   The loss is multiplied by 2^-30 and the learning rate by 2^30, as if a mean were taken over a billion pixels: in f32
   this changes nothing, in FP16 without scales every gradient becomes zero. The last line has the accuracy. */
#include "gradscale.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { IN = 2, HIDDEN = 32, OUT = 2, BATCH = 64, STEPS = 600, TEST = 1000 };
enum { LOGITS, FIRST, SITES }; /* in the order of the backward pass */

static const float LOSS = 0x1p-30f, RATE = 0.5f * 0x1p30f;

typedef struct {
    float w1[IN][HIDDEN], b1[HIDDEN], w2[HIDDEN][OUT], b2[OUT];
} network;

static gs_site sites[SITES];
static gs_row rows[SITES];
static enum { GS, FP16, F32 } mode;

static uint64_t state = 42;

static float uniform(void) {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return (float)(state >> 40) * 0x1p-23f - 1;
}

static void must(gs_status status) {
    if (status != GS_OK) {
        fprintf(stderr, "mlp: %s\n", gs_status_string(status));
        exit(1);
    }
}

/* Stores a gradient in FP16 and reads it back, as another kernel would. v has the exponent from; the exponent of the
   result is returned. */
static int32_t store(int at, const float *v, float *back, size_t count, int32_t from) {
    uint16_t half[BATCH * HIDDEN];
    if (mode == F32) {
        memcpy(back, v, count * sizeof *v);
        return from;
    }
    gs_request request = {0, GS_DETAIL_COUNTS, 1, 0};
    if (mode == GS) must(gs_site_request(&sites[at], &request));
    int32_t exponent = request.exponent;
    if (request.decides_in_step) {
        /* In the first step, and after an overflow: observe first, then store. */
        gs_row look;
        must(gs_row_init(&look, GS_FP16, GS_FLUSH_NEAREST, from, request.detail));
        must(gs_row_observe(&look, v, count));
        must(gs_site_decide(&sites[at], &look, from, &exponent));
    }
    must(gs_row_init(&rows[at], GS_FP16, GS_FLUSH_NEAREST, exponent, request.detail));
    must(gs_row_store_fp16(&rows[at], v, from, half, count));
    must(gs_decode16(GS_FP16, half, back, count));
    return exponent;
}

static void forward(const network *net, float x[][IN], float h[][HIDDEN], float p[][OUT], int count) {
    for (int n = 0; n < count; n++) {
        for (int j = 0; j < HIDDEN; j++) {
            float sum = net->b1[j];
            for (int i = 0; i < IN; i++) sum += x[n][i] * net->w1[i][j];
            h[n][j] = sum > 0 ? sum : 0;
        }
        float total = 0, most = -INFINITY;
        for (int k = 0; k < OUT; k++) {
            p[n][k] = net->b2[k];
            for (int j = 0; j < HIDDEN; j++) p[n][k] += h[n][j] * net->w2[j][k];
            if (p[n][k] > most) most = p[n][k];
        }
        for (int k = 0; k < OUT; k++) total += p[n][k] = expf(p[n][k] - most);
        for (int k = 0; k < OUT; k++) p[n][k] /= total;
    }
}

/* Gradients of all parameters, in f32 and unscaled. */
static void backward(const network *net, float x[][IN], const int *label, network *gradient) {
    static float h[BATCH][HIDDEN], p[BATCH][OUT], raw[BATCH][HIDDEN], first[BATCH][HIDDEN];
    float logits[BATCH][OUT];
    forward(net, x, h, p, BATCH);
    for (int n = 0; n < BATCH; n++)
        for (int k = 0; k < OUT; k++) p[n][k] = (p[n][k] - (k == label[n])) * (LOSS / BATCH);
    int32_t at_logits = store(LOGITS, &p[0][0], &logits[0][0], BATCH * OUT, 0);

    memset(gradient, 0, sizeof *gradient);
    for (int n = 0; n < BATCH; n++)
        for (int j = 0; j < HIDDEN; j++) {
            raw[n][j] = 0;
            for (int k = 0; k < OUT; k++) {
                gradient->w2[j][k] += h[n][j] * logits[n][k];
                if (h[n][j] > 0) raw[n][j] += logits[n][k] * net->w2[j][k];
            }
        }
    for (int n = 0; n < BATCH; n++)
        for (int k = 0; k < OUT; k++) gradient->b2[k] += logits[n][k];
    int32_t at_first = store(FIRST, &raw[0][0], &first[0][0], BATCH * HIDDEN, at_logits);
    for (int n = 0; n < BATCH; n++)
        for (int j = 0; j < HIDDEN; j++) {
            gradient->b1[j] += first[n][j];
            for (int i = 0; i < IN; i++) gradient->w1[i][j] += x[n][i] * first[n][j];
        }
    /* A parameter's gradient has the exponent 0. */
    must(gs_rescale(&gradient->w2[0][0], &gradient->w2[0][0], HIDDEN * OUT, at_logits, 0));
    must(gs_rescale(gradient->b2, gradient->b2, OUT, at_logits, 0));
    must(gs_rescale(&gradient->w1[0][0], &gradient->w1[0][0], IN * HIDDEN, at_first, 0));
    must(gs_rescale(gradient->b1, gradient->b1, HIDDEN, at_first, 0));
}

static int all_finite(const network *gradient) {
    const float *all = (const float *)gradient;
    for (size_t i = 0; i < sizeof *gradient / sizeof *all; i++)
        if (!isfinite(all[i])) return 0;
    return 1;
}

static void points(float x[][IN], int *label, int count) {
    for (int n = 0; n < count; n++) {
        x[n][0] = uniform(), x[n][1] = uniform();
        label[n] = x[n][0] * x[n][0] + x[n][1] * x[n][1] < 0.6f;
    }
}

int main(int argc, char **argv) {
    const char *name = argc > 1 ? argv[1] : "gs";
    mode = strcmp(name, "f32") == 0 ? F32 : strcmp(name, "fp16") == 0 ? FP16 : GS;
    if (argc > 2 || (mode == GS && strcmp(name, "gs") != 0)) {
        fprintf(stderr, "usage: mlp [gs | fp16 | f32]\n");
        return 2;
    }
    if (gs_abi_version() != GS_ABI_VERSION) {
        fprintf(stderr, "mlp: the library is not that of gradscale.h\n");
        return 2;
    }
    static network net, gradient;
    for (int i = 0; i < IN; i++)
        for (int j = 0; j < HIDDEN; j++) net.w1[i][j] = uniform();
    for (int j = 0; j < HIDDEN; j++)
        for (int k = 0; k < OUT; k++) net.w2[j][k] = uniform() * 0.25f;
    for (int i = 0; i < SITES; i++) must(gs_site_init(&sites[i], NULL));

    static float x[TEST][IN], h[TEST][HIDDEN], p[TEST][OUT];
    static int label[TEST];
    int repeated = 0, skipped = 0;
    for (int step = 0; step < STEPS; step++) {
        points(x, label, BATCH);
        gs_outcome outcome = {GS_NEXT_STEP, GS_NONFINITE_NONE, 0};
        uint32_t failed = 0;
        do {
            backward(&net, x, label, &gradient);
            if (mode == GS) must(gs_step_end(sites, rows, SITES, !all_finite(&gradient), 1, failed++, &outcome));
            repeated += outcome.next == GS_NEXT_REPEAT;
        } while (outcome.next == GS_NEXT_REPEAT);
        skipped += outcome.next == GS_NEXT_SKIP;
        if (outcome.next != GS_NEXT_STEP) continue;
        float *to = (float *)&net, *by = (float *)&gradient;
        for (size_t i = 0; i < sizeof net / sizeof *to; i++) to[i] -= RATE * by[i];
    }

    int right = 0;
    points(x, label, TEST);
    forward(&net, x, h, p, TEST);
    for (int n = 0; n < TEST; n++) right += (p[n][1] > p[n][0]) == label[n];
    for (int i = 0; mode == GS && i < SITES; i++) {
        gs_decision last;
        must(gs_site_decision(&sites[i], &last));
        printf("site %d: scale 2^%d, %.1e predicted to flush\n", i, last.exponent, last.flushed_predicted);
    }
    printf("%s: %d repeated, %d skipped, %d of %d points are right\n", name, repeated, skipped, right, TEST);
    return 0;
}
