// A decode step of a transformer as one function: every sum for the new tokens of each of B sequences, float32.
//
// Several threads run `step` side by side. Either each computes its share of every product's outputs, and they wait for
// one another where one needs what another has computed; or, of many tokens of one sequence (`parts`), each reads a part
// of them and waits, once a layer, for the keys and values of those before. Matrices are row-major. Built for vectors of
// LANES numbers; no libc but for what is declared here, no allocation. native.py fills the structs.

typedef long long i64;
typedef float vec __attribute__((vector_size(4 * LANES), aligned(4)));
typedef int ints __attribute__((vector_size(4 * LANES), aligned(4)));
typedef float four __attribute__((vector_size(16), aligned(4)));

#define TOGETHER (LANES == 8 ? 3 : 4)  // rows of x whose sums with 4 rows of a weight fit into the registers
#define AHEAD 256  // numbers: that far before its use, a weight that is in no cache is fetched from memory
#define ROWS 16  // rows whose sums gather together
#define TILE 256  // columns at a time, so that the outputs of ROWS sequences stay in the nearest cache; four times as
#define FEW 4  // many of so few sequences
#define NEAR (1 << 18)  // numbers of a weight that the processor's caches hold: it may then be read in any order
#define PART 16  // tokens that are worth a thread
#define SPINS 256  // looks at a counter before a thread that waits lets others have its core
#define INLINE static inline __attribute__((always_inline))
#define AT(p) (*(const vec *)(p))
#define TO(p) (*(vec *)(p))

// A weight whose rows are `stride` numbers apart; those of the inputs if `across`, else of the outputs. 0: none.
struct weight { const float *at; i64 stride, across; const float *bias; };
struct layer {
  struct weight attention_norm, query, key, value, query_norm, key_norm, output, mlp_norm, up, gate, down;
};
struct model {
  i64 layers, width, heads, kv_heads, head_dim, mlp, vocab, context, rms, rotary, qk_norm, joined, activation;
  double eps;
  const struct layer *layer;
  const struct weight *own;  // of the tokens, the places, the last norm and the head
  const float *turns, *slopes;  // radians a position, of each pair of a head; of ALiBi, one for each head
};
struct cache { float *keys, *values; };  // (B, KV heads, slots, head dim) each
struct call {
  const struct model *model;
  const struct cache *caches;
  const i64 *ids;  // (B, tokens)
  i64 *likeliest;  // (B)
  float *logits, *room;
  i64 past, slots, batch, tokens, threads, parts, arrived;
};
enum { GELU, GELU_TANH, SILU };
enum { TOKENS, PLACES, NORM, HEAD };

extern float erff(float), cosf(float), sinf(float);
extern int sched_yield(void), omp_get_thread_num(void), omp_get_num_threads(void);
extern void GOMP_parallel(void (*)(void *), void *, unsigned, unsigned);

// `pairs`: the sums of neighbours in two vectors, two of a's and two of b's by turns. `fours`: those of neighbouring
// fours, one for each of their numbers, b's behind a's. Both keep to shuffles that a processor starts twice a cycle.
#if LANES == 4
#define PICK(a, b, i) __builtin_shufflevector(a, b, i, 2 + i, 4 + i, 6 + i)
INLINE vec fours(vec a, vec b) { return a; }
#elif LANES == 8
#define PICK(a, b, i) __builtin_shufflevector(a, b, i, 2 + i, 8 + i, 10 + i, 4 + i, 6 + i, 12 + i, 14 + i)
INLINE vec fours(vec a, vec b) {
  return __builtin_shufflevector(a, b, 0, 1, 2, 3, 8, 9, 10, 11) +
         __builtin_shufflevector(a, b, 4, 5, 6, 7, 12, 13, 14, 15);
}
#else
#define PICK(a, b, i)                                                                                        \
  __builtin_shufflevector(a, b, i, 2 + i, 16 + i, 18 + i, 4 + i, 6 + i, 20 + i, 22 + i, 8 + i, 10 + i, 24 + i, \
                          26 + i, 12 + i, 14 + i, 28 + i, 30 + i)
