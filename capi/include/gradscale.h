/*
 * gradscale: FP16 training with a separate scale for every gradient.
 *
 * Made by cbindgen from capi/src; capi/README.md says how to build and link it.
 *
 * All memory is the caller's, and nothing is allocated. Structures are plain numbers: they need no end, may be copied,
 * and hold no pointers. Whatever is wrong is a status other than GS_OK, and then no structure has changed. Functions have
 * no state of their own: a structure is used by one thread at a time, different ones by as many as there are.
 *
 * A pointer that is not NULL must point to what its type says, and to as many elements as the call says; slices that
 * are read and written do not overlap. Numbers that name one of several things are uint32_t, of the enum named there.
 */

#ifndef GRADSCALE_H
#define GRADSCALE_H

#include <stddef.h>
#include <stdint.h>

// Words of a loss scale.
#define GS_LOSS_SCALE_WORDS 37

// Steps of a rising minimum, at most.
#define GS_FLOOR_STEPS 8

// Changes whenever a structure does. gs_version answers that of the library.
#define GS_VERSION_NUMBER 1

// Words of a row.
#define GS_ROW_WORDS 280

// Words of a site.
#define GS_SITE_WORDS 46

// What every function answers. gs_status_text has a sentence for each.
enum gs_status
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : int32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
  // Done.
  GS_OK = 0,
  // A pointer is NULL, or not aligned for what it points to.
  GS_POINTER = 1,
  // More elements than memory has.
  GS_LENGTH = 2,
  // Source and destination overlap.
  GS_OVERLAP = 3,
  // A structure was not initialised, or by another version of this library.
  GS_VERSION = 4,
  // A structure was initialised and then written to by somebody else.
  GS_DAMAGED = 5,
  // A number that names one of several things names none of them.
  GS_CHOICE = 6,
  // A format whose patterns are not as wide as those of the function, or as wide as f32 where statistics are asked for.
  GS_FORMAT = 7,
  // Stochastic rounding without random numbers.
  GS_RANDOM = 8,
  // Words of a row that contradict each other: no store wrote them.
  GS_ROW = 9,
  // Rows of different formats, rules, exponents or details do not merge.
  GS_MERGE = 10,
  // A row was observed in too little detail for what is asked.
  GS_DETAIL = 11,
  // There is no such thing yet: a decision of a site that has not decided.
  GS_NOTHING = 12,
  // The threshold must lie between 1e-6 and 1.
  GS_GAMMA = 13,
  // The window must be 0 to 30 exponents.
  GS_WINDOW = 14,
  // The room must be 2 to 30 exponents.
  GS_ROOM = 15,
  // Intervals and hysteresis must be at least one step.
  GS_INTERVAL = 16,
  // Outliers must lie 8 to 100 exponents above the others.
  GS_OUTLIERS = 17,
  // A loss scale must be a power of two from 2^-126 to 2^126.
  GS_SCALE = 18,
  // The limits of a loss scale must lie between 2^-126 and 2^126, the least first.
  GS_BOUNDS = 19,
  // A start outside the limits.
  GS_START = 20,
  // Growth must be above and backoff below 2^0.
  GS_FACTOR = 21,
  // A tolerance must be below one million parts per million.
  GS_TOLERANCE = 22,
  // A rising minimum must rise, within the limits, in at most eight steps.
  GS_FLOOR = 23,
  // A decay must lie in [0, 1), and a quantile must be finite and not negative.
  GS_DECAY = 24,
  // A history must hold 1 to 16 steps.
  GS_HISTORY = 25,
  // An error of a kind that this version of the library has no number for.
  GS_OTHER = 26,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum gs_status gs_status;
#else
typedef int32_t gs_status;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

// A number format.
enum gs_format
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : uint32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
  // IEEE binary16.
  GS_FP16 = 0,
  // bfloat16.
  GS_BF16 = 1,
  // OCP 8-bit E5M2, with infinities.
  GS_E5M2 = 2,
  // OCP 8-bit E4M3: no infinities; what is too large becomes NaN.
  GS_E4M3 = 3,
  // E5M2 whose casts saturate: what is too large becomes the largest finite number.
  GS_E5M2_SATURATING = 4,
  // E4M3 whose casts saturate.
  GS_E4M3_SATURATING = 5,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum gs_format gs_format;
#else
typedef uint32_t gs_format;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

// How a number between two neighbours of a format is rounded.
enum gs_round
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : uint32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
  // To the nearer one; of two equally near, the one with an even last digit.
  GS_NEAREST_EVEN = 0,
  // To the smaller one in magnitude; too large becomes the largest finite number.
  GS_TOWARD_ZERO = 1,
  // Up in magnitude with a probability equal to the discarded part, by one random number for each element.
  GS_STOCHASTIC = 2,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum gs_round gs_round;
