// A module as one HTML page. Each computation is a section with its instructions as a layered graph; all sections
// except the entry are folded.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/counted.h"
#include "hlo/graph/drawing.h"
#include "hlo/graph/graph.h"

namespace xlad::hlo {
namespace {

constexpr int kWidth = 230, kHeight = 58, kGapX = 16, kGapY = 40;
constexpr size_t kMaxPerRow = 10;
constexpr size_t kLettersInABox = 32;

constexpr absl::string_view kStyle =
    "body{font:13px sans-serif;margin:2em}details{border:1px solid #bbb;border-radius:6px;margin:.6em 0;padding:.3em "
    ".8em;overflow:auto}summary{font-weight:bold;cursor:pointer}text{font:11px monospace}text.o{font-weight:bold}"
    "text.s{font-style:italic;fill:#06c}path{fill:none;stroke:#888}rect{stroke:#555}rect.root{stroke-width:3}"
    "a text{fill:#06c;text-decoration:underline}span.k{padding:1px 8px;margin-right:6px;border:1px solid #999}";
// Unfolds the target of a link and the sections that contain it.
constexpr absl::string_view kScript =
    "function show(){const e=document.getElementById(decodeURIComponent(location.hash.slice(1)));if(!e)return;"
    "for(let d=e.closest('details');d;d=d.parentElement.closest('details'))d.open=true;e.scrollIntoView();}"
    "addEventListener('hashchange',show);addEventListener('load',show);"
    "function fold(open){document.querySelectorAll('details').forEach(d=>{d.open=open;});}";

struct BoxPlace {
  int layer = 0, x = 0, y = 0;
};

// Assigns boxes to rows. Operands are above their users; instructions without operands are directly above their first
// user.
class Layout2D {
 public:
  explicit Layout2D(const std::vector<const Instruction*>& drawn) {
    for (const Instruction* const instruction : drawn) {
      int layer = 0;
      for (const Instruction* const operand : instruction->operands()) {
        const auto found = places_.find(operand);
        if (found != places_.end()) layer = std::max(layer, found->second.layer + 1);
      }
      places_[instruction].layer = layer;
    }
    for (const Instruction* const instruction : drawn) {
      if (instruction->operand_count() > 0) continue;
      int lowest = -1;
      for (const Instruction* const user : instruction->users()) {
        const auto found = places_.find(user);
        if (found != places_.end() && (lowest < 0 || found->second.layer < lowest)) lowest = found->second.layer;
      }
      if (lowest > 0) places_[instruction].layer = lowest - 1;
    }
    std::vector<std::vector<const Instruction*>> layers;
    for (const Instruction* const instruction : drawn) {
      const size_t layer = places_[instruction].layer;
      if (layer >= layers.size()) layers.resize(layer + 1);
      layers[layer].push_back(instruction);
    }
    for (std::vector<const Instruction*>& layer : layers) PlaceLayer(&layer);
  }

  const BoxPlace* Find(const Instruction* instruction) const {
    const auto found = places_.find(instruction);
    return found == places_.end() ? nullptr : &found->second;
  }
  int width() const { return width_; }
  int height() const { return height_; }

 private:
  // Orders a layer by the positions of the operands, so that few edges cross. A long layer uses several rows.
  void PlaceLayer(std::vector<const Instruction*>* layer) {
    const auto middle = [&](const Instruction* instruction) {
      int64_t sum = 0, count = 0;
      for (const Instruction* const operand : instruction->operands()) {
        const BoxPlace* const place = Find(operand);
        if (place == nullptr || place->y == 0) continue;
        sum += place->x;
        ++count;
      }
      return count == 0 ? 0 : sum / count;
    };
    std::stable_sort(layer->begin(), layer->end(),
                     [&](const Instruction* a, const Instruction* b) { return middle(a) < middle(b); });
    for (size_t i = 0; i < layer->size(); ++i) {
      if (i % kMaxPerRow == 0) height_ += kHeight + kGapY;
      BoxPlace& place = places_[(*layer)[i]];
      place.x = kGapX + i % kMaxPerRow * (kWidth + kGapX);
      place.y = height_ - kHeight;
      width_ = std::max(width_, place.x + kWidth + kGapX);
    }
  }