INLINE vec fours(vec a, vec b) {
  return __builtin_shufflevector(a, b, 0, 1, 2, 3, 8, 9, 10, 11, 16, 17, 18, 19, 24, 25, 26, 27) +
         __builtin_shufflevector(a, b, 4, 5, 6, 7, 12, 13, 14, 15, 20, 21, 22, 23, 28, 29, 30, 31);
}
#endif
INLINE vec pairs(vec a, vec b) { return PICK(a, b, 0) + PICK(a, b, 1); }

// The sums of four vectors in their order, of which every four numbers hold a part.
INLINE vec parts_of(const vec *s) { return pairs(pairs(s[0], s[1]), pairs(s[2], s[3])); }

// The sums of LANES vectors in their order, from the parts of each four of them.
INLINE vec joined(const vec *parts) {
#if LANES == 4
  return parts[0];
#elif LANES == 8
  return fours(parts[0], parts[1]);
#else
  return fours(fours(parts[0], parts[1]), fours(parts[2], parts[3]));
#endif
}
INLINE float sum(vec v) {
  for (int n = LANES; n > 4; n /= 2) v = fours(v, v);
  v = pairs(v, v);
  return v[0] + v[1];
}
INLINE vec all(float x) { return x - (vec){}; }
INLINE i64 least(i64 a, i64 b) { return a < b ? a : b; }

// The first n numbers, at most a vector; the others are 0.
INLINE vec some(const float *p, i64 n) {
  if (n >= LANES) return AT(p);
  vec v = {};
  for (i64 i = 0; i < n; i++) v[i] = p[i];
  return v;
}

INLINE void put(float *p, i64 n, vec v) {
  if (n >= LANES) TO(p) = v;
  else for (i64 i = 0; i < n; i++) p[i] = v[i];
}

// e to the x: 2 to a whole number, times a polynomial of the rest (Cephes' expf).
INLINE vec exponential(vec x) {
  x = __builtin_elementwise_max(__builtin_elementwise_min(x, all(88.0f)), all(-87.0f));
  vec whole = (x * 1.44269504f + 12582912.0f) - 12582912.0f;  // rounded
  vec r = x - whole * 0.693359375f + whole * 2.12194440e-4f;
  vec p = r * 1.9875691500e-4f + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  ints power = (__builtin_convertvector(whole, ints) + 127) << 23;
  return (p * r * r + r + 1.0f) * (vec)power;
}

// n rows of x, each times 4 rows of a weight that lie `apart` numbers from one another; the sums go to outputs `far`
// apart. `ahead`: whether the weight has to be fetched from memory.
INLINE void four_rows(int n, const float *x, i64 next, i64 inputs, const float *w, i64 apart, const float *bias,
                      float *y, i64 stride, i64 far, i64 add, int ahead) {
  vec s[4][4] = {};
  i64 i = 0;
  for (; i + LANES <= inputs; i += LANES)
    for (int o = 0; o < 4; o++) {
      vec one = AT(w + o * apart + i);
      if (ahead) __builtin_prefetch(w + o * apart + i + AHEAD);
      for (int r = 0; r < n; r++) s[r][o] += AT(x + r * next + i) * one;
    }
  vec each[4];
  float total[16];
  for (int r = 0; r < 4; r++) each[r] = parts_of(s[r % n]);
  for (int r = 0; r < n; r += LANES / 4) TO(total + 4 * r) = joined(each + r);
  for (int r = 0; r < n; r++) {
    for (int o = 0; o < 4; o++)
      for (i64 k = i; k < inputs; k++) total[4 * r + o] += x[r * next + k] * w[o * apart + k];
    if (far == 1) {
      four v = *(four *)(total + 4 * r);
      if (bias) v += *(const four *)bias;
      *(four *)(y + r * stride) = add ? *(four *)(y + r * stride) + v : v;
    } else
      for (int o = 0; o < 4; o++) {
        float *out = y + r * stride + o * far;
        *out = (add ? *out : 0) + (total[4 * r + o] + (bias ? bias[o * far] : 0));
      }
  }
}

