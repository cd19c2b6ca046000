// The text forms of kernels and kernel schedules, as printed by `xlad compile --emit kernels` and `--emit schedules`.
#include <algorithm>

#include "absl/strings/numbers.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "base/hash.h"
#include "compiler/kernel/kernel_schedule.h"
#include "hlo/text/text.h"
#include "hlo/verify/verifier.h"
#include "tensor/element_type.h"

namespace xlad::compiler {
namespace {

constexpr absl::string_view kRoles[] = {"input", "output", "temporary"};

std::string AffineText(const Affine& position, const std::vector<KernelDim>& dims) {
  std::vector<std::string> terms;
  for (size_t d = 0; d < dims.size(); ++d) {
    if (position.factors[d] == 0) continue;
    terms.push_back(position.factors[d] == 1 ? dims[d].name : absl::StrCat(position.factors[d], "*", dims[d].name));
  }
  if (position.constant != 0 || terms.empty()) terms.push_back(absl::StrCat(position.constant));
  return absl::StrJoin(terms, "+");
}

std::string NamesOf(const std::vector<int>& which, const std::vector<KernelDim>& dims) {
  std::string text;
  for (const int d : which) absl::StrAppend(&text, " ", dims[d].name);
  return text;
}

void AppendCode(absl::string_view what, const Module& module, std::string* text) {
  absl::StrAppend(text, what, "\n", hlo::PrintText(module), "end\n");
}

void AppendReads(const Kernel& kernel, const KernelCode& code, std::string* text) {
  for (const KernelRead& read : code.reads) {
    const std::string at = AffineText(read.at, kernel.dims);
    if (read.array == KernelRead::kPosition) {
      absl::StrAppend(text, "position ", at, "\n");
    } else {
      absl::StrAppend(text, "read ", kernel.arrays[read.array].name, " at ", at, "\n");
    }
  }
}

void AppendStatement(const Kernel& kernel, const Statement& statement, std::string* text) {
  absl::StrAppend(text, statement.is_product ? "product " : statement.is_reduction() ? "reduce " : "map ",
                  statement.name, " over", NamesOf(statement.over, kernel.dims));
  if (!statement.along.empty()) absl::StrAppend(text, " along", NamesOf(statement.along, kernel.dims));
  if (statement.is_reduction()) absl::StrAppend(text, " lanes ", statement.lanes);
  absl::StrAppend(text, " writes");
  for (const int result : statement.results) absl::StrAppend(text, " ", kernel.arrays[result].name);
  absl::StrAppend(text, " at ", AffineText(statement.at, kernel.dims), "\n");
  AppendReads(kernel, statement.value, text);
  AppendCode("code", *statement.value.code, text);
  if (!statement.is_reduction()) return;
  AppendCode("combine", *statement.combine, text);
  AppendReads(kernel, statement.initial, text);
  AppendCode("initial", *statement.initial.code, text);
}

// Reads text line by line.
class Lines {
 public:
  explicit Lines(absl::string_view text) : lines_(absl::StrSplit(text, '\n')) {}

  bool AtEnd() {
    while (next_ < lines_.size() && Words().empty()) ++next_;
    return next_ == lines_.size();
  }
  // The words of the current line.
  std::vector<std::string> Words() const {
    if (next_ >= lines_.size()) return {};
    return absl::StrSplit(lines_[next_], ' ', absl::SkipEmpty());
  }
  absl::string_view Take() { return lines_[next_++]; }
  absl::Status Wrong(absl::string_view expected) const {
    const std::string found = next_ < lines_.size() ? absl::StrCat("\"", lines_[next_], "\"") : "the end of the text";
    return absl::InvalidArgumentError(absl::StrCat("line ", next_ + 1, ": found ", found, ", expected ", expected));
  }

 private:
  std::vector<absl::string_view> lines_;
  size_t next_ = 0;
};

class KernelParser {
 public:
  explicit KernelParser(absl::string_view text) : lines_(text) {}

