#include "collectives/plan/algorithms/half_exchanges.h"

#include "collectives/plan/algorithms/rows.h"

namespace xlad::collectives {

void AllReduceByHalves(const Fold& fold, const std::vector<HalfExchange>& exchanges, Interval all, int64_t round,
                       ScheduleBuilder* builder) {
  const int self = builder->position(), levels = std::ssize(exchanges);
  builder->At(round);
  if (fold.is_folded()) {
    builder->Send(self - 1, InputRegion(all));
    builder->At(round + 1 + 2 * levels);
    return builder->Recv(self - 1, OutputRegion(all));
  }
  bool is_input = true;
  const auto own = [&](Interval at) { return is_input ? InputRegion(at) : OutputRegion(at); };
  if (fold.has_folded()) {
    builder->RecvReduceInOrder(self + 1, OutputRegion(all), InputRegion(all));
    is_input = false;
  }
  std::vector<Interval> left = {all};  // The interval of this rank before the first and after each exchange.
  for (const HalfExchange& exchange : exchanges) {
    builder->At(++round);
    const int peer = fold.PositionOf(exchange.peer);
    const Interval kept = Part(left.back(), 2, exchange.half), given = Part(left.back(), 2, 1 - exchange.half);
    builder->Send(peer, own(given));
    builder->RecvReduceInOrder(peer, OutputRegion(kept), own(kept));
    is_input = false;
    left.push_back(kept);
  }
  for (int level = levels - 1; level >= 0; --level) {
    builder->At(++round);
    const int peer = fold.PositionOf(exchanges[level].peer);
    builder->Send(peer, OutputRegion(left[level + 1]));
    builder->Recv(peer, OutputRegion(Part(left[level], 2, 1 - exchanges[level].half)));
  }
  builder->At(++round);
  if (fold.has_folded()) builder->Send(self + 1, OutputRegion(all));
}

AlgorithmCost CostByHalves(const CollectivePlan& plan, const CollectiveSpec& spec) {
  const int64_t count = spec.input_elements(), units = NumUnits(plan);
  if (count == 0) return {};
  const Fold fold(spec.ranks, 0);
  const int64_t m = fold.members(), levels = fold.levels();
  const int64_t part = EvenElements(plan, count, m) / m, extra = fold.any_folded() ? 1 : 0;
  const int64_t sent = 2 * (m - 1) * part + extra * m * part;
  return {2 * levels + 2 * extra, (2 * levels + extra) * units, sent, 2 * (m - 1 + extra * m) * part};
}

}  // namespace xlad::collectives