// by_rows for a weight in memory (`ahead`) or in the processor's caches.
INLINE void rows_of(int ahead, const float *x, i64 next, i64 batch, i64 inputs, struct weight w, float *y, i64 stride,
                    i64 add, i64 low, i64 high) {
  i64 fours = (high - low) / 4, far = batch > ROWS ? 1 : fours;
  for (i64 f = 0; f < fours; f++) {
    i64 j = low + (far == 1 ? 4 * f : f), r = 0;
    const float *at = w.at + j * w.stride, *bias = w.bias ? w.bias + j : 0;
#define FOUR(n) \
  four_rows(n, x + r * next, next, inputs, at, far * w.stride, bias, y + r * stride + j, stride, far, add, ahead)
    for (; r + TOGETHER <= batch; r += TOGETHER) FOUR(TOGETHER);
    for (; r + 2 <= batch; r += 2) FOUR(2);
    if (r < batch) FOUR(1);
  }
  for (i64 j = low + 4 * fours; j < high; j++)
    for (i64 r = 0; r < batch; r++) {
      float total = w.bias ? w.bias[j] : 0;
      for (i64 i = 0; i < inputs; i++) total += x[r * next + i] * w.at[j * w.stride + i];
      y[r * stride + j] = (add ? y[r * stride + j] : 0) + total;
    }
}

// Outputs low..high of y = x W (+ y), rows of x `next` and rows of y `stride` apart, for a weight whose rows are those
// of the outputs. Four are read at once, far from one another: the processor fetches each of them ahead. For many rows
// of x, whose sums take longer than the weight's way from memory, they are neighbours.
static void by_rows(const float *x, i64 next, i64 batch, i64 inputs, struct weight w, float *y, i64 stride,
                    i64 add, i64 low, i64 high) {
#define ROWS_OF(ahead) rows_of(ahead, x, next, batch, inputs, w, y, stride, add, low, high)
  if ((high - low) * w.stride > NEAR) ROWS_OF(1);
  else ROWS_OF(0);
}

// The same for up to ROWS rows of x and a weight whose rows are those of the inputs, of which n are read at once. The
// sums of several rows gather in a tile of at `most` so many columns: those of y may lie a multiple of 4 KiB apart,
// where a load waits for a store.
INLINE void some_columns(int n, i64 most, const float *x, i64 next, i64 batch, i64 inputs, struct weight w, float *y,
                         i64 stride, i64 add, i64 from, i64 wide) {
  float tile[ROWS * (TILE + LANES)], *out = batch == 1 ? y + from : tile;
  i64 apart = inputs / n, step = apart * w.stride, row = most + LANES;
  for (i64 r = 0; r < batch; r++)
    for (i64 j = 0; j < wide; j++)
      out[r * row + j] = (add ? y[r * stride + from + j] : 0) + (w.bias ? w.bias[from + j] : 0);
  for (i64 i = 0; i < apart; i++) {
    const float *at = w.at + i * w.stride + from;
    i64 j = 0;
    if (batch > 1)
      for (; j + 2 * LANES <= wide; j += 2 * LANES) {
        vec left[8], right[8];
        for (int k = 0; k < n; k++) {
          const float *p = at + k * step + j;
          left[k] = AT(p), right[k] = AT(p + LANES);
          __builtin_prefetch(p + w.stride), __builtin_prefetch(p + w.stride + LANES);  // the next rows' parts
        }
        for (i64 r = 0; r < batch; r++) {
          const float *e = x + r * next + i;
          vec s = AT(out + r * row + j), t = AT(out + r * row + j + LANES);
          for (int k = 0; k < n; k++) {
            vec one = all(e[k * apart]);
            s += one * left[k], t += one * right[k];
          }
          TO(out + r * row + j) = s, TO(out + r * row + j + LANES) = t;
        }
      }
    for (; j + LANES <= wide; j += LANES) {
      vec rows[8];
      for (int k = 0; k < n; k++) {
        rows[k] = AT(at + k * step + j);
        __builtin_prefetch(at + k * step + j + AHEAD);
      }
      for (i64 r = 0; r < batch; r++) {
        const float *e = x + r * next + i;
        vec s = AT(out + r * row + j), t = e[0] * rows[0];
        for (int k = 1; k < n; k += 2) s += e[k * apart] * rows[k];
        for (int k = 2; k < n; k += 2) t += e[k * apart] * rows[k];
        TO(out + r * row + j) = s + t;
      }
    }
    for (; j < wide; j++)
      for (i64 r = 0; r < batch; r++)
        for (int k = 0; k < n; k++) out[r * row + j] += x[r * next + i + k * apart] * at[k * step + j];
  }
  for (i64 i = n * apart; i < inputs; i++)
    for (i64 r = 0; r < batch; r++)
      for (i64 j = 0; j < wide; j++) out[r * row + j] += x[r * next + i] * w.at[i * w.stride + from + j];
  if (batch > 1)
    for (i64 r = 0; r < batch; r++)
      for (i64 j = 0; j < wide; j++) y[r * stride + from + j] = out[r * row + j];
}