#else
typedef uint32_t gs_round;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

// What a store does with results below the least normal number. FP16's thresholds are given.
enum gs_flush
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : uint32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
  // Nearest even, subnormals kept: at most 2^-25 flushes. Every cast of this library.
  GS_FLUSH_NEAREST = 0,
  // Toward zero, subnormals kept: below 2^-24 flushes.
  GS_FLUSH_TOWARD_ZERO = 1,
  // Flushed before it is rounded: below 2^-14.
  GS_FLUSH_THEN_ROUND = 2,
  // Rounded onto the format's grid, then flushed: below 2^-14 - 2^-25.
  GS_ROUND_THEN_FLUSH = 3,
  // Rounded as if the exponent had no bounds, then flushed: below 2^-14 - 2^-26.
  GS_UNBOUNDED_THEN_FLUSH = 4,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum gs_flush gs_flush;
#else
typedef uint32_t gs_flush;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

// How much a row observes; each level includes those before it.
enum gs_detail
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : uint32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
  // Nothing.
  GS_NONE = 0,
  // Counters and the largest magnitude.
  GS_COUNTS = 1,
  // The histogram too, in steps that decide.
  GS_FULL = 2,
  // Sums too, for models of one's own.
  GS_MOMENTS = 3,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum gs_detail gs_detail;
#else
typedef uint32_t gs_detail;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

// How often a store runs in one step.
enum gs_calls
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : uint32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
  // Once.
  GS_ONE_CALL = 0,
  // Several times (a recurrent cell, a shared layer, micro-batches): the calls share the exponent, their rows merge.
  GS_SEVERAL_CALLS = 1,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum gs_calls gs_calls;
#else
typedef uint32_t gs_calls;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

// What a decision knows of the rows before the one that decides.
enum gs_memory
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : uint32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
  // Nothing.
  GS_NO_MEMORY = 0,
  // The least ceiling of the last 16 rows limits it.
  GS_LEAST = 1,
  // The last 16 rows: the exponent serves all that FP16 can serve together, and the room follows how they move.
  GS_RING = 2,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum gs_memory gs_memory;
#else
typedef uint32_t gs_memory;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

// What bound a decision.
enum gs_limit
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : uint32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
  // The threshold is kept, and what lies above allowed no more.
  GS_LIMIT_THRESHOLD = 0,
  // The threshold is kept even for subnormals: there was room.
  GS_LIMIT_NORMAL_RANGE = 1,
  // The threshold is missed: the overflow side bound.
  GS_LIMIT_OVERFLOW = 2,
  // The end of what one row can give.
  GS_LIMIT_RANGE = 3,
  // The scale needed was below 1, and the rule does not go there.
  GS_LIMIT_ONE = 4,
  // The largest magnitude decides. No site of this interface does so.
  GS_LIMIT_AMAX = 5,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum gs_limit gs_limit;
#else
typedef uint32_t gs_limit;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

// What made a site decide.
enum gs_trigger
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : uint32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
  // It had no exponent.
  GS_TRIGGER_FIRST = 0,
  // Its interval was over.
  GS_TRIGGER_INTERVAL = 1,
  // It overflowed, or came before the site that did.
  GS_TRIGGER_OVERFLOW = 2,
  // The last step was skipped, or its row held infinities, or lay far below those before.
  GS_TRIGGER_AFTER_SKIP = 3,
  // The batch did not fit, and is repeated.
  GS_TRIGGER_REPEAT = 4,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum gs_trigger gs_trigger;
#else
typedef uint32_t gs_trigger;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

// How a step ended, for one site.
enum gs_end
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : uint32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
  // The optimizer stepped.
  GS_STEPPED = 0,
  // The step was skipped, and this site is the first that overflowed, or came before it.
  GS_SKIPPED_HERE = 1,
  // The step was skipped, and this site came after the first that overflowed: its row says nothing.
  GS_SKIPPED_AFTER = 2,
  // The step was left out for a reason that no exponent mends: all is as it was before.
  GS_VOID = 3,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum gs_end gs_end;
#else
typedef uint32_t gs_end;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

// What is to be done after a step.
enum gs_next
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : uint32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
  // The parameters may be updated.
  GS_NEXT_STEP = 0,
  // Nothing may be updated: run the same batch again.
  GS_NEXT_REPEAT = 1,
  // Nothing may be updated: go on with the next batch.
  GS_NEXT_SKIP = 2,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum gs_next gs_next;
