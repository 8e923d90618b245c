// The arithmetic of a decode step, for WebAssembly with SIMD. kernels.js does the same in plain JavaScript.
// Arrays are row-major float32; every width (n_in, dim, n of a row) is a multiple of 4. No libc, no allocation.

typedef float f4 __attribute__((vector_size(16), aligned(4)));
typedef int i4 __attribute__((vector_size(16), aligned(4)));

#define EXPORT(name) __attribute__((export_name(#name)))
#define AT(p) (*(const f4 *)(p))
#define TO(p) (*(f4 *)(p))

static inline f4 all(float x) { return (f4){x, x, x, x}; }
static inline float sum(f4 v) { return (v[0] + v[1]) + (v[2] + v[3]); }

// e to the x: 2 to a whole number, times a polynomial of the rest (Cephes' expf).
static inline f4 exponential(f4 x) {
  x = (f4)__builtin_wasm_min_f32x4(x, all(88.0f));
  x = (f4)__builtin_wasm_max_f32x4(x, all(-87.0f));
  f4 whole = (f4)__builtin_wasm_nearest_f32x4(x * all(1.44269504f));
  f4 r = x - whole * all(0.693359375f) + whole * all(2.12194440e-4f);
  f4 p = all(1.9875691500e-4f);
  p = p * r + all(1.3981999507e-3f);
  p = p * r + all(8.3334519073e-3f);
  p = p * r + all(4.1665795894e-2f);
  p = p * r + all(1.6666665459e-1f);
  p = p * r + all(5.0000001201e-1f);
  i4 power = (__builtin_convertvector(whole, i4) + 127) << 23;
  return (p * r * r + r + all(1.0f)) * (f4)power;
}

// Up to 2 rows of x times 4 rows of w: each vector that is loaded serves several products.
static inline void tile(float *out, const float *x, const float *w, const float *bias, int rows, int n_in, int n_out) {
  f4 s[2][4] = {};
  for (int i = 0; i < n_in; i += 4) {
    for (int o = 0; o < 4; o++) {
      f4 weight = AT(w + o * n_in + i);
      for (int r = 0; r < rows; r++) s[r][o] += AT(x + r * n_in + i) * weight;
    }
  }
  for (int r = 0; r < rows; r++)
    for (int o = 0; o < 4; o++) out[r * n_out + o] = sum(s[r][o]) + (bias ? bias[o] : 0);
}

// out (rows, n_out) = x (rows, n_in) times the transpose of w (n_out, n_in), plus bias (n_out) unless that is 0.
EXPORT(linear)
void linear(float *out, const float *x, const float *w, const float *bias, int rows, int n_in, int n_out) {
  int o = 0;
  for (; o + 4 <= n_out; o += 4) {
    int r = 0;
    const float *b = bias ? bias + o : 0;
    for (; r + 2 <= rows; r += 2) tile(out + r * n_out + o, x + r * n_in, w + o * n_in, b, 2, n_in, n_out);
    if (r < rows) tile(out + r * n_out + o, x + r * n_in, w + o * n_in, b, 1, n_in, n_out);
  }
  for (; o < n_out; o++)
    for (int r = 0; r < rows; r++) {
      f4 s = {};
      for (int i = 0; i < n_in; i += 4) s += AT(x + r * n_in + i) * AT(w + o * n_in + i);
      out[r * n_out + o] = sum(s) + (bias ? bias[o] : 0);
    }
}

EXPORT(layer_norm)
void layer_norm(float *out, const float *x, const float *weight, const float *bias, int rows, int n, float eps) {
  for (int r = 0; r < rows; r++, x += n, out += n) {
    f4 s = {}, squares = {};
    for (int i = 0; i < n; i += 4) s += AT(x + i);
    f4 mean = all(sum(s) / n);
    for (int i = 0; i < n; i += 4) squares += (AT(x + i) - mean) * (AT(x + i) - mean);
    f4 scale = all(1 / __builtin_sqrtf(sum(squares) / n + eps));
    for (int i = 0; i < n; i += 4) TO(out + i) = (AT(x + i) - mean) * scale * AT(weight + i) + AT(bias + i);
  }
}