// `wide` vectors of outputs for a few rows of x, whose sums stay in registers: `chains` of each, since an addition
// takes as long as eight need to start.
INLINE void near_columns(int rows, int wide, int chains, const float *x, i64 next, i64 inputs, const float *w,
                         i64 stride, const float *bias, float *y, i64 far, i64 add) {
  vec s[2][4][16] = {};
  i64 i = 0;
  for (; i + chains <= inputs; i += chains)
    for (int h = 0; h < chains; h++)
      for (int u = 0; u < wide; u++) {
        vec one = AT(w + (i + h) * stride + u * LANES);
        for (int r = 0; r < rows; r++) s[r][h][u] += x[r * next + i + h] * one;
      }
  for (; i < inputs; i++)
    for (int u = 0; u < wide; u++)
      for (int r = 0; r < rows; r++) s[r][0][u] += x[r * next + i] * AT(w + i * stride + u * LANES);
  for (int r = 0; r < rows; r++)
    for (int u = 0; u < wide; u++) {
      float *out = y + r * far + u * LANES;
      vec total = s[r][0][u];
      for (int h = 1; h < chains; h++) total += s[r][h][u];
      if (bias) total += AT(bias + u * LANES);
      TO(out) = add ? AT(out) + total : total;
    }
}

INLINE void in_tiles(int n, i64 tile, const float *x, i64 next, i64 batch, i64 inputs, struct weight w, float *y,
                     i64 stride, i64 add, i64 low, i64 high) {
  for (i64 from = low; from < high; from += tile)
    for (i64 r = 0; r < batch; r += ROWS)
      some_columns(n, tile, x + r * next, next, least(ROWS, batch - r), inputs, w, y + r * stride, stride, add, from,
                   least(tile, high - from));
}

static void by_columns(const float *x, i64 next, i64 batch, i64 inputs, struct weight w, float *y, i64 stride,
                       i64 add, i64 low, i64 high) {
#define COLUMNS(rows, wide, chains)                                                                                 \
  for (; low + wide * LANES <= high; low += wide * LANES)                                                          \
  near_columns(rows, wide, chains, x, next, inputs, w.at + low, w.stride, w.bias ? w.bias + low : 0, y + low, stride, \
               add)
  if (batch <= 2 && inputs * w.stride <= NEAR) {
    if (batch == 1) {
      if (LANES == 16) COLUMNS(1, 16, 1);
      COLUMNS(1, 8, 1);
      COLUMNS(1, 4, 2);
      COLUMNS(1, 2, 4);
      COLUMNS(1, 1, 4);
    } else {
      if (LANES == 16) COLUMNS(2, 8, 1);
      COLUMNS(2, 4, 1);
      COLUMNS(2, 2, 2);
      COLUMNS(2, 1, 4);
    }
    if (low == high) return;
  }
  if (batch == 1) {
    some_columns(4, TILE, x, next, 1, inputs, w, y, stride, add, low, high - low);
    return;
  }
  if (batch <= FEW) in_tiles(4, 4 * TILE, x, next, batch, inputs, w, y, stride, add, low, high);
  else in_tiles(8, TILE, x, next, batch, inputs, w, y, stride, add, low, high);
}

// One of the threads, and its share of so many outputs.
struct thread { struct call *call; i64 number, threads, turn, low, high; float *parts[2]; };

INLINE void share(struct thread *t, i64 outputs) {
  i64 step = (outputs / t->threads + 15) / 16 * 16;
  t->low = least(t->number * step, outputs);
  t->high = t->number == t->threads - 1 ? outputs : least(t->low + step, outputs);
}

static void wait_until(const i64 *counter, i64 reaches) {
  for (i64 spins = 0; __atomic_load_n(counter, __ATOMIC_ACQUIRE) < reaches; spins++)
    if (spins >= SPINS) sched_yield();
}