#else
typedef uint32_t gs_next;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

// What went wrong at a site.
enum gs_cause
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : uint32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
  // Nothing did.
  GS_NO_CAUSE = 0,
  // Finite values were too large for the store.
  GS_OVERFLOWED = 1,
  // Infinities arrived although nothing before had overflowed.
  GS_INFINITE = 2,
  // NaN arrived although nothing before had overflowed: not a scaling problem.
  GS_NAN = 3,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum gs_cause gs_cause;
#else
typedef uint32_t gs_cause;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

// How many overflows it takes to lower a dynamic scale.
enum gs_hysteresis
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : uint32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
  // Each one.
  GS_NO_HYSTERESIS = 0,
  // The n-th since the scale last grew (Megatron).
  GS_CUMULATIVE = 1,
  // The n-th without a clean step between (DeepSpeed's switch).
  GS_CONSECUTIVE = 2,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum gs_hysteresis gs_hysteresis;
#else
typedef uint32_t gs_hysteresis;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

// What became of the elements of a slice.
typedef struct gs_tally {
  // Elements that kept their value.
  uint64_t exact;
  // Elements that were rounded.
  uint64_t inexact;
  // Elements that became zero.
  uint64_t underflow;
  // Elements that became too large.
  uint64_t overflow;
  // Signalling NaNs, and infinities where the format has none.
  uint64_t invalid;
} gs_tally;

// A loss scale with its whole state: initialised by one of the functions below, and then changed by functions of this
// library only. It may be copied and kept in a file, on machines of one byte order; there is nothing to free.
typedef struct gs_loss_scale {
  // Not to be touched.
  int64_t words[GS_LOSS_SCALE_WORDS];
} gs_loss_scale;

// The numbers of a dynamic scale. gs_dynamic_config_init fills it: 2^16, doubled after 2000 clean steps in a row,
// halved at each overflow.
typedef struct gs_dynamic_config {
  // sizeof(gs_dynamic_config).
  uint32_t size;
  // Exponent of the first step.
  int32_t start;
  // Exponent added after so many clean steps, positive.
  int32_t growth;
  // Exponent added after an overflow, negative.
  int32_t backoff;
  // Clean steps in a row before the scale grows.
  uint32_t interval;
  // Least exponent.
  int32_t least;
  // Greatest exponent.
  int32_t most;
  // gs_hysteresis.
  uint32_t hysteresis;
  // Its n, at least 1.
  uint32_t overflows;
  // Lower only when overflows make up this share of the steps since the last change, in parts per million.
  uint32_t tolerance_ppm;
  // How many steps the rising minimum has.
  uint32_t floors;
  // From so many steps taken on ...
  uint64_t floor_steps[GS_FLOOR_STEPS];
  // ... the least exponent is this.
  int32_t floor_exponents[GS_FLOOR_STEPS];
} gs_dynamic_config;

// The summary of all values that one store saw. A device may write the words itself:
//
// | words    | content                                                                                       |
// | -------- | --------------------------------------------------------------------------------------------- |
// | 0..14    | count, zeros, infinite, nan, flushed, overflowed, subnormal: 64 bits each, low word first     |
// | 14       | bits of the largest finite magnitude                                                          |
// | 15       | gs_detail                                                                                     |
// | 16..24   | sums of u, u^2, ln|u|, ln^2|u|: each as two floats, the large part first                      |
// | 24..280  | histogram: bin (bits(|u|) + 0x7fffff) >> 23 counts the finite u that are not zero (nearest even) |
typedef struct gs_row {
  // GS_VERSION_NUMBER.
  uint32_t version;
  // gs_format.
  uint32_t format;
  // gs_flush.
  uint32_t flush;
  // The exponent at which the values were seen: true magnitude = |u| * 2^-exponent.
  int32_t exponent;
  // What was seen.
  uint32_t words[GS_ROW_WORDS];
} gs_row;

// Counters of a row.
typedef struct gs_counts {
  // Values seen.
  uint64_t count;
  // Zeros before the store.
  uint64_t zeros;
  // Infinities before the store.
  uint64_t infinite;
  // NaN before the store.
  uint64_t nan;
  // Values that were not zero and became zero.
  uint64_t flushed;
  // Finite values too large for the store.
  uint64_t overflowed;
  // Subnormal results.
  uint64_t subnormal;
  // Largest finite magnitude, 0 if there is none.
  float amax;
  // The exponent at which the values were seen.
  int32_t exponent;
} gs_counts;

