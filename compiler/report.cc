#include "compiler/report.h"

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "compiler/buffers/rematerialize.h"
#include "tensor/wire.h"

namespace xlad::compiler {
namespace {

std::string Text(const BufferSlice& slice) {
  return absl::StrCat("a", slice.allocation(), "+", slice.offset(), "[", slice.bytes(), "]");
}

template <typename Slices>
std::string Text(const Slices& slices) {
  return absl::StrJoin(slices, " ",
                       [](std::string* out, const BufferSlice& slice) { absl::StrAppend(out, Text(slice)); });
}

class Printer {
 public:
  explicit Printer(const Executable& executable) : executable_(executable) {}

  template <typename Steps>
  void Print(const Steps& steps, const std::string& indent) {
    for (const Step& step : steps) {
      absl::StrAppend(&text_, indent, Head(step), "  %", step.name(), step.is_repeated() ? "  again" : "");
      if (!step.source().empty()) absl::StrAppend(&text_, "  ", step.source());
      absl::StrAppend(&text_, "\n");
      if (step.has_while_()) {
        Print(step.while_().condition(), indent + "  ? ");
        Print(step.while_().body(), indent + "  | ");
      } else if (step.has_if_()) {
        for (const IfStep::Branch& branch : step.if_().branches()) {
          absl::StrAppend(&text_, indent, "  branch\n");
          Print(branch.steps(), indent + "  | ");
        }
      }
    }
  }
  std::string Finish() { return std::move(text_); }

 private:
  std::string Head(const Step& step) const {
    switch (step.step_case()) {
      case Step::kKernel:
        return absl::StrCat("kernel ", step.kernel().symbol(), " ", Text(step.kernel().buffers()));
      case Step::kLibrary: {
        const LibraryOp& op = executable_.library_ops(step.library().op());
        const auto text = [&](const char* name, const ArrayShape& lhs, const ArrayShape& rhs) {
          return absl::StrCat(name, " ", absl::StrJoin(lhs.dims(), "x"), " * ", absl::StrJoin(rhs.dims(), "x"), " ",
                              Text(step.library().buffers()));
        };
        if (op.has_fft()) return text("fft", op.fft().operand(), op.fft().result());
        if (op.has_lapack()) {
          return absl::StrCat(op.lapack().routine(), " ", op.lapack().batch(), " times ",
                              absl::StrJoin(op.lapack().operands(0).dims(), "x"), " ", Text(step.library().buffers()));
        }
        if (op.has_attention()) {
          const AttentionOp& attention = op.attention();
          return absl::StrCat("attention ", absl::StrJoin(attention.batch(), "x"), " * ",
                              absl::StrJoin(attention.rows(), "x"), " * ", attention.columns(), " ",
                              Text(step.library().buffers()));
        }
        return op.has_convolution() ? text("convolution", op.convolution().lhs(), op.convolution().rhs())
                                    : text("dot", op.dot().lhs(), op.dot().rhs());
      }
      case Step::kCollective: {
        const CollectiveSpec& spec = executable_.collectives(step.collective().spec());
        const int request = step.collective().request();
        return absl::StrCat(request == 0 ? "collective " : absl::StrCat("start ", request, " of collective "),
                            CollectiveSpec::Kind_Name(spec.kind()), " over ", absl::StrJoin(spec.axes(), ","), " ",
                            Text(step.collective().inputs()), " -> ", Text(step.collective().outputs()));
      }
      case Step::kCollectiveDone:
        return absl::StrCat("done ", step.collective_done().request());
      case Step::kCopy:
        return absl::StrCat("copy ", Text(step.copy().from()), " -> ", Text(step.copy().to()));
      case Step::kWhile:
        return absl::StrCat("while ", Text(step.while_().predicate()), " trips ", step.while_().trip_count());
      case Step::kIf:
        return absl::StrCat("if ", Text(step.if_().selector()));
      case Step::STEP_NOT_SET:
        break;
    }
    return "nothing";
  }

  const Executable& executable_;
  std::string text_;
};

}  // namespace

std::string StepsText(const Executable& executable) {
  Printer printer(executable);
  printer.Print(executable.steps(), "");
  return printer.Finish();
}

std::string BuffersText(const Executable& executable) {
  std::string text;
  int64_t total = 0;
  for (int i = 0; i < executable.allocations_size(); ++i) {
    const Allocation& allocation = executable.allocations(i);
    absl::StrAppendFormat(&text, "a%d %s %d\n", i, Allocation::Kind_Name(allocation.kind()), allocation.bytes());
    total += allocation.bytes();
  }
  auto entry = [&](const char* what, const EntryValue& value, int number) {
    absl::StrAppendFormat(&text, "%s %d %s %s %s%s\n", what, number, value.name(),
                          tensor::ShapeFromWire(value.local()).ToString(), Text(value.buffer()),
                          value.donated() ? " donated" : "");
  };
  for (int i = 0; i < executable.parameters_size(); ++i) entry("parameter", executable.parameters(i), i);
  for (int i = 0; i < executable.results_size(); ++i) entry("result", executable.results(i), i);
  const auto bytes = [](const google::protobuf::RepeatedPtrField<EntryValue>& values) {
    int64_t sum = 0;
    for (const EntryValue& value : values) sum += value.buffer().bytes();
    return sum;
  };
  absl::StrAppendFormat(&text, "total %d; %d bytes of parameters read, %d of results written\n", total,
                        bytes(executable.parameters()), bytes(executable.results()));
  const std::string changes = RematerializationText(executable);
  return changes.empty() ? text : absl::StrCat(text, changes, "\n");
}

std::string RematerializationText(const Executable& executable) {
  if (!executable.has_rematerialization()) return "";
  const Rematerialization& changes = executable.rematerialization();
  int64_t total = 0;
  for (const Allocation& allocation : executable.allocations()) total += allocation.bytes();
  std::string text = absl::StrCat("because of the memory limit, the step needs ", total, " bytes on a device instead ",
                                  "of ", changes.usual_bytes());
  if (changes.operations() > 0) {
    absl::StrAppend(&text, "; ",
                    WorkText({changes.operations(), changes.flops(), changes.usual_flops(), changes.bytes()}));
  }
  if (changes.fuses_all_attention()) {
    text += "; all attention is fused, so results may differ in the last bits from those without the limit";
  }
  return text;
}

}  // namespace xlad::compiler