static void wait_for_all(struct thread *t) {
  if (t->threads == 1) return;
  __atomic_fetch_add(&t->call->arrived, 1, __ATOMIC_ACQ_REL);
  wait_until(&t->call->arrived, ++t->turn * t->threads);
}

// This thread's share of a product: of its outputs, or of its inputs where those are the weight's rows. So each thread
// reads one piece of memory from end to end; then it adds the sums over all pieces (`parts`) for its share of outputs.
static void product(struct thread *t, const float *x, i64 rows, i64 inputs, struct weight w, float *y, i64 outputs,
                    i64 stride, i64 add) {
  share(t, outputs);
  if (!w.across) {
    by_rows(x, inputs, rows, inputs, w, y, stride, add, t->low, t->high);
    return;
  }
  if (t->threads == 1) {
    by_columns(x, inputs, rows, inputs, w, y, stride, add, 0, outputs);
    return;
  }
  i64 low = t->number * inputs / t->threads, high = (t->number + 1) * inputs / t->threads, size = rows * outputs;
  float *parts = t->parts[t->turn % 2];  // another thread may still read those of the product before
  struct weight piece = {w.at + low * w.stride, w.stride, 1, 0};
  by_columns(x + low, inputs, rows, high - low, piece, parts + t->number * size, outputs, 0, 0, outputs);
  wait_for_all(t);
  for (i64 r = 0; r < rows; r++)
    for (i64 j = t->low; j < t->high; j += LANES) {
      i64 n = t->high - j;
      vec v = add ? some(y + r * stride + j, n) : (vec){};
      if (w.bias) v += some(w.bias + j, n);
      for (i64 k = 0; k < t->threads; k++) v += some(parts + k * size + r * outputs + j, n);
      put(y + r * stride + j, n, v);
    }
}

// RMSNorm or LayerNorm of n numbers.
static void norm(const struct model *m, const float *x, struct weight w, i64 n, float *y) {
  vec s = {}, squares = {};
  i64 whole = n / LANES * LANES;
  float mean = 0, square = 0;
  if (!m->rms) {
    for (i64 i = 0; i < whole; i += LANES) s += AT(x + i);
    for (i64 i = whole; i < n; i++) mean += x[i];
    mean = (mean + sum(s)) / n;
  }
  for (i64 i = 0; i < whole; i += LANES) squares += (AT(x + i) - mean) * (AT(x + i) - mean);
  for (i64 i = whole; i < n; i++) square += (x[i] - mean) * (x[i] - mean);
  float scale = 1 / __builtin_sqrtf((square + sum(squares)) / n + (float)m->eps);
  for (i64 i = 0; i < n; i += LANES) {
    vec v = (some(x + i, n - i) - mean) * scale * some(w.at + i, n - i);
    put(y + i, n - i, w.bias ? v + some(w.bias + i, n - i) : v);
  }
}

// Of every so many rows the last.
static void norms(const struct model *m, const float *x, i64 rows, i64 every, struct weight w, float *y) {
  for (i64 r = 0; r < rows; r++) norm(m, x + (r * every + every - 1) * m->width, w, m->width, y + r * m->width);
}

// Normalise and rotate one head of queries or keys, if the model does so.
static void place_head(const struct model *m, float *x, struct weight w, const float *cosines, const float *sines) {
  i64 half = m->head_dim / 2;
  if (m->qk_norm) norm(m, x, w, m->head_dim, x);
  if (m->rotary)
    for (i64 i = 0; i < half; i++) {
      float a = x[i], b = x[half + i];
      x[i] = a * cosines[i] - b * sines[i];
      x[half + i] = b * cosines[i] + a * sines[i];
    }
}

// The products of a query with LANES keys, of which the first n are there; all if `whole`.
INLINE vec scores_of(const float *query, const float *keys, i64 dim, i64 n, int whole) {
  vec s[LANES] = {}, parts[4];
  i64 i = 0;
#define KEY(o) (keys + (whole || o < n ? o * dim : 0) + i)
  for (; i + LANES <= dim; i += LANES)
    for (int o = 0; o < LANES; o++) s[o] += AT(query + i) * AT(KEY(o));
  if (i < dim)
    for (int o = 0; o < LANES; o++) s[o] += some(query + i, dim - i) * some(KEY(o), dim - i);
  for (int g = 0; g < LANES / 4; g++) parts[g] = parts_of(s + 4 * g);
  return joined(parts);
}