  absl::flat_hash_map<const Instruction*, BoxPlace> places_;
  int width_ = 0, height_ = 0;
};

void AppendEdges(const Instruction& instruction, const Layout2D& layout, std::string* out) {
  const BoxPlace& to = *layout.Find(&instruction);
  for (const Instruction* const operand : instruction.operands()) {
    const BoxPlace* const from = layout.Find(operand);
    if (from == nullptr) continue;
    const int x0 = from->x + kWidth / 2, y0 = from->y + kHeight, x1 = to.x + kWidth / 2, bend = (y0 + to.y) / 2;
    absl::StrAppend(out, "<path d=\"M", x0, " ", y0, " C", x0, " ", bend, " ", x1, " ", bend, " ", x1, " ", to.y,
                    "\"><title>", EscapeXml(operand->name()), " ",
                    EscapeXml(Shortened(operand->shape().ToString(false), kMaxShardingLength)), "</title></path>\n");
  }
}

void AppendLine(const BoxPlace& place, int line, absl::string_view kind, absl::string_view text, std::string* out) {
  absl::StrAppend(out, "<text class=\"", kind, "\" x=\"", place.x + 6, "\" y=\"", place.y + 13 + 13 * line, "\">",
                  EscapeXml(Shortened(text, kLettersInABox)), "</text>");
}

void AppendBox(const Instruction& instruction, const Layout2D& layout, std::string* out) {
  const BoxPlace& place = *layout.Find(&instruction);
  const std::string shape = instruction.shape().ToString(false), sharding = ShardingText(instruction);
  const std::string source = instruction.parent()->parent()->SourceOf(instruction);
  absl::StrAppend(out, "<g id=\"i-", EscapeXml(instruction.name()), "\"><title>", EscapeXml(instruction.name()), " = ",
                  EscapeXml(Shortened(shape, 1000)), sharding.empty() ? "" : "\nsharding ",
                  EscapeXml(Shortened(sharding, 1000)), source.empty() ? "" : "\n", EscapeXml(source),
                  "</title><rect x=\"", place.x, "\" y=\"", place.y, "\" width=\"", kWidth, "\" height=\"", kHeight,
                  "\" rx=\"4\" fill=\"", ClassOf(instruction).color, "\"",
                  &instruction == instruction.parent()->root() ? " class=\"root\"" : "", "/>");
  AppendLine(place, 0, "o", ToString(instruction.opcode()), out);
  // The links to called computations are in the line of the opcode.
  int x = place.x + 14 + 7 * ToString(instruction.opcode()).size();
  for (const Computation* const called : instruction.called()) {
    const std::string name = Shortened(called->name(), 16);
    if (x > place.x + kWidth - 40) break;
    absl::StrAppend(out, "<a href=\"#c-", EscapeXml(called->name()), "\"><text x=\"", x, "\" y=\"", place.y + 13, "\">",
                    EscapeXml(name), "</text></a>");
    x += 7 * (name.size() + 1);
  }
  AppendLine(place, 1, "n", instruction.name(), out);
  AppendLine(place, 2, "n", shape, out);
  if (!sharding.empty()) AppendLine(place, 3, "s", sharding, out);
  *out += "</g>\n";
}

void AppendComputation(const Computation& computation, size_t* left, std::string* out) {
  const Module& module = *computation.parent();
  const size_t limit = std::min(kMaxDrawnPerComputation, *left);
  const std::vector<const Instruction*> drawn = InstructionsToDraw(computation, limit);
  *left -= drawn.size();
  const size_t all = computation.instructions().size();
  const bool is_entry = &computation == module.entry();
  absl::StrAppend(
      out, "<details id=\"c-", EscapeXml(computation.name()), "\"", is_entry ? " open=\"open\"" : "", "><summary>",
      EscapeXml(computation.name()), is_entry ? " (entry)" : "", ": ", Counted(all, "instruction"), ", ",
      EscapeXml(Shortened(computation.root()->shape().ToString(false), kMaxShardingLength)), "</summary>\n");
  if (drawn.size() < all) {
    absl::StrAppend(out, "<p>", all - drawn.size(), " of ", all,
                    " instructions are not drawn; xlad opt --emit text prints them all.</p>\n");
  }
  const Layout2D layout(drawn);
  absl::StrAppend(out, "<svg width=\"", layout.width(), "\" height=\"",
                  layout.height() + kGapX, "\">\n");
  for (const Instruction* const instruction : drawn) AppendEdges(*instruction, layout, out);
  for (const Instruction* const instruction : drawn) AppendBox(*instruction, layout, out);
  *out += "</svg></details>\n";
}

}  // namespace

std::string PrintHtml(const Module& module) {
  const std::string name = EscapeXml(module.name());
  std::string out = absl::StrCat("<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"/><title>", name,
                                 "</title><style>", kStyle, "</style></head><body>\n<h1>", name, "</h1>\n<p>");
  for (const OpcodeClass& c : OpcodeClasses()) {
    absl::StrAppend(&out, "<span class=\"k\" style=\"background:", c.color, "\">", c.name, "</span>");
  }
  out += "<button onclick=\"fold(true)\">open all</button><button onclick=\"fold(false)\">fold all</button></p>\n";
  // The entry is first; callers precede the computations that they call.
  size_t left = kMaxDrawn;
  for (auto it = module.computations().rbegin(); it != module.computations().rend(); ++it) {
    AppendComputation(**it, &left, &out);
  }
  return absl::StrCat(out, "<script>", kScript, "</script>\n</body></html>\n");
}

}  // namespace xlad::hlo
