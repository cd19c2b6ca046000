// Elementwise opcodes on element types that they accept, on ordinary and special values.
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/containers.h"
#include "base/testing/case_count.h"
#include "tests/compiled/test_harness.h"

namespace xlad::compiler {
namespace {

const std::vector<std::string> kFloats = {"f32", "f64", "f16", "bf16"};
const std::vector<std::string> kTinyFloats = {"f8e5m2",     "f8e4m3fn", "f8e4m3b11fnuz", "f8e5m2fnuz",
                                              "f8e4m3fnuz", "f8e4m3",   "f8e3m4"};
const std::vector<std::string> kIntegers = {"s8", "u8", "s16", "u16", "s32", "u32", "s64", "u64", "s4", "u4"};

// The types of most programs. Conversions between them, and comparisons of them, are always tried.
bool IsCommon(const std::string& type) {
  static const std::vector<std::string> kCommon = {"pred", "f32", "f64", "f16", "bf16", "s32", "u8"};
  return Contains(kCommon, type);
}

std::string Unary(const std::string& opcode, const std::string& from, const std::string& to) {
  return absl::StrCat("HloModule m\nENTRY e {\n x = ", from, "[67] parameter(0)\n ROOT r = ", to, "[67] ", opcode,
                      "(x)\n}\n");
}

std::string Binary(const std::string& opcode, const std::string& type, const std::string& result,
                   const std::string& attributes = "") {
  return absl::StrCat("HloModule m\nENTRY e {\n x = ", type, "[67] parameter(0)\n y = ", type,
                      "[67] parameter(1)\n ROOT r = ", result, "[67] ", opcode, "(x, y)", attributes, "\n}\n");
}

// Tests each opcode on each type, on ordinary and special values.
void Check(const std::vector<std::string>& opcodes, const std::vector<std::string>& types, bool binary,
           const hlo::Tolerance& tolerance) {
  Batch batch;
  for (const std::string& opcode : opcodes) {
    for (const std::string& type : types) {
      batch.AddOrdinaryAndSpecial(binary ? Binary(opcode, type, type) : Unary(opcode, type, type), tolerance);
    }
  }
  batch.Run();
}

TEST(Elementwise, ExactFloatOpcodes) {
  Check({"abs", "negate", "ceil", "floor", "round-nearest-afz", "round-nearest-even", "sign", "sqrt", "copy"}, kFloats,
        false, {});
  Check({"add", "subtract", "multiply", "divide", "maximum", "minimum", "remainder"}, kFloats, true, {});
}

// Tests the bits of f16 values: the sign of a zero in a maximum or minimum, and the payloads of NaNs that are only
// copied.
TEST(Elementwise, HalfBits) {
  Batch batch;
  const auto add = [&batch](absl::string_view value) {
    batch.Add(absl::StrCat("HloModule m\nENTRY e {\n x = u16[4] parameter(0)\n", value,
                           " bits = u16[4] bitcast-convert(f)\n ROOT r = u16[4] xor(bits, x)\n}\n"));
  };
  for (const char* opcode : {"maximum", "minimum"}) {
    add(absl::StrCat(" a = f16[4] constant({-0, 0, -0, 0})\n b = f16[4] constant({0, -0, -0, 0})\n f = f16[4] ", opcode,
                     "(a, b)\n"));
  }
  for (const char* nan : {"nan", "nan(0x3ff)", "-nan(0x201)", "nan(0x1)", "-nan(0x1ff)"}) {
    add(absl::StrCat(" c = f16[] constant(", nan, ")\n f = f16[4] broadcast(c), dimensions={}\n"));
  }
  add(" h = u16[] constant(65025)\n g = f16[] bitcast-convert(h)\n f = f16[4] broadcast(g), dimensions={}\n");
  batch.Run();
}

TEST(Elementwise, TinyFloats) {
  Check({"negate", "abs", "floor"}, kTinyFloats, false, {});
  Check({"add", "multiply", "maximum"}, kTinyFloats, true, {});
  Batch batch;
  for (const std::string& type : kTinyFloats) {
    for (const char* other : {"f32", "bf16", "f16", "s32"}) {
      batch.Add(Unary("convert", type, other), {});
      batch.Add(Unary("convert", other, type), {}, true);
    }
  }
  batch.Run();
}

// All values of a tiny float. Values that are only moved keep their bits, even if they are NaNs with a sign or payload.
TEST(Elementwise, TinyBits) {
  Batch batch;
  std::vector<std::string> types = kTinyFloats;
  types.push_back("f8e8m0fnu");
  const std::string all =
      "HloModule m\nENTRY e {\n q = pred[256] parameter(0)\n u = u8[256] iota(), iota_dimension=0\n";
  for (const std::string& type : types) {
    const std::string values = absl::StrCat(all, " x = ", type, "[256] bitcast-convert(u)\n");
    batch.Add(absl::StrCat(values, " y = ", type, "[256] reverse(x), dimensions={0}\n z = ", type,
                           "[256] select(q, x, y)\n ROOT r = u8[256] bitcast-convert(z)\n}\n"));
    batch.Add(absl::StrCat(values, " a = ", type, "[256,256] broadcast(x), dimensions={0}\n b = ", type,
                           "[256,256] broadcast(x), dimensions={1}\n ROOT r = pred[256,256] compare(a, b), ",
                           "direction=LT, type=TOTALORDER\n}\n"));
  }
  batch.Add(Unary("convert", "f32", "f4e2m1fn"), {}, true);
  batch.Run();
}

// The operands include subnormal numbers, which for all of these types except bf16 are normal numbers of the f32 that
// holds them in a register.
TEST(Elementwise, ReducePrecisionOfSmallFloats) {
  Batch batch;
  for (const char* type : {"f8e5m2", "f8e4m3", "f8e3m4", "f16", "bf16"}) {
    const std::string bits = type[1] == '8' ? "u8" : "u16", size = type[1] == '8' ? "[256]" : "[65536]";
    for (const char* widths : {"exponent_bits=5, mantissa_bits=2", "exponent_bits=3, mantissa_bits=0",
                               "exponent_bits=8, mantissa_bits=7", "exponent_bits=1, mantissa_bits=1"}) {
      batch.Add(absl::StrCat("HloModule m\nENTRY e {\n p = ", bits, size, " parameter(0)\n u = ", bits, size,
                             " iota(), iota_dimension=0\n v = ", bits, size, " xor(u, p)\n x = ", type, size,
                             " bitcast-convert(v)\n ROOT r = ", type, size, " reduce-precision(x), ", widths, "\n}\n"));
    }
  }
  batch.Run();
}

// f8e8m0fnu has only an exponent. Tests floats of every exponent, the ties between them, and their neighbors.
TEST(Elementwise, PowersOfTwo) {
  Batch batch;
  batch.Add(Unary("convert", "f8e8m0fnu", "f32"));
  for (const char* offset : {"0", "1", "4294967295"}) {
    batch.Add(absl::StrCat("HloModule m\nENTRY e {\n i = u32[4096] iota(), iota_dimension=0\n"
                           " s = u32[] constant(1048576)\n t = u32[4096] broadcast(s), dimensions={}\n"
                           " m = u32[4096] multiply(i, t)\n o = u32[] constant(",
                           offset, ")\n p = u32[4096] broadcast(o), dimensions={}\n a = u32[4096] add(m, p)\n",
                           " f = f32[4096] bitcast-convert(a)\n c = f8e8m0fnu[4096] convert(f)\n",
                           " ROOT r = u8[4096] bitcast-convert(c)\n}\n"));
  }
  batch.Run();
}

TEST(Elementwise, MathFunctions) {
  Check({"exponential", "exponential-minus-one",
         "log",         "log-plus-one",
         "tanh",        "erf",
         "logistic",    "rsqrt",
         "cbrt",        "sine",
         "cosine",      "tan",
         "sinh",        "cosh",
         "asin",        "acos",
         "atan",        "asinh",
         "acosh",       "atanh"},
        kFloats, false, Ulp(4));
  Check({"power", "atan2"}, kFloats, true, Ulp(4));
}

TEST(Elementwise, Integers) {
  Check({"negate", "not", "popcnt", "count-leading-zeros", "copy"}, kIntegers, false, {});
  Check({"abs", "sign"}, {"s8", "s16", "s32", "s64", "s4"}, false, {});
  Check({"add", "subtract", "multiply", "divide", "remainder", "maximum", "minimum", "and", "or", "xor", "shift-left",
         "shift-right-logical", "shift-right-arithmetic", "power"},
        kIntegers, true, {});
  Check({"not"}, {"pred"}, false, {});
  Check({"add", "multiply", "and", "or", "xor", "maximum", "minimum"}, {"pred"}, true, {});
}

TEST(Elementwise, Comparisons) {
  Batch batch;
  std::vector<std::string> types = {"pred"};
  for (const auto* list : {&kFloats, &kIntegers}) types.insert(types.end(), list->begin(), list->end());
  int64_t position = 0;
  for (const std::string& type : types) {
    ++position;  // Each of the other types is tried with two directions, and the next type with others.
    for (const char* direction : {"EQ", "NE", "LT", "LE", "GT", "GE"}) {
      if (!TriesCase(position++, 3) && !IsCommon(type)) continue;
      batch.Add(Binary("compare", type, "pred", absl::StrCat(", direction=", direction)), {}, true);
    }
  }
  for (const char* direction : {"EQ", "NE"}) {
    batch.Add(Binary("compare", "c64", "pred", absl::StrCat(", direction=", direction)), {}, true);
  }
  for (const char* direction : {"EQ", "LT", "GE"}) {
    batch.Add(Binary("compare", "f32", "pred", absl::StrCat(", direction=", direction, ", type=TOTALORDER")), {}, true);
    batch.Add(Binary("compare", "bf16", "pred", absl::StrCat(", direction=", direction, ", type=TOTALORDER")), {},
              true);
  }
  batch.Run();
}

TEST(Elementwise, Conversions) {
  Batch batch;
  std::vector<std::string> types = {"pred", "c64", "c128"};
  for (const auto* list : {&kFloats, &kIntegers}) types.insert(types.end(), list->begin(), list->end());
  int64_t position = 0;  // The number of types is odd, so each type is converted from others and to others.
  for (const std::string& from : types) {
    for (const std::string& to : types) {
      if (!TriesCase(position++, 2) && !(IsCommon(from) && IsCommon(to))) continue;
      if (from == to || (from[0] == 'c' && to[0] != 'c')) continue;
      // Numbers of more than 53 bits may differ by an ulp.
      if ((from == "s64" || from == "u64") && (to == "f64" || to == "c128")) continue;
      batch.AddOrdinaryAndSpecial(Unary("convert", from, to));
    }
  }
  for (const char* pair : {"f32 s32", "s32 f32", "u32 f32", "f64 s64", "u64 f64", "bf16 u16", "s16 f16", "u8 s8"}) {
    const std::string text(pair);
    batch.Add(Unary("bitcast-convert", text.substr(0, text.find(' ')), text.substr(text.find(' ') + 1)), {}, true);
  }
  batch.Run();
}

TEST(Elementwise, TernaryAndOthers) {
  Batch batch;
  for (const char* type : {"f32", "bf16", "s32", "u8", "f64", "c64", "pred"}) {
    batch.Add(absl::StrCat("HloModule m\nENTRY e {\n p = pred[31] parameter(0)\n x = ", type,
                           "[31] parameter(1)\n y = ", type, "[31] parameter(2)\n ROOT r = ", type,
                           "[31] select(p, x, y)\n}\n"),
              {}, true);
  }
  for (const char* type : {"f32", "bf16", "s32", "u8", "f64"}) {
    batch.Add(absl::StrCat("HloModule m\nENTRY e {\n lo = ", type, "[] parameter(0)\n x = ", type,
                           "[31] parameter(1)\n hi = ", type, "[] parameter(2)\n ROOT r = ", type,
                           "[31] clamp(lo, x, hi)\n}\n"));
  }
  for (const char* type : {"f32", "f64", "bf16", "f16"}) {
    batch.Add(Unary("is-finite", type, "pred"), {}, true);
    for (const char* format : {"exponent_bits=5, mantissa_bits=10", "exponent_bits=8, mantissa_bits=7",
                               "exponent_bits=4, mantissa_bits=3", "exponent_bits=3, mantissa_bits=1"}) {
      batch.Add(absl::StrCat("HloModule m\nENTRY e {\n x = ", type, "[67] parameter(0)\n ROOT r = ", type,
                             "[67] reduce-precision(x), ", format, "\n}\n"),
                {}, true);
    }
  }
  for (const char* type : {"s32", "u32", "s64", "u64", "s8", "u8"}) batch.Add(Binary("mulhi", type, type), {}, true);
  batch.Run();
}

TEST(Elementwise, Complex) {
  for (const std::string& type : {std::string("c64"), std::string("c128")}) {
    const std::string part = type == "c64" ? "f32" : "f64";
    Batch batch;
    for (const char* opcode : {"negate", "exponential", "exponential-minus-one", "log", "log-plus-one", "sqrt", "rsqrt",
                               "tanh", "sine", "cosine", "tan", "logistic", "sign"}) {
      batch.Add(Unary(opcode, type, type), Close(type == "c64" ? 2e-5 : 1e-12));
    }
    for (const char* opcode : {"add", "subtract", "multiply", "divide", "power", "atan2"}) {
      batch.Add(Binary(opcode, type, type), Close(type == "c64" ? 1e-4 : 1e-12));
    }
    batch.Add(Unary("abs", type, part), Ulp(2));
    batch.Add(Unary("real", type, part), {}, true);
    batch.Add(Unary("imag", type, part), {}, true);
    batch.Add(Binary("complex", part, type), {}, true);
    batch.Run();
  }
}

// Numbers of which sums of parts or the modulus overflow or are denormal, and real parts whose exponential overflows.
TEST(Elementwise, ComplexNearLimits) {
  for (const bool is_double : {false, true}) {
    const std::string type = is_double ? "c128" : "c64";
    const std::string large = is_double ? "1.6e308" : "3e38", small = is_double ? "5e-324" : "1.4e-45";
    const std::string power = is_double ? "720" : "100", normal = is_double ? "4e-308" : "2e-38";
    const auto constant = [&](const std::string& name, const std::vector<std::string>& parts) {
      std::vector<std::string> numbers;
      for (const std::string& re : parts) {
        for (const std::string& im : parts) numbers.push_back(absl::StrCat("(", re, ", ", im, ")"));
      }
      return absl::StrCat("  ", name, " = ", type, "[", numbers.size(), "] constant({", absl::StrJoin(numbers, ", "),
                          "})\n");
    };
    Batch batch;
    const auto add = [&](const std::string& values, const std::string& call, int64_t size, bool signed_zero = false) {
      hlo::Tolerance tolerance = Close(is_double ? 1e-12 : 2e-5);
      tolerance.signed_zero = signed_zero;
      batch.Add(absl::StrCat("HloModule m\nENTRY e {\n", values, "  ROOT r = ", type, "[", size, "] ", call, "\n}\n"),
                tolerance);
    };
    const std::vector<std::string> limits = {large, "-" + large, small, "-" + small, normal, "1"};
    const std::vector<std::string> powers = {power, "-" + power, "1.5", "-2"};
    for (const char* opcode : {"sqrt", "rsqrt", "sign", "log", "log-plus-one"}) {
      add(constant("x", limits), absl::StrCat(opcode, "(x)"), 36);
    }
    for (const char* opcode : {"tan", "tanh", "logistic"}) {
      add(constant("x", powers), absl::StrCat(opcode, "(x)"), 16);
    }
    // The exponential overflows, but its product with a part of (cos(im), sin(im)) may not.
    const std::string far = is_double ? "709.9" : "89.5", farther = is_double ? "1450" : "190";
    for (const char* opcode : {"exponential", "exponential-minus-one"}) {
      add(constant("x", {power, "-" + power, far, "1.5", "-0"}), absl::StrCat(opcode, "(x)"), 25, true);
      add(constant("x", {farther, "-" + small}), absl::StrCat(opcode, "(x)"), 4, true);
    }
    const std::string angle = is_double ? "711" : "90";
    for (const char* opcode : {"sine", "cosine"}) {
      add(constant("x", {angle, "-" + angle, "1e-3", "-1e-3", "0", "-0"}), absl::StrCat(opcode, "(x)"), 36, true);
      add(constant("x", {farther, "-" + small}), absl::StrCat(opcode, "(x)"), 4, true);
    }
    for (const std::string& size : {large, normal, std::string(is_double ? "1e200" : "1e20"), small}) {
      add(constant("y", {size, "1"}) + constant("x", {"-" + size, "2"}), "atan2(y, x)", 4);
      add(constant("y", {size, "-" + size}) + constant("x", {"-" + size, "0"}), "atan2(y, x)", 4);
    }
    add(constant("x", {large, "-" + small}) + constant("y", {"0.5", "-0.25"}), "power(x, y)", 4);
    add(constant("x", {large, "1", "-" + small}) + constant("y", {large, "-" + large, "2"}), "divide(x, y)", 9);
    add(constant("x", {small, "-" + normal}) + constant("y", {"-" + small, normal}), "divide(x, y)", 4);
    batch.Run();
  }
}

TEST(Elementwise, StochasticConvert) {
  Batch batch;
  for (const auto& [from, random] : std::vector<std::pair<const char*, const char*>>{
           {"f32", "u32"}, {"f64", "u64"}, {"bf16", "u16"}, {"f16", "u16"}, {"f8e5m2", "u8"}}) {
    for (const char* to : {"s8", "s16", "s32", "u8", "s4"}) {
      batch.AddOrdinaryAndSpecial(absl::StrCat("HloModule m\nENTRY e {\n x = ", from, "[67] parameter(0)\n r = ",
                                               random, "[67] parameter(1)\n ROOT y = ", to,
                                               "[67] stochastic-convert(x, r)\n}\n"));
    }
  }
  batch.Run();
}

}  // namespace
}  // namespace xlad::compiler