// Scores to weights, with ALiBi's slope; returns what they have to be multiplied by to sum to 1. Behind the last score
// there is room for a vector.
INLINE float softmax(float *scores, i64 n, float scale, float slope) {
  float most = -3e38f, steps[LANES];
  for (int i = 0; i < LANES; i++) steps[i] = i;
  vec highest = all(most), total = {}, places = AT(steps);
  for (i64 i = 0; i < n; i += LANES) {
    vec one = AT(scores + i) * scale + (places + (float)(i - n + 1)) * slope;
    if (n - i < LANES) {
      ints there = places < (float)(n - i);
      one = (vec)(((ints)one & there) | ((ints)all(most) & ~there));
    }
    TO(scores + i) = one;
    highest = __builtin_elementwise_max(highest, one);
  }
  most = __builtin_reduce_max(highest);
  for (i64 i = 0; i < n; i += LANES) {
    vec one = exponential(AT(scores + i) - most);
    TO(scores + i) = one;
    total += one;
  }
  return 1 / sum(total);
}

// The new tokens of a sequence, and the query heads that share one key/value head; `three`: queries, keys, values. Of
// `every` so many tokens the last one attends; the others only get their places in the cache.
static void attend(const struct call *c, const struct layer *row, struct cache cache, i64 task, i64 every,
                   float *three, const float *cosines, const float *sines, float *scores, float *mixed) {
  const struct model *m = c->model;
  i64 dim = m->head_dim, group = m->heads / m->kv_heads, b = task / m->kv_heads, kv = task % m->kv_heads;
  i64 queries = m->heads * dim, start = task * c->slots * dim;
  float *keys = cache.keys + start, *values = cache.values + start;
  for (i64 new = 0; new < c->tokens; new++) {
    i64 at = b * c->tokens + new, tokens = c->past + new + 1, last = (tokens - 1) * dim, room = c->slots + LANES;
    float *query = three + at * (queries + 2 * m->kv_heads * dim) + kv * group * dim;
    float *key = query + queries - kv * (group - 1) * dim, *value = key + m->kv_heads * dim;
    float *out = mixed + at / every * queries + kv * group * dim, share[2];
    const float *cosine = cosines + new * dim, *sine = sines + new * dim;
    place_head(m, key, row->key_norm, cosine, sine);
    for (i64 i = 0; i < dim; i++) {
      keys[last + i] = key[i];
      values[last + i] = value[i];
    }
    if ((new + 1) % every) continue;
    for (i64 h = 0; h < group; h++) place_head(m, query + h * dim, row->query_norm, cosine, sine);
    for (i64 i = 0; i < tokens; i += LANES)
      for (i64 h = 0; h < group; h++)
        TO(scores + h * room + i) = tokens - i >= LANES
                                        ? scores_of(query + h * dim, keys + i * dim, dim, LANES, 1)
                                        : scores_of(query + h * dim, keys + i * dim, dim, tokens - i, 0);
    for (i64 h = 0; h < group; h += 2) {
      i64 two = least(2, group - h);
      for (i64 k = 0; k < two; k++)
        share[k] = softmax(scores + (h + k) * room, tokens, 1 / __builtin_sqrtf(dim), m->slopes[kv * group + h + k]);
      by_columns(scores + h * room, room, two, tokens, (struct weight){values, dim, 1, 0}, out + h * dim, dim, 0, 0,
                 dim);
      for (i64 k = 0; k < two; k++)
        for (i64 i = 0; i < dim; i++) out[(h + k) * dim + i] *= share[k];
    }
  }
}

INLINE vec activated(i64 kind, vec v) {
  if (kind == SILU) return v / (exponential(-v) + 1.0f);
  if (kind == GELU_TANH) {  // (1 + tanh u) / 2 is 1 / (1 + exp(-2u))
    vec u = (v + v * v * v * 0.044715f) * 0.7978845608f;
    return v / (exponential(u * -2.0f) + 1.0f);
  }
  vec part = v * 0.70710678f;
  for (int i = 0; i < LANES; i++) part[i] = erff(part[i]);
  return v * 0.5f * (part + 1.0f);
}