  absl::StatusOr<Kernel> Run() {
    std::vector<std::string> words = lines_.AtEnd() ? std::vector<std::string>() : lines_.Words();
    if (words.size() != 2 || words[0] != "kernel") return lines_.Wrong("kernel NAME");
    kernel_.name = words[1];
    lines_.Take();
    while (!lines_.AtEnd()) {
      words = lines_.Words();
      if (words[0] == "dim") {
        XLAD_RETURN_IF_ERROR(ParseDim(words));
      } else if (words[0] == "map" || words[0] == "reduce" || words[0] == "product") {
        XLAD_RETURN_IF_ERROR(ParseStatement(words));
      } else {
        XLAD_RETURN_IF_ERROR(ParseArray(words));
      }
    }
    XLAD_RETURN_IF_ERROR(VerifyKernel(kernel_));
    return std::move(kernel_);
  }

 private:
  absl::Status ParseDim(const std::vector<std::string>& words) {
    KernelDim dim;
    if (words.size() != 3 || !absl::SimpleAtoi(words[2], &dim.size)) return lines_.Wrong("dim NAME SIZE");
    dim.name = words[1];
    if (!kernel_.statements.empty()) return lines_.Wrong("dimensions before statements");
    kernel_.dims.push_back(std::move(dim));
    lines_.Take();
    return absl::OkStatus();
  }

  absl::Status ParseArray(const std::vector<std::string>& words) {
    KernelArray array;
    const auto* const role = std::find(std::begin(kRoles), std::end(kRoles), words[0]);
    if (role == std::end(kRoles) || words.size() != 4 || !absl::SimpleAtoi(words[3], &array.elements)) {
      return lines_.Wrong("dim, input, output or temporary NAME TYPE ELEMENTS, map, reduce or product");
    }
    const auto type = tensor::ParseElementType(words[2]);
    if (!type.has_value()) return lines_.Wrong("an element type such as f32");
    array.name = words[1];
    array.role = static_cast<KernelArray::Role>(role - std::begin(kRoles));
    array.type = *type;
    kernel_.arrays.push_back(std::move(array));
    lines_.Take();
    return absl::OkStatus();
  }

  absl::Status ParseStatement(const std::vector<std::string>& words) {
    Statement statement;
    const bool reduces = words[0] == "reduce";
    statement.is_product = words[0] == "product";
    const char* form = "map NAME over DIMS writes ARRAYS at POSITION, or reduce NAME over DIMS along DIMS lanes N ...";
    if (words.size() < 2) return lines_.Wrong(form);
    statement.name = words[1];
    std::string part;
    for (size_t w = 2; w < words.size(); ++w) {
      const std::string& word = words[w];
      if (word == "over" || word == "along" || word == "lanes" || word == "writes" || word == "at") {
        part = word;
        continue;
      }
      bool fits = true;
      if (part == "over") {
        fits = AddDim(word, &statement.over);
      } else if (part == "along") {
        fits = AddDim(word, &statement.along);
      } else if (part == "lanes") {
        fits = absl::SimpleAtoi(word, &statement.lanes);
      } else if (part == "writes") {
        statement.results.push_back(FindArray(word));
        fits = statement.results.back() >= 0;
      } else {
        fits = part == "at" && ParseAffine(word, &statement.at);
      }
      if (!fits) return lines_.Wrong(form);
    }
    if (statement.at.factors.size() != kernel_.dims.size()) return lines_.Wrong(form);
    lines_.Take();
    XLAD_RETURN_IF_ERROR(ParseCode("code", &statement.value));
    if (reduces) {
      KernelCode combine;
      XLAD_RETURN_IF_ERROR(ParseCode("combine", &combine));
      statement.combine = combine.code;
      XLAD_RETURN_IF_ERROR(ParseCode("initial", &statement.initial));
    }
    kernel_.statements.push_back(std::move(statement));
    return absl::OkStatus();
  }