EXPORT(rms_norm)
void rms_norm(float *out, const float *x, const float *weight, int rows, int n, float eps) {
  for (int r = 0; r < rows; r++, x += n, out += n) {
    f4 squares = {};
    for (int i = 0; i < n; i += 4) squares += AT(x + i) * AT(x + i);
    f4 scale = all(1 / __builtin_sqrtf(sum(squares) / n + eps));
    for (int i = 0; i < n; i += 4) TO(out + i) = AT(x + i) * scale * AT(weight + i);
  }
}

// Turns x (rows, heads, dim) in place; row r stands at position `first` + r of the tables (positions, dim / 2).
EXPORT(rotate)
void rotate(float *x, const float *cosines, const float *sines, int rows, int heads, int dim, int first) {
  int half = dim / 2;
  for (int r = 0; r < rows; r++)
    for (int h = 0; h < heads; h++, x += dim)
      for (int i = 0; i < half; i++) {
        float c = cosines[(first + r) * half + i], s = sines[(first + r) * half + i], a = x[i], b = x[half + i];
        x[i] = a * c - b * s;
        x[half + i] = b * c + a * s;
      }
}

// The sum of the values of n tokens, each times its score, for `wide` vectors of a head; scaled by `share`.
static inline void weigh(float *out, const float *scores, const float *v, int n, int token_step, float share, int wide) {
  f4 s[4] = {};
  for (int t = 0; t < n; t++)
    for (int j = 0; j < wide; j++) s[j] += all(scores[t]) * AT(v + t * token_step + 4 * j);
  for (int j = 0; j < wide; j++) TO(out + 4 * j) = s[j] * all(share);
}

// Causal attention of q (rows, heads, dim), whose first row has seen `seen` tokens, over keys and values whose tokens
// lie `token_step` and whose heads lie `head_step` floats apart. `scores` has room for seen + rows + 4 floats.
EXPORT(attend)
void attend(float *out, const float *q, const float *keys, const float *values, float *scores, int rows, int seen,
            int heads, int kv_heads, int dim, int token_step, int head_step) {
  float scale = 1 / __builtin_sqrtf(dim);
  for (int r = 0; r < rows; r++)
    for (int h = 0; h < heads; h++, q += dim, out += dim) {
      const float *k = keys + h / (heads / kv_heads) * head_step, *v = values + h / (heads / kv_heads) * head_step;
      int n = seen + r + 1;
      float most = -3e38f;
      for (int t = 0; t < n; t++) {
        f4 s = {};
        for (int i = 0; i < dim; i += 4) s += AT(q + i) * AT(k + t * token_step + i);
        scores[t] = sum(s) * scale;
        if (scores[t] > most) most = scores[t];
      }
      for (int t = n; t % 4; t++) scores[t] = -3e38f;
      f4 total = {};
      for (int t = 0; t < n; t += 4) {
        f4 e = exponential(AT(scores + t) - all(most));
        for (int j = n - t; j < 4; j++) e[j] = 0;
        TO(scores + t) = e;
        total += e;
      }
      float share = 1 / sum(total);
      int i = 0;
      for (; i + 16 <= dim; i += 16) weigh(out + i, scores, v + i, n, token_step, share, 4);
      for (; i < dim; i += 4) weigh(out + i, scores, v + i, n, token_step, share, 1);
    }
}

// GELU in the form with tanh, in place; x / (1 + e^(-2u)) is x (1 + tanh u) / 2.
EXPORT(gelu)
void gelu(float *x, int n) {
  for (int i = 0; i < n; i += 4) {
    f4 v = AT(x + i), u = (v + v * v * v * all(0.044715f)) * all(0.7978845608f);
    TO(x + i) = v / (all(1.0f) + exponential(u * all(-2.0f)));
  }
}

// SiLU of the gate times `up`, in the gate's place.
EXPORT(swiglu)
void swiglu(float *gate, const float *up, int n) {
  for (int i = 0; i < n; i += 4) TO(gate + i) = AT(gate + i) / (all(1.0f) + exponential(-AT(gate + i))) * AT(up + i);
}

EXPORT(add)
void add(float *x, const float *y, int n) {
  for (int i = 0; i < n; i += 4) TO(x + i) += AT(y + i);
}