// Where the numbers of a step lie in the room that a call brings; returns how many floats that takes.
struct buffers { float *x, *three, *mixed, *up, *gate, *h, *scores, *cosines, *sines, *parts, *others; };

static i64 lay_out(const struct call *c, i64 number, i64 threads, struct buffers *into) {
  const struct model *m = c->model;
  i64 queries = m->heads * m->head_dim, rows = c->batch * c->tokens, at = 0;
#define TAKE(name, n) into->name = c->room + at, at += ((n) + 31) / 16 * 16
  TAKE(x, rows * m->width);
  TAKE(three, rows * (queries + 2 * m->kv_heads * m->head_dim));
  TAKE(mixed, rows * queries);
  TAKE(up, rows * m->mlp);
  TAKE(gate, rows * m->mlp);
  i64 sums = (threads > 1) * threads * rows * (queries + 2 * m->kv_heads * m->head_dim + m->width + m->mlp);
  TAKE(parts, sums);
  TAKE(others, sums);
  for (i64 t = 0; t <= number; t++) {  // of each thread
    TAKE(h, rows * m->width);
    TAKE(scores, (c->slots + LANES) * (m->heads / m->kv_heads));
    TAKE(cosines, c->tokens * m->head_dim);
    TAKE(sines, c->tokens * m->head_dim);
  }
  return at;
}

// Where the largest of n numbers stands: the first of equal ones, and of what is no number, as torch.argmax chooses.
static i64 largest(const float *x, i64 n) {
  i64 at = 0;
  for (i64 i = 0; i < n; i++)
    if (!(x[i] <= x[at])) {
      at = i;
      if (x[i] != x[i]) break;
    }
  return at;
}

// Compute one thread's share of a call. If that is a part of the tokens, `done` counts the layers whose keys and values
// the thread has written, and `before` is the counter of the part before, which the first part does not have. Only the
// last part computes logits.
static void forward(struct thread t, const i64 *before, i64 *done, int last) {
  struct call *c = t.call;
  const struct model *m = c->model;
  struct buffers own;
  lay_out(c, t.number, t.threads, &own);
  t.parts[0] = own.parts, t.parts[1] = own.others;
  i64 queries = m->heads * m->head_dim, keys = m->kv_heads * m->head_dim, wide = queries + 2 * keys;
  i64 rows = c->batch * c->tokens;
  if (m->rotary)
    for (i64 new = 0; new < c->tokens; new++)
      for (i64 i = 0; i < m->head_dim / 2; i++) {
        own.cosines[new * m->head_dim + i] = cosf(m->turns[i] * (c->past + new));
        own.sines[new * m->head_dim + i] = sinf(m->turns[i] * (c->past + new));
      }
  if (t.number == 0)
    for (i64 r = 0; r < rows; r++) {
      const float *token = m->own[TOKENS].at + c->ids[r] * m->own[TOKENS].stride;
      i64 at = (c->past + r % c->tokens) * m->own[PLACES].stride;
      for (i64 i = 0; i < m->width; i++)
        own.x[r * m->width + i] = token[i] + (m->own[PLACES].at ? m->own[PLACES].at[at + i] : 0);
    }
  wait_for_all(&t);
  for (i64 l = 0; l < m->layers; l++) {
    const struct layer *row = m->layer + l;
    i64 every = l == m->layers - 1 ? c->tokens : 1;  // nobody asks for the others' outputs of the last layer
    i64 asked = rows / every, stride = every * m->width;
    float *out = own.x + stride - m->width;
    norms(m, own.x, rows, 1, row->attention_norm, own.h);
    product(&t, own.h, rows, m->width, row->query, own.three, m->joined ? wide : queries, wide, 0);
    if (!m->joined) {
      product(&t, own.h, rows, m->width, row->key, own.three + queries, keys, wide, 0);
      product(&t, own.h, rows, m->width, row->value, own.three + queries + keys, keys, wide, 0);
    }
    wait_for_all(&t);
    if (before) wait_until(before, l + 1);
    i64 tasks = c->batch * m->kv_heads;
    for (i64 task = t.number * tasks / t.threads; task < (t.number + 1) * tasks / t.threads; task++)
      attend(c, row, c->caches[l], task, every, own.three, own.cosines, own.sines, own.scores, own.mixed);
    if (done) __atomic_store_n(done, l + 1, __ATOMIC_RELEASE);
    if (l == m->layers - 1 && !last) return;
    wait_for_all(&t);
    product(&t, own.mixed, asked, queries, row->output, out, m->width, stride, 1);
    wait_for_all(&t);
    norms(m, own.x, asked, every, row->mlp_norm, own.h);
    product(&t, own.h, asked, m->width, row->up, own.up, m->mlp, m->mlp, 0);
    if (row->gate.at) product(&t, own.h, asked, m->width, row->gate, own.gate, m->mlp, m->mlp, 0);
    for (i64 r = 0; r < asked; r++)
      for (i64 i = t.low; i < t.high; i += LANES) {
        float *up = own.up + r * m->mlp + i, *gate = own.gate + r * m->mlp + i;
        i64 n = t.high - i;
        vec v = some(up, n);
        put(up, n, row->gate.at ? v * activated(m->activation, some(gate, n)) : activated(m->activation, v));
      }
    wait_for_all(&t);
    product(&t, own.up, asked, m->mlp, row->down, out, m->width, stride, 1);
    wait_for_all(&t);
  }
  norms(m, own.x, c->batch, c->tokens, m->own[NORM], own.h);
  product(&t, own.h, c->batch, m->width, m->own[HEAD], c->logits, m->vocab, m->vocab, 0);
}