  // Parses the lines that start with "read" or "position", a line with `keyword`, a module, and a line "end".
  absl::Status ParseCode(absl::string_view keyword, KernelCode* code) {
    while (!lines_.AtEnd()) {
      const std::vector<std::string> words = lines_.Words();
      KernelRead read;
      if (words.size() == 2 && words[0] == "position" && ParseAffine(words[1], &read.at)) {
        read.array = KernelRead::kPosition;
      } else if (words.size() == 4 && words[0] == "read" && words[2] == "at" && ParseAffine(words[3], &read.at)) {
        read.array = FindArray(words[1]);
        if (read.array < 0) return lines_.Wrong("the name of an array");
      } else {
        break;
      }
      code->reads.push_back(std::move(read));
      lines_.Take();
    }
    if (lines_.AtEnd() || lines_.Words() != std::vector<std::string>{std::string(keyword)}) {
      return lines_.Wrong(absl::StrCat("read ARRAY at POSITION, position POSITION, or ", keyword));
    }
    const absl::Status place = lines_.Wrong("a scalar computation");
    lines_.Take();
    std::string text;
    while (true) {
      if (lines_.AtEnd()) return lines_.Wrong("end");
      const absl::string_view line = lines_.Take();
      if (line == "end") break;
      absl::StrAppend(&text, line, "\n");
    }
    auto module = hlo::ParseText(text);
    if (!module.ok()) return Annotate(module.status(), place.message());
    XLAD_RETURN_IF_ERROR(Annotate(hlo::Verify(**module), place.message()));
    code->code = std::move(*module);
    return absl::OkStatus();
  }

  int FindArray(const std::string& name) const {
    for (int a = 0; a < std::ssize(kernel_.arrays); ++a) {
      if (kernel_.arrays[a].name == name) return a;
    }
    return -2;
  }
  int FindDim(absl::string_view name) const {
    for (int d = 0; d < std::ssize(kernel_.dims); ++d) {
      if (kernel_.dims[d].name == name) return d;
    }
    return -1;
  }
  bool AddDim(const std::string& name, std::vector<int>* dims) const {
    dims->push_back(FindDim(name));
    return dims->back() >= 0;
  }

  // Parses a position such as "1024*r+c+3". Factors and the constant may be negative. Returns false if the sum of the
  // factors of a dimension or of the constants is not an int64.
  bool ParseAffine(absl::string_view text, Affine* position) const {
    position->factors.assign(kernel_.dims.size(), 0);
    for (const absl::string_view term : absl::StrSplit(text, '+')) {
      const std::vector<absl::string_view> parts = absl::StrSplit(term, '*');
      int64_t factor = 1;
      if (parts.size() > 2 || (parts.size() == 2 && !absl::SimpleAtoi(parts[0], &factor))) return false;
      const int dim = FindDim(parts.back());
      if (dim < 0 && (parts.size() == 2 || !absl::SimpleAtoi(parts[0], &factor))) return false;
      int64_t& sum = dim >= 0 ? position->factors[dim] : position->constant;
      if (__builtin_add_overflow(sum, factor, &sum)) return false;
    }
    return true;
  }

