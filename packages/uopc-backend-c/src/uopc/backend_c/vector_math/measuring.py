"""C that compares a function with the mathematics library's, in more digits.

The reference for f32 is f64, that for f64 is long double: both are off by far less than
one digit of what is measured.
"""

from __future__ import annotations

from uopc.backend_c.types import C_TYPES
from uopc.backend_c.vector_math.lanes import fill
from uopc.backend_c.vector_math.table import Function, definitions

ENTRY = "uopc_measure"

_SPECIAL = """
  0.0, -0.0, 1, -1, 0.5, -0.5, 2, -2, 3, -3, 0x1p-126, 0x1p-149, -0x1p-149,
  0x1p-1022, 0x1p-1074, -0x1p-1074, 0x1.fffffep127, -0x1.fffffep127,
  0x1.fffffffffffffp1023, -0x1.fffffffffffffp1023, __builtin_inf(),
  -__builtin_inf(), __builtin_nan(""), 88.72283, 88.72284, -87.33655, -103.97207,
  -103.9721, 709.782712893384, 709.7827128933841, -708.3964185322641,
  -745.1332191019411, -745.1332191019412, 127, 127.99999, 128, -126, -149, -149.5,
  -150, -150.00002, 1023, 1023.9999999999999, 1024, -1022, -1074, -1074.5, -1075,
  -1075.0000000000002, 0x1.fffffep-1, 0x1.fffffffffffffp-1, 0x1.000002p0,
  0x1.0000000000001p0, -0x1.fffffep-1, -0x1.fffffffffffffp-1, -0x1.000002p0,
  0x1.921fb6p0, 0x1.921fb54442d18p1, 0x1p17, 0x1.000002p17, 0x1p20,
  0x1.0000000000001p20, -0x1p40, 9.01, -9.02, 19.1, -20
"""
SPECIALS = _SPECIAL.count(",") + 1
"""How many special inputs there are."""

_PROGRAM = """\
@FUNCTION@
typedef unsigned long long count_t;
typedef struct { count_t first, count, step; double error, worst; } job_t;
static const double special[] = {@SPECIAL@};
@INPUT@
@ERROR@
void uopc_measure(void* p) {
  job_t* job = p;
  double error = -1, worst = 0;
  for (count_t i = 0; i < job->count; i += @LANES@) {
    @VECTOR@ x, y;
    for (int k = 0; k < @LANES@; k++) {
      count_t n = i+k < job->count ? i+k : i;
      x[k] = job->step ? input(job->first+n*job->step) : (@T@)special[n];
    }
    y = uopc_@NAME@_@VECTOR@(x);
    for (int k = 0; k < @LANES@; k++) {
      double e = error_of(x[k], y[k]);
      if (e > error) error = e, worst = x[k];
    }
  }
  job->error = error;
  job->worst = worst;
}
"""
# The bits of a number are its index.
_INPUT_F32 = """\
static inline float input(count_t i) {
  union { unsigned u; float f; } v = {(unsigned)i};
  return v.f;
}
"""
# Bit patterns, numbers in [-800, 800], small ones, multiples of pi/2 and their
# neighbours, and what is around 1; the pseudo-random bits are those of SplitMix64.
_INPUT_F64 = """\
static inline count_t mixed(count_t i) {
  count_t z = (i+1)*0x9e3779b97f4a7c15ull;
  z = (z ^ z>>30)*0xbf58476d1ce4e5b9ull;
  z = (z ^ z>>27)*0x94d049bb133111ebull;
  return z ^ z>>31;
}
static inline double input(count_t i) {
  count_t u = mixed(i), more = mixed(~i);
  union { count_t u; double f; } v = {u};
  double q = (double)(long long)u*0x1p-63;
  switch (i & 7) {
    case 0: case 1: return v.f;
    case 2: case 3: return q*800;
    case 4: return q*4;
    case 5: return __builtin_ldexp(q, -(int)(more%64));
    case 6:
      v.f = (double)(u%600000)*0x1.921fb54442d18p0;
      v.u += more%5 - 2;
      return v.f;
    default: return 1 + __builtin_ldexp(q, -(int)(more%40));
  }
}
"""
# 2069 is twice the bias of f64 and the 23 digits of f32; 897 and 1150 are the exponents
# of the smallest normal and of the largest f32. An infinity counts as 2**128.
_ERROR_F32 = """\
static inline double error_of(float x, float y) {
  double r = __builtin_@NAME@((double)x), g = y;
  if (r != r || g != g) return r != r && g != g ? 0 : __builtin_inf();
  if (g == 0 && __builtin_signbit(g) != __builtin_signbit(r)) return __builtin_inf();
  r = r > 0x1p128 ? 0x1p128 : r < -0x1p128 ? -0x1p128 : r;
  g = g > 0x1p127*2 ? 0x1p128 : g < -0x1p127*2 ? -0x1p128 : g;
  union { double f; count_t u; } v = {r};
  count_t e = v.u >> 52 & 2047;
  v.u = (2069 - (e < 897 ? 897 : e > 1150 ? 1150 : e)) << 52;
  return __builtin_fabs(g-r)*v.f;
}
"""
_ERROR_F64 = """\
static inline double error_of(double x, double y) {
  long double r = __builtin_@NAME@l((long double)x), g = y;
  if (r != r || g != g) return r != r && g != g ? 0 : __builtin_inf();
  if (g == 0 && __builtin_signbit(g) != __builtin_signbit(r)) return __builtin_inf();
  r = r > 0x1p1024L ? 0x1p1024L : r < -0x1p1024L ? -0x1p1024L : r;
  g = g > 0x1p1023L*2 ? 0x1p1024L : g < -0x1p1023L*2 ? -0x1p1024L : g;
  int e;
  __builtin_frexpl(r, &e);
  e = e < -1021 ? -1021 : e > 1024 ? 1024 : e;
  return (double)__builtin_ldexpl(__builtin_fabsl(g-r), 53-e);
}
"""


def program(function: Function, element: str, lanes: int) -> str:
    """C with the entry point `ENTRY`, which takes a job: see `measure`."""
    f32 = element == "f32"
    return fill(
        _PROGRAM,
        {
            "SPECIAL": _SPECIAL,
            "FUNCTION": "\n".join(definitions(function, element, lanes)),
            "INPUT": _INPUT_F32 if f32 else _INPUT_F64,
            "ERROR": _ERROR_F32 if f32 else _ERROR_F64,
            "LANES": str(lanes),
            "VECTOR": f"{element}x{lanes}",
            "T": C_TYPES[element],
            "NAME": function.name,
        },
    )