static void run(void *data) {
  struct thread t = {data, 0, 1};
  if (t.call->threads > 1) t.number = omp_get_thread_num(), t.threads = omp_get_num_threads();
  forward(t, 0, 0, 1);
}

static i64 parts_in(const struct call *c) {
  return c->batch == 1 && c->threads == 1 ? least(c->parts, c->tokens / PART) : 1;
}

// How many floats of room a part of a call's tokens takes.
static i64 room_of_part(const struct call *c, i64 parts) {
  struct call part = *c;
  struct buffers any;
  part.tokens = (c->tokens + parts - 1) / parts;
  return lay_out(&part, 0, 1, &any);
}

// The next part that no thread has begun, until there is none: a thread whose core others have leaves its part to one
// that runs. The room begins with the parts' counters, a cache line each.
static void run_parts(void *data) {
  struct call *c = data;
  i64 parts = parts_in(c), number;
  while ((number = __atomic_fetch_add(&c->arrived, 1, __ATOMIC_ACQ_REL)) < parts) {
    i64 low = number * c->tokens / parts, high = (number + 1) * c->tokens / parts, *done = (i64 *)c->room + 8 * number;
    struct call part = *c;
    part.past += low, part.ids += low, part.tokens = high - low;
    part.room += 16 * parts + number * room_of_part(c, parts);
    forward((struct thread){&part, 0, 1}, number ? done - 8 : 0, done, number == parts - 1);
  }
}

// How many floats of room a call takes.
i64 room(const struct call *c) {
  i64 parts = parts_in(c);
  struct buffers any;
  return parts > 1 ? parts * (16 + room_of_part(c, parts)) : lay_out(c, c->threads - 1, c->threads, &any);
}

// Do one step: read ids (B, tokens), write the logits of the last ones (B, vocabulary) and the likeliest tokens (B),
// make each cache so many tokens longer. Returns 1 if there is no place for them, 2 for a token outside of the
// vocabulary; then nothing was written.
i64 step(struct call *c) {
  const struct model *m = c->model;
  i64 end = c->past + c->tokens;
  if (end > c->slots || (m->own[PLACES].at && end > m->context)) return 1;
  for (i64 r = 0; r < c->batch * c->tokens; r++)
    if (c->ids[r] < 0 || c->ids[r] >= m->vocab) return 2;
  c->arrived = 0;
  i64 parts = parts_in(c);
  for (i64 k = 0; parts > 1 && k < parts; k++) ((i64 *)c->room)[8 * k] = 0;
  if (parts > 1) GOMP_parallel(run_parts, c, parts, 0);
  else if (c->threads > 1) GOMP_parallel(run, c, c->threads, 0);
  else run(c);
  for (i64 b = 0; b < c->batch; b++) c->likeliest[b] = largest(c->logits + b * m->vocab, m->vocab);
  return 0;
}