  Lines lines_;
  Kernel kernel_;
};

absl::Status ParsePrimitive(const std::vector<std::string>& words, const Lines& lines, KernelSchedule* schedule) {
  const std::vector<std::string> rest(words.begin() + 1, words.end());
  int64_t number = 0;
  if (words[0] == "order") {
    schedule->order = rest;
  } else if (words[0] == "vectorize" || words[0] == "unroll") {
    auto& names = words[0] == "unroll" ? schedule->unroll : schedule->vectorize;
    names.insert(names.end(), rest.begin(), rest.end());
  } else if (words[0] == "split" && rest.size() == 2 && absl::SimpleAtoi(rest[1], &number)) {
    schedule->splits.push_back({rest[0], number});
  } else if (words[0] == "bind" && rest.size() >= 2 && absl::SimpleAtoi(rest.back(), &number)) {
    schedule->bind.assign(rest.begin(), rest.end() - 1);
    schedule->tile = number;
  } else if (words[0] == "atom" && rest.size() == 2 && absl::SimpleAtoi(rest[0], &schedule->atom.rows) &&
             absl::SimpleAtoi(rest[1], &schedule->atom.columns)) {
    if (schedule->atom == KernelSchedule::Tile()) return lines.Wrong("an atom with positive sizes");
  } else if ((words[0] == "at" || words[0] == "stage") && rest.size() == 2) {
    (words[0] == "at" ? schedule->at : schedule->stage).push_back({rest[0], rest[1]});
  } else {
    return lines.Wrong(
        "split DIM FACTOR, order LOOPS, bind LOOPS ITERATIONS, at STATEMENT LOOP, stage ARRAY LOOP, vectorize "
        "LOOP, unroll LOOP or atom ROWS COLUMNS");
  }
  return absl::OkStatus();
}

}  // namespace

std::string KernelText(const Kernel& kernel) {
  std::string text = absl::StrCat("kernel ", kernel.name, "\n");
  for (const KernelDim& dim : kernel.dims) absl::StrAppend(&text, "dim ", dim.name, " ", dim.size, "\n");
  for (const KernelArray& array : kernel.arrays) {
    absl::StrAppend(&text, kRoles[static_cast<int>(array.role)], " ", array.name, " ", tensor::ToString(array.type),
                    " ", array.elements, "\n");
  }
  for (const Statement& statement : kernel.statements) AppendStatement(kernel, statement, &text);
  return text;
}

absl::StatusOr<Kernel> ParseKernel(absl::string_view text) { return KernelParser(text).Run(); }

uint64_t KernelHash(const Kernel& kernel) {
  Kernel anonymous = kernel;
  anonymous.name = "k";
  for (size_t a = 0; a < anonymous.arrays.size(); ++a) anonymous.arrays[a].name = absl::StrCat("a", a);
  for (size_t s = 0; s < anonymous.statements.size(); ++s) anonymous.statements[s].name = absl::StrCat("s", s);
  return Hash64(KernelText(anonymous));
}

std::string ScheduleText(const KernelSchedule& schedule) {
  std::string text;
  for (const KernelSchedule::Split& split : schedule.splits) {
    absl::StrAppend(&text, "split ", split.dim, " ", split.factor, "\n");
  }
  absl::StrAppend(&text, "order ", absl::StrJoin(schedule.order, " "), "\n");
  if (!schedule.bind.empty()) {
    absl::StrAppend(&text, "bind ", absl::StrJoin(schedule.bind, " "), " ", schedule.tile, "\n");
  }
  for (const auto& [what, places] : {std::pair("at ", &schedule.at), std::pair("stage ", &schedule.stage)}) {
    for (const KernelSchedule::Place& place : *places) {
      absl::StrAppend(&text, what, place.what, " ", place.loop, "\n");
    }
  }
  for (const std::string& loop : schedule.vectorize) absl::StrAppend(&text, "vectorize ", loop, "\n");
  for (const std::string& loop : schedule.unroll) absl::StrAppend(&text, "unroll ", loop, "\n");
  if (schedule.atom != KernelSchedule::Tile()) {
    absl::StrAppend(&text, "atom ", schedule.atom.rows, " ", schedule.atom.columns, "\n");
  }
  return text;
}

absl::StatusOr<KernelSchedule> ParseSchedule(absl::string_view text) {
  KernelSchedule schedule;
  Lines lines(text);
  while (!lines.AtEnd()) {
    XLAD_RETURN_IF_ERROR(ParsePrimitive(lines.Words(), lines, &schedule));
    lines.Take();
  }
  return schedule;
}

uint64_t ScheduleHash(const KernelSchedule& schedule) { return Hash64(ScheduleText(schedule)); }

}  // namespace xlad::compiler