// How a site decides. gs_site_config_init fills it; change what is to be different.
typedef struct gs_site_config {
  // sizeof(gs_site_config).
  uint32_t size;
  // Steps from one decision to the next, at least 1.
  uint32_t interval;
  // gs_calls.
  uint32_t calls;
  // gs_memory.
  uint32_t memory;
  // The share of the values that may flush, 1e-6 to 1.
  double gamma;
  // How far above the threshold the exponent goes where there is room: 0 to 30.
  int32_t window;
  // Bits kept free above: 2 to 30.
  int32_t room;
  // Batches that lie more than so many exponents above all rows remembered are left out: 8 to 100, or 0 for none.
  // Needs GS_RING.
  int32_t outliers;
  // 0.
  uint32_t reserved;
} gs_site_config;

// One site: initialised by gs_site_init, and then changed by functions of this library only. It may be copied and kept
// in a file, on machines of one byte order; there is nothing to free.
typedef struct gs_site {
  // Not to be touched.
  int64_t words[GS_SITE_WORDS];
} gs_site;

// What a site wants of the coming step.
typedef struct gs_request {
  // 1: look at the f32 values first (gs_row_init with exponent and detail, gs_row_observe), and decide from that row
  // (gs_site_decide) before anything is stored.
  uint32_t at_once;
  // gs_detail of the row.
  uint32_t detail;
  // 1 if the site has an exponent.
  uint32_t decided;
  // The exponent in force, 0 before the first decision.
  int32_t exponent;
} gs_request;

// The last decision of a site.
typedef struct gs_decision {
  // The share of the values that will flush, as predicted; NaN where it was not.
  double gamma;
  // The exponent decided.
  int32_t exponent;
  // The same, relative to the row's exponent.
  int32_t k;
  // gs_limit.
  uint32_t limit;
  // gs_trigger.
  uint32_t trigger;
} gs_decision;

// How a step ended.
typedef struct gs_outcome {
  // gs_next.
  uint32_t next;
  // gs_cause: what was seen at the site.
  uint32_t cause;
  // The first site at which values stopped being finite; count if there is none.
  uint64_t site;
} gs_outcome;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

// Rounds count numbers to GS_FP16 or GS_BF16 and writes their patterns. random has a number for each element where
// round is GS_STOCHASTIC, else it may be NULL; so may tally.
gs_status gs_encode16(uint32_t format,
                      const float *x,
                      uint16_t *y,
                      size_t count,
                      uint32_t round,
                      const uint32_t *random,
                      struct gs_tally *tally);

// Rounds count numbers to one of the 8-bit formats. As gs_encode16.
gs_status gs_encode8(uint32_t format,
                     const float *x,
                     uint8_t *y,
                     size_t count,
                     uint32_t round,
                     const uint32_t *random,
                     struct gs_tally *tally);

// The numbers of count patterns of GS_FP16 or GS_BF16, exactly.
gs_status gs_decode16(uint32_t format, const uint16_t *x, float *y, size_t count);

// The numbers of count patterns of one of the 8-bit formats, exactly.
gs_status gs_decode8(uint32_t format, const uint8_t *x, float *y, size_t count);

// y = x * 2^(to - from), rounded once, also where that power is far outside the range of floats: what stands at the
// exponent from is wanted at to (0 for a parameter's gradient). x and y may be the same; else they do not overlap.
gs_status gs_rescale(const float *x, float *y, size_t count, int32_t from, int32_t to);

// A constant scale: a power of two from 2^-126 to 2^126.
gs_status gs_loss_scale_fixed(struct gs_loss_scale *to, double scale);

// The usual numbers of a dynamic scale.
gs_status gs_dynamic_config_init(struct gs_dynamic_config *config);

// A scale that grows after clean steps and shrinks after overflows. config may be NULL: the usual numbers.
gs_status gs_loss_scale_dynamic(struct gs_loss_scale *to, const struct gs_dynamic_config *config);

// A scale as large as the largest gradient of the last history steps (1 to 16) allows, less margin exponents, from
// 2^least to 2^most. gs_loss_scale_update wants the largest gradient of each step.
gs_status gs_loss_scale_delayed(struct gs_loss_scale *to,
                                uint32_t history,
                                uint32_t margin,
                                int32_t least,
                                int32_t most);

// A scale that follows mean and spread of log2 of the largest gradient (LogMax: 0.99, 0.999 and 3.09, with 16 as the log2 of
// what overflows), from 2^least to 2^most. gs_loss_scale_update wants the largest gradient of each step.
gs_status gs_loss_scale_log_max(struct gs_loss_scale *to,
                                double mean_decay,
                                double spread_decay,
                                double quantile,
                                int32_t ceiling,
                                int32_t least,
                                int32_t most);

// A scale that grows a little in every step, by 2 in interval steps, and is halved at an overflow, from 2^least to
// 2^most.
gs_status gs_loss_scale_chainer(struct gs_loss_scale *to, uint32_t interval, int32_t least, int32_t most);

// The exponent in force: multiply the loss by 2^exponent.
gs_status gs_loss_scale_exponent(const struct gs_loss_scale *scale, int32_t *exponent);

// Takes the end of a step, once for each, skipped ones included. found_inf is not 0 if some gradient was not finite. amax
// is the largest magnitude of a gradient, as it was seen, at the exponent at; NaN where it is not known.
gs_status gs_loss_scale_update(struct gs_loss_scale *scale,
                               uint32_t found_inf,
                               float amax,
                               int32_t at);

// The largest exponent at which a gradient of magnitude amax, seen at the exponent at, stays below 65504. GS_SCALE if amax
// is zero or not finite.
gs_status gs_propose_fixed(float amax,
                           int32_t at,
                           int32_t *exponent);

// The version of the library's structures, to be compared with GS_VERSION_NUMBER where the library is a shared one.
uint32_t gs_version(void);

// An empty row for a store at the exponent: what gs_site_request says, or 0 and GS_FULL to look at values unscaled.
// GS_BF16 has no rows: it flushes nothing that f32 holds.
gs_status gs_row_init(struct gs_row *row, uint32_t format, uint32_t flush, int32_t exponent, uint32_t detail);

// Adds count values, as the store saw them: times 2^exponent, before they were rounded.
gs_status gs_row_observe(struct gs_row *row, const float *u, size_t count);

// Adds what another row has seen: of another micro-batch, another call, another thread.
gs_status gs_row_merge(struct gs_row *row, const struct gs_row *other);

// The counters of a row.
gs_status gs_row_counts(const struct gs_row *row, struct gs_counts *counts);

// Which share of the values that are not zero flushes at the row's exponent + k. GS_DETAIL without a histogram.
gs_status gs_row_flushed_at(const struct gs_row *row, int32_t k, double *share);

// Which share of the sum of magnitudes flushes at the row's exponent + k, within a factor of 2. GS_DETAIL without a
// histogram.
gs_status gs_row_lost_at(const struct gs_row *row, int32_t k, double *share);

// The whole store of a gradient: multiplies count values at the exponent from by 2^(row.exponent - from), adds them to
// the row, rounds each once to FP16, nearest even, and writes it. The row's format is GS_FP16.
gs_status gs_row_store16(struct gs_row *row, const float *v, int32_t from, uint16_t *y, size_t count);

// The usual settings: FP16, every 10 steps, with the memory of 16 rows, at most one value in a thousand flushed.
gs_status gs_site_config_init(struct gs_site_config *config);

// A site without an exponent. config may be NULL: the usual settings.
gs_status gs_site_init(struct gs_site *site, const struct gs_site_config *config);

// What the coming step should do.
gs_status gs_site_request(const struct gs_site *site, struct gs_request *request);

// Decides at once, from a row with a histogram of the values that are to be stored, and says the exponent to store with.
// Where nothing can be decided (all values are zero, or some are not finite) that is the one in force, or incoming: the
// exponent of the site from which the gradient comes, 0 for the loss.
gs_status gs_site_decide(struct gs_site *site,
                         const struct gs_row *row,
                         int32_t incoming,
                         int32_t *exponent);

// Takes the row of a step, of all micro-batches and calls, and how the step ended (gs_end). Once for each site and step;
// gs_step_end does it for all sites.
gs_status gs_site_finish(struct gs_site *site,
                         const struct gs_row *row,
                         uint32_t end);

// The last decision of a site, or GS_NOTHING.
gs_status gs_site_decision(const struct gs_site *site, struct gs_decision *decision);

// The sentence of a status, without a full stop; for a number that is none, one that says so. Never NULL; it is not to
// be freed.
const char *gs_status_text(int32_t status);

// Ends a step for count sites, whose rows lie in the order of the backward pass. found_inf is not 0 if some gradient of a
// parameter is not finite: then nothing is to be updated. repeatable is not 0 if the same batch can be run again, which
// loses none; failed counts how often that was done in this step. If something is wrong with one of the sites or rows,
// none of them changes.
gs_status gs_step_end(struct gs_site *sites,
                      const struct gs_row *rows,
                      size_t count,
                      uint32_t found_inf,
                      uint32_t repeatable,
                      uint32_t failed,
                      struct gs_outcome *outcome);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* GRADSCALE_H */
